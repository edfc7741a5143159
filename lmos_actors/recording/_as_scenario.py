"""The conversion of a message log into a scenario: requests become steps, answers expectations.

The agents are replays of the same log, so the file runs without changes; other agents can be put in their
place to be tested. Steps keep the times of the log, as the replays do for their own events. The scenario
waits between two requests, and a request that was still open when the next one came runs in parallel with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmos_actors.errors as errors
from lmos_actors._core import HIDDEN
from lmos_actors.errors import AgentError, ConfigError
from lmos_actors.facades.relay import ACKNOWLEDGEMENTS
from lmos_actors.files import Duration, is_list, is_mapping, lay_out_yaml, mapped
from lmos_actors.protocol.relay import EVERYBODY, RELAY
from lmos_actors.scenario.judge import CUT_SHORT, LogFile

from ._exchanges import MISSING, exchanges_in, is_fault, is_text_alone, speech_of
from ._omnia import CALL
from ._things import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.scenario.judge import LoggedRun

    from ._exchanges import LoggedExchanges, LoggedRequest

ENDINGS: Final = (".yaml", ".yml", ".json")
QUESTION: Final = "question"
UNTYPED: Final = "message"


def as_scenario(log: str, out: str, number: int | None) -> int:
    """Write the scenario of a log, and return the exit code. Raises ConfigError, FileError, OSError."""
    if Path(out).suffix not in ENDINGS:
        raise ConfigError(f'"{out}" ends in none of {", ".join(ENDINGS)}', "--as-scenario")
    if Path(out).exists():
        raise ConfigError(f"{out} is there already, and is not written over", "--as-scenario")
    with LogFile(log) as file:
        run = _chosen(file, number)
        recorded = "recorded" in run.run
        found = exchanges_in(run, recorded=recorded)
        is_part = recorded or "watched" in run.run
        if run.problem is not None and not (is_part and run.problem == CUT_SHORT):
            raise ConfigError(run.problem, log)
    story = _Story(found, os.path.relpath(log, Path(out).parent))
    data = story.scenario(Path(out).stem, str(run.run.get("recorded") or run.run.get("name") or log))
    if not story.steps or not data["agents"]:
        raise ConfigError("has no request from outside the node that a scenario could make", log)
    text = f"{json.dumps(data, indent=2)}\n" if out.endswith(".json") else _yaml(data)
    with open(out, "x", encoding="utf-8") as target:
        target.write(text)
    left = f"; left out without an answer: {story.left_out}" if story.left_out else ""
    unread = sum(story.unread.values())
    left += f"; left out, as the log has not all of what was given: {unread}" if unread else ""
    agents = counted(len(data["agents"]), "agent")
    print(f"wrote {out}: {counted(story.count, 'request')} to {agents}{left}")
    return 0


def counted(count: int, what: str) -> str:
    """Return a number with its noun, in the plural if needed."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _chosen(file: LogFile, number: int | None) -> LoggedRun:
    for index, run in enumerate(file.runs(), start=1):
        if index == (number or 1):
            return run
    raise ConfigError(f"{file.name} has no run number {number or 1}", "--run")


def _yaml(data: dict[str, Any]) -> str:
    """Return the text of a YAML file with one line for each agent and each step."""
    lines: list[str] = []
    for key, value in data.items():
        if key == "steps":
            lines += [f"{key}:", *(f"  - {json.dumps(step, ensure_ascii=False)}" for step in value)]
        elif key == "agents":
            lines += [f"{key}:", *(f"  {name}: {json.dumps(entry)}" for name, entry in value.items())]
        else:
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    return lay_out_yaml("\n".join(lines) + "\n", {})


class _Story:
    """The steps of one log."""

    def __init__(self, found: LoggedExchanges, log: str) -> None:
        self._found = found
        self._log = log
        self._now = 0.0
        self._agents: dict[str, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._sessions: set[tuple[str, str]] = set()
        self._heard: dict[tuple[str, str], None] = {}
        self._later: list[dict[str, Any]] = []
        self._streams = {(each.agent, each.name) for each in found.requests if each.items}
        self._relays = False
        self.steps: list[dict[str, Any]] = []
        self.count = 0
        self.left_out = 0
        self.unread: dict[str, int] = {}
        """The number of requests to each agent whose input the log has as text alone."""

    def scenario(self, name: str, of: str) -> dict[str, Any]:
        """Return the data of the scenario file."""
        requests = self._found.requests
        cancels: list[LoggedRequest] = []
        for index, request in enumerate(requests):
            coming = requests[index + 1].at if index + 1 < len(requests) else self._found.end
            cancels = self._cancel(cancels, request.at)
            self._ask(request, coming)
            is_open = (request.agent, request.name) not in self._streams
            if request.is_cancelled and request.verb == "invoke" and is_open:
                cancels.append(request)
        self._cancel(cancels, self._found.end)
        self._wait_until(self._found.end)
        self.steps += [*self._later, *self._listened()]
        for agent in self.unread:
            if agent in self._names:
                self._agents[self._names[agent]]["unused"] = "allowed"
        # The scenario may take some virtual time beyond the log.
        timeout = Duration(round(self._found.end + 30.0, 6))
        made: dict[str, Any] = {"lmos": "scenario/v1", "name": name, "summary": f"Made of {of}."}
        made["timeout"] = str(timeout)
        if self._relays:
            made["relay"] = {}
        return {**made, "agents": self._agents, "steps": self.steps}

    # ---- time

    def _wait_until(self, when: float) -> None:
        if when - self._now >= 1e-6:
            self.steps.append({"do": "wait", "for": str(Duration(round(when - self._now, 6)))})
            self._now = when

    def _cancel(self, cancels: list[LoggedRequest], before: float) -> list[LoggedRequest]:
        """Add steps for the requests that were cancelled up to an instant; return the other requests."""
        for request in sorted(cancels, key=lambda each: each.end or 0.0):
            if request.end is not None and request.end <= before:
                self._wait_until(request.end)
                self.steps.append({"do": "cancel", "of": self._id(request)})
        return [each for each in cancels if each.end is None or each.end > before]

    # ---- requests

    def _id(self, request: LoggedRequest) -> str:
        return f"r{request.number}"

    def _name(self, agent: str, speaks: str) -> str:
        """Return the name of an agent in the file. On the first call, add the agent there as a replay."""
        if agent not in self._names:
            base = plain_name(agent.rpartition("/")[2])
            name, number = base, 1
            while name in self._agents or name in ("user", RELAY if speaks == "relay" else "user"):
                number += 1
                name = f"{base}-{number}"
            self._names[agent] = name
            entry: dict[str, Any] = {"from": "replay", "log": self._log}
            if speaks != "lmos":
                entry["speaks"] = speaks
            if name != agent:
                entry["agent"] = agent
            self._agents[name] = entry
        return self._names[agent]

    def _ask(self, request: LoggedRequest, coming: float) -> None:
        if is_text_alone(request):
            self.unread[request.agent] = self.unread.get(request.agent, 0) + 1
            return
        speaks = speech_of(request)
        make = {"lmos": self._of_lmos, "omnia": self._of_chat, "relay": self._of_relay}[speaks]
        step = make(request)
        if step is None:
            return
        self._wait_until(request.at)
        self.count += 1
        self.steps.append(step)
        if step["do"] in ("tell", "observe", "subscribe"):
            return
        answer = request if speaks != "relay" else self._answer(request) or request
        if answer.end is not None and not request.is_cancelled and answer.end <= coming:
            self._now = max(self._now, request.at + _replayed_seconds(answer, step))
            self.steps += self._expected(request, step)
        elif self._is_awaited(step) and "take" not in step:
            step["wait"] = False
            self._later += self._expected(request, step)

    @staticmethod
    def _is_awaited(step: dict[str, Any]) -> bool:
        return step["do"] != "say" or step.get("type") in (QUESTION, *ACKNOWLEDGEMENTS)

    def _of_lmos(self, request: LoggedRequest) -> dict[str, Any] | None:
        verb, agent = request.verb, self._name(request.agent, "lmos")
        step: dict[str, Any] = {"do": verb, "target": agent}
        if verb in ("read", "write", "observe"):
            step["property"] = request.name
        elif verb == "subscribe to all":
            return self._subscribe_to_all(request, agent)
        elif verb == "subscribe":
            if (request.agent, request.name) in self._heard:
                return None
            self._heard[request.agent, request.name] = None
            return {"do": "subscribe", "target": agent, "event": request.name}
        else:
            step["action"] = request.name
        if request.given is not MISSING:
            step["value" if verb == "write" else "input"] = _escaped(request.given)
        if verb in ("invoke", "read", "write", "observe"):
            step["id"] = self._id(request)
        if verb == "invoke" and (request.agent, request.name) in self._streams:
            step["do"] = "stream"
            if not request.is_answered:
                if not request.items:
                    self.left_out += 1
                    return None
                step["take"] = len(request.items)
        elif not request.is_answered and verb != "tell" and not (verb == "invoke" and request.is_cancelled):
            self.left_out += 1
            return None
        return step

    def _subscribe_to_all(self, request: LoggedRequest, agent: str) -> dict[str, Any] | None:
        """Return the subscription step for the last new kind of event, or None; add steps for the others."""
        names = dict.fromkeys(each.name for each in self._found.events if each.agent == request.agent)
        new = [name for name in names if (request.agent, name) not in self._heard]
        self._heard |= {(request.agent, name): None for name in new}
        steps = [{"do": "subscribe", "target": agent, "event": name} for name in new]
        if not steps:
            return None
        self._wait_until(request.at)
        self.steps += steps[:-1]
        return steps[-1]

    def _of_chat(self, request: LoggedRequest) -> dict[str, Any] | None:
        agent = self._name(request.agent, "omnia")
        if request.name == CALL:  # its sound is not in the log
            self._agents[agent]["unused"] = "allowed"
        if request.name == CALL or not request.is_answered:
            self.left_out += 1
            return None
        session = f"session-{request.more['session']}"
        given: dict[str, Any] = {**mapped(_escaped(request.given)), "session": session}
        if (agent, session) not in self._sessions:
            self._sessions.add((agent, session))
            given["new"] = True
        return {"do": "stream", "id": self._id(request), "target": agent, "action": "chat", "input": given}

    def _of_relay(self, request: LoggedRequest) -> dict[str, Any] | None:
        self._relays = True
        step: dict[str, Any] = {"do": "say", "id": self._id(request)}
        if request.name != UNTYPED:
            step["type"] = request.name
        if request.more.get("broadcast"):  # said to everybody by another step; the replay answers that
            self._name(request.agent, "relay")
            return None
        if request.agent == RELAY:
            if request.name not in ACKNOWLEDGEMENTS or not request.is_answered:
                self.left_out += 1
                return None
            step["to"] = RELAY
        elif request.agent != EVERYBODY:
            step["to"] = self._name(request.agent, "relay")
        if request.name == QUESTION and not self._answer(request):
            self.left_out += 1
            return None
        if request.given is not MISSING and request.given is not None:
            step["payload"] = _escaped(request.given)
        return step

    def _answer(self, request: LoggedRequest) -> LoggedRequest | None:
        """Return the request that has the first answer, or None.

        A question to everybody has a separate request for each agent.
        """
        if request.agent != EVERYBODY:
            return request if request.is_answered else None
        for other in self._found.requests:
            if other.more.get("broadcast") and other.at >= request.at and other.given == request.given:
                return other
        return None

    # ---- what is expected

    def _expected(self, request: LoggedRequest, step: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the expectations for a step. If it ends in an error, write that into the step instead."""
        of = step["id"]
        if step["do"] == "say":
            return self._of_answer(request, step)
        if request.is_cancelled:
            step["error"] = {"is": "ActionCancelled"}
            return []
        if request.error is not None:
            step["error"] = _error(request)
            return []
        if speech_of(request) == "omnia":
            shown = [item for item in request.items if not isinstance(item, str)]
            parts = [part for item in shown for part in mapped(item).get("parts", ())]
            text = request.value or ""
            done = {"type": "done"} | ({"text": text} if text else {}) | ({"parts": parts} if parts else {})
            items = [item for item in shown if mapped(item).get("type") != "chunk"]
            return [
                {"do": "expect", "that": "items", "of": of, "equals": _escaped(item)}
                for item in (*items, done)
            ]
        if step["do"] == "stream":
            return [{"do": "expect", "that": "items", "of": of, "sequence": _escaped(request.items)}]
        if step["do"] == "write":
            return []
        return [{"do": "expect", "that": "output", "of": of, "equals": _escaped(request.value)}]

    def _of_answer(self, request: LoggedRequest, step: dict[str, Any]) -> list[dict[str, Any]]:
        if step.get("to") == RELAY:  # the hub of the file is another than the recorded one
            return []
        answer = self._answer(request)
        if answer is None:
            return []
        value = _escaped(answer.value)
        if step.get("type") != QUESTION:
            self._later.append({"do": "expect", "that": "heard", "equals": value})
            return []
        if is_fault(answer.value):
            step["error"] = {"is": "ActionFailed"}
            return []
        return [{"do": "expect", "that": "output", "of": step["id"], "equals": value}]

    def _listened(self) -> Iterator[dict[str, Any]]:
        """Yield the expectations for observations, for subscriptions, and for messages to everybody."""
        seen: set[tuple[str, str]] = set()
        for request in self._found.requests:
            key = request.agent, request.name
            if request.verb == "observe" and request.is_answered and key not in seen and not request.error:
                seen.add(key)
                values = [request.value]
                values += [
                    c.value for c in self._found.changes if (c.agent, c.name) == key and c.at >= request.at
                ]
                yield {
                    "do": "expect",
                    "that": "reading",
                    "of": self._id(request),
                    "sequence": _escaped(values),
                }
        for name in dict.fromkeys(name for _, name in self._heard):
            came = [e.value for e in self._found.events if e.name == name and (e.agent, name) in self._heard]
            yield {
                "do": "expect",
                "that": "event",
                "target": "user",
                "event": name,
                "sequence": _escaped(came),
            }
        for event in self._found.events if self._relays else ():
            sender = self._name(event.agent, "relay")
            match = {"$.sender": sender} | ({} if event.name == UNTYPED else {"$.type": event.name})
            yield {"do": "expect", "that": "heard", "equals": _escaped(event.value), "match": match}


def _replayed_seconds(answer: LoggedRequest, step: dict[str, Any]) -> float:
    """Return the seconds of virtual time that pass while a replay repeats an answer.

    The result is 0 for properties, which are read and written within a turn, and for messages that wait for
    no answer. It is also 0 for the hub, because each run has a new hub.
    """
    is_asked = step["do"] in ("invoke", "stream") or step.get("type") == QUESTION
    if not is_asked or answer.end is None or answer.begun is None:
        return 0.0
    return answer.end - answer.begun


def _error(request: LoggedRequest) -> dict[str, Any]:
    """Return the expectation of a step for the error that the replay of a request raises."""
    name, _, text = str(request.error).partition(": ")
    known: Any = getattr(errors, name, None)
    if not (isinstance(known, type) and issubclass(known, AgentError)):
        name, text = "ActionFailed", str(request.error)
    plain = text.partition(HIDDEN)[0].partition("\n")[0][:60].strip()
    if name == "AgentDied" or not plain:
        return {"is": name}
    return {"is": name, "contains": _escaped(plain)}


def _escaped(value: Any) -> Any:
    """Return a value with its texts escaped, so that they are not read as references in the file."""
    if isinstance(value, str):
        return value.replace("$(", "$$(")
    if is_mapping(value):
        return {name: _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if is_list(value) else value
