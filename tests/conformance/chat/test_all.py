"""The kit for facades under test: a right one passes everything, a wrong one fails what is meant for it."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
import trio

from lmos_actors.conformance import (
    Card,
    ChatHints,
    ChatOptions,
    Level,
    Unreachable,
    Verdict,
    all_chat_cases,
    conform,
)
from lmos_actors.conformance.scripted import SendText
from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.conformance.breaking import ids, on_virtual_time, told
from tests.conformance.broken_facades import ALL, BrokenFacade
from tests.conformance.facade import FacadeConnection, FacadeServer
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = "ws://kit.example:80/ws?agent=demo"
HINTS = ChatHints(slow="slow", fails="fail", tool="tool", client_tool="client")
BY_ID = {broken.id: broken for broken in ALL}
MUTE = {case.id for case in all_chat_cases()}


def card_of(
    make: Callable[[], FacadeServer] = FacadeServer,
    *,
    level: Level = Level.SPEC,
    cases: tuple[str, ...] = (),
    allow_unsafe: bool = True,
    hints: ChatHints = HINTS,
) -> Card:
    """Let a facade be judged, and return its card."""

    async def main() -> Card:
        network = MemoryNetwork()
        async with trio.open_nursery() as nursery:
            await nursery.start(make().run, network, endpoint_of(HERE))
            options = ChatOptions(level=level, cases=cases, allow_unsafe=allow_unsafe, hints=hints)
            card = await conform(network, HERE, options)
            nursery.cancel_scope.cancel()
        return card

    card: Card = on_virtual_time(main)
    return card


def test_a_right_facade_passes_everything() -> None:
    card = card_of()
    assert ids(card, Verdict.PASSED) == {case.id for case in all_chat_cases()}, told(card)


def test_without_permission_and_hints_the_rest_is_not_run() -> None:
    card = card_of(allow_unsafe=False, hints=ChatHints(say="Good day."))
    hinted = {case.id for case in all_chat_cases() if "--hints" in case.needs}
    unsafe = {case.id for case in all_chat_cases() if case.unsafe}
    assert ids(card, Verdict.NOT_RUN) == hinted | unsafe, told(card)
    assert not ids(card, Verdict.FAILED, Verdict.TOLERATED, Verdict.NOT_OFFERED), told(card)


@pytest.mark.slow
@pytest.mark.parametrize("id", BY_ID)
def test_a_wrong_facade_is_caught_by_its_case_and_no_other(id: str) -> None:
    broken: BrokenFacade = BY_ID[id]
    turn, share = crc32(id.encode()), few_or_all(4, 1)  # of the other cases, one in so many
    card = card_of(
        broken.make,
        cases=tuple(
            case.id
            for number, case in enumerate(all_chat_cases())
            if case.id in (broken.caught_by, *broken.also) or (number + turn) % share == 0
        ),
    )
    failed = ids(card, Verdict.FAILED)
    if id == "mute":  # no case that needs an answer can pass
        assert broken.caught_by in failed
        return
    assert failed == {broken.caught_by, *broken.also}, told(card)


def test_every_case_catches_something() -> None:
    assert {case.id for case in all_chat_cases()} == {broken.caught_by for broken in ALL}
    assert len(BY_ID) == len(ALL)


@pytest.mark.parametrize("id", few_or_all(("silent", "any-session", "reads-binary"), tuple(BY_ID)))
def test_what_real_facades_do_is_tolerated(id: str) -> None:
    broken: BrokenFacade = BY_ID[id]
    card = card_of(broken.make, level=Level.LENIENT)
    mine = {result.id: result for result in card.results}[broken.caught_by]
    assert mine.verdict is (Verdict.TOLERATED if mine.departures else Verdict.FAILED), told(card)


def test_a_facade_that_goes_away_is_not_tried_further() -> None:
    class Dies(FacadeServer):
        count = 0

        async def _serve(self, stream: trio.abc.Stream, peer: str) -> None:
            self.count += 1
            if self.count > 12:
                await trio.aclose_forcefully(stream)
            else:
                await super()._serve(stream, peer)

    card = card_of(Dies)
    assert len(ids(card, Verdict.FAILED)) == 1
    last = card.results[-1]
    assert (last.verdict, last.seen.startswith("the server is gone since")) == (Verdict.NOT_RUN, True)


def test_where_there_is_no_facade() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        with pytest.raises(Unreachable):
            await conform(network, "ws://nobody:80/", ChatOptions())
        async with trio.open_nursery() as nursery:
            await nursery.start(FacadeServer().run, network, endpoint_of(HERE))
            with pytest.raises(Unreachable, match="404"):
                await conform(network, "ws://kit.example:80/ws?agent=other", ChatOptions())
            nursery.cancel_scope.cancel()

    on_virtual_time(main)


def test_bad_options() -> None:
    with pytest.raises(ConfigError, match=r"no case is called 'omniaturn.don'; 'omniaturn.done' is"):
        ChatOptions(cases=("omniaturn.don",))
    with pytest.raises(ConfigError, match="kotlin-wot"):
        ChatOptions(level=Level.KOTLIN_WOT)
    with pytest.raises(ConfigError, match="patience must be above 0"):
        ChatOptions(patience=0)


def test_hints_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hints.yaml"
    file.write_text("say: Good day.\nslow: tell me all\n", encoding="utf-8")
    assert ChatHints.load(file) == ChatHints(say="Good day.", slow="tell me all")
    file.write_text("say: Good day.\nslwo: tell me all\n", encoding="utf-8")
    with pytest.raises(FileError, match=r'hints.yaml:2:1: .*slwo.*"slow"'):
        ChatHints.load(file)


def test_no_facade_is_so_odd_that_the_kit_fails() -> None:
    """Frames whose members are of every type, in every case; what is odd is a failure of the facade."""
    odd = [
        None,
        5,
        "text",
        [],
        [1],
        {},
        {"id": []},
        {"id": {}, "name": 1},
        {"code": 7},
        True,
        -1.5,
        "x" * 5_000,
    ]

    def made(seed: int) -> Callable[[], FacadeServer]:
        random = Random(seed)

        class Odd(FacadeConnection):
            def send(self, type: str, session: str | None = None, **members: Any) -> None:
                frame: Any = {"type": type, "session_id": session, **members}
                for name in frame:
                    if random.random() < 0.2:
                        frame[name] = random.choice(odd)
                for inner in list(members.values()):
                    if isinstance(inner, dict) and random.random() < 0.5:
                        inner.update({name: random.choice(odd) for name in inner})
                self.put(SendText(json.dumps(random.choice(odd) if random.random() < 0.02 else frame)))

        return BrokenFacade("odd", "", Odd).make

    for seed in range(few_or_all(4, 40)):
        card = card_of(made(seed))
        assert len(card.results) == len(all_chat_cases())
