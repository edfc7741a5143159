"""Random programs of agents with small mailboxes, in which one that waits in a mailbox's line is cancelled.

Each program is played again and again; each time another of the waits for a seat, or for an answer behind
one, is cancelled at another step of trio. Afterwards the accounts add up, no seat stays taken, no circle of
seats stays, and nothing is refused after that instant that would not have waited for ever.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.actors import DONE, Envelope, slot_of
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from tests.attack import seat_model
from tests.attack.seat_model import AGENTS, Message, Player, Records, Shadow, program, start_players
from tests.attack.test_cancel_everywhere import AtSteps
from tests.attack.test_random_seats import check_no_circle, check_refusals
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from lmos_actors import Ref

HORIZON = 1000.0


class LaterShadow(Shadow):
    """Notes what is to be refused after the instant of the cancel, in which its effect may be to come."""

    until = math.inf

    def closed_by(self, envelope: Any) -> tuple[str, ...]:
        circle = super().closed_by(envelope)
        self._forget()
        return circle

    def refuse(self, envelope: Any, circle: tuple[str, ...]) -> bool:
        refused = super().refuse(envelope, circle)
        self._forget()
        return refused

    def _forget(self) -> None:
        if trio.current_time() <= self.until:
            self.found.clear()


def seats_taken(slot: Any) -> int:
    """Return how many messages an agent has that have not begun, those that it has sent itself included.

    What was withdrawn has no seat, and stays in the queue until its turn comes.
    """
    extra = slot.extra
    lines = [] if extra is None else [*extra.pending.values()]
    aside = [] if extra is None or extra.stash is None else [extra.stash.items.values()]
    items = [item for line in (slot.queue, *lines, *aside) for item in line]
    withdrawn = [item for item in items if isinstance(item, Envelope) and item.phase == DONE]
    return sum(not hasattr(item, "take") for item in items) - len(withdrawn)


def check_seats(players: list[Ref[Player]]) -> None:
    """Check that each seat is of a message that is there, and that nobody waits for one that is free."""
    slots = [slot_of(player) for player in players]
    for player, slot in zip(players, slots, strict=True):
        now = player.mailbox_statistics()
        assert now.depth == seats_taken(slot), slot.path
        assert not now.parked or now.depth >= now.size, (slot.path, "nobody gets a seat that is free")
        assert (slot in slot.rt.full_slots) == bool(now.parked), slot.path


async def play(seed: int, step: int, *, shadow: bool) -> bool:
    """Play a program, one wait cancelled before that step; return whether it came so far."""
    kinds, first = program(seed)
    records = seat_model.RECORDS = Records()

    def cancel() -> None:
        waits = list(records.waits)
        if waits:
            waits[step % len(waits)].cancel("one of the waits")
        if isinstance(search, LaterShadow):
            search.until = trio.current_time()

    async with open_test_node() as node, trio.open_nursery() as nursery:
        players = await start_players(node, kinds)
        rt: Any = slot_of(players[0]).rt
        if shadow:
            rt.circles = LaterShadow(rt)
        search = rt.circles
        at_step = AtSteps({step: cancel})
        trio.lowlevel.add_instrument(at_step)
        try:
            for seconds, message in first:
                records.take(message)
                nursery.start_soon(tell_later, players, seconds, message)
            await trio.sleep(HORIZON)
        finally:
            trio.lowlevel.remove_instrument(at_step)
        await trio.sleep(HORIZON)  # what was cancelled last has ended, too
        await settle()
        check_seats(players)
        if shadow:
            check_refusals(players, node)
        else:
            check_no_circle(players, node)
        records.judged = True
        nursery.cancel_scope.cancel()
    return not at_step.deeds


async def tell_later(players: list[Ref[Player]], seconds: float, message: Message) -> None:
    await trio.sleep(seconds)
    with seat_model.RECORDS.wait():
        await players[AGENTS.index(message.agent)].tell(getattr(Player, message.action), message.number)


def play_at(seed: int, step: int, *, shadow: bool) -> bool:
    try:
        return trio.run(lambda: play(seed, step, shadow=shadow), clock=VirtualClock())
    except BaseException as error:
        error.add_note(f"program {seed}, a wait cancelled at step {step}, shadow {shadow}")
        raise


@pytest.mark.parametrize("ten", range(few_or_all(3, 20)))
def test_one_of_the_waits_is_cancelled_at_every_step(ten: int) -> None:
    steps = few_or_all(19, 2)
    for seed in range(10 * ten, 10 * ten + 10):
        for shadow in (False, True):
            assert next(step for step in count(1, steps) if not play_at(seed, step, shadow=shadow)) > 1
