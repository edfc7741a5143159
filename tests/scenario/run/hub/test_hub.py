"""A hub in a file: bridges, mocks and `user` on it, in every world, its faults, and every mistake named."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.errors import ConfigError
from lmos_actors.facades import RelayOptions, open_relay, register_on_relay
from lmos_actors.files import FileError
from lmos_actors.scenario import scenario_schema
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from lmos_actors.security import BearerToken, Credentials
from tests.commands import called
from tests.scenario.project import Project
from tests.scenario.steps import passed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

TALK = '''\
from lmos_actors import ActionFailed, Agent, Event, Property, Ref, action, current_request, event, prop
from lmos_actors.facades import RelayMember, RelayMessage


class Weather(Agent):
    """Answers questions about the weather."""

    warned: Event[str] = event(broadcast=True)
    asked: Property[int] = prop(default=0)

    @action(answers=True)
    async def answer(self, question: str) -> str:
        """Answer in plain words."""
        self.asked += 1
        if question == "crash":
            raise KeyError("a secret of the house")
        if question == "fail":
            raise ActionFailed({"code": "NO_CITY", "message": "there is no such city"})
        return f"{question} It is fine."

    @action
    def warn(self, text: str) -> None:
        self.warned.emit(text)


class Voter(Agent):
    """Votes for what it likes, and asks."""

    relay: Ref[RelayMember]
    likes: str = "tea"
    heard: Property[int] = prop(default=0)

    def started(self) -> None:
        self.follow(self.relay, RelayMember.heard, self.on_heard)

    def on_heard(self, message: RelayMessage) -> None:
        self.heard += 1
        if message.type == "proposal":
            vote = {"approve": message.payload == self.likes}
            self.send(self.relay, RelayMember.answer, message, vote, "vote")

    @action
    async def ask(self, text: str, whom: str) -> str:
        answer = await self.relay.within(5).invoke(RelayMember.ask, text, [whom])
        return answer.payload

    @action
    async def tell(self, text: str) -> int:
        receipt = await self.relay.invoke(RelayMember.say, text)
        return receipt.delivered


class Hidden(Agent, private=True):
    """Nobody reaches it."""

    @action
    def nothing(self) -> None: ...
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project(tmp_path)
    made.write("pyproject.toml", "")
    made.write("talk.py", TALK)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield made
    sys.modules.pop("talk", None)


WEATHER: dict[str, Any] = {
    "weather": {"from": "agent", "use": "talk:Weather"},
    "weather-bot": {"from": "bridge", "speaks": "relay", "to": "weather"},
}
ALONE: dict[str, Any] = {"weather": WEATHER["weather"]}
VOTER: dict[str, Any] = {
    "anna": {"from": "bridge", "speaks": "relay"},
    "voter": {"from": "agent", "use": "talk:Voter", "args": {"relay": "$(agents.anna)"}},
}
BEN: dict[str, Any] = {
    "from": "mock",
    "speaks": "relay",
    "rules": [
        {"when": {"action": "proposal", "equals": "tea"}, "output": {"approve": True}, "type": "vote"},
        {"when": {"from": "user", "contains": "who"}, "output": "I am ben"},
    ],
}
VOTING: dict[str, Any] = {"extensions": ["receipts", "voting"]}
WORLDS = ["memory", "wire", "websocket"]
RECEIPTS: Any = ("receipts",)
UNKNOWN: Any = ("?",)


def say(payload: Any, **more: Any) -> dict[str, Any]:
    return {"do": "say", "payload": payload, **more}


def ask(id: str, payload: Any, to: str, **more: Any) -> dict[str, Any]:
    return say(payload, id=id, type="question", to=to, **more)


def heard(within: Any = "2s", **match: Any) -> dict[str, Any]:
    return {
        "do": "expect",
        "that": "heard",
        "within": within,
        "match": {f"$.{path}": value for path, value in match.items()},
    }


def output(of: str, equals: Any) -> dict[str, Any]:
    return {"do": "expect", "that": "output", "of": of, "equals": equals}


def crash(target: str, **more: Any) -> dict[str, Any]:
    return {"do": "inject", "fault": {"kind": "crash", "target": target, **more}}


def until(agent: str, state: str) -> dict[str, Any]:
    return {"do": "wait", "until": {"agent": agent, "is": state}, "within": "10s"}


def restarts(of: str, count: int) -> dict[str, Any]:
    return {"check": "restarts", "of": of, "equals": count}


def written(project: Project, **file: Any) -> Path:
    data = {"lmos": "scenario/v1", "name": "talk", "relay": {}, **file}
    project.write("talk.yaml", json.dumps({key: value for key, value in data.items() if value is not None}))
    return project.root / "talk.yaml"


def ran(project: Project, **file: Any) -> RunResult:
    resolved = load_scenario(written(project, **file))
    return run_cell(resolved, resolved.cells[0], 1, real_limit=30)


# ---- who is on it, and what they say


STORY: dict[str, Any] = {
    "relay": VOTING,
    "agents": {**WEATHER, **VOTER, "ben": BEN},
    "steps": [
        heard(type="discovery", sender="weather-bot"),
        ask("first", "How is it?", "weather-bot", save={"said": "$.payload", "whose": "$.sender"}),
        {"do": "expect", "that": "value", "of": "$(saved.said)", "equals": "How is it? It is fine."},
        {"do": "expect", "that": "value", "of": "$(saved.whose)", "equals": "weather-bot"},
        ask("failed", "fail", "weather-bot", error={"is": "ActionFailed", "contains": "NO_CITY"}),
        ask("closed", {"action": "warn", "input": {"text": "x"}}, "weather-bot",
            error={"is": "ActionFailed", "contains": "forbidden"}),
        {"do": "invoke", "id": "asked", "target": "voter", "action": "ask",
         "input": {"text": "Rain?", "whom": "weather-bot"}},
        output("asked", "Rain? It is fine."),
        ask("who", "who are you?", "ben"),
        output("who", "I am ben"),
        {"do": "invoke", "target": "weather", "action": "warn", "input": {"text": "storm"}},
        heard(**{"type": "data", "sender": "weather-bot", "payload.data": "storm"}),
        say("tea", type="proposal", id="tea", deadline="5s", quorum=3, save={"tea": "$.id"}),
        say({"approve": True}, type="vote", to="relay", ref="$(saved.tea)"),
        heard(type="vote_result", ref="$(saved.tea)", sender="relay", **{"payload.status": "passed"}),
        say({"approve": True}, type="vote", to="relay", ref="$(saved.tea)",
            error={"is": "ActionFailed", "contains": "has ended"}),
        {"do": "invoke", "id": "told", "target": "voter", "action": "tell",
         "input": {"text": "tea is ready"}},
        output("told", 3),
        heard(sender="anna", payload="tea is ready"),
    ],
    "checks": [
        {"check": "trace", "of": "first", "through": ["weather"]},
        {"check": "trace", "of": "who", "through": ["ben"]},
        {"check": "trace", "of": "tea", "through": ["anna"]},
        {"check": "trace", "of": "asked", "through": ["voter", "anna", "weather"]},
        {"check": "causal", "before": {"from": "user", "to": "voter"},
         "after": {"from": "anna", "to": "weather"}},
        {"check": "latency", "of": "first", "max": {"le": "5s"}},
        {"check": "never", "when": {"dead_letter": True}},
        restarts("relay", 0),
        {"check": "statistics", "of": "relay", "counter": "handled", "equals": 0},
    ],
}  # fmt: skip


@pytest.mark.parametrize("world", WORLDS)
def test_agents_mocks_and_user_meet_with_the_same_verdict_in_every_world(
    project: Project, world: str
) -> None:
    passed(ran(project, world=world, **STORY))


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_two_runs_are_equal(project: Project, world: str) -> None:
    assert ran(project, world=world, **STORY).digest == ran(project, world=world, **STORY).digest


def test_what_is_wrong_fails_the_run(project: Project) -> None:
    agents = {**WEATHER, "ben": BEN}
    steps = [
        ask("first", "How is it?", "weather-bot"),
        output("first", "How is it? It rains."),
    ]
    result = ran(project, relay=VOTING, agents=agents, steps=steps)
    assert [failure.what for failure in result.failures][:1] == ["expect output first"]
    steps = [ask("first", "crash", "weather-bot")]
    result = ran(project, agents=WEATHER, steps=steps)
    assert "the agent has failed" in result.failures[0].saw
    assert "a secret of the house" not in result.failures[0].saw
    result = ran(project, agents=WEATHER, steps=[heard("1s", payload="nobody says that")])
    assert result.failures[0].what == "expect heard"


@pytest.mark.parametrize("world", WORLDS)
def test_access_opens_all_actions(project: Project, world: str) -> None:
    agents = {**WEATHER, "weather-bot": {**WEATHER["weather-bot"], "access": "anyone"}}
    steps = [
        ask("warn", {"action": "warn", "input": {"text": "storm"}}, "weather-bot"),
        output("warn", None),
        heard(**{"payload.event": "warned"}),
        ask(
            "wrong", {"action": "warm"}, "weather-bot", error={"is": "ActionFailed", "contains": "not_found"}
        ),
        ask("plain", "How is it?", "weather-bot"),
    ]
    passed(ran(project, world=world, agents=agents, steps=steps))


RULES: dict[str, Any] = {
    "from": "mock",
    "speaks": "relay",
    "rules": [
        {"when": {"match": {"$.n": {"ge": 5}}}, "output": {"big": True}, "delay": "500ms"},
        {"when": {"contains": "parts"}, "reply": [{"chunk": "a "}, {"wait": "1s"}, {"done": "whole"}]},
        {"when": {"contains": "no"}, "fail": {"code": "BUSY", "message": "not now"}},
        {"when": {"action": "data", "from": "anna"}, "output": "thanks", "type": "note",
         "emit": {"alarm": {"n": 1}}},
        {"when": {"action": "silent"}, "output": None},
        {"when": {"contains": "curse"}, "crash": "RuntimeError"},
        {"when": {"any": True}, "output": "what?", "times": 1},
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_a_mock_answers_by_its_rules(project: Project, world: str) -> None:
    steps = [
        ask("big", {"n": 7}, "ben"),
        output("big", {"big": True}),
        ask("parts", "in parts", "ben"),
        output("parts", "a whole"),
        ask("no", "no", "ben", error={"is": "ActionFailed", "contains": "BUSY"}),
        {"do": "invoke", "target": "anna", "action": "say", "input": {"payload": "hello", "type": "data"}},
        {"do": "subscribe", "target": "anna", "event": "heard"},
        heard(type="alarm", sender="ben", **{"payload.n": 1}),
        say("quietly", type="silent", to="ben"),
        say("for others", type="data"),
        ask("other", "anything", "ben"),
        {"do": "expect", "that": "heard", "match": {"$.sender": "ben", "$.type": "note"}, "times": 0},
        output("other", "what?"),
        ask("cursed", "a curse", "ben", within="1s", error={"is": "DeadlineExceeded"}),
        until("ben", "connected"),
        ask("again", {"n": 9}, "ben"),
        output("again", {"big": True}),
    ]
    agents = {"ben": RULES, "anna": {"from": "bridge", "speaks": "relay"}}
    passed(ran(project, world=world, agents=agents, steps=steps, checks=[restarts("ben", 1)]))


def test_what_no_rule_fits_and_what_nothing_uses_fails(project: Project) -> None:
    rules = [
        {"when": {"contains": "weather"}, "output": "sunny"},
        {"when": {"action": "vote"}, "output": None},
    ]
    agents = {"ben": {"from": "mock", "speaks": "relay", "rules": rules}}
    steps = [
        ask("odd", "hello", "ben", error={"is": "ActionFailed", "contains": "no rule of mock ben fits"}),
        say("what is it?", type="request", to="ben"),
        say("for all", type="request"),
        say("weather?", type="answer", to="ben"),
    ]
    result = ran(project, agents=agents, steps=steps)
    assert [failure.what for failure in result.failures] == [
        "mock ben",
        "mock ben",
        "mock ben, rule 1",
        "mock ben, rule 2",
    ]
    assert result.failures[1].expected == 'a rule for request "what is it?" from user'


# ---- faults


@pytest.mark.parametrize("world", ["memory", "wire", pytest.param("websocket", marks=pytest.mark.slow)])
def test_the_hub_crashes_and_everybody_comes_back(project: Project, world: str) -> None:
    steps = [
        ask("before", "How is it?", "weather-bot"),
        say("tea", type="proposal", save={"tea": "$.id"}),
        {
            "do": "invoke",
            "target": "voter",
            "action": "ask",
            "input": {"text": "slow", "whom": "ben"},
            "wait": False,
            "error": {"is": "ActionFailed", "contains": "unknown"},
        },
        {"do": "wait", "for": "500ms"},
        crash("relay", restart={"after": "1s"}),
        until("relay", "running"),
        until("weather-bot", "connected"),
        until("anna", "connected"),
        until("ben", "connected"),
        ask("after", "And now?", "weather-bot"),
        output("after", "And now? It is fine."),
        # the vote that was open is: those of anna and ben were in time
        say({"approve": True}, type="vote", to="relay", ref="$(saved.tea)"),
        heard(**{"type": "vote_result", "payload.status": "passed", "payload.votes.approve": 3}),
    ]
    slow = {"when": {"contains": "slow"}, "output": "late", "delay": "1s"}
    agents = {**WEATHER, **VOTER, "ben": {**BEN, "rules": [*BEN["rules"][:1], slow]}}
    checks = [restarts("relay", 1), *(restarts(name, 0) for name in ("weather-bot", "anna", "ben"))]
    passed(ran(project, world=world, relay=VOTING, agents=agents, steps=steps, checks=checks))


@pytest.mark.parametrize("world", WORLDS)
def test_who_is_stopped_is_gone_from_the_hub(project: Project, world: str) -> None:
    gone = {"is": "ActionFailed", "contains": "nobody"}
    steps = [
        {"do": "stop", "target": "weather-bot"},
        ask("gone", "How is it?", "weather-bot", error=gone),
        heard(type="left"),
        say("for those who are there", to=["weather-bot", "anna"], id="some", save={"missing": "$.unknown"}),
        {"do": "expect", "that": "value", "of": "$(saved.missing)", "equals": ["weather-bot"]},
        {"do": "start", "target": "weather-bot"},
        ask("back", "How is it?", "weather-bot"),
        {"do": "stop", "target": "weather"},
        ask("unavailable", "?", "weather-bot", error={"is": "ActionFailed", "contains": "unavailable"}),
        {"do": "start", "target": "weather"},
        crash("weather-bot"),
        until("weather-bot", "connected"),
        ask("again", "How is it?", "weather-bot"),
    ]
    follow = say({"agents": ["weather-bot"]}, type="subscribe", to="relay", id="follow")
    agents = {**WEATHER, "anna": {"from": "bridge", "speaks": "relay"}}
    hub = {"extensions": ["receipts", "presence"]}
    passed(ran(project, world=world, relay=hub, agents=agents, steps=[follow, *steps]))


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_a_restart_of_the_node(project: Project, world: str) -> None:
    unknown = {"is": "OutcomeUnknown"}
    slow = {"when": {"any": True}, "output": "late", "delay": "5s"}
    steps = [
        ask("before", "How is it?", "weather-bot"),
        say("?", type="question", to="ben", id="cut", error=unknown, wait=False),
        {"do": "inject", "fault": {"kind": "restart", "down": "2s"}},
        until("weather-bot", "connected"),
        ask("after", "And now?", "weather-bot"),
        output("after", "And now? It is fine."),
        heard(type="discovery", sender="weather-bot"),
    ]
    agents = {**WEATHER, "ben": {"from": "mock", "speaks": "relay", "rules": [slow]}}
    passed(ran(project, world=world, agents=agents, steps=steps))


# ---- limits and extensions


def test_the_limits_of_a_hub(project: Project) -> None:
    refused = {"is": "ActionFailed", "contains": "rate_limit"}
    hub = {"rate": ["3/1m"], "max_message": "1KiB"}
    steps = [
        *[say(number, to="ben") for number in range(3)],
        say(4, to="ben", error=refused),
    ]
    ben = {"from": "bridge", "speaks": "relay"}
    passed(ran(project, relay=hub, agents={"ben": ben}, steps=steps))
    steps = [{"do": "repeat", "times": 1100, "steps": [say(1, to="ben")]}]
    passed(ran(project, relay={"rate": "unlimited"}, agents={"ben": ben}, steps=steps))
    result = ran(project, relay={}, agents={"ben": ben}, steps=steps)
    assert "rate_limit" in result.failures[0].saw


def test_history_and_weights(project: Project) -> None:
    hub = {"extensions": ["receipts", "history", "voting"], "weights": {"user": 5}}
    steps = [
        say("the first", type="data"),
        say({"command": "history"}, type="command", to="relay", id="history"),
        {"do": "expect", "that": "output", "of": "history",
         "match": {"$.type": "command_result", "$.payload.messages[0].payload": "the first"}},
        say("tea", type="proposal", save={"tea": "$.id"}),
        say({"approve": True}, type="vote", to="relay", ref="$(saved.tea)"),
        heard(**{"type": "vote_result", "payload.votes.approve": 5}),
        say("kept from others", members={"no_store": True, "mood": "$(saved.tea)"}),
        say({"command": "search", "query": "kept"}, type="command", to="relay", id="search"),
        {"do": "expect", "that": "output", "of": "search", "match": {"$.payload.messages": {"eq": []}}},
    ]  # fmt: skip
    agents = {"ben": {"from": "bridge", "speaks": "relay", "follows": ["user"]}}
    passed(ran(project, relay={**hub, "broadcasts": "followed"}, agents=agents, steps=steps))


def test_without_receipts_a_refusal_fails_the_run(project: Project) -> None:
    agents = {"ben": {"from": "bridge", "speaks": "relay"}}
    steps = [
        ask("who", "?", "ben", within="1s", wait=False, error={"is": "OutcomeUnknown"}),
        say({"approve": True}, type="vote", to="relay", ref="nothing"),
        {"do": "wait", "for": "1s"},
    ]
    result = ran(project, relay={"extensions": ["voting"]}, agents=agents, steps=steps[1:])
    assert [(each.what, each.saw) for each in result.failures] == [
        ("user on the hub", "not_allowed: `ref` is no proposal that is open")
    ]


def test_a_timeline_says_things(project: Project) -> None:
    file = {
        "lmos": "simulation/v1",
        "stop": {"at": "30s"},
        "relay": VOTING,
        "agents": {**WEATHER, **VOTER},
        "population": [{"id": "other", "count": 2, "use": "talk:Weather"}],
        "timeline": [
            {"at": "1s", "do": "say", "id": "first", "type": "question", "payload": "?", "to": "weather-bot"},
            {"at": "2s", "do": "say", "type": "proposal", "payload": "tea", "deadline": "3s"},
            {"at": "3s", "do": "fault", "kind": "crash", "target": "relay"},
            {"at": "20s", "do": "say", "type": "question", "payload": "?", "to": "weather-bot"},
            {"at": "21s", "do": "tell", "target": "other/0", "action": "warn", "input": {"text": "x"}},
        ],
        "checks": [
            {
                "check": "eventually",
                "name": "asked",
                "of": "weather",
                "expr": "state.asked == 2",
                "by": "25s",
            },
            {"check": "trace", "of": "first", "through": ["weather"]},
            restarts("relay", 1),
        ],
        "measure": {"every": "1s", "series": {"all": {"agg": "count", "of": "*", "expr": "restarts == 0"}}},
    }
    result = ran(project, **file)
    passed(result)
    assert result.metrics["all.last"] == 6  # the hub is none of them
    late = {"at": "29s", "do": "say", "type": "question", "payload": "?", "to": "anna"}
    result = ran(project, **{**file, "timeline": [*file["timeline"], late], "checks": []})
    assert result.failures[0].saw == "none by then"


async def test_a_bridge_leads_to_the_relay_of_anybody(project: Project) -> None:
    async with open_node(listen="ws://127.0.0.1:0", relay=RelayOptions(extensions=RECEIPTS)) as node:
        url = node.urls[0]
        tokens = {name: (await register_on_relay(url, name)).token for name in ("bot", "way", "stranger")}
        for name, token in tokens.items():
            project.write(f"{name}.token", token)
        agents = {
            "weather": WEATHER["weather"],
            "bot": {
                "from": "bridge",
                "speaks": "relay",
                "to": "weather",
                "url": url,
                "bearer": "file:bot.token",
            },
            "way": {"from": "bridge", "speaks": "relay", "url": f"{url}/arc", "bearer": "file:way.token"},
        }
        steps = [
            {"do": "invoke", "id": "asked", "target": "way", "action": "ask",
             "input": {"payload": "How is it?", "to": ["bot"]}},
            {"do": "expect", "that": "output", "of": "asked",
             "match": {"$.output.payload": "How is it? It is fine."}},
            {"do": "subscribe", "target": "way", "event": "heard"},
            {"do": "invoke", "target": "way", "action": "say", "input": {"payload": "done"}},
        ]  # fmt: skip
        path = written(project, world="websocket", relay=None, agents=agents, steps=steps)
        project.write("stranger.token", tokens["stranger"])
        shown = Credentials({url: BearerToken(f"file:{project.root}/stranger.token")})
        async with open_relay(url, credentials=shown) as stranger:
            run = partial(called, ("run", path.name), project.root, timeout=60)
            ended = await trio.to_thread.run_sync(run)
            assert ended.returncode == 0, ended.stdout
            with trio.fail_after(10):
                async for event in stranger:
                    if getattr(event, "payload", None) == "done":
                        break


@pytest.mark.parametrize("entry", [{"to": "weather"}, {}])
def test_a_relay_that_is_not_there_cannot_be_run_with(project: Project, entry: dict[str, Any]) -> None:
    bot = {"from": "bridge", "speaks": "relay", "url": "ws://127.0.0.1:9", **entry}
    steps = [{"do": "read", "target": "weather", "property": "asked"}]
    agents = {"weather": WEATHER["weather"], "bot": bot}
    result = ran(project, world="websocket", relay=None, agents=agents, steps=steps)
    assert (result.ended, result.failures[0].what) == ("could not run", "start bot")
    assert "cannot connect to ws://127.0.0.1:9/arc" in result.failures[0].saw


# ---- mistakes


def bridge(**entry: Any) -> dict[str, Any]:
    return {"agents": {**WEATHER, "anna": {"from": "bridge", "speaks": "relay", **entry}}}


def mock(**rule: Any) -> dict[str, Any]:
    rules = [{"when": {"any": True}, "output": 1, **rule}]
    return {"agents": {**WEATHER, "ben": {"from": "mock", "speaks": "relay", "rules": rules}}}


def step(**given: Any) -> dict[str, Any]:
    return {"relay": VOTING, "agents": WEATHER, "steps": [{"do": "say", **given}]}


def hub(**given: Any) -> dict[str, Any]:
    return {"relay": given, "agents": WEATHER}


NO_HUB = 'needs a hub, which the file has not: "relay: {}" makes its node one'

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"relay": None, "agents": WEATHER}, '"speaks: relay" ' + NO_HUB, '"relay"'),
    ({"relay": None, "agents": {"ben": BEN}}, '"speaks: relay" ' + NO_HUB, '"relay"'),
    ({**step(payload=1), "relay": None, "agents": ALONE}, '"do: say" ' + NO_HUB, '"say"'),
    ({"relay": None, "agents": {}, "steps": [heard()]}, '"that: heard" ' + NO_HUB, '"heard"'),
    (bridge(speaks="agentrelay"), 'did you mean "relay"', '"agentrelay"'),
    ({"agentrelay": {}, "agents": WEATHER}, 'key "agentrelay", did you mean "relay"?', '"agentrelay"'),
    ({"agents": ALONE, "steps": [{"do": "read", "target": "weather", "property": "asked"}]},
     '"relay" does nothing: no agent of the file speaks', '"relay"'),
    ({"agents": {**WEATHER, "relay": WEATHER["weather"]}}, '"relay" is the name of the hub', '"relay"'),
    ({"agents": {**WEATHER, "Anna_B": {"from": "bridge", "speaks": "relay"}}},
     '"Anna_B" cannot be a name on a hub: it has 3 to 64 of a-z', '"Anna_B"'),
    ({"agents": {"ed": BEN}}, '"ed" cannot be a name on a hub', '"ed"'),
    (hub(extensions=["votting"]), 'did you mean "voting"', '"votting"'),
    (hub(extensions=["receipts", "receipts"]), '"receipts" is named twice', '"receipts"'),
    (hub(weights={"user": 2}), '"weights" are those of votes: the hub needs the extension', '"weights"'),
    (hub(extensions=["voting"], weights={"weather": 2}), 'hub, did you mean "weather-bot"?',
     '"weather"'),
    (hub(rate="many"), "messages in a time, such as 1000/1m", '"many"'),
    (hub(rate=["10/0s"]), '"10/0s" is not messages in a time', '"10/0s"'),
    (hub(max_message="0B"), "a message has some bytes", '"0B"'),
    (bridge(to="wether"), 'no agent "wether", did you mean "weather"?', '"wether"'),
    (bridge(to="relay"), '"relay" is the hub', '"relay"'),
    (bridge(access="anyone"), '"access" goes with "to", the agent that is asked', '"access"'),
    (bridge(to="weather", follows=["user"]), '"follows" is for a bridge without "to"', '"follows"'),
    (bridge(follows=["weather"]), '"weather" is not on the hub, did you mean "weather-bot"?', '"weather"'),
    (bridge(bearer="env:TOKEN"), '"bearer" goes with "url", a relay elsewhere', '"bearer"'),
    (bridge(url="ws://127.0.0.1:1"), "a bridge leads elsewhere in world: websocket", '"ws://127.0.0.1:1"'),
    ({"agents": {**bridge(to="hidden")["agents"], "hidden": {"from": "agent", "use": "talk:Hidden"}}},
     '"hidden" is Hidden, which is private: nobody reaches it', '"hidden"'),
    ({"agents": {**WEATHER, "voter": {**VOTER["voter"], "args": {"relay": "$(agents.relay)"}}}},
     '"relay" is the hub: agents reach it by a bridge that speaks relay', "$(agents.relay)"),
    ({"agents": {**WEATHER, "voter": {"from": "agent", "use": "talk:Voter",
                                      "args": {"relay": "$(agents.weather-bot)"}}}},
     'a ref to RelayMember is expected here, "weather-bot" is HubBridge', '"$(agents'),
    ({"agents": {**WEATHER, "ben": {**BEN, "use": "talk:Weather"}}}, 'leave out "use"', '"use"'),
    ({"agents": {**WEATHER, "ben": {**BEN, "state": {"n": 1}}}}, 'leave out "state"', '"state"'),
    (mock(when={"from": "weather"}), '"weather" is not on the hub, did you mean "weather-bot"?', '"weather"'),
    (mock(reply=[{"progress": 1}, {"done": 2}], output=None), "has no progress", "{"),
    (mock(type="vote"), 'the type "vote" needs the extension "voting"', '"vote"'),
    ({"relay": {}, "agents": {**WEATHER, "ben": {"from": "mock", "rules": [
        {"when": {"action": "x"}, "output": 1, "type": "y"}]}}},
     '"type" is that of the answer of a mock that speaks relay', '"type"'),
    (step(to="weather"), '"weather" is not on the hub, did you mean "weather-bot"?', '"weather"'),
    (step(to=["weather-bot", "relay"]), '"relay" stands alone', '"relay"'),
    (step(to=[]), "nobody is to hear it", "[]"),
    (step(to="relay"), 'what is said to the hub has a "type"', "{"),
    (step(to="relay", type="pin"), 'the hub knows no "pin", did you mean "ping"?', '"pin"'),
    (step(to="relay", type="query"), 'the hub knows no "query" without the extension "semantic"', '"query"'),
    ({**step(type="vote", ref="x", payload={"approve": True}, to="relay"), "relay": {}},
     'the type "vote" needs the extension "voting" of the hub', '"vote"'),
    (step(type="vote", payload={"approve": True}, to="relay"), "a vote is about a proposal", "{"),
    (step(type="vote", ref="x", payload={"approved": True}, to="relay"), 'mean "approve"', '"approved"'),
    (step(type="vote", ref="x", to="relay"), 'a vote has a "payload": {approve: true}', "{"),
    ({**mock(type="vote", output={"approve": "yes"}), "relay": VOTING}, "expected", '"yes"'),
    (step(type="proposal", to="weather-bot"), "a proposal goes to everybody", '"to"'),
    (step(type="data", quorum=3), '"quorum" is of a proposal', '"quorum"'),
    (step(type="proposal", deadline="0s"), "a proposal is open for a time", '"0s"'),
    (step(type="question", ref="x", to="weather-bot"), '"ref" does not go with a question', '"ref"'),
    (step(members={"id": 5}), 'the member "id" is not yours', '"id"'),
    (step(members={"quorum": 5}), 'the member "quorum" has a key of its own', '"quorum"'),
    (step(save={"x": "$.pyload"}), 'no member "pyload"', '"$.pyload"'),
    (step(type="question", to="ben", save={"x": "$.pyload"}), 'did you mean "payload"?', '"$.pyload"'),
    (step(type="question", wait=False, save={"x": "$.id"}), '"save" needs the answer', '"save"'),
    ({**step(save={"x": "$.id"}), "relay": {"extensions": []}}, 'the extension "receipts"', '"save"'),
    ({**step(error={"is": "ActionFailed"}), "relay": {"extensions": []}}, 'the extension "receipts"',
     '"error"'),
    (step(error={"is": "ActionFaild"}), 'did you mean "ActionFailed"', '"ActionFaild"'),
    (step(ref="$(saved.nothing)"), 'no earlier step saves "nothing"', "$(saved.nothing)"),
    ({"agents": WEATHER, "steps": [say(1, id="said"), output("said", 1)]}, '"said" has no answer', '"said"'),
    ({"agents": WEATHER, "steps": [heard(sendr="x")]}, 'did you mean "sender"?', '"$.sendr"'),
    ({"agents": WEATHER, "steps": [{"do": "expect", "that": "heard", "of": "x", "equals": 1}]},
     '"of" does not apply to "that: heard"', '"of"'),
    ({"agents": WEATHER, "steps": [{"do": "invoke", "target": "relay", "action": "statistics"}]},
     '"relay" is the hub: "do: say" with "to: relay" speaks to it', '"relay"'),
    ({"agents": WEATHER, "steps": [until("weather", "connected")]}, "is not on the hub", '"weather"'),
    ({"agents": WEATHER, "steps": [
        {"do": "inject", "fault": {"kind": "pause", "target": "relay", "duration": "1s"}}]},
     '"relay" is the hub, on which "kind: pause" has no effect', '"relay"'),
    ({"agents": WEATHER, "steps": [crash("relay", restart={"state": "kept"})]}, "outlives", '"state"'),
    ({"agents": WEATHER, "steps": [{**say(1), "id": "said"}],
      "checks": [{"check": "latency", "of": "said", "max": {"le": "1s"}}]}, '"said" has no answer', '"said"'),
    ({"agents": WEATHER, "checks": [{"check": "trace", "single_trace": True, "through": ["relay"]}]},
     '"relay" is the hub: what is said there goes from its sender', '"relay"'),
    ({"agents": WEATHER, "tree": {"root": {"children": ["weather", "weather-bot", "relay"]}}},
     '"relay" is the hub, which the node has in its tree', '"relay"'),
]  # fmt: skip


@pytest.mark.parametrize(("file", "message", "at"), WRONG, ids=[each[1][:60] for each in WRONG])
def test_mistakes_have_their_place(project: Project, file: dict[str, Any], message: str, at: str) -> None:
    path = written(project, **{"steps": [say(1)] if file.get("relay", {}) is not None else [], **file})
    with pytest.raises(FileError) as caught:
        load_scenario(path)
    found = [each for each in caught.value.mistakes if message in each.message]
    assert found, str(caught.value)
    text = path.read_text()
    assert any(text[each.column - 1 :].startswith(at) for each in found), [
        text[each.column - 1 :][:40] for each in found
    ]


def test_a_type_that_is_nearly_a_known_one_is_a_warning(project: Project) -> None:
    rules = [{"when": {"action": "proposla"}, "output": 1, "type": "anser"}]
    agents = {"ben": {"from": "mock", "speaks": "relay", "rules": rules}}
    steps = [say(1, type="questoin"), say(1, type="a type of my own"), say(1, type="data")]
    resolved = load_scenario(written(project, agents=agents, steps=steps))
    assert [note.message for note in resolved.notes] == [
        f'messages of the type "{kind}" are of your own: did you mean "{near}"?'
        for kind, near in (("proposla", "proposal"), ("anser", "answer"), ("questoin", "question"))
    ]


def test_a_mistake_of_a_hub_ends_the_command_with_2(project: Project) -> None:
    written(project, **step(to="wether-bot", payload=1))
    ended = project.command("validate", "talk.yaml")
    assert ended.code == 2
    assert '"wether-bot" is not on the hub, did you mean "weather-bot"?' in ended.text


def test_the_extensions_of_a_file_are_those_of_the_hub() -> None:
    keys = scenario_schema()["$defs"]["Relay"]["properties"]["extensions"]
    known = re.findall(r"'enum': (\[[^\]]*\])", str(keys))
    assert known == [str(["receipts", "presence", "history", "semantic", "voting", "questions"])]
    with pytest.raises(
        ConfigError, match="there are receipts, presence, history, semantic, voting, questions"
    ):
        RelayOptions(extensions=UNKNOWN)
