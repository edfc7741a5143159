"""Our own server, held against every case: whatever fails here is wrong in it, or in the case."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest
import trio

from agents.conformance import Conformance, ConformanceB
from lmos_actors import Agent, ChildSpec, Event, action, describe, event, open_node
from lmos_actors.cli import main
from lmos_actors.conformance import ConformOptions, Level, Verdict, all_cases, conform
from lmos_actors.conformance.scripted import described, described_b
from lmos_actors.protocol.td import dump
from lmos_actors.transport import MemoryNetwork
from tests.commands import started
from tests.conformance.breaking import HINTS, ids, on_virtual_time, told
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lmos_actors.conformance import Card

URL = "http://here/agents/conformance"
THINGS = ("agents/conformance.py:Conformance", "agents/conformance.py:ConformanceB")


KEYED = {"extension.key", "extension.key-answer", "extension.key-other"}
"""The cases for agents that keep answers: `Keeping` is held against them."""


class Keeping(Agent, durable=True):
    """Keeps its answers."""

    rang: Event[str] = event()

    @action(safe=True)
    def echo(self, text: str) -> str:
        """Give a text back."""
        return text

    @action(safe=True)
    def ring(self, note: str) -> None:
        """Makes the event `rang` happen."""
        self.rang.emit(note)

    @action(safe=True, snapshot_safe=True)
    async def count(self, to: int) -> AsyncIterator[int]:
        """Give numbers."""
        for number in range(to):
            yield number


def own_card(url: str = URL, **options: Any) -> Card:
    """Let the two agents be judged, on virtual time."""

    async def judged() -> Card:
        network = MemoryNetwork()
        async with open_node(listen="ws://here", network=network) as node:
            await node.start(Conformance)
            await node.start(ConformanceB)
            card = await conform(network, url, ConformOptions(**options))
            assert node.connection_failures == ()
            assert not node.crash_reports
        return card

    card: Card = on_virtual_time(judged)
    return card


def test_it_passes_every_case_by_the_letter() -> None:
    card = own_card(level=Level.SPEC, allow_unsafe=True, hints=HINTS)
    assert ids(card, Verdict.PASSED) == {case.id for case in all_cases()} - KEYED, told(card)
    assert ids(card, Verdict.NOT_OFFERED) == KEYED


def test_an_agent_that_keeps_answers_passes_every_case_of_keys() -> None:
    async def judged() -> Card:
        network = MemoryNetwork()
        async with open_node(listen="ws://here", network=network, store="memory:") as node:
            await node.start_child(ChildSpec("keeping", Keeping))
            options = ConformOptions(level=Level.SPEC, cases=("extension.key*",))
            await conform(network, "http://here/agents/keeping", options)
            await trio.sleep(1e-6)  # so that its keys are others
            return await conform(network, "http://here/agents/keeping", options)

    card: Card = on_virtual_time(judged)
    assert ids(card, Verdict.PASSED) == {*KEYED, "extension.key-form", "extension.key-unkept"}, told(card)


@pytest.mark.slow
def test_without_hints_everything_is_found_that_it_takes() -> None:
    card = own_card("ws://here/agents/conformance", level=Level.SPEC, allow_unsafe=True, seed=1)
    assert ids(card, Verdict.PASSED) == {case.id for case in all_cases()} - KEYED, told(card)


@pytest.mark.slow
def test_it_can_be_judged_again_with_the_same_seed() -> None:
    async def judged() -> Card:
        network = MemoryNetwork()
        async with open_node(listen="ws://here", network=network) as node:
            await node.start(Conformance)
            options = ConformOptions(level=Level.SPEC, hints=HINTS, cases=("extension.*",))
            await conform(network, URL, options)
            return await conform(network, URL, options)

    card: Card = on_virtual_time(judged)
    assert {each.id for each in card.results} - ids(card, Verdict.PASSED) == KEYED, told(card)


@pytest.mark.slow
def test_it_serves_who_speaks_as_kotlin_wot() -> None:
    card = own_card(level=Level.KOTLIN_WOT, allow_unsafe=True, hints=HINTS)
    assert not ids(card, Verdict.FAILED, Verdict.NOT_RUN), told(card)


@pytest.mark.parametrize(("agent", "wanted"), [(Conformance, described), (ConformanceB, described_b)])
def test_it_has_what_the_scripted_thing_has(agent: type[Agent], wanted: Callable[[str], Any]) -> None:
    assert _shape(dump(describe(agent))) == _shape(wanted("ws://here"))


def _shape(data: dict[str, Any]) -> dict[str, Any]:
    words = ("readOnly", "writeOnly", "observable", "safe", "idempotent")
    return {
        kind: {name: [bool(each.get(word)) for word in words] for name, each in data[kind].items()}
        for kind in ("properties", "actions", "events")
        if kind in data
    }


@contextmanager
def serving() -> Generator[str]:
    """Serve the agents by the command while entered; gives the URL of the first."""
    with started(("serve", *THINGS, "--listen", "ws://127.0.0.1:0"), ROOT, stderr=2) as process:
        try:
            assert process.stdout is not None
            said = [
                json.loads(line) for line in takewhile(lambda line: '"ready"' not in line, process.stdout)
            ]
            yield said[0]["url"]
        finally:
            process.kill()


@pytest.mark.slow
def test_one_command_judges_what_another_serves(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ("handshake.*", "description.*", "things.*", "events.*", "http.*", "extension.stream*")
    words = [word for each in quick for word in ("--case", each)]
    with serving() as url, pytest.raises(SystemExit) as ended:
        main(["conform", url, "--level", "spec", "--allow-unsafe", *words])
    assert ended.value.code == 0, capsys.readouterr().out
