"""The writer: group commits, order, failures and the end, in real time and on a virtual clock."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from lmos_actors.errors import StoreFailed, StoreFull, StoreInUse, StoreLost, WriteConflict
from lmos_actors.persistence import Delete, Expected, MemoryStore, Put, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.persistence import Batch, Conflict, Durability, StoreWriter


class Watched(MemoryStore):
    """Store that records its commits, fails from when it is told to, and can be made to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[int, Durability]] = []
        self.failure: StoreFailed | None = None
        self.go_on = threading.Event()
        self.go_on.set()
        self.threads: set[int] = set()
        self.reads = 0

    def get(self, space: str, keys: Sequence[str]) -> list[bytes | None]:
        self.reads += 1
        return super().get(space, keys)

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        self.threads.add(threading.get_ident())
        assert self.go_on.wait(20)
        self.commits.append((len(batches), durability))
        if self.failure is not None:
            raise self.failure
        return super().commit(batches, durability)


def put(key: str, value: bytes = b"") -> list[Put]:
    return [Put("s", key, value)]


async def leaving_with(error: BaseException, store: MemoryStore) -> None:
    with trio.CancelScope() as scope:
        async with open_writer(store) as writer:
            writer.submit(put("a"))
            await wait_all_tasks_blocked()
            scope.cancel()
            raise error


@pytest.fixture(params=["real", "virtual"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    def run(main: Callable[..., Any]) -> None:
        trio.run(main, clock=MockClock(autojump_threshold=0) if request.param == "virtual" else None)

    return run


def test_what_is_submitted_is_committed_together_and_settled_in_order(run: Any) -> None:
    async def main() -> None:
        store, settled = Watched(), list[tuple[str, object]]()
        async with open_writer(store) as writer:
            for round in range(3):
                for key in "cab":
                    name = f"{key}{round}"
                    writer.submit(put(name), done=lambda error, name=name: settled.append((name, error)))
                last = writer.submit([Delete("s", f"c{round}")], "power" if round == 1 else "process")
                assert not last.settled
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(last.wait)
                    nursery.start_soon(last.wait)
                assert last.settled
                assert [key for key, _ in await writer.scan("s", limit=9, start="c")] == []
            assert await writer.get("s", ["a0", "x"]) == [b"", None]
            numbers = writer.statistics()
        assert settled == [(f"{key}{round}", None) for round in range(3) for key in "cab"]
        assert store.commits == [(4, "process"), (4, "power"), (4, "process")]
        assert (numbers.commits, numbers.tickets, numbers.writes, numbers.waiting) == (3, 12, 12, 0)
        assert (numbers.bytes, numbers.waiting_bytes, numbers.failures) == (9 * 3 + 3 * 3, 0, 0)

    run(main)


def test_a_conflict_fails_its_own_ticket(run: Any) -> None:
    async def main() -> None:
        async with open_writer(Watched()) as writer:
            first = writer.submit(put("a"))
            second = writer.submit([Put("s", "b", b""), Put("s", "a", b"", Expected.NOTHING)])
            third = writer.submit(put("c"))
            await third.wait()
            await first.wait()
            with pytest.raises(WriteConflict, match="another value at 'a' in 's'") as caught:
                await second.wait()
            assert (caught.value.space, caught.value.key) == ("s", "a")
            assert [key for key, _ in await writer.scan("s", limit=9)] == ["a", "c"]
            assert writer.statistics().conflicts == 1

    run(main)


@pytest.mark.slow
def test_a_failure_takes_all_that_is_pending_and_is_tried_again(run: Any) -> None:
    async def main() -> None:
        store, settled, said = Watched(), list[str](), list[str]()
        why = "the store s.db failed: it is full; make room on the disk"

        def note(key: str, error: StoreFailed | WriteConflict | None) -> None:
            assert str(error) == why
            settled.append(key)

        async with open_writer(store, said.append) as writer:
            store.failure = StoreFull("s.db", "it is full")
            # too much for one commit
            tickets = [writer.submit(put(key, bytes(5 << 20)), done=partial(note, key)) for key in "abc"]
            for ticket in tickets:
                with pytest.raises(StoreFull, match="make room on the disk"):
                    await ticket.wait()
            assert settled == ["a", "b", "c"]
            assert store.commits == [(2, "process")]
            with pytest.raises(StoreFull):
                writer.submit(put("d"))
            assert 0 < (writer.retry_in or 0) <= 0.1
            await trio.sleep(0.8)
            assert 3 <= len(store.commits) <= 5, "after 0.1, 0.3, 0.7 seconds"
            assert said == [f"{why}; agents that it keeps wait until it works"]
            store.failure = None
            await writer.ready()
            assert writer.retry_in is None
            assert await writer.scan("s", limit=9) == []
            await writer.submit(put("d")).wait()
            assert writer.statistics().failures == 1
            assert said[1:] == [f"the store {store.name} works again"]

    run(main)


def test_waits_between_tries_grow_up_to_five_seconds(autojump_clock: MockClock) -> None:
    async def main() -> None:
        store = Watched()
        async with open_writer(store) as writer:
            store.failure = StoreFull("s.db", "it is full")
            writer.submit(put("a"))
            await trio.sleep(3600)
            assert 720 < len(store.commits) < 730
            now = trio.current_time()
        assert trio.current_time() == now, "the end does not wait for the next one"

    del autojump_clock
    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_the_end_of_the_block_waits_for_what_was_submitted(run: Any) -> None:
    async def main() -> None:
        store = Watched()
        with trio.CancelScope() as scope:
            async with open_writer(store) as writer:
                tickets = [writer.submit(put(str(number))) for number in range(3000)]
                scope.cancel()
                await trio.sleep_forever()
        assert all(ticket.settled and ticket.error is None for ticket in tickets)
        assert [count for count, _ in store.commits] == [1024, 1024, 952]
        with pytest.raises(StoreFailed, match="being closed"):
            writer.submit(put("late"))
        store.open()
        assert len(store.scan("s", limit=4000)) == 3000

    run(main)


def test_what_leaves_the_block_is_no_group(run: Any) -> None:
    async def main() -> None:
        for error in (KeyError("mine"), KeyboardInterrupt()):
            with pytest.raises(type(error)) as caught:
                await leaving_with(error, MemoryStore())
            assert caught.value is error

    run(main)


def test_a_store_that_cannot_be_opened(run: Any) -> None:
    async def main() -> None:
        store = MemoryStore()
        async with open_writer(store) as writer:
            with pytest.raises(StoreInUse):
                async with open_writer(store):
                    raise AssertionError
            await writer.submit(put("a")).wait()  # it was not closed with the other

    run(main)


def test_writes_that_no_store_keeps_are_refused_at_once(run: Any) -> None:
    async def main() -> None:
        async with open_writer(MemoryStore()) as writer:
            for wrong, kind in (
                (put("\ud800"), ValueError),
                (put("a" * 20_000), ValueError),
                (put("a", bytearray(b"x")), TypeError),
                (put("a", "x"), TypeError),  # type: ignore[arg-type]
                (put("a", bytes((256 << 20) + 1)), ValueError),
            ):
                with pytest.raises(kind):
                    writer.submit(wrong)
            await writer.submit([]).wait()
            assert await writer.scan("s", limit=9) == []

    run(main)


async def test_the_event_loop_goes_on_while_the_disk_does_not() -> None:
    store = Watched()
    async with open_writer(store) as writer:
        store.go_on.clear()
        first = writer.submit(put("a"))
        await wait_all_tasks_blocked(0.01)
        rest = [writer.submit(put(str(number))) for number in range(10)]
        for wait in (first.wait, rest[0].wait, lambda: writer.get("s", ["a"])):
            with trio.move_on_after(0.02) as scope:
                await wait()
            assert scope.cancelled_caught
        numbers = writer.statistics()
        assert numbers.waiting == 11
        assert numbers.waiting_seconds >= 0.06
        store.go_on.set()
        await rest[-1].wait()
        assert await writer.get("s", ["a", "9"]) == [b"", b""]
    assert store.commits == [(1, "process"), (10, "process")]
    assert store.reads == 1, "the one that was cancelled is not made"
    assert threading.get_ident() not in store.threads


class Passes(trio.abc.Instrument):
    """Counts the passes of trio's run loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_an_owner_goes_on_without_a_pass_in_which_the_writer_wakes_first() -> None:
    passes = Passes()
    async with open_writer(Watched()) as writer:
        await writer.commit(put("a"))
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(passes)
        await writer.commit(put("b"))
        trio.lowlevel.remove_instrument(passes)
    assert passes.count == 3  # the writer begins, its thread is heard, this task goes on


async def test_nobody_submits_more_than_there_is_room_for_who_asks() -> None:
    store = Watched()
    async with open_writer(store) as writer:
        store.go_on.clear()
        most = 0

        async def submit_many() -> None:
            nonlocal most
            for _ in range(1000):
                await writer.room()
                writer.submit(put("a", bytes(1 << 20)))
                most = max(most, writer.statistics().waiting_bytes)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit_many)
            await wait_all_tasks_blocked(0.01)
            assert writer.is_full
            assert 60 < writer.statistics().waiting < 70
            store.go_on.set()
        assert most < 70 << 20
    assert sum(count for count, _ in store.commits) == 1000


async def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.persistence._writer.ENDING_SECONDS", 0.05)
    store = Watched()
    async with open_writer(store) as writer:
        store.go_on.clear()
        tickets = [writer.submit(put("a"))]
        await wait_all_tasks_blocked(0.01)
        tickets.append(writer.submit(put("b")))
    for ticket in tickets:
        with pytest.raises(StoreFailed, match="not answered within"):
            await ticket.wait()
    with pytest.raises(StoreFailed):
        await writer.ready()
    store.go_on.set()
    with trio.fail_after(5):
        while True:  # the thread that was left behind closes it
            try:
                store.open()
            except StoreInUse:
                await trio.sleep(0.01)
            else:
                break
    assert store.scan("s", limit=9) == [("a", b"")], "what was under way may be there"


async def test_an_error_is_not_lost_at_an_end_that_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmos_actors.persistence._writer.ENDING_SECONDS", 0.05)
    store, error = Watched(), KeyError("mine")
    store.go_on.clear()
    with pytest.raises(KeyError) as caught:
        await leaving_with(error, store)
    assert caught.value is error
    store.go_on.set()


@pytest.mark.parametrize(
    ("commit", "error"), [(lambda *_: 1 / 0, ZeroDivisionError), (lambda *_: [], ValueError)]
)
async def test_a_bug_in_a_store_ends_the_block_and_leaves_nobody_waiting(
    commit: Any, error: type[Exception]
) -> None:
    store = Watched()
    store.commit = commit  # type: ignore[method-assign]
    with pytest.RaisesGroup(error):
        async with open_writer(store) as writer:
            ticket = writer.submit(put("a"))
            with trio.CancelScope(shield=True):
                await ticket.wait()
    assert isinstance(ticket.error, StoreFailed)


async def test_a_ticket_is_settled_once_where_a_read_finds_the_store_lost_before_its_commit_ends() -> None:
    store, settled, reads_on = Watched(), list[object](), threading.Event()
    lost = StoreLost("s", "it is gone")

    def get(*_: object) -> list[bytes | None]:
        assert reads_on.wait(20)
        raise lost

    store.get = get  # type: ignore[method-assign]
    store.go_on.clear()

    async def read(writer: StoreWriter) -> None:
        with pytest.raises(StoreLost):
            await writer.get("s", ["a"])

    with pytest.raises(StoreLost):  # noqa: PT012 -- what is lost leaves the block of the writer
        async with open_writer(store) as writer, trio.open_nursery() as nursery:
            nursery.start_soon(read, writer)
            await wait_all_tasks_blocked()
            ticket = writer.submit(put("a"), done=settled.append)
            await wait_all_tasks_blocked()
            reads_on.set()
            with pytest.raises(StoreLost):
                await ticket.wait()
            store.go_on.set()
            await trio.sleep_forever()
    assert settled == [lost]
    assert ticket.error is lost
    assert writer.statistics().waiting_bytes == 0


def test_a_batch_is_kept_when_its_commit_returns_and_all_records_of_a_range_are_read(run: Any) -> None:
    async def main() -> None:
        async with open_writer(MemoryStore()) as writer:
            keys = [f"{number:04}" for number in range(1_203)]
            await writer.commit([Put("s", key, key.encode()) for key in keys])
            assert await writer.records("s") == [(key, key.encode()) for key in keys]
            assert [key for key, _ in await writer.records("s", "0499", "1001")] == keys[499:1001]
            assert await writer.records("other") == []
            with pytest.raises(WriteConflict):
                await writer.commit([Put("s", "0000", b"", Expected.NOTHING)])

    run(main)
