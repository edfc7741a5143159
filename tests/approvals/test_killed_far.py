"""Payments that people approve, while the processes of who asks and who waits are killed (SIGKILL).

The agents and the invariant are those of `test_far_lives.py`. The processes meet over sockets: by LMOS, where
a request has a key, or on the relay of a third process, where it has none. There nothing tells who asks that
who answers has ended, so it asks again after some time; an order may be paid again, with one more consent.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

import attrs
import msgspec
import pytest
import trio

from lmos_actors import open_node
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.facades import RelayOptions, register_on_relay
from lmos_actors.persistence import SqliteStore
from tests.approvals.killed_payments import PACE, credentials, paid_in
from tests.approvals.test_far_lives import World
from tests.lives import lives_of
from tests.matrix import few_or_all
from tests.persistence.test_killed_servers import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from pathlib import Path

    from lmos_actors import Ref

ORDERS = few_or_all(5, 25)
"""Of one world."""

WORLDS = few_or_all(1, 10)
"""Of one way, with kills or without: a thousand orders in all."""

LONGEST = (20 * PACE, 60 * PACE, 120 * PACE)
"""Seconds until each kill of one side in one world; a turn that is cut off more often is given up."""

LAST = 60.0
"""Seconds of a life that is not killed on purpose; so none outlives the test by more."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def sides() -> Generator[dict[str, Callable[..., int]]]:
    """Run one life of either side."""
    module = "tests.approvals.killed_payments"
    with lives_of(module) as desk, lives_of(module) as payments:
        yield {"desk": desk, "payments": payments}


@attrs.define(kw_only=True)
class Processes(World):
    """Two processes, each of which has many lives, and people who decide from a third."""

    folder: Path
    sides: dict[str, Callable[..., int]]
    places: dict[str, str]
    killed: Counter[str] = attrs.field(factory=Counter[str])

    async def live(self, name: str) -> None:
        """Live again and again, until the work of this side has come to its end."""
        (self.folder / name).mkdir()
        ended = -signal.SIGKILL
        while ended:
            is_doomed = self.kills and self.killed[name] < len(LONGEST)
            seconds = self.random.uniform(0, LONGEST[self.killed[name]]) if is_doomed else LAST
            arguments = str(self.folder), name, self.places, self.orders, seconds
            ended = await trio.to_thread.run_sync(partial(self.sides[name], *arguments))
            if ended and not (ended == -signal.SIGKILL and is_doomed):
                (self.folder / "over").touch()
                pytest.fail(f"{name} has ended with {ended}")
            self.killed[name] += ended != 0
            await self.sleep(0, 10)

    async def approvals(self) -> Ref[Approvals]:
        place = self.places["payments"].replace("ws", "http", 1)
        return await self.nodes["person"].consume(Approvals, f"{place}/agents/approvals")

    async def run(self) -> None:
        """Have all orders paid or refused."""
        for name in ("desk", "person"):
            (self.folder / f"{name}.token").write_text(f"token-of-{name}")
        over = self.folder / "over"
        known = credentials(self.folder, self.places["payments"], "person")
        try:
            async with AsyncExitStack() as stack:
                if "hub" in self.places:
                    await stack.enter_async_context(self._hub())
                self.nodes["person"] = await stack.enter_async_context(open_node(credentials=known))
                people = await stack.enter_async_context(trio.open_nursery())
                people.start_soon(self.decide)
                async with trio.open_nursery() as lives:
                    lives.start_soon(self.live, "payments")
                    await self.live("desk")
                    over.touch()
                people.cancel_scope.cancel()
        finally:
            over.touch()
        self.answers = json.loads((self.folder / "desk" / "answers.json").read_text())
        kept = (self.folder / "payments" / "kept.json").read_bytes()
        self.kept = msgspec.json.decode(kept, type=list[Approval])

    @asynccontextmanager
    async def _hub(self) -> AsyncGenerator[None]:
        """Have both sides meet on a hub in this process."""
        hub, options = self.places["hub"], RelayOptions(extensions=("receipts", "questions"))
        async with open_node(listen=hub, relay=options):
            for name in self.sides:
                made = await register_on_relay(hub, name)
                (self.folder / f"{name} at hub.token").write_text(made.token)
            yield

    def judge(self) -> Counter[str]:
        """Judge what has become of all; return the figures."""
        self.judge_questions()
        lives, consents = self._lives(), self.consents()
        acts = Counter(chain(*lives))
        unrecorded = acts - self._paid()
        assert unrecorded <= Counter(chain(*map(set, lives[:-1]))), "not kept, and not killed"
        assert len(self.answers) == self.orders
        for order, answer in self.answers.items():
            assert acts[order] <= consents[order] + unrecorded[order], order
            assert acts[order] or answer == "refused", order
            if "hub" not in self.places:
                assert len([each for each in self.kept if each.key == order]) == 1, order
                assert acts[order] <= 1 + unrecorded[order], order
                assert answer == ("paid" if acts[order] else "refused"), order
        return Counter(
            orders=self.orders,
            questions=len(self.kept),
            consents=consents.total(),
            acts=acts.total(),
            excess=(acts - consents).total(),
            unrecorded=unrecorded.total(),
            kills_of_desk=self.killed["desk"],
            kills_of_payments=self.killed["payments"],
        )

    def _lives(self) -> list[list[str]]:
        """Return what was paid in each life, all of which but the last were killed."""
        lives, kept = list[list[str]](), 0
        for word, about in map(str.split, (self.folder / "payments" / "log").read_text().splitlines()):
            if word == "life":
                lives.append([])
            elif word == "act":
                lives[-1].append(about)
            else:
                assert int(about) >= kept, "what was kept is lost"
                kept = int(about)
        return lives

    def _paid(self) -> Counter[str]:
        """Return what is kept as paid."""
        store = SqliteStore(self.folder / "payments" / "kept.db")
        store.open()
        with closing(store):
            ((_, state),) = store.scan("state", limit=2)
        return Counter(paid_in(state))


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("way", ["sockets", "relay"])
def test_there_are_no_more_acts_than_consents(
    way: str,
    kills: bool,
    tmp_path: Path,
    sides: dict[str, Callable[..., int]],
) -> None:
    figures: Counter[str] = Counter()
    for seed in range(WORLDS):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        names = ["payments", "hub"] if way == "relay" else ["payments"]
        places = {name: f"ws://127.0.0.1:{free_port()}" for name in names}
        world = Processes(
            Random(seed), kills, pace=PACE, orders=ORDERS, folder=folder, sides=sides, places=places
        )
        trio.run(world.run)
        figures += world.judge()
        assert bool(world.killed.total()) == kills
    print(way, dict(figures))  # with -s
