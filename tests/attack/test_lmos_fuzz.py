"""Whatever a peer sends, at whatever moment: a problem or an answer, and the accounts add up."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol import lmos
from tests.long.fuzz_lmos import MACHINES, STEPS, Bytes, run_one
from tests.wire.machines import ConsumerUnderFire, Peer, ThingUnderFire
from tests.wire.twice import TwoConnections

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("machine", [ThingUnderFire, ConsumerUnderFire])
@given(seed=SEEDS)
def test_a_session_survives_its_peer(machine: Callable[[Random], ThingUnderFire], seed: int) -> None:
    under_fire = machine(Random(seed))
    for _ in range(STEPS):
        under_fire.step()


@given(seed=SEEDS)
def test_a_request_has_one_final_answer_over_every_connection_it_came_by(seed: int) -> None:
    connections = TwoConnections(Random(seed))
    for _ in range(STEPS):
        connections.step()
    connections.finish()


@given(seed=SEEDS)
def test_a_frame_is_a_message_or_unreadable(seed: int) -> None:
    random = Random(seed)
    peer = Peer(random)
    codec = lmos.Codec(
        random.choice((lmos.Dialect.of_thing(offered=True), lmos.Dialect.of_consumer(selected=False)))
    )
    for _ in range(STEPS):
        found = codec.decode(peer.frame())
        if not isinstance(found, lmos.Unreadable):
            again = codec.decode(codec.encode(found))  # a null more, by kotlin-wot's habits
            assert codec.decode(codec.encode(again)) == again


@pytest.mark.parametrize("which", MACHINES)
def test_the_long_run_tells_a_story(which: str) -> None:
    assert run_one(which, Bytes(bytes(range(256)) * 8)) == STEPS


def test_chance_from_bytes_is_what_the_bytes_say() -> None:
    assert [Bytes(bytes(8)).random(), Bytes(b"\xff" * 8).getrandbits(12)] == [0.0, 4095]
    assert Bytes(b"\x01\x02").getrandbits(64) == Bytes(b"\x01\x02").getrandbits(64)
