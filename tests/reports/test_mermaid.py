"""Sequence diagrams for Mermaid."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, strategies as st

from lmos_actors.reports import MOST_MESSAGES, mermaid
from tests.reports.sample_results import HEAD, HOSTILE, failed, line, run, sent

STARTED = (
    HEAD,
    line(1, "started", "weather", incarnation=1),
    line(2, "started", "concierge", incarnation=1),
)
LINE = re.compile(
    r"    (title .+|participant \w+ as .+|Note over \w+: .+|\w+(-\)|->>|-->>|--x|-x)\w+: .+)", re.ASCII
)


def drawn(*lines: str, **changes) -> list[str]:
    text = mermaid(run(log=(*STARTED, *lines), **changes), "story")
    assert text.startswith("sequenceDiagram\n")
    for each in text.splitlines()[1:]:
        assert LINE.fullmatch(each), each
    return [each.strip() for each in text.splitlines()[1:]]


def test_requests_answers_and_what_befalls_agents() -> None:
    assert drawn(
        sent(3, "user", "concierge", "ask", input={"city": "Rome"}),
        sent(4, "concierge", "weather", "getWeather"),
        line(5, "answered", "weather", affordance="getWeather", id=4, value="sunny"),
        line(6, "answered", "concierge", affordance="ask", id=3, error="NotAllowed: no"),
        sent(7, "user", "weather", "units", verb="read"),
        sent(8, "concierge", "weather", "note", verb="tell"),
        line(9, "answered", "weather", affordance="note", id=8, value=None),
        line(10, "event", "weather", event="changed", data=4),
        line(11, "fault", "weather", fault="crash", **{"with": "RuntimeError"}),
        line(12, "crashed", "weather", reason="RuntimeError: x"),
        line(13, "restarting", "weather"),
        line(14, "started", "weather", incarnation=2),
        line(15, "dead_letter", "weather", affordance="note", reason="stopped"),
        line(16, "stopped", "weather", reason="shutdown"),
        network(17, "lost", "concierge", "weather", affordance="note"),
        network(18, "disconnected", "weather", "concierge"),
        network(19, "late", "weather", "concierge", affordance="note"),
        network(20, "overtaken", "weather", "concierge", affordance="note"),
        network(21, "late", "weather", "concierge", bytes=60),
        line(22, "fault", "network", fault="swizzle", sides=[["weather"], ["concierge"]]),
    ) == [
        "title story seed=1: passed",
        "participant a0 as user",
        "participant a2 as weather",
        "participant a1 as concierge",
        "participant a3 as network",
        'a0->>a1: ask {"city": "Rome"}',
        "a1->>a2: getWeather",
        'a2-->>a1: getWeather = "sunny"',
        "a1--xa0: ask failed: NotAllowed: no",
        "a0->>a2: read units",
        "a1-)a2: note",
        "Note over a2: event changed 4",
        'Note over a2: fault crash with="RuntimeError"',
        "Note over a2: crashed: RuntimeError: x",
        "Note over a2: restarting",
        "Note over a2: started again, incarnation 2",
        "Note over a2: dead letter note stopped",
        "a1-xa2: lost note",
        "Note over a1: weather and concierge: disconnected",
        "a2-)a1: late note",
        "a2-)a1: overtaken note",
        "Note over a1: weather and concierge: late 60 bytes",
        'Note over a3: fault swizzle sides=[["weather"], ["concierge"]]',
    ]


def network(n: int, what: str, source: str, to: str, **fields: Any) -> str:
    return line(n, "network", to, what=what, to=to, **{"from": source}, **fields)


def many(count: int) -> list[str]:
    return [sent(n, "user", "weather", f"ask{n}") for n in range(3, count + 3)]


def test_a_long_run_that_passed_shows_its_beginning_and_one_that_failed_its_end() -> None:
    rows = drawn(*many(MOST_MESSAGES + 7))
    assert rows[3].endswith("ask3")
    assert len(rows) == 3 + MOST_MESSAGES + 1
    assert rows[-1] == "Note over a0: 7 messages that follow are left out"
    log = (
        *STARTED,
        *many(MOST_MESSAGES + 7),
        line(500, "answered", "weather", affordance="ask3", id=3, value=1),
    )
    text = mermaid(failed(log=log))
    assert "8 earlier messages are left out" in text
    assert text.endswith("a0: ask3 = 1\n")  # to who asked for it, in a part that is not shown
    assert len(text.splitlines()) == 4 + MOST_MESSAGES + 1


def test_what_is_not_there_is_said() -> None:
    assert "Note over a0: no messages" in drawn()
    assert "Note over a0: 90 lines of the log were not kept" in drawn(logged=93)
    assert "no messages" in mermaid(run())


def test_of_very_many_agents_the_last_share_a_line() -> None:
    lines = [sent(n, "user", f"peer/{n}", "rumour") for n in range(3, 203)]
    rows = drawn(*lines)
    assert sum(row.startswith("participant") for row in rows) == 61
    assert "participant others as all others" in rows
    assert rows[-1] == "a0->>others: rumour"


def test_no_text_is_taken_for_mermaids_own() -> None:
    rows = drawn(sent(3, "user", HOSTILE, HOSTILE, input=HOSTILE), label=HOSTILE)
    assert "%" not in "".join(rows)
    assert not [row for row in rows if re.search(r"(?<!#\d\d);", row)]


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_every_text_keeps_to_its_line(text: str) -> None:
    drawn(sent(3, "user", text, text, input={"x": text}), label=text)
