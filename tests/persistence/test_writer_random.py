"""Random programs on the writer: who is settled, when, and what the store has in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock

from lmos_actors.errors import StoreFailed, WriteConflict
from lmos_actors.persistence import Expected, MemoryStore, Put, open_writer, records_of
from tests.matrix import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.persistence import Batch, Conflict, Durability, StoreWriter, Ticket


class Moody(MemoryStore):
    """Store that fails so many of the next commits, and records what it has written."""

    failing = 0

    def __init__(self) -> None:
        super().__init__()
        self.durabilities: dict[bytes, Durability] = {}

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        if self.failing:
            self.failing -= 1
            raise StoreFailed(self.name, "it is moody")
        for batch in batches:
            for write in batch:
                if isinstance(write, Put):
                    self.durabilities[write.value] = durability
        return super().commit(batches, durability)


@attrs.define
class Program:
    """One run: each ticket has a number, which it writes under its key and in a journal."""

    store: Moody
    submitted: list[tuple[int, str, Ticket, Durability]] = attrs.Factory(list)
    settled: list[tuple[int, object]] = attrs.Factory(list)
    refused: int = 0

    def submit(self, writer: StoreWriter, key: str, expects_nothing: bool, power: bool) -> None:
        number = len(self.submitted) + self.refused
        expect = Expected.NOTHING if expects_nothing else Expected.ANYTHING
        value = f"{number}".encode()
        writes = [Put("s", key, value, expect), Put("j", f"{number:06}", value)]
        durability: Durability = "power" if power else "process"
        try:
            ticket = writer.submit(writes, durability, lambda error: self.settled.append((number, error)))
        except StoreFailed:
            assert writer.retry_in is not None
            self.refused += 1
        else:
            self.submitted.append((number, key, ticket, durability))

    async def carry_out(self, steps: list[Any]) -> None:
        async with open_writer(self.store) as writer, trio.open_nursery() as nursery:
            for kind, *more in steps:
                if kind == "submit":
                    self.submit(writer, *more)
                elif kind == "fail":
                    self.store.failing += more[0]
                elif kind == "sleep":
                    await trio.sleep(more[0])
                elif kind == "ready":
                    await writer.ready()
                    assert writer.retry_in is None
                elif kind == "room":
                    await writer.room()
                elif kind == "wait" and self.submitted:
                    nursery.start_soon(self.wait, self.submitted[-1][2], more[0])
                elif kind == "read":
                    (value,) = await writer.get("s", ["a"])
                    assert value is None or value in self.store.durabilities
            nursery.cancel_scope.deadline = trio.current_time() + 100

    async def wait(self, ticket: Ticket, seconds: float) -> None:
        with trio.move_on_after(seconds):
            failure: Exception | None = None
            try:
                await ticket.wait()
            except (StoreFailed, WriteConflict) as error:
                failure = error
            assert ticket.settled
            assert (type(failure), str(failure)) == (type(ticket.error), str(ticket.error))

    def judge(self) -> None:
        numbers = [number for number, _, _, _ in self.submitted]
        assert [number for number, _ in self.settled] == numbers, "each once, in order"
        content: dict[str, bytes] = {}
        journal: dict[str, bytes] = {}
        for number, key, ticket, durability in self.submitted:
            assert ticket.settled
            assert dict(self.settled)[number] is ticket.error
            if ticket.error is None:
                content[key] = journal[f"{number:06}"] = f"{number}".encode()
                assert durability == "process" or self.store.durabilities[content[key]] == "power"
            elif isinstance(ticket.error, WriteConflict):
                assert key in content, "what it expected not to be there was there"
        self.store.open()
        assert dict(records_of(self.store, "s")) == content
        assert dict(records_of(self.store, "j")) == journal
        self.store.close()


seconds = st.sampled_from([0.0, 0.05, 0.1, 1.0, 20.0])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from("abc"), st.booleans(), st.booleans()),
        st.tuples(st.just("submit"), st.sampled_from("abc"), st.just(False), st.booleans()),
        st.tuples(st.just("fail"), st.integers(1, 4)),
        st.tuples(st.just("sleep"), seconds),
        st.tuples(st.just("wait"), seconds),
        st.sampled_from([("ready",), ("room",), ("read",)]),
    ),
    max_size=40,
)


@given(steps=steps, cancelled=st.none() | st.floats(0, 30))
@settings(max_examples=examples(600), deadline=None)
def test_tickets_are_settled_in_order_and_the_store_has_what_they_say(
    steps: list[Any], cancelled: float | None
) -> None:
    program = Program(Moody())

    async def main() -> None:
        with trio.move_on_after(1000 if cancelled is None else cancelled):
            await program.carry_out(steps)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    program.judge()
