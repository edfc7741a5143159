"""kotlin-wot's server gets exactly the card that the real one gets, at every level.

The table is the card of kotlin-wot of May 2025 with its WebSocket binding on Ktor, run against this kit;
`docs/explanation/lmos.md` tells what it does. Whatever is not in the table passes.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from functools import cache

import pytest

from lmos_actors.conformance import Card, Level, Verdict, all_cases
from lmos_actors.conformance.card import LMOS_LEVELS
from tests.conformance.breaking import told
from tests.conformance.kotlin import kotlin_card

BREAKS, BENDS, KNOWN = "failed failed passed", "failed tolerated passed", "failed tolerated tolerated"
WRONG = "failed failed failed"
NONE, UNKNOWN = "not offered not offered not offered", "not run not run not run"

PREDICTED: tuple[tuple[str, str, str], ...] = (
    # pattern of cases, verdicts at spec, lenient and kotlin-wot, why
    ("handshake.version", WRONG, "Ktor takes any"),
    ("handshake.key", WRONG, "Ktor needs none"),
    ("handshake.subprotocol", BENDS, "no subprotocol is registered"),
    ("handshake.subprotocol-among-others", NONE, "nor any other"),
    ("description.well-known", NONE, "/.well-known/wot is not served"),
    ("description.head", KNOWN, "HEAD is 404"),
    ("description.id", BENDS, "ids are words"),
    ("description.security", BENDS, "no security unless it is set by hand"),
    ("spelling.table-ids", BREAKS, "what lacks thingId is unreadable, 1003"),
    ("spelling.answer-ids", "not offered not offered passed", "it is asked as its own client asks"),
    ("spelling.reading-members", BENDS, "property and data"),
    ("correlation.read", BENDS, "the messageId; a correlation in a request is no member"),
    ("correlation.write", BENDS, "likewise"),
    ("correlation.invoke", BENDS, "likewise"),
    ("correlation.error", BENDS, "likewise"),
    ("correlation.statuses", UNKNOWN, "it only ever says completed"),
    ("letter.readings", NONE, "writeMultipleProperties is answered 400"),
    ("letter.thing", BENDS, "a word"),
    ("letter.timestamp", BENDS, "epoch seconds as a number"),
    ("properties.write-wrong", BENDS, "it holds values against no schema"),
    ("properties.write-wrong-kept", NONE, "so no write is refused for its value"),
    ("properties.write-multiple", NONE, "answered 400"),
    ("properties.read-multiple", NONE, "answered 400"),
    ("properties.write-only", NONE, "this thing has none"),
    ("actions.wrong-input", BENDS, "it holds inputs against no schema"),
    ("actions.missing-input", BENDS, "nor a missing one"),
    ("actions.pending", UNKNOWN, "no action is known to take a while"),
    ("actions.concurrent", UNKNOWN, "no action is known to take a while"),
    ("query.running", UNKNOWN, "no action is known to take a while"),
    ("query.by-name", UNKNOWN, "no action is known to take a while"),
    ("query.finished", NONE, "unknown to it, 1003; no form has it"),
    ("query.unknown", NONE, "likewise"),
    ("cancel.running", UNKNOWN, "no action is known to take a while"),
    ("cancel.by-name", UNKNOWN, "no action is known to take a while"),
    ("cancel.stays", UNKNOWN, "no action is known to take a while"),
    ("cancel.finished", NONE, "likewise"),
    ("cancel.unknown", NONE, "likewise"),
    ("cancel.other-run", NONE, "and no extension says which run is meant"),
    ("observe.correlation", BENDS, "null in later readings"),
    ("events.timestamp", BENDS, "a number"),
    ("events.correlation", BENDS, "the messageId of the subscription"),
    ("events.other-event", NONE, "this thing has one event"),
    ("events.all", NONE, "unknown to it; no form has it"),
    ("events.unsubscribe-all", NONE, "likewise"),
    ("ordering.slow-run", UNKNOWN, "no action is known to take a while"),
    ("ordering.slow-elsewhere", UNKNOWN, "no action is known to take a while"),
    ("things.*", NONE, "this servient has one thing"),
    ("extension.*", NONE, "it has none"),
    ("frames.not-json", BREAKS, "closed with 1003, no error"),
    ("frames.no-object", BREAKS, "closed with 1003, no error"),
    ("frames.empty", BREAKS, "closed with 1003, no error"),
    ("frames.no-type", BREAKS, "closed with 1003, no error"),
    ("frames.no-thing", BREAKS, "closed with 1003, no error"),
    ("frames.no-name", BREAKS, "closed with 1003, no error"),
    ("frames.member-types", BREAKS, "closed with 1003, no error"),
    ("frames.unknown-type", BREAKS, "closed with 1003, no error"),
    ("frames.thing-types", BREAKS, "no consumer sends them; to it they are unreadable"),
    ("frames.nesting", BREAKS, "its reader has limits"),
    ("frames.huge-number", BREAKS, "its reader has limits"),
    ("frames.surrogate", BREAKS, "closed with 1003, no error"),
    ("frames.not-utf8", WRONG, "Ktor puts something else in its place"),
    ("frames.unmasked", WRONG, "Ktor takes them"),
    ("frames.reserved-bits", WRONG, "Ktor does not look at them"),
    ("frames.reserved-opcodes", WRONG, "Ktor passes over them"),
    ("frames.wrong-close", WRONG, "Ktor answers with the same code, whatever it is"),
    ("frames.binary", BENDS, "frames other than text are passed over"),
    ("http.*", NONE, "these descriptions have forms for WebSocket alone"),
)  # fmt: skip


def predicted(id: str) -> list[Verdict]:
    """Give the verdicts of a case at the three levels."""
    found = [verdicts for pattern, verdicts, _ in PREDICTED if fnmatchcase(id, pattern)]
    assert len(found) < 2, f"{id} is predicted twice"
    words = found[0] if found else "passed passed passed"
    return [Verdict(word.replace("-", " ")) for word in words.replace("not ", "not-").split()]


@cache
def card(level: Level) -> Card:
    return kotlin_card(level)


@pytest.mark.slow
@pytest.mark.parametrize("level", LMOS_LEVELS, ids=lambda level: level.value)
def test_the_card_is_the_one_predicted(level: Level) -> None:
    which = LMOS_LEVELS.index(level)
    found = {result.id: result.verdict for result in card(level).results}
    assert found == {case.id: predicted(case.id)[which] for case in all_cases()}, told(card(level))


def test_every_prediction_is_about_a_case() -> None:
    for pattern, _, _ in PREDICTED:
        assert any(fnmatchcase(case.id, pattern) for case in all_cases()), pattern


@pytest.mark.slow
def test_it_is_spoken_to_as_it_understands() -> None:
    assert "thingId, property, subscribeevent" in card(Level.LENIENT).spoken
    assert "no subprotocol" in card(Level.KOTLIN_WOT).spoken


def test_what_it_is_known_for_is_named() -> None:
    """At its own level a card still says in which ways it differs, though each is passed."""
    names = Counter(each.key for result in card(Level.KOTLIN_WOT).results for each in result.departures)
    for key in ("time-number", "ids-spelled-Id", "names-spelled-property", "closes-1003", "no-subprotocol"):
        assert names[key], key
