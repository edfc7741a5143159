"""Turns: `def` handlers and whoever runs them (DECISIONS T1 to T7)."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    ExitReason,
    NotAllowed,
    Property,
    Ref,
    action,
    current_request,
    event,
    prop,
)
from lmos_actors.testing import open_test_node, settle


class Counter(Agent, behaviours=("open", "shut")):
    count: Property[int] = prop(default=0)
    counted: Event[int] = event()

    @action
    def add(self, number: int = 1) -> int:
        self.count += number
        self.counted.emit(self.count)
        return self.count

    @action(when="shut")
    async def recount(self) -> None:
        """Be refused: no counter here is ever shut."""

    @action
    def fail(self, output: str) -> None:
        raise ActionFailed(output)

    @action
    def fail_together(self, outputs: list[str]) -> None:
        raise ExceptionGroup("several", [ActionFailed(output) for output in outputs])

    @action
    def fail_mixed(self) -> None:
        raise ExceptionGroup("several", [ActionFailed("declared"), ValueError("not declared")])

    @action
    def crash(self, text: str) -> None:
        raise KeyError(text)

    @action
    def lie(self) -> int:
        return "seven"  # type: ignore[return-value]

    @action
    def who_asks(self) -> str | None:
        return current_request().consumer

    @action
    def what_is_asked(self) -> str:
        return current_request().affordance

    @action
    async def slow(self, seconds: float) -> None:
        await trio.sleep(seconds)


class Watcher(Agent):
    """Hears of the counts as turns of its own."""

    other: Ref[Counter]
    heard: tuple[str, ...] = ()

    def started(self) -> None:
        self.follow(self.other, Counter.counted, self.on_counted)

    def on_counted(self, count: int) -> None:
        self.heard += (f"counted {count}",)

    @action
    def seen(self) -> tuple[str, ...]:
        return self.heard


class Caller(Agent):
    counter: Ref[Counter]

    @action
    def ask_from_a_turn(self) -> None:
        self.counter.invoke(Counter.add)

    @action
    def tell_from_a_turn(self) -> None:
        self.counter.tell(Counter.add)

    @action
    def read_from_a_turn(self) -> None:
        self.counter.read(Counter.count)

    @action
    def send_on(self) -> None:
        self.send(self.counter, Counter.add, 5)

    @action
    async def ask_from_a_run(self) -> str | None:
        return await self.counter.invoke(Counter.who_asks)

    @action
    def send_twice_and_look(self) -> int:
        self.send(self.counter, Counter.add)
        self.counter.tell_nowait(Counter.add)
        return self.counter.statistics().handled


async def test_t1_an_idle_agents_turn_runs_in_the_askers_own_step(virtual_clock) -> None:
    """T1, T2: no task switch for the ask of an idle agent."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        counter = await node.start(Counter)
        await settle()
        others: list[str] = []

        async def other() -> None:
            others.append("ran")

        nursery.start_soon(other)
        assert await counter.invoke(Counter.add) == 1
        assert others == [], "the ask gave way to another task"


async def test_t1_turns_never_nest(virtual_clock) -> None:
    """T1: what a turn sends and emits is handled after it, on the dispatcher."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        caller = await node.start(Caller, counter=counter)
        watcher = await node.start(Watcher, other=counter)
        assert await caller.invoke(Caller.send_twice_and_look) == 0
        await settle()
        assert counter.statistics().handled == 2
        assert await watcher.invoke(Watcher.seen) == ("counted 1", "counted 2")


@pytest.mark.parametrize(
    ("handle", "verb"),
    [
        (Caller.ask_from_a_turn, "invoke"),
        (Caller.tell_from_a_turn, "tell"),
        (Caller.read_from_a_turn, "read"),
    ],
)
async def test_t1_a_turn_cannot_await_and_is_told_so(virtual_clock, handle, verb: str) -> None:
    """T1: the error names the verb, the agent and the way out; the traceback names the line."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        caller = await node.start(Caller, counter=counter)
        async with caller.monitor() as downs:
            with pytest.raises(AgentDied, match=rf"ref\.{verb}\(\.\.\.\) has to be awaited") as caught:
                await caller.invoke(handle)
            assert "caller" in str(caught.value)
            assert "self.send" in str(caught.value)
            error = (await downs.receive()).reason.error
        assert isinstance(error, RuntimeError)
        lines = []
        trace = error.__traceback__
        while trace is not None:
            lines.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        assert handle.name in lines
        assert counter.statistics().accepted == 0


async def test_t1_a_run_may_await(virtual_clock) -> None:
    """T7: the sender of what a run asks is the run's agent."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        caller = await node.start(Caller, counter=counter)
        assert await caller.invoke(Caller.ask_from_a_run) == "caller"


async def test_t2_a_call_that_had_its_effect_returns_its_value(virtual_clock) -> None:
    """T2: refused if cancelled before the turn, never after it."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        with trio.CancelScope() as scope:
            scope.cancel()
            await counter.invoke(Counter.add)
        assert scope.cancelled_caught
        assert counter.statistics().accepted == 0

        class Canceller(Agent):
            @action
            def cancel_my_caller(self) -> str:
                scope.cancel()
                return "done"

        canceller = await node.start(Canceller)
        with trio.CancelScope() as scope:
            assert await canceller.invoke(Canceller.cancel_my_caller) == "done"
        assert not scope.cancelled_caught


async def test_t2_mail_that_came_during_an_inline_turn_is_handled_after_it(virtual_clock) -> None:
    async with open_test_node() as node:

        class Selfish(Agent):
            done: tuple[str, ...] = ()

            @action
            def first(self) -> tuple[str, ...]:
                self.send(self.ref, Selfish.second)
                self.done += ("first",)
                return self.done

            @action
            def second(self) -> None:
                self.done += ("second",)

            @action
            def all_done(self) -> tuple[str, ...]:
                return self.done

        selfish = await node.start(Selfish)
        assert await selfish.invoke(Selfish.first) == ("first",)
        assert await selfish.invoke(Selfish.all_done) == ("first", "second")


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_t3_a_declared_failure_reaches_the_caller_and_nobody_else(virtual_clock, busy: bool) -> None:
    """T3: ActionFailed is an answer; a group of nothing else counts as its first leaf."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        for handle, argument, output in (
            (Counter.fail, "no", "no"),
            (Counter.fail_together, ["first", "second"], "first"),
        ):
            if busy:
                counter.tell_nowait(Counter.add)
            with pytest.raises(ActionFailed) as caught:
                await counter.invoke(handle, argument)
            assert caught.value.output == output
        counts = counter.statistics()
        assert counts.restarts == 0
        assert counts.handled == counts.accepted == (4 if busy else 2)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize(
    ("handle", "arguments", "kind"),
    [
        (Counter.crash, ("boom",), KeyError),
        (Counter.fail_mixed, (), ExceptionGroup),
        (Counter.lie, (), TypeError),
    ],
)
async def test_t3_anything_else_is_a_crash(virtual_clock, busy: bool, handle, arguments, kind) -> None:
    """T3: the caller gets AgentDied(started=True) without a cause, monitors the exception itself."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        async with counter.monitor() as downs:
            if busy:
                counter.tell_nowait(Counter.add)
            with pytest.raises(AgentDied) as caught:
                await counter.invoke(handle, *arguments)
            assert caught.value.started
            assert caught.value.__cause__ is None
            down = await downs.receive()
        assert down.agent == "counter"
        assert down.incarnation == 1
        assert down.reason.kind == "error"
        assert isinstance(down.reason.error, kind)
        assert str(down.reason) == caught.value.reason
        await counter.ready()
        assert await counter.read(Counter.count) == 0, "a new incarnation"
        assert counter.statistics().restarts == 1


async def test_t3_a_wrong_result_names_the_handler_and_the_types(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(Counter)
        with pytest.raises(AgentDied, match=r"Counter\.lie returned a result that is not its declared int"):
            await counter.invoke(Counter.lie)


async def test_t4_die_is_synchronous_and_the_restart_comes_later(virtual_clock) -> None:
    """T4: the slot is closed when the asker has its answer, and the restart is not in the asker's step."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        with pytest.raises(AgentDied):
            await counter.invoke(Counter.crash, "boom")
        assert counter.statistics().state == "down"
        assert counter.statistics().incarnation == 1
        await counter.ready()
        assert counter.statistics().incarnation == 2


async def test_t4_exited_waits_for_the_last_run(virtual_clock) -> None:
    """T4: no two incarnations at a time, though a run of the old one takes its time to unwind."""
    alive: list[str] = []

    class Slow(Agent):
        def started(self) -> None:
            alive.append("started")

        @action
        async def hold(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)
                alive.append("unwound")

        @action
        def crash(self) -> None:
            raise KeyError("boom")

    async with open_test_node() as node, trio.open_nursery() as nursery:
        slow = await node.start(Slow)

        async def hold() -> None:
            with pytest.raises(AgentDied) as caught:
                await slow.invoke(Slow.hold)
            assert caught.value.started
            assert trio.current_time() == 0, "answered at once"

        nursery.start_soon(hold)
        await settle()
        with pytest.raises(AgentDied):
            await slow.invoke(Slow.crash)
        assert slow.statistics().state == "ending"
        await slow.ready()
        assert trio.current_time() == 10
        assert alive == ["started", "unwound", "started"]


async def test_t6_asks_of_an_idle_agent_give_way_after_a_budget(virtual_clock) -> None:
    """T6: 256 messages between checkpoints, for inline asks, tells, refused runs and the dispatcher."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        counter = await node.start(Counter)
        ticks = 0

        async def be_refused() -> None:
            with pytest.raises(NotAllowed):
                await counter.invoke(Counter.recount)

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await trio.lowlevel.checkpoint()

        nursery.start_soon(tick)
        await trio.lowlevel.checkpoint()
        for send in (partial(counter.invoke, Counter.add), partial(counter.tell, Counter.add), be_refused):
            before = ticks
            for _ in range(2560):
                await send()
            assert ticks - before >= 8, "one of ten may be seen late"
        nursery.cancel_scope.cancel()


async def test_t6_agents_take_turns_in_batches(virtual_clock) -> None:
    """T6, M4: at most 64 messages of one agent before the next agent's turn."""
    order: list[str] = []

    class Noter(Agent):
        name: str

        @action
        def note(self) -> None:
            order.append(self.name)

    async with open_test_node() as node:
        many = ChildSpec("many", lambda: Noter(name="many"))
        few = ChildSpec("few", lambda: Noter(name="few"))
        first = await node.start_child(many)
        second = await node.start_child(few)
        for _ in range(64):
            first.tell_nowait(Noter.note)
        for _ in range(2):
            second.tell_nowait(Noter.note)
        await settle()
        assert order == ["many"] * 64 + ["few"] * 2
        order.clear()

        big = await node.start_child(ChildSpec("big", lambda: Noter(name="big"), mailbox=_size(1000)))
        for _ in range(200):
            big.tell_nowait(Noter.note)
        second.tell_nowait(Noter.note)
        await settle()
        assert order.index("few") == 64
        assert len(order) == 201


def _size(size: int):
    from lmos_actors import MailboxOptions

    return MailboxOptions(size=size)


async def test_t7_sender_and_affordance_are_known(virtual_clock) -> None:
    """T7: taken from the context of whoever sends; None for anonymous tasks."""
    async with open_test_node() as node:
        counter = await node.start(Counter)
        caller = await node.start(Caller, counter=counter)
        assert await counter.invoke(Counter.who_asks) is None
        assert await caller.invoke(Caller.ask_from_a_run) == "caller"
        assert await counter.invoke(Counter.what_is_asked) == "what_is_asked"
        counter.tell_nowait(Counter.add)
        assert await counter.invoke(Counter.what_is_asked) == "what_is_asked", "from the queue too"


async def test_reasons_are_data() -> None:
    assert str(ExitReason("normal")) == "normal"
    assert str(ExitReason("shutdown", detail="x")) == "shutdown: x"
    assert str(ExitReason("error", error=KeyError("k"))) == "KeyError: 'k'"
    assert str(ExitReason("error", error=KeyError())) == "KeyError"
    assert [ExitReason(kind).abnormal for kind in ("normal", "shutdown", "error")] == [False, False, True]
