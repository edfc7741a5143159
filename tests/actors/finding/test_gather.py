"""One message to many agents, and all their answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    DeadlineExceeded,
    InvalidInput,
    MailboxFull,
    MailboxOptions,
    Node,
    NotFound,
    Ref,
    action,
    current_request,
    invoke_all,
    open_node,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock


class Worker(Agent):
    wait: float = 0.0
    seen: int = 0
    stopped: int = 0
    kept: Any = None

    @action
    def double(self, value: int) -> int:
        self.seen += 1
        return 2 * value

    @action
    async def later(self, value: int) -> int:
        self.seen += 1
        try:
            await trio.sleep(self.wait)
        except trio.Cancelled:
            self.stopped += 1
            raise
        return int(self.wait) + value

    @action
    def refuse(self, above: int) -> int:
        self.seen += 1
        if self.wait > above:
            raise ActionFailed(f"{self.wait:g} is above {above}")
        return above

    @action
    async def refuse_later(self, above: int) -> int:
        value = await self.later(above)
        if self.wait > above:
            raise ActionFailed(f"{self.wait:g} is above {above}")
        return value

    @action
    def crash(self) -> None:
        raise ValueError("on purpose")

    @action
    def keep(self, values: list[int]) -> int:
        self.kept = values
        values.append(0)
        return len(values)

    @action
    def asked_by(self) -> str | None:
        return current_request().consumer

    @action
    def counted(self) -> int:
        return self.seen

    @action
    def cancelled(self) -> int:
        return self.stopped


class Boss(Agent):
    workers: Any = None

    @action
    async def ask_all(self) -> list[str | None]:
        return await invoke_all(self.workers, Worker.asked_by)

    @action
    def ask_without_waiting(self) -> None:
        invoke_all(self.workers, Worker.asked_by)  # type: ignore[unused-coroutine]


async def workers(node: Node, *waits: float, mailbox: MailboxOptions | None = None) -> list[Ref[Worker]]:
    return [
        await node.root.start_child(
            ChildSpec(f"worker{place}", partial(Worker, wait=wait), restart="temporary", mailbox=mailbox)
        )
        for place, wait in enumerate(waits)
    ]


async def seen(refs: list[Ref[Worker]]) -> list[int]:
    return [await ref.invoke(Worker.counted) for ref in refs]


async def test_outputs_come_in_the_order_of_the_refs(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 3, 1, 2)
        assert await invoke_all(refs, Worker.double, 4) == [8, 8, 8]
        assert await invoke_all(refs, Worker.later, value=10) == [13, 11, 12]


async def test_agents_work_side_by_side(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 3, 1, 2)
        await invoke_all(refs, Worker.later, 0)
        assert trio.current_time() == pytest.approx(3)


async def test_nobody_asked_gives_nothing(autojump_clock: MockClock) -> None:
    async with open_node():
        assert await invoke_all([], Worker.double, 1) == []


async def test_any_iterable_of_refs_and_any_kind_of_near_ref_will_do(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 2)
        found = node.find(Worker, "worker0")
        assert await invoke_all((ref for ref in [found, refs[1], found]), Worker.later, 0) == [1, 2, 1]
        assert await invoke_all([found], Worker.double, 2) == [4]


async def test_the_accounts_are_those_of_asks(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 2)
        await invoke_all(refs, Worker.double, 1)
        await invoke_all(refs, Worker.later, 1)
        for ref in refs:
            counts = ref.statistics()
            assert (counts.accepted, counts.handled, counts.waiting, counts.running) == (2, 2, 0, 0)


async def test_the_first_failure_of_a_turn_is_raised_and_nobody_further_is_asked(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 5, 5)
        with pytest.raises(ActionFailed, match="5 is above 3"):
            await invoke_all(refs, Worker.refuse, 3)
        assert await seen(refs) == [1, 1, 0]


async def test_the_first_failure_of_a_run_cancels_the_rest(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 9, 1, 2)
        with pytest.raises(ActionFailed, match="1 is above 0"):
            await invoke_all(refs, Worker.refuse_later, 0)
        assert trio.current_time() == pytest.approx(1)
        await trio.testing.wait_all_tasks_blocked()
        assert [await ref.invoke(Worker.cancelled) for ref in refs] == [1, 0, 1]
        assert [ref.statistics().cancelled for ref in refs] == [1, 0, 1]


async def test_a_failure_while_others_are_still_being_asked_cancels_what_is_open(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        refs = await workers(node, 9, 9)
        dead = await workers_named(node, "gone", Worker)
        await node.root.terminate_child("gone")
        with pytest.raises(NotFound):
            await invoke_all([*refs, dead], Worker.later, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert [ref.statistics().cancelled for ref in refs] == [1, 1]


async def workers_named(node: Node, name: str, made: Callable[[], Worker]) -> Ref[Worker]:
    return await node.root.start_child(ChildSpec(name, made, restart="temporary"))


async def test_a_crash_is_raised_as_the_agents_death(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 2)
        with pytest.raises(AgentDied) as caught:
            await invoke_all(refs, Worker.crash)
        assert caught.value.started is True


async def test_cancelling_the_caller_cancels_all(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 8, 9)
        with trio.move_on_after(1) as scope:
            await invoke_all(refs, Worker.later, 0)
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert [ref.statistics().cancelled for ref in refs] == [1, 1]
        assert [ref.statistics().running for ref in refs] == [0, 0]


async def test_a_cancelled_caller_asks_nobody(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1)
        assert await seen(refs) == [0]
        with trio.CancelScope() as scope:
            scope.cancel()
            await invoke_all(refs, Worker.double, 1)
        assert scope.cancelled_caught
        assert await seen(refs) == [0]


async def test_refs_with_a_deadline_keep_it(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 9)
        with pytest.raises(DeadlineExceeded):
            await invoke_all([refs[0], refs[1].within(2)], Worker.later, 0)
        assert trio.current_time() == pytest.approx(2, abs=0.02)
        assert await invoke_all([refs[0].within(2)], Worker.later, 0) == [1]
        await trio.sleep(5)


async def test_arguments_are_checked_and_shared_with_nobody(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 2)
        mine = [1, 2]
        assert await invoke_all(refs, Worker.keep, mine) == [3, 3]
        assert mine == [1, 2]
        with pytest.raises(InvalidInput):
            await invoke_all(refs, Worker.double, "two")  # type: ignore[arg-type]
        assert [ref.statistics().handled for ref in refs] == [2, 1]


async def test_one_agent_may_be_asked_many_times(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        (ref,) = await workers(node, 1)
        assert await invoke_all([ref] * 3, Worker.later, 0) == [1, 1, 1]
        assert trio.current_time() == pytest.approx(3)


async def test_more_asks_than_seats_wait_for_a_seat(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        (ref,) = await workers(node, 1, mailbox=MailboxOptions(size=2))
        assert await invoke_all([ref] * 6, Worker.later, 0) == [1] * 6
        counts = ref.statistics()
        assert (counts.accepted, counts.handled, counts.waiting) == (6, 6, 0)


async def test_a_mailbox_that_refuses_fails_all(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        (ref,) = await workers(node, 9, mailbox=MailboxOptions(size=1, when_full="reject"))
        with pytest.raises(MailboxFull):
            await invoke_all([ref] * 6, Worker.later, 0)
        await trio.testing.wait_all_tasks_blocked()
        counts = ref.statistics()
        assert counts.accepted == counts.cancelled
        assert counts.refused == 1


async def test_nobody_is_asked_once_a_message_has_been_dropped(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        (ref,) = await workers(node, 9, mailbox=MailboxOptions(size=1, when_full="drop_newest"))
        other = await workers_named(node, "other", Worker)
        with pytest.raises(MailboxFull):
            await invoke_all([ref, ref, ref, ref, other], Worker.later, 0)
        assert other.statistics().accepted == 0


class Recorded:
    """An instrument that keeps the kinds of records."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        self.kinds.append(kind)


async def test_an_instrument_sees_every_message(autojump_clock: MockClock) -> None:
    recorded = Recorded()
    async with open_node(instrument=recorded) as node:
        refs = await workers(node, 1, 2)
        assert await invoke_all(refs, Worker.double, 2) == [4, 4]
    assert [recorded.kinds.count(kind) for kind in ("sent", "delivered", "answered")] == [2, 2, 2]


async def test_others_get_their_turn_while_many_idle_agents_are_asked(autojump_clock: MockClock) -> None:
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with open_node() as node, trio.open_nursery() as nursery:
        refs = await node.root.start_many(ChildSpec("worker", Worker), 2000)
        nursery.start_soon(count)
        before = passes
        assert await invoke_all(refs, Worker.double, 1) == [2] * 2000
        assert passes - before >= 2000 // 256 - 1
        nursery.cancel_scope.cancel()


async def test_the_asking_agent_is_the_sender(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1, 2)
        boss = await node.start(Boss, workers=refs)
        assert await boss.invoke(Boss.ask_all) == ["boss", "boss"]


async def test_a_def_turn_cannot_wait_for_it(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        refs = await workers(node, 1)
        boss = await node.root.start_child(
            ChildSpec("boss", partial(Boss, workers=refs), restart="temporary")
        )
        with pytest.raises(AgentDied, match=r"invoke_all\(\.\.\.\) has to be awaited"):
            await boss.invoke(Boss.ask_without_waiting)


class FarLink:
    """As much of a link to another process as an invocation needs."""

    path = "far"

    def __init__(self, near: Ref[Any], answer: Callable[[tuple[Any, ...]], Awaitable[Any]]) -> None:
        self.turns = near._link.turns
        self._answer = answer

    async def ask(self, _key: str, args: tuple[Any, ...], *_: object) -> Any:
        return await self._answer(args)


async def test_far_agents_are_asked_beside_the_near_ones(autojump_clock: MockClock) -> None:
    async def slowly(args: tuple[Any, ...]) -> Any:
        await trio.sleep(2)
        return args[0] + 100

    async with open_node() as node:
        near = await workers(node, 2, 1)
        far: Any = Ref(FarLink(near[0], slowly))  # type: ignore[arg-type]
        assert await invoke_all([near[0], far, near[1]], Worker.later, 5) == [7, 105, 6]
        assert trio.current_time() == pytest.approx(2)


async def test_a_far_failure_cancels_the_near_ones_and_the_reverse(autojump_clock: MockClock) -> None:
    cancelled = 0

    async def fail(_args: tuple[Any, ...]) -> Any:
        await trio.sleep(1)
        raise ActionFailed("far")

    async def never(_args: tuple[Any, ...]) -> Any:
        nonlocal cancelled
        try:
            await trio.sleep_forever()
        finally:
            cancelled += 1

    async with open_node() as node:
        near = await workers(node, 9, 2)
        failing: Any = Ref(FarLink(near[0], fail))  # type: ignore[arg-type]
        silent: Any = Ref(FarLink(near[0], never))  # type: ignore[arg-type]
        with pytest.raises(ActionFailed, match="far"):
            await invoke_all([near[0], failing, silent], Worker.later, 0)
        assert cancelled == 1
        with pytest.raises(ActionFailed, match="2 is above 1"):
            await invoke_all([silent, near[1]], Worker.refuse_later, 1)
        assert cancelled == 2
        await trio.testing.wait_all_tasks_blocked()
        assert near[0].statistics().cancelled == 1
