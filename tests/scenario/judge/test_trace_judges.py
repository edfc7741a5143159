"""Causes and traces: which message came of which."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lmos_actors.scenario.model import Causal, Message, Trace
from tests.scenario.judged import Agent, Run, peers

ASK_TO_ASK = Causal(
    before=Message(from_="user", action="getWeather"), after=Message(to="weather", action="getWeather")
)


def world() -> Run:
    return Run(weather=Agent("sup/weather"), concierge=Agent("concierge"), peer=peers(2))


class Story:
    """Tells judges of messages as the log does; numbers are given in order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.number = 0

    def send(
        self,
        sender: str,
        to: str,
        what: str,
        *,
        trace: int | None = None,
        verb: str = "invoke",
        step: str = "",
    ) -> int:
        self.number += 1
        self.run.record(
            "sent",
            to,
            id=self.number,
            trace=self.number if trace is None else trace,
            affordance=what,
            verb=verb,
            **{"from": sender},
        )
        if step:
            self.run.sent.setdefault(step, []).append(self.number)
        return self.number

    def take(self, number: int, agent: str) -> None:
        self.run.record("delivered", agent, id=number)

    def answer(self, number: int, agent: str) -> None:
        self.run.record("answered", agent, id=number)


def test_each_message_has_its_cause() -> None:
    run = world().judged(ASK_TO_ASK)
    story = Story(run)
    for _ in range(3):
        first = story.send("user", "concierge", "getWeather")
        story.send("concierge", "sup/weather", "getWeather", trace=first)
    found = run.verdict()
    assert (found.ok, found.saw) == (True, "so for all 3")
    assert found.expected == "getWeather from user before each getWeather to weather"


def test_a_message_may_be_its_own_cause() -> None:
    run = world().judged(ASK_TO_ASK)
    Story(run).send("user", "sup/weather", "getWeather")
    assert run.verdict().ok


def test_a_message_without_its_cause() -> None:
    run = world().judged(ASK_TO_ASK)
    story = Story(run)
    first = story.send("user", "concierge", "getWeather")
    story.send("concierge", "sup/weather", "getWeather", trace=first)
    run.at(2.0)
    story.send("concierge", "sup/weather", "getWeather")  # in a trace of its own
    found = run.verdict()
    assert (found.ok, found.at) == (False, 2.0)
    assert found.saw == "none before that at 2 s sup/weather: invoke getWeather from concierge"


def test_a_cause_comes_before_its_effect() -> None:
    check = Causal(before=Message(action="plan"), after=Message(action="act"))
    run = world().judged(check)
    story = Story(run)
    story.send("user", "concierge", "act")
    story.send("user", "concierge", "plan", trace=1)
    assert not run.verdict().ok


def test_nothing_to_judge_fails() -> None:
    run = world().judged(ASK_TO_ASK)
    Story(run).send("user", "concierge", "getWeather")
    found = run.verdict()
    assert (found.ok, found.saw) == (False, "no message getWeather to weather")


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (Message(from_="user"), True),
        (Message(from_="concierge"), False),
        (Message(to="weather"), True),
        (Message(to="sup/weather"), True),
        (Message(to="concierge"), False),
        (Message(to="*"), True),
        (Message(action="getWeather"), True),
        (Message(action="getWeathers"), False),
        (Message(property="getWeather"), False),
        (Message(event="getWeather"), False),
        (Message(from_="user", to="weather", action="getWeather"), True),
        (Message(from_="user", to="peer", action="getWeather"), False),
    ],
)
def test_which_messages_are_meant(message: Message, fits: bool) -> None:
    run = world().judged(Causal(before=Message(from_="user"), after=message))
    Story(run).send("user", "sup/weather", "getWeather")
    assert run.verdict().ok is fits


@pytest.mark.parametrize(
    ("message", "verb", "fits"),
    [
        (Message(action="x"), "tell", True),
        (Message(action="x"), "read", False),
        (Message(property="x"), "read", True),
        (Message(property="x"), "write", True),
        (Message(property="x"), "observe", True),
        (Message(property="x"), "invoke", False),
        (Message(event="x"), "subscribe", False),
    ],
)
def test_a_message_is_found_by_verbs_that_fit_it(message: Message, verb: str, fits: bool) -> None:
    run = world().judged(Causal(before=Message(from_="user"), after=message))
    Story(run).send("user", "concierge", "x", verb=verb)
    assert run.verdict().ok is fits


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (Message(event="asked"), True),
        (Message(event="asked", from_="weather"), True),
        (Message(event="asked", from_="concierge"), False),
        (Message(event="asked", to="concierge"), False),
        (Message(event="told"), False),
        (Message(from_="weather"), False),
    ],
)
def test_an_event_comes_from_its_agent(message: Message, fits: bool) -> None:
    run = world().judged(Causal(before=Message(action="ask"), after=message))
    Story(run).send("user", "sup/weather", "ask")
    run.record("event", "sup/weather", event="asked", data=3, trace=1)
    assert run.verdict().ok is fits


@pytest.mark.parametrize("fields", [{"trace": 7}, {}])
def test_an_event_without_its_cause(fields: dict[str, int]) -> None:
    run = world().judged(Causal(before=Message(action="ask"), after=Message(event="asked")))
    Story(run).send("user", "sup/weather", "ask")
    run.record("event", "sup/weather", event="asked", data=3, **fields)
    assert run.verdict().saw == "none before that at 0 s sup/weather: event asked"


def test_an_event_may_be_a_cause() -> None:
    run = world().judged(Causal(before=Message(event="asked"), after=Message(action="tell")))
    run.record("event", "sup/weather", event="asked", trace=1)
    Story(run).send("sup/weather", "concierge", "tell", trace=1)
    assert run.verdict().ok


def test_a_population_is_meant_as_a_whole_or_by_one_of_it() -> None:
    for to, fits in [("peer", True), ("peer/1", True), ("peer/0", False)]:
        run = world().judged(Causal(before=Message(from_="user"), after=Message(to=to)))
        Story(run).send("user", "peer/1", "x")
        assert run.verdict().ok is fits


# --- traces

THROUGH = Trace(of="ask", through=("concierge", "weather"))


def told(run: Run, *, lost: bool = False) -> Story:
    """The user asks the concierge, who asks the weather agent."""
    story = Story(run)
    first = story.send("user", "concierge", "ask", step="ask")
    story.take(first, "concierge")
    second = story.send("concierge", "sup/weather", "getWeather", trace=None if lost else first)
    story.take(second, "sup/weather")
    story.answer(second, "sup/weather")
    story.answer(first, "concierge")
    return story


def test_a_trace_goes_through_agents_in_order() -> None:
    run = world().judged(THROUGH)
    told(run)
    found = run.verdict()
    assert (found.ok, found.saw) == (True, "so for 1 messages of ask")
    assert found.expected == "a trace through concierge > weather"


@pytest.mark.parametrize(
    "through",
    [("weather", "concierge"), ("concierge", "peer", "weather"), ("concierge", "weather", "concierge")],
)
def test_a_trace_that_goes_elsewhere(through: tuple[str, ...]) -> None:
    run = world().judged(Trace(of="ask", through=through))
    told(run)
    found = run.verdict()
    assert (found.ok, found.saw) == (False, "message 1 came to concierge > sup/weather")


def test_every_round_of_a_step_has_to_go_through() -> None:
    run = world().judged(THROUGH)
    story = told(run)
    story.take(story.send("user", "concierge", "ask", step="ask"), "concierge")
    assert run.verdict().saw == "message 3 came to concierge"


def test_a_message_nobody_has_taken() -> None:
    run = world().judged(THROUGH)
    Story(run).send("user", "concierge", "ask", step="ask")
    assert run.verdict().saw == "message 1 came to no agent"


def test_a_step_that_sent_nothing_fails() -> None:
    run = world().judged(THROUGH, Trace(single_trace=True))
    assert [(found.ok, found.saw) for found in run.end()] == [
        (False, "step ask sent nothing"),
        (False, "no step sent anything"),
    ]


@pytest.mark.parametrize("of", ["ask", None])
def test_one_trace(of: str | None) -> None:
    check = Trace(of=of, single_trace=True)
    run = world().judged(check)
    told(run)
    assert run.verdict().ok
    run = world().judged(check)
    told(run.at(3.0), lost=True)
    found = run.verdict()
    assert (found.ok, found.at) == (False, 3.0)
    assert found.saw == (
        "1 in a trace of their own, the first concierge: invoke sup/weather.getWeather at 3 s"
    )


def test_a_step_as_an_agent_may_begin_a_trace() -> None:
    run = world().judged(Trace(single_trace=True))
    told(run).send("concierge", "sup/weather", "subscribe", step="listen")
    assert run.verdict().ok


def test_a_timer_is_not_of_a_step_but_of_the_run() -> None:
    run = world().judged(Trace(of="ask", single_trace=True), Trace(single_trace=True))
    told(run).send("concierge", "sup/weather", "getWeather")  # the concierge has nothing in hand
    assert [found.ok for found in run.end()] == [True, False]


def test_who_has_crashed_has_nothing_in_hand() -> None:
    for kind in ("crashed", "stopped"):
        run = world().judged(Trace(of="ask", single_trace=True))
        story = Story(run)
        story.take(story.send("user", "concierge", "ask", step="ask"), "concierge")
        run.record(kind, "concierge", reason="x")
        story.send("concierge", "sup/weather", "getWeather")
        assert run.verdict().ok


def test_another_step_is_not_to_blame() -> None:
    run = world().judged(Trace(of="other", single_trace=True))
    story = told(run, lost=True)
    story.answer(story.send("user", "peer/0", "x", step="other"), "peer/0")
    assert run.verdict().ok


def test_both_at_once() -> None:
    run = world().judged(Trace(of="ask", single_trace=True, through=("concierge", "weather")))
    told(run, lost=True)
    found = run.verdict()
    assert found.expected == (
        "every message in the trace of the step that caused it and a trace through concierge > weather"
    )
    assert "in a trace of their own" in found.saw


# --- against a slow judge

MESSAGES = st.lists(
    st.tuples(st.sampled_from(["user", "concierge"]), st.sampled_from("ab"), st.integers(0, 5)), max_size=20
)


@given(MESSAGES)
def test_causes_against_a_slow_judge(messages: list[tuple[str, str, int]]) -> None:
    check = Causal(before=Message(from_="user", action="a"), after=Message(action="b"))
    run = world().judged(check)
    story = Story(run)
    for sender, what, trace in messages:
        story.send(sender, "peer/0", what, trace=trace)
    expected = [
        any(earlier == ("user", "a", trace) for earlier in messages[:index])
        for index, (_, what, trace) in enumerate(messages)
        if what == "b"
    ]
    assert run.verdict().ok is (bool(expected) and all(expected))


@given(st.lists(st.tuples(st.sampled_from(["concierge", "weather", "peer"]), st.integers(1, 2)), max_size=20))
def test_ways_against_a_slow_judge(taken: list[tuple[str, int]]) -> None:
    through = ("concierge", "weather", "concierge")
    run = world().judged(Trace(of="ask", through=through))
    story = Story(run)
    for _ in range(2):
        story.send("user", "concierge", "ask", step="ask")
    paths = {"concierge": "concierge", "weather": "sup/weather", "peer": "peer/0"}
    for name, trace in taken:
        story.take(story.send("user", paths[name], "x", trace=trace), paths[name])

    def goes(trace: int) -> bool:
        ways = iter(name for name, of in taken if of == trace)
        return all(name in ways for name in through)

    assert run.verdict().ok is (goes(1) and goes(2))
