"""Report cards made by hand, with every verdict, and with what a hostile server may say."""

from __future__ import annotations

from typing import Any

from lmos_actors.conformance import Card, Departure, Level, Result, Section, Traffic, Verdict

HOSTILE = (
    "</td></script><script>alert(1)</script><!-- ]]> &amp; 'x' \"y\" {{ 7 * 7 }} {% raw %}"
    "\x1b[2Jgone\x07\u202egnp\ud800\x00\u2028\r\nnext"
)
SECTION = Section("LMOS communication protocol", "propertyReading")


def went(*words: str, connection: int = 1, kind: Any = "text") -> tuple[Traffic, ...]:
    """What went by: `> sent` and `< received`."""
    return tuple(
        Traffic(
            at=n / 4, sent=word[0] == ">", connection=connection, kind=kind, text=word[2:], size=len(word) - 2
        )
        for n, word in enumerate(words)
    )


def result(id: str, verdict: Verdict = Verdict.PASSED, seen: str = "", **more: Any) -> Result:
    """A case that came out so."""
    facts: dict[str, Any] = {
        "title": f"The title of {id}",
        "section": SECTION,
        "expected": "a propertyReading",
        "seconds": 0.25,
    }
    return Result(id=id, verdict=verdict, seen=seen, **facts | more)


def card(*results: Result, **more: Any) -> Card:
    """A card with these results."""
    facts: dict[str, Any] = {
        "subject": "http://127.0.0.1:8080/things/lamp",
        "role": "server",
        "title": "Lamp",
        "thing": "urn:lamp",
        "level": Level.LENIENT,
        "spoken": "as written",
        "seed": 7,
        "seconds": 1.5,
        "command": "lmos-actors conform http://127.0.0.1:8080/things/lamp --seed 7",
        "versions": {"lmos-actors": "0.1", "trio": "0.35"},
    }
    return Card(results=results, **facts | more)


DEPARTURE = Departure("time-number", "a time is written as a number", "1719 in propertyReading", SECTION)


def everything(text: str = "a text") -> Card:
    """A card with every verdict, every text of which but the ids is this one."""
    departure = Departure("time-number", text, text, Section(text, text))
    traffic = (
        *went("> {}", f"< {text}"),
        *went(f"< {text}", connection=0, kind="http"),
        *went(f"> {text}", connection=2, kind="close"),
    )
    more: dict[str, Any] = {
        "title": text,
        "section": Section(text, text),
        "expected": text,
        "traffic": traffic,
    }
    return card(
        result("handshake.accept", **more),
        result("read.value", Verdict.FAILED, text, left_out=3, departures=(departure,), **more),
        result("read.timestamp", Verdict.TOLERATED, text, departures=(departure,), **more),
        result("write.value", Verdict.NOT_OFFERED, text, **more | {"traffic": ()}),
        result("write.all", Verdict.NOT_RUN, text, **more | {"traffic": ()}),
        subject=text,
        title=text,
        thing=text,
        spoken=text,
        command=text,
        versions={"lmos-actors": text},
    )
