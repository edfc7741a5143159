"""A peer of ours that owes an answer and hangs is noticed within seconds; others, and idle ones, are not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from lmos_actors import OutcomeUnknown
from lmos_actors.transport import ConnectionOptions
from tests.bindings.client_connections import OFFERS, Weather, quiet, scripted, weather


@pytest.mark.parametrize("before", [0.0, 0.5, 7.5, 3_600.5])
async def test_a_peer_that_hangs_is_given_up_after_five_seconds(autojump_clock: Any, before: float) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        found, wire = await weather(peers), peers.wire
        asked = trio.current_time()

        async def hang() -> None:
            await trio.sleep(before)
            wire.hangs = True

        nursery.start_soon(hang)
        with trio.fail_after(before + 60), pytest.raises(OutcomeUnknown):
            await found.invoke(Weather.turn, "Bonn")
        answered = [ping for ping in wire.pings if ping < asked + before]
        assert 5 <= trio.current_time() - max([asked, *answered]) <= 6  # without a byte
        assert wire.pings == [asked + 1 + 2 * n for n in range(len(wire.pings))]


@pytest.mark.parametrize("seconds", [2.0, 9.0])
async def test_how_long_a_peer_may_owe_an_answer_is_an_option(autojump_clock: Any, seconds: float) -> None:
    async with scripted(connection=ConnectionOptions(answer_seconds=seconds)) as (peers, _):
        found = await weather(peers)
        peers.wire.hangs = True
        began = trio.current_time()
        with pytest.raises(OutcomeUnknown):
            await found.invoke(Weather.turn, "Bonn")
        assert seconds <= trio.current_time() - began <= seconds + 1


@pytest.mark.parametrize("seconds", [0.2, 30.0])
async def test_the_longest_pause_between_attempts_is_an_option(autojump_clock: Any, seconds: float) -> None:
    async with scripted(connection=ConnectionOptions(reconnect_seconds=seconds), up=False) as (peers, _):
        await weather(peers, ready=False)
        await trio.sleep(600)
        pauses = [after - before for before, after in pairwise(peers.tries)]
        assert seconds * 0.8 < max(pauses) <= seconds


async def test_a_peer_that_shows_signs_of_life_is_waited_for(autojump_clock: Any) -> None:
    async with scripted() as (peers, _):
        found, wire = await weather(peers), peers.wire
        with trio.move_on_after(3_600.5) as scope:
            await found.invoke(Weather.turn, "Bonn")
        assert scope.cancelled_caught
        assert len(wire.pings) == 1_800
        await trio.sleep(1_000)  # the request is withdrawn, and nothing is owed
        assert (len(wire.pings), peers.wire is wire) == (1_800, True)


@pytest.mark.parametrize(
    ("offers", "kotlin"),
    [
        pytest.param(None, False, id="a foreign server"),
        pytest.param(None, True, id="kotlin-wot"),
    ],
)
async def test_peers_of_others_are_not_watched(autojump_clock: Any, offers: Any, kotlin: bool) -> None:
    async with scripted(offers=offers, kotlin=kotlin) as (peers, _):
        found, wire = await weather(peers), peers.wire
        wire.hangs = True
        with trio.move_on_after(100):
            await found.invoke(Weather.turn, "Bonn")
        assert (wire.pings, peers.wire is wire) == ([], True)


async def test_an_idle_peer_is_not_watched(autojump_clock: Any) -> None:
    async with scripted(offers=OFFERS) as (peers, _):
        await weather(peers)
        wire = peers.wire
        wire.hangs = True
        await trio.sleep(100)
        assert (wire.pings, peers.wire is wire) == ([], True)


@pytest.mark.parametrize(("steps", "is_given_up"), [((1, 1, 1, 1, 1), True), ((1, 1, 1, 1, 90), False)])
async def test_time_in_which_this_process_did_not_run_is_not_counted(
    mock_clock: Any, steps: tuple[int, ...], is_given_up: bool
) -> None:
    async with scripted() as (peers, _), trio.open_nursery() as nursery:
        found, wire = await weather(peers), peers.wire
        wire.hangs = True
        ended: list[Exception] = []

        async def ask() -> None:
            try:
                await found.invoke(Weather.turn, "Bonn")
            except OutcomeUnknown as error:
                ended.append(error)

        nursery.start_soon(ask)
        await quiet()
        for seconds in steps:
            mock_clock.jump(seconds)
            await quiet()
        assert len(ended) == is_given_up
        mock_clock.jump(1)
        await quiet()
        assert len(ended) == 1
