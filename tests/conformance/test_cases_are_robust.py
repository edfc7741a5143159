"""The cases keep their feet whatever a server says, and try nothing that a description does not have."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.conformance import Hints, Level, Verdict, all_cases
from lmos_actors.conformance.card import LMOS_LEVELS
from lmos_actors.conformance.scripted import Done, ScriptedConnection, ScriptedServer, ScriptedThing
from lmos_actors.conformance.session import CaseContext
from tests.conformance.breaking import card_of, ids, right, told
from tests.conformance.broken import ALL
from tests.matrix import some

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import Json, Outcome

JUNK: tuple[Any, ...] = (None, True, -1, 1e300, "", "x", [], {}, [[{}]], {"a": None}, "\ud800", "2026-01-01")


class Garbling(ScriptedConnection):
    """Puts something else into each message, or leaves something out, or says it again."""

    chance = Random(0)

    def spelled(self, message: Json) -> Json:
        told = super().spelled(message)
        victim = self.chance.choice(list(told))
        if self.chance.random() < 0.3:
            del told[victim]
        elif self.chance.random() < 0.7:
            told[victim] = self.chance.choice(JUNK)
        return told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_answer_puts_the_kit_out_of_step(seed: int) -> None:
    Garbling.chance = Random(seed)
    card = card_of(lambda: right(connection=Garbling))
    assert len(card.results) == len(all_cases())
    assert card.count(Verdict.FAILED) > 5


class Silent(ScriptedConnection):
    """Says nothing."""

    def put(self, out: object) -> None:
        """Let nothing go out."""


def test_silence_fails_what_it_must_and_ends() -> None:
    card = card_of(lambda: right(connection=Silent), cases=("properties.*", "actions.*", "errors.*"))
    assert {"properties.read", "actions.completed", "errors.unknown-thing"} <= ids(card, Verdict.FAILED)


def _with(kept: str) -> type[ScriptedServer]:
    """Give a server of things that have one group of affordances, or one affordance alone."""

    class Reduced(ScriptedServer):
        def add(self, name: str, describe: Callable[[str], Json]) -> ScriptedThing:
            def reduced(base: str) -> Json:
                document = describe(base)
                document["lmosx:offers"] = []
                document["forms"] = [{**document["forms"][0], "op": ["queryallactions"]}]
                for group in ("properties", "actions", "events"):
                    document[group] = {
                        name: each for name, each in document[group].items() if kept in (group, name)
                    }
                for ours in ("lmosx:progress", "lmosx:streams"):  # by the names of actions
                    there = {
                        name: each
                        for name, each in document.pop(ours, {}).items()
                        if name in document["actions"]
                    }
                    document.update({ours: there} if there else {})
                return document

            return super().add(name, reduced)

    return Reduced


KEPT = ("nothing", "properties", "version", "secret", "actions", "reset", "events")


@pytest.mark.slow
@pytest.mark.parametrize("kept", some(KEPT, of=2))
def test_a_thing_with_less_fails_nothing(kept: str) -> None:
    card = card_of(lambda: right(server=_with(kept)), hints=Hints())
    assert not ids(card, Verdict.FAILED, Verdict.TOLERATED), told(card)


class Succeeding(ScriptedThing):
    """Has an action that is called `fail`, and does not."""

    def act_fail(self, _value: Json) -> Outcome:
        """Succeed."""
        return Done()


def test_an_action_that_was_taken_for_one_that_fails_may_succeed() -> None:
    failing = ("actions.failing", "kotlin.failure")
    for level in LMOS_LEVELS:
        card = card_of(lambda: right(thing=Succeeding), cases=failing, hints=Hints(), level=level)
        assert ids(card, Verdict.NOT_RUN) == set(failing), told(card)
    assert "actions.failing" in ids(card_of(lambda: right(thing=Succeeding), cases=failing), Verdict.FAILED)


def test_a_server_that_refuses_undefined_members_can_be_tested() -> None:
    strict = next(each for each in ALL if each.id == "knows-every-member")
    card = card_of(strict.make, cases=(strict.caught_by,), level=Level.LENIENT)
    assert [(each.verdict, each.departures[0].key) for each in card.results] == [
        (Verdict.TOLERATED, "refuses-unknown-members")
    ]


@pytest.mark.slow
def test_what_is_unsafe_is_sent_only_with_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    record = CaseContext.record

    def listen(context: CaseContext, traffic: Any) -> None:
        if traffic.sent and traffic.kind in ("text", "http"):
            sent.append(traffic.text)
        record(context, traffic)

    monkeypatch.setattr(CaseContext, "record", listen)
    card_of(allow_unsafe=False)
    assert sent
    assert not [text for text in sent if "reset" in text]


@pytest.mark.slow
def test_nothing_is_left_changed() -> None:
    seen: list[Json] = []

    def make() -> Any:
        serving = right()
        seen.append(serving.server.main.values)
        return serving

    card_of(make)
    assert seen[0] == {
        "level": 20,
        "label": "new",
        "settings": {"mode": "a", "ratio": 0.5},
        "version": "1.0",
        "secret": "none",
    }
