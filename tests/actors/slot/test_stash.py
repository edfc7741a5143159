"""Behaviours (M6): what is taken when, what is postponed, stashing by hand, timers of a behaviour."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    MailboxFull,
    MailboxOptions,
    NotAllowed,
    Progress,
    Ref,
    TraceLog,
    action,
    every,
    invoke_all,
    simulate,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from tests.actors.otp_statem.programs import NEXT, PROGRAMS, TIMEOUTS, imagine, recorded
from tests.matrix import examples


def adds_up(ref: Ref[Any]) -> bool:
    n = ref.statistics()
    return n.accepted == n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running


class Door(Agent, behaviours=("closed", "open", "locked")):
    """A door: it is entered when open; whoever knocks waits for that."""

    seen: tuple[str, ...] = ()

    def note(self, what: str) -> None:
        self.seen = (*self.seen, f"{self.behaviour}:{what}")

    @action(when="closed")
    def unlatch(self) -> str:
        self.note("unlatch")
        self.become("open")
        return self.behaviour

    @action(when=("open",))
    def shut(self) -> None:
        self.become("closed")

    @action(when=("open",), postpone=True)
    def enter(self, who: str) -> str:
        self.note(who)
        return f"welcome, {who}"

    @action(when=("open",), postpone=True)
    async def carry(self, what: str) -> str:
        self.note(f"{what} in")
        await trio.sleep(1)
        self.note(f"{what} down")
        return what

    @action(when=("open",))
    async def paint(self) -> None:
        await trio.sleep(1)

    @action
    def history(self) -> tuple[str, ...]:
        return self.seen

    @action
    def lock(self, seconds: float) -> None:
        self.become("locked")
        self.state_timeout(seconds, self.unlock)

    def unlock(self) -> None:
        self.note("unlock")
        self.become("closed")

    @action
    def set_behaviour(self, name: str) -> None:
        self.become(name)

    @action
    def hold_shut(self) -> None:
        self.become("open")
        self.become("closed")

    @action
    def break_down(self) -> None:
        raise RuntimeError("off its hinges")


# ---- what is taken when


async def test_m6_an_action_is_taken_in_its_behaviours_and_refused_in_others(
    virtual_clock: VirtualClock,
) -> None:
    async with open_test_node() as node:
        door = await node.start(Door)
        with pytest.raises(
            NotAllowed, match=r"'shut' of door is not allowed in behaviour 'closed', only in 'open'"
        ):
            await door.invoke(Door.shut)
        assert await door.invoke(Door.unlatch) == "open"
        await door.invoke(Door.shut)
        with pytest.raises(NotAllowed, match="'paint'"):
            await door.invoke(Door.paint)
        assert door.statistics().handled == 4
        assert door.statistics().dead_lettered == 0
        assert adds_up(door)


async def test_m6_one_way_messages_that_are_refused_are_dead_letters(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        door = await node.start(Door)
        await door.tell(Door.shut)
        await door.tell(Door.paint)
        await settle()
        assert [letter.affordance for letter in node.dead_letters] == ["shut", "paint"]
        assert "not allowed in behaviour 'closed'" in node.dead_letters[0].reason
        assert door.statistics().dead_lettered == 2
        assert adds_up(door)


async def test_m6_postponed_messages_keep_their_seat_and_come_first_in_order(
    virtual_clock: VirtualClock,
) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door = await node.start(Door)
        answers: list[str] = []

        async def enter(who: str) -> None:
            answers.append(await door.invoke(Door.enter, who))

        for who in ("ann", "bo", "cy"):
            nursery.start_soon(enter, who)
            await settle()
        assert door.statistics().waiting == 3
        assert door.mailbox_statistics().depth == 3
        door.tell_nowait(Door.unlatch)
        door.tell_nowait(Door.enter, "dee")  # sent before the door has opened, and later than the others
        await settle()
        assert await door.invoke(Door.history) == (
            "closed:unlatch", "open:ann", "open:bo", "open:cy", "open:dee",
        )  # fmt: skip
        assert sorted(answers) == ["welcome, ann", "welcome, bo", "welcome, cy"]
        assert adds_up(door)


async def test_m6_a_postponed_run_begins_with_its_behaviour(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door = await node.start(Door)
        async with door.begin(Door.carry, "chair") as chair, door.begin(Door.carry, "table") as table:
            await settle()
            assert (await chair.query()).status == "pending"
            await door.invoke(Door.unlatch)
            await settle()
            assert (await chair.query()).status == "in progress"
            assert (await table.query()).status == "pending"
            await door.invoke(Door.shut)  # the table waits for the run before it, then for the door
            assert await chair.result() == "chair"
            await settle()
            assert (await table.query()).status == "pending"
            assert door.statistics().waiting == 1
            await door.invoke(Door.unlatch)
            assert await table.result() == "table"
        nursery.cancel_scope.cancel()
        assert adds_up(door)


async def test_m6_becoming_what_it_is_changes_nothing(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door = await node.start(Door)
        nursery.start_soon(door.invoke, Door.enter, "ann")
        await settle()
        await door.invoke(Door.set_behaviour, "closed")
        await settle()
        assert door.statistics().waiting == 1
        await door.invoke(Door.hold_shut)  # open and shut again in one turn: tried again, postponed again
        await settle()
        assert door.statistics().waiting == 1
        assert await door.invoke(Door.history) == ()
        nursery.cancel_scope.cancel()


async def test_m6_an_unknown_behaviour_is_refused_with_the_nearest(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        door = await node.start(Door)
        with pytest.raises(AgentDied, match="Door has no behaviour 'opne', did you mean 'open'"):
            await door.invoke(Door.set_behaviour, "opne")


async def test_m6_a_new_incarnation_begins_with_the_first_behaviour(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        door = await node.start(Door)
        await door.invoke(Door.unlatch)
        with pytest.raises(AgentDied):
            await door.invoke(Door.break_down)
        await door.ready()
        assert await door.invoke(Door.unlatch) == "open"


# ---- the end of what waits


async def test_m6_a_crash_answers_what_was_postponed(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door = await node.start(Door)
        died: list[bool] = []

        async def enter() -> None:
            with pytest.raises(AgentDied) as caught:
                await door.invoke(Door.enter, "ann")
            died.append(caught.value.started)

        nursery.start_soon(enter)
        await door.tell(Door.enter, "bo")
        await settle()
        with pytest.raises(AgentDied):
            await door.invoke(Door.break_down)
        await settle()
        assert died == [False]
        assert [letter.affordance for letter in node.dead_letters] == ["enter"]
        assert door.statistics().waiting == 0
        assert adds_up(door)


async def test_m6_a_stop_does_not_wait_for_what_is_postponed(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        door = await node.start(Door)

        async def enter() -> None:
            with pytest.raises(AgentUnavailable):
                await door.invoke(Door.enter, "ann")

        nursery.start_soon(enter)
        await settle()
        await node.root.terminate_child("door")
        assert trio.current_time() == 0
        assert adds_up(door)


async def test_m6_a_caller_that_leaves_takes_its_postponed_message_along(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        door = await node.start(Door)
        with trio.move_on_after(1):
            await door.invoke(Door.enter, "ann")
        await door.invoke(Door.unlatch)
        assert await door.invoke(Door.history) == ("closed:unlatch",)
        assert door.statistics().cancelled == 1
        assert adds_up(door)


async def test_m6_the_bound_counts_what_is_postponed(virtual_clock: VirtualClock) -> None:
    class Small(Door, mailbox=MailboxOptions(size=2, when_full="reject")):
        pass

    async with open_test_node() as node:
        door = await node.start(Small)
        await door.tell(Door.enter, "ann")
        await door.tell(Door.enter, "bo")
        await settle()
        with pytest.raises(MailboxFull):
            await door.tell(Door.enter, "cy")
        assert adds_up(door)


async def test_m6_drop_oldest_drops_what_was_postponed_first(virtual_clock: VirtualClock) -> None:
    class Small(Door, mailbox=MailboxOptions(size=2, when_full="drop_oldest")):
        pass

    async with open_test_node() as node:
        door = await node.start(Small)
        for who in ("ann", "bo"):
            await door.tell(Door.enter, who)
        await settle()
        await door.tell(Door.unlatch)
        await settle()
        assert await door.invoke(Door.history) == ("closed:unlatch", "open:bo")
        assert door.statistics().dropped == 1
        assert adds_up(door)


# ---- stashing by hand


class Clerk(Agent, serial=False):
    """Serves one customer at a time, and puts the others aside by hand."""

    busy: bool = False
    served: tuple[str, ...] = ()

    @action
    def open_file(self, who: str) -> str:
        if self.busy:
            self.stash()
        self.busy = True
        self.served = (*self.served, who)
        return who

    @action
    def close_file(self) -> None:
        self.busy = False
        self.unstash_all()

    @action
    async def fetch(self, who: str) -> str:
        if self.busy:
            self.stash()
        await trio.sleep(1)
        return who

    @action
    async def too_late(self) -> None:
        await trio.sleep(1)
        self.stash()

    @action
    async def in_nursery(self) -> None:
        async with trio.open_nursery():
            self.stash()

    @action
    async def in_task(self) -> None:
        async def other() -> None:
            self.stash()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)

    @action
    async def numbers(self) -> AsyncIterator[int]:
        yield 1
        self.stash()

    @action
    async def report(self, progress: Progress[int]) -> None:
        progress.report(1)
        if self.busy:
            self.stash()

    @action
    def to_itself(self) -> None:
        self.send(self.ref, Clerk.open_file, "itself")

    @action
    def wait_a_while(self) -> None:
        self.after(1, self.in_timer)

    def in_timer(self) -> None:
        self.stash()

    @action
    def list_served(self) -> tuple[str, ...]:
        return self.served


async def test_m6_stash_by_hand_keeps_the_asker_waiting(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        clerk = await node.start(Clerk)
        answers: list[str] = []

        async def ask(handle: Any, who: str) -> None:
            answers.append(await clerk.invoke(handle, who))

        assert await clerk.invoke(Clerk.open_file, "ann") == "ann"
        nursery.start_soon(ask, Clerk.open_file, "bo")
        await settle()
        nursery.start_soon(ask, Clerk.fetch, "cy")
        await settle()
        nursery.start_soon(ask, Clerk.open_file, "dee")
        await settle()
        assert answers == []
        assert clerk.statistics().waiting == 3
        assert clerk.statistics().running == 0
        await clerk.invoke(Clerk.close_file)
        await settle()
        assert answers == ["bo"]  # who keeps it busy again: the others are put aside once more
        assert adds_up(clerk)
        await clerk.invoke(Clerk.close_file)
        await trio.sleep(2)
        assert answers == ["bo", "dee", "cy"]  # the one that needs a second is the last to answer
        assert adds_up(clerk)


async def test_m6_deadlines_and_cancels_reach_what_is_stashed(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        clerk = await node.start(Clerk)
        await clerk.invoke(Clerk.open_file, "ann")
        with pytest.raises(TimeoutError):
            await clerk.within(1).invoke(Clerk.open_file, "bo")
        with trio.move_on_after(1):
            await clerk.invoke(Clerk.fetch, "cy")
        async with clerk.begin(Clerk.open_file, "dee") as call:
            await settle()
            assert (await call.query()).status == "pending"
            assert (await call.cancel("no time")).cancelled
        await clerk.invoke(Clerk.close_file)
        assert await clerk.invoke(Clerk.list_served) == ("ann",)
        assert clerk.statistics().cancelled == 3
        assert adds_up(clerk)


async def test_m6_invoke_all_waits_for_a_stashed_part(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        free, busy = await node.start(Clerk), await node.start(Clerk)
        await busy.invoke(Clerk.open_file, "ann")
        answers: list[list[str]] = []

        async def ask() -> None:
            answers.append(await invoke_all([free, busy], Clerk.open_file, "bo"))

        nursery.start_soon(ask)
        await settle()
        assert answers == []
        await busy.invoke(Clerk.close_file)
        await settle()
        assert answers == [["bo", "bo"]]
        assert adds_up(free)
        assert adds_up(busy)


@pytest.mark.parametrize("size", [1, 2])
async def test_m6_an_inline_ask_that_is_stashed_takes_a_seat_or_waits_for_one(
    virtual_clock: VirtualClock, size: int
) -> None:
    class Tight(Clerk, mailbox=MailboxOptions(size=size)):
        pass

    async with open_test_node() as node, trio.open_nursery() as nursery:
        clerk = await node.start(Tight)
        await clerk.invoke(Clerk.open_file, "ann")
        answers: list[str] = []

        async def ask(who: str) -> None:
            answers.append(await clerk.invoke(Clerk.open_file, who))

        for who in ("bo", "cy", "dee"):
            nursery.start_soon(ask, who)
            await settle()
        assert clerk.mailbox_statistics().depth == size
        assert clerk.mailbox_statistics().parked == 3 - size
        assert adds_up(clerk)
        nursery.cancel_scope.cancel()
    assert adds_up(clerk)


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        (Clerk.too_late, "before the first wait"),
        (Clerk.in_task, "ExceptionGroup"),
        (Clerk.in_nursery, "inside a nursery"),
    ],
)
async def test_m6_stash_where_it_cannot_be_is_an_error(
    virtual_clock: VirtualClock, handle: Any, text: str
) -> None:
    async with open_test_node() as node:
        clerk = await node.start(Clerk)
        with pytest.raises(AgentDied, match=text):
            await clerk.invoke(handle)
        assert adds_up(clerk)


async def test_m6_a_timer_has_no_message_to_stash(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        clerk = await node.start(Clerk)
        async with clerk.monitor() as downs:
            await clerk.invoke(Clerk.wait_a_while)
            assert "a timer's turn has none" in str((await downs.receive()).reason)


async def test_m6_a_stream_is_not_stashed(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        clerk = await node.start(Clerk)
        with pytest.raises(AgentDied, match="before the first wait"):  # noqa: PT012
            async with clerk.stream(Clerk.numbers) as items:
                async for _ in items:
                    pass


async def test_m6_a_message_to_itself_keeps_its_own_seat(virtual_clock: VirtualClock) -> None:
    class Tight(Clerk, mailbox=MailboxOptions(size=1)):
        pass

    async with open_test_node() as node:
        clerk = await node.start(Tight)
        await clerk.invoke(Clerk.open_file, "ann")
        await clerk.invoke(Clerk.to_itself)
        await clerk.invoke(Clerk.to_itself)
        await settle()
        assert clerk.statistics().waiting == 2
        assert await clerk.invoke(Clerk.list_served) == ("ann",)  # the one common seat is free
        await clerk.invoke(Clerk.close_file)
        assert (await clerk.invoke(Clerk.list_served)) == ("ann", "itself")
        assert clerk.statistics().waiting == 1
        assert adds_up(clerk)


async def test_b4_messages_to_itself_for_a_busy_run_keep_their_own_seats(virtual_clock: VirtualClock) -> None:
    """Their number is bounded by the reserved seats also while they stand in line."""

    class Eager(Agent):
        sent: int = 0

        @every(0.01)
        def more(self) -> None:
            self.sent += 1
            self.send(self.ref, Eager.slow)

        @action
        async def slow(self) -> None:
            await trio.sleep(1000)

    async with open_test_node() as node:
        eager = await node.start(Eager)
        async with eager.monitor() as downs:
            reason = (await downs.receive()).reason
        assert isinstance(reason.error, MailboxFull)
        assert eager.statistics().dead_lettered == 65  # one that ran, and 64 that had their own seats
        assert adds_up(eager)


# ---- timers


async def test_m6_a_state_timeout_ends_with_its_behaviour(virtual_clock: VirtualClock) -> None:
    async with open_test_node() as node:
        door = await node.start(Door)
        await door.invoke(Door.lock, 10.0)
        await trio.sleep(5)
        await door.invoke(Door.set_behaviour, "open")
        await trio.sleep(20)
        assert await door.invoke(Door.history) == ()
        await door.invoke(Door.lock, 10.0)
        await trio.sleep(5)
        await door.invoke(Door.lock, 10.0)  # set anew: the earlier one is gone
        await trio.sleep(9)
        assert await door.invoke(Door.history) == ()
        await trio.sleep(2)
        assert await door.invoke(Door.history) == ("locked:unlock",)


async def test_m6_a_state_timeout_that_has_fired_does_not_come_after_a_change(
    virtual_clock: VirtualClock,
) -> None:
    class Late(Agent, behaviours=("a", "b")):
        fired: int = 0

        @action
        def begin(self) -> None:
            self.after(1, self.change)
            self.state_timeout(1, self.count)

        def change(self) -> None:
            self.become("b")

        def count(self) -> None:
            self.fired += 1

        @action
        def total(self) -> int:
            return self.fired

    async with open_test_node() as node:
        late = await node.start(Late)
        await late.invoke(Late.begin)
        await trio.sleep(2)
        assert await late.invoke(Late.total) == 0


async def test_m6_started_may_become_and_set_a_timer(virtual_clock: VirtualClock) -> None:
    class Boot(Agent, behaviours=("new", "warm", "ready")):
        def started(self) -> None:
            self.state_timeout(1, self.become, "ready")
            self.become("warm")
            self.state_timeout(2, self.become, "ready")

        @action(when="ready", postpone=True)
        def use(self) -> float:
            return trio.current_time()

    async with open_test_node() as node:
        boot = await node.start(Boot)
        assert await boot.invoke(Boot.use) == 2.0


# ---- at class creation


def test_m6_a_behaviour_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.go: Wrong has no behaviour 'opne', did you mean 'open'"):

        class Wrong(Agent, behaviours=("open", "closed")):
            @action(when="opne")
            def go(self) -> None:
                pass


@pytest.mark.parametrize("behaviours", ["open", (), ("open", "open"), (1,)])
def test_m6_behaviours_are_different_names(behaviours: Any) -> None:
    with pytest.raises(TypeError, match="behaviour"):
        type("Wrong", (Agent,), {}, behaviours=behaviours)


@pytest.mark.parametrize("options", [{"postpone": True}, {"when": ()}, {"when": (1,)}, {"when": ""}])
def test_m6_when_names_behaviours(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="when"):
        action(**options)


async def test_m6_without_a_declaration_the_names_are_those_of_the_actions(
    virtual_clock: VirtualClock,
) -> None:
    class Lamp(Agent):
        def started(self) -> None:
            self.become("off")

        @action(when="off")
        def on(self) -> str:
            self.become("on")
            return self.behaviour

        @action(when="on")
        def off(self) -> str:
            self.become("off")
            return self.behaviour

        @action
        def blow(self) -> None:
            self.become("blown")

    async with open_test_node() as node:
        lamp = await node.start(Lamp)
        assert await lamp.invoke(Lamp.on) == "on"
        assert await lamp.invoke(Lamp.off) == "off"
        with pytest.raises(
            AgentDied, match=r"no behaviour 'blown'; name it in class Lamp\(Agent, behaviours="
        ):
            await lamp.invoke(Lamp.blow)


# ---- against the real gen_statem


class Machine(Agent, behaviours=("s0", "s1", "s2")):
    rules: dict[str, Any]
    seen: tuple[tuple[str, str], ...] = ()

    def started(self) -> None:
        self.timeouts: dict[str, Any] = {}

    def step(self, event: str) -> None:
        self.seen = (*self.seen, (self.behaviour, event))
        goes, aside, *acts = self.rules[self.behaviour][event]
        self.cancel("event")  # any event ends a timeout of events
        self.become(goes)
        for act in acts:
            self.cancel(act.removeprefix("-"))
            if act in TIMEOUTS:
                wait = self.state_timeout if act == "state" else self.after
                self.timeouts[act] = wait(0, self.step, act)
        if NEXT in acts:
            self.step(NEXT)
        if aside:
            self.stash()

    def cancel(self, timeout: str) -> None:
        if timeout in self.timeouts:
            self.timeouts.pop(timeout).cancel()

    @action
    def take(self, event: str) -> None:
        self.step(event)

    @action
    def read(self) -> list[tuple[str, str]]:
        return list(self.seen)


class Slowly(Machine, serial=True):
    @action
    async def take(self, event: str) -> None:
        self.step(event)


def play(cls: type[Machine], program: dict[str, Any], mixed: bool = False) -> list[list[str]]:
    async def main() -> list[list[str]]:
        async with open_test_node() as node, trio.open_nursery() as nursery:
            machine = await node.start(cls, rules=program["rules"])
            for place, event in enumerate(program["events"]):
                if mixed and place % 2:
                    nursery.start_soon(machine.invoke, cls.take, event)
                    await settle()
                else:
                    await machine.tell(cls.take, event)
            await settle()
            seen = [[state, event] for state, event in await machine.invoke(cls.read)]
            assert adds_up(machine)
            nursery.cancel_scope.cancel()
            return seen

    return trio.run(main, clock=VirtualClock())


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Machine, Slowly])
def test_m6_otp_the_same_order_as_gen_statem(cls: type[Machine]) -> None:
    programs = recorded()
    assert len(programs) == 2 * PROGRAMS
    for program in programs:
        assert play(cls, program) == program["seen"], program


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Machine, Slowly])
def test_m6_otp_the_same_order_when_some_are_asked_inline(cls: type[Machine]) -> None:
    for program in recorded():
        assert play(cls, program, mixed=True) == program["seen"], program


def test_m6_otp_the_recorded_order_is_that_of_the_rules_on_paper() -> None:
    for program in recorded():
        assert imagine(program, 500) == program["seen"], program


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), programs=st.lists(st.sampled_from(recorded()), min_size=1, max_size=3))
def test_m6_the_same_seed_gives_the_same_log(seed: int, programs: list[dict[str, Any]]) -> None:
    async def main() -> None:
        async with open_test_node() as node:
            for program in programs:
                machine = await node.start(Machine, rules=program["rules"])
                for event in program["events"]:
                    await machine.tell(Machine.take, event)
            await settle()

    digests = []
    for _ in range(2):
        log = TraceLog()
        simulate(partial(main), seed=seed, log=log)
        digests.append(log.digest())
    assert digests[0] == digests[1]
