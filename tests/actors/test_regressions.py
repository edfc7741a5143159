"""Faults that were found once, by reading: each test failed before its fix."""

from __future__ import annotations

import time
import typing as t
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    Down,
    Event,
    ExitReason,
    MailboxFull,
    MailboxOptions,
    Node,
    Property,
    Ref,
    StartFailed,
    SupervisorSpec,
    action,
    current_request,
    event,
    invoke_all,
    open_node,
    prop,
)
from lmos_actors.testing import open_test_node, settle

LENIENT = SupervisorSpec("root", max_restarts=100)


async def crash(ref: Ref[Any], handle: Any) -> None:
    """Crash an agent by an action that raises."""
    with pytest.raises(AgentDied):
        await ref.invoke(handle)


class Cleaner(Agent):
    """Does something while a run of it unwinds."""

    what: str = ""
    story: ClassVar[list[str]] = []
    rings: Event[int] = event()

    @action
    async def work(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            getattr(self, self.what)()

    @action
    def crash(self) -> None:
        raise KeyError("crash")

    @action
    def ring(self) -> None:
        self.rings.emit(1)

    def stop_it(self) -> None:
        self.stop()

    def open_nursery(self) -> None:
        with pytest.raises(RuntimeError, match="ending"):
            self.nursery.start_soon(trio.sleep, 1)

    def set_timer(self) -> None:
        self.after(1, self.late)

    def follow_itself(self) -> None:
        self.follow(self.ref, Cleaner.rings, self.rung)

    def late(self) -> None:
        self.story.append("late")

    def rung(self, value: int) -> None:
        self.story.append(f"rung {value}")


@pytest.mark.parametrize("what", ["stop_it", "open_nursery", "set_timer", "follow_itself"])
async def test_what_an_unwinding_run_asks_for_neither_holds_its_agent_up_nor_outlives_it(
    what: str, virtual_clock
) -> None:
    """R6, T4: a stop, a nursery, a timer or a following of an incarnation that is ending is of no effect."""
    Cleaner.story.clear()

    class Named(Cleaner):
        def started(self) -> None:
            self.what = what

    async with open_test_node(LENIENT) as node, trio.open_nursery() as nursery:
        ref = await node.start_child(ChildSpec("cleaner", Named, restart="transient", shutdown="infinity"))
        async with ref.monitor() as downs:
            nursery.start_soon(crash, ref, Named.work)
            await settle()
            await crash(ref, Named.crash)
            down = await downs.receive()
        assert isinstance(down.reason.error, KeyError)
        await ref.ready()
        await ref.invoke(Named.ring)
        await trio.sleep(5)
        assert Cleaner.story == []
        assert trio.current_time() == 5


class Hasty(Agent):
    """Stops itself before it has been opened."""

    when: str = "lifespan"
    calm: ClassVar[bool] = False
    level: Property[int] = prop(default=1)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        if self.when == "lifespan":
            self.stop()
        yield

    @action
    def crash(self) -> None:
        raise KeyError


async def test_an_agent_that_stops_itself_in_its_lifespan_ends(virtual_clock) -> None:
    """A stop before the yield: the agent is opened, handles nothing, and ends with `normal`."""
    async with open_test_node() as node:
        spec = ChildSpec("hasty", Hasty, restart="transient", shutdown="infinity")
        ref = await node.start_child(spec)
        await settle()
        assert ref.statistics().state == "down"
        assert ref.statistics().incarnation == 1


class Shy(Agent):
    """Stops itself in `started()`, from its second life on."""

    lives: ClassVar[int] = 0
    level: Property[int] = prop(default=1)

    def started(self) -> None:
        type(self).lives += 1
        if self.lives > 1:
            self.stop()

    @action
    def crash(self) -> None:
        raise KeyError


async def test_an_observed_agent_may_stop_itself_in_started(virtual_clock) -> None:
    """Showing the properties of an agent that has ended already crashed the whole node."""
    Shy.lives = 0
    async with open_test_node() as node:
        ref = await node.start_child(ChildSpec("shy", Shy, restart="transient"))
        async with ref.observe(Shy.level) as levels:
            assert await levels.receive() == 1
            await crash(ref, Shy.crash)
            await settle()
            assert ref.statistics().state == "down"


class Beginner(Agent):
    """Fails to enter its lifespan at the second attempt, after it has asked for this and that."""

    attempts: ClassVar[int] = 0
    story: ClassVar[list[str]] = []
    bell: Any = None
    rings: Event[int] = event()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        type(self).attempts += 1
        number = self.attempts
        self.after(3, self.tell, f"timer {number}")
        self.send(self.ref, Beginner.hear, number)
        self.follow(self.ref, Beginner.rings, lambda _: self.tell(f"rung {number}"))
        if number == 2:
            raise KeyError("no")
        yield

    def tell(self, text: str) -> None:
        self.story.append(text)

    @action
    def hear(self, number: int) -> None:
        self.tell(f"heard {number}")

    @action
    def ring(self) -> None:
        self.rings.emit(1)

    @action
    def crash(self) -> None:
        raise KeyError


async def test_a_start_that_failed_leaves_nothing_to_the_next(virtual_clock) -> None:
    """Timers, followings and messages to itself of a failed start ended up in the next incarnation."""
    Beginner.attempts = 0
    Beginner.story.clear()
    async with open_test_node(LENIENT) as node:
        ref = await node.start(Beginner)
        await settle()
        await crash(ref, Beginner.crash)
        await ref.ready()
        await ref.invoke(Beginner.ring)
        await trio.sleep(5)
        counts = ref.statistics()
        assert Beginner.story == ["heard 1", "heard 3", "rung 3", "timer 3"]
        assert counts.accepted == counts.handled + counts.dead_lettered
        assert counts.dead_lettered == 1


async def numbers_until_the_end(numbers: AsyncIterator[int]) -> list[int]:
    return [number async for number in numbers]


class Streaming(Agent):
    """Yields inside a cancel scope, as no generator should."""

    @action
    async def numbers(self) -> AsyncIterator[int]:
        with trio.move_on_after(1):
            for number in range(100):
                yield number

    @action
    def ping(self) -> int:
        return 1


async def test_a_cancellation_that_leaves_a_handler_is_a_crash_of_its_agent_alone(virtual_clock) -> None:
    """It went on to the supervisor's nursery, and ended the node, the block with it, without a word."""
    pings: list[int] = []
    async with open_test_node() as node:
        ref = await node.start(Streaming)
        async with ref.stream(Streaming.numbers) as numbers:
            await trio.sleep(3)
            with pytest.raises(AgentDied, match="belongs to no scope"):
                await numbers_until_the_end(numbers)
        pings.append(await ref.invoke(Streaming.ping))
    assert pings == [1]


class Ringing(Agent):
    """Emits an event."""

    rings: Event[int] = event()

    @action
    def ring(self) -> None:
        self.rings.emit(1)


async def test_a_feed_without_room_is_refused_to_who_asks_for_it(virtual_clock) -> None:
    """It crashed the agent that emitted."""
    async with open_test_node() as node:
        ref = await node.start(Ringing)
        for size in (0, -1):
            with pytest.raises(ValueError, match="at least 1"):
                async with ref.subscribe(Ringing.rings, size=size):
                    pass
        await ref.invoke(Ringing.ring)


class Mute(Exception):
    def __str__(self) -> str:
        raise AttributeError("no text")


class Poor(Agent):
    """Raises what has no text, and takes what has none."""

    fail: ClassVar[bool] = False

    def started(self) -> None:
        if self.fail:
            raise Mute

    @action
    def turn(self) -> None:
        raise Mute

    @action
    async def run(self) -> None:
        raise Mute


async def test_an_error_that_cannot_be_printed_is_a_crash_like_any_other(virtual_clock) -> None:
    """It ended the dispatcher, or left the agent half ended."""
    Poor.fail = False
    async with open_test_node(LENIENT) as node:
        ref = await node.start(Poor)
        ref.tell_nowait(Poor.turn)
        await settle()
        for handle in (Poor.turn, Poor.run):
            with pytest.raises(AgentDied, match="Mute"):
                await ref.invoke(handle)
            await ref.ready()
        assert ref.statistics().restarts == 3
        Poor.fail = True
        with pytest.raises(StartFailed, match="Mute"):
            await node.start(Poor)
        Poor.fail = False


class Patient(Agent):
    """Sets timers, and takes them back."""

    @action
    def change_its_mind(self, times: int) -> int:
        for _ in range(times):
            self.after(60, self.change_its_mind, 1).cancel()
        more = self._slot.extra if self._slot is not None else None
        assert more is not None
        return len(more.timers or ())


async def test_a_cancelled_timer_is_forgotten(virtual_clock) -> None:
    """An incarnation kept every timer it had cancelled."""
    async with open_test_node() as node:
        ref = await node.start(Patient)
        assert await ref.invoke(Patient.change_its_mind, 100) == 0


class Answering(Agent):
    """Answers at once, but in a run."""

    @action
    async def answer(self) -> int:
        return 1


async def test_the_timer_of_a_far_deadline_goes_with_the_last_ask_that_needs_it(virtual_clock) -> None:
    """B5: a timer stayed for each hundredth of a second in which anything had been asked, for an hour."""
    async with open_test_node() as node:
        ref = (await node.start(Answering)).within(3600)
        before = len(virtual_clock)
        for _ in range(20):
            await ref.invoke(Answering.answer)
            await trio.sleep(0.02)
        assert await invoke_all([ref, ref], Answering.answer) == [1, 1]
        assert len(virtual_clock) == before


class Hub(Agent):
    """Follows others for a while."""

    @action
    def listen(self, name: str) -> None:
        self.follow(self.find(Ringing, name), Ringing.rings, self.rung)

    def rung(self, value: int) -> None:
        pass

    @action
    def followed(self) -> int:
        more = self._slot.extra if self._slot is not None else None
        assert more is not None
        count, following = 0, more.follows
        while following is not None:
            count, following = count + 1, following._after
        return count


async def test_who_is_gone_is_followed_no_more(virtual_clock) -> None:
    """A follower kept what it needs to stop following for every agent it ever followed."""
    async with open_test_node() as node:
        hub = await node.start(Hub)
        for number in range(5):
            await node.start_child(ChildSpec(f"ringing-{number}", Ringing, restart="temporary"))
            await hub.invoke(Hub.listen, f"ringing-{number}")
        assert await hub.invoke(Hub.followed) == 5
        for number in range(5):
            await node.root.terminate_child(f"ringing-{number}")
        assert await hub.invoke(Hub.followed) == 0


class Nested(Agent):
    """Its lifespan has a nursery of its own."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with trio.open_nursery():
            yield

    @action
    def crash(self) -> None:
        raise KeyError("once")


async def test_a_crash_that_passes_through_a_nursery_of_the_lifespan_is_told_once(virtual_clock) -> None:
    """It came back in a group, and was taken for a second error."""
    async with open_test_node() as node:
        ref = await node.start(Nested)
        async with ref.monitor() as downs:
            await crash(ref, Nested.crash)
            assert isinstance((await downs.receive()).reason.error, KeyError)


class Eager(Agent):
    """Wants a task of its nursery to be ready before it is open itself."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        await self.nursery.start(self.serve)
        yield

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()


async def test_starting_a_task_in_the_nursery_before_the_yield_is_an_error(virtual_clock) -> None:
    """It span for ever, without letting time go on."""
    async with open_test_node() as node:
        with pytest.raises(StartFailed, match="opens at the yield"):
            await node.start(Eager)


class Stumbling(Agent):
    """Fails its second start once."""

    starts: ClassVar[int] = 0

    def started(self) -> None:
        type(self).starts += 1
        if self.starts == 2:
            raise KeyError("start")

    @action
    def crash(self) -> None:
        raise KeyError("crash")


async def test_a_failed_start_is_no_second_end_of_the_incarnation_before(virtual_clock) -> None:
    """Monitors had two `Down` for one incarnation."""
    Stumbling.starts = 0
    async with open_test_node() as node:
        ref = await node.start(Stumbling)
        async with ref.monitor() as downs:
            await crash(ref, Stumbling.crash)
            await settle()
            assert ref.statistics().incarnation == 2
            assert downs.statistics().waiting == 1


class Host(Agent):
    """Opens a node of its own in a run."""

    @action
    async def ask_inside(self) -> list[str]:
        async with open_node() as node:
            asking = await node.start(Asking)
            await asking.invoke(Asking.note)
            await trio.sleep(1)
            return await asking.invoke(Asking.noted)


class Asking(Agent):
    """Notes who it is talking to."""

    notes: ClassVar[list[str]] = []

    @action
    def note(self) -> None:
        self.notes.append(current_request().affordance)
        self.after(0.5, self.note_timer)

    def note_timer(self) -> None:
        self.notes.append(current_request().affordance)

    @action
    def noted(self) -> list[str]:
        return list(self.notes)


async def test_a_node_opened_in_a_run_knows_its_own_requests(virtual_clock) -> None:
    """Its agents took every request for that of the run around them."""
    Asking.notes.clear()
    async with open_test_node() as node:
        ref = await node.start(Host)
        assert await ref.invoke(Host.ask_inside) == ["note", "timer"]


class Wide(Agent, serial=True, mailbox=MailboxOptions(size=10_000)):
    """Takes many messages, one run at a time."""

    seen: ClassVar[list[int]] = []

    @action
    async def block(self) -> None:
        await trio.sleep(1)

    @action
    def hear(self, number: int) -> None:
        self.seen.append(number)


@pytest.mark.parametrize("size", [1, 10_000])
async def test_thousands_of_withdrawn_messages_leave_the_others_in_order(size: int, virtual_clock) -> None:
    """R5, M1, M4: seats are freed and counted at once, in a long queue as in a line of parked senders."""
    Wide.seen.clear()
    async with open_test_node() as node, trio.open_nursery() as staying, trio.open_nursery() as leaving:
        ref = await node.start_child(ChildSpec("wide", Wide, mailbox=MailboxOptions(size=size)))
        staying.start_soon(ref.invoke, Wide.block)
        await settle()
        for number in range(3000):
            (leaving if number % 3 else staying).start_soon(ref.invoke, Wide.hear, number)
            if not number % 50:
                await settle()
        await settle()
        leaving.cancel_scope.cancel()
        await settle_shielded()
        counts = ref.statistics()
        assert counts.waiting == (1 if size == 1 else 1000)
        assert counts.accepted == 1 + counts.cancelled + counts.waiting
        assert ref.mailbox_statistics().depth == counts.waiting
    assert sorted(Wide.seen) == list(range(0, 3000, 3))
    rounds = [(number + 49) // 50 for number in Wide.seen]
    assert rounds == sorted(rounds)


async def settle_shielded() -> None:
    with trio.CancelScope(shield=True):
        await settle()


async def test_a_mailbox_of_withdrawn_messages_alone_is_empty(virtual_clock) -> None:
    """A stopping agent ends though it was left with messages that nobody waits for."""
    async with open_test_node() as node, trio.open_nursery() as staying, trio.open_nursery() as leaving:
        ref = await node.start_child(ChildSpec("wide", Wide, shutdown="infinity"))
        staying.start_soon(ref.invoke, Wide.block)
        await settle()
        for number in range(5):
            leaving.start_soon(ref.invoke, Wide.hear, number)
        await settle()
        staying.start_soon(node.root.terminate_child, "wide")
        await settle()
        leaving.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        assert ref.statistics().state == "down"
        assert ref.statistics().cancelled == 5
        assert ref.statistics().waiting == 0


class Sleepy(Agent):
    """Blocks for a while in each turn."""

    done: ClassVar[list[int]] = []

    @action
    def work(self) -> None:
        time.sleep(0.03)
        self.done.append(1)


async def test_a_batch_of_long_turns_lets_others_in_between() -> None:
    """T6: ten milliseconds of turns are followed by a checkpoint, within a batch too."""
    Sleepy.done.clear()
    seen: set[int] = set()
    async with open_node() as node:
        ref = await node.start(Sleepy)
        for _ in range(8):
            ref.tell_nowait(Sleepy.work)
        while len(Sleepy.done) < 8:
            seen.add(len(Sleepy.done))
            await trio.lowlevel.checkpoint()
    assert seen & set(range(1, 8))


class Interrupting:
    """An instrument that presses Ctrl-C while a message is being accepted."""

    def __init__(self) -> None:
        self.armed = True
        self.inside = False

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        import signal

        if kind == "sent" and self.armed:
            self.armed = False
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                self.inside = True
                raise


async def told_at_once(ref: Ref[Ringing]) -> None:
    ref.tell_nowait(Ringing.ring)


async def told(ref: Ref[Ringing]) -> None:
    await ref.tell(Ringing.ring)


async def asked_within(ref: Ref[Ringing]) -> None:
    await ref.within(5).invoke(Ringing.ring)


async def begun(ref: Ref[Ringing]) -> None:
    async with ref.begin(Ringing.ring) as call:
        await call.result()


@pytest.mark.parametrize("verb", [told_at_once, told, asked_within, begun])
def test_ctrl_c_does_not_fall_into_the_middle_of_sending(verb: Any) -> None:
    """T5: the runtime's own code is protected; what was accepted is in the mailbox."""
    instrument = Interrupting()

    async def main() -> None:
        async with open_node(instrument=instrument) as node:
            ref = await node.start(Ringing)
            try:
                await verb(ref)
                await trio.sleep(1)
            finally:
                assert ref.statistics().accepted == 1

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, restrict_keyboard_interrupt_to_checkpoints=False)
    assert not instrument.inside


async def test_m4_no_inline_turn_overtakes_a_parked_message(virtual_clock) -> None:
    order: list[str] = []

    class Full(Agent, mailbox=MailboxOptions(size=1)):
        @action
        async def work(self) -> None:
            await trio.sleep(10)

        @action
        def note(self, word: str) -> None:
            order.append(word)

    async def send_then_ask(full: Ref[Full]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(full.tell, Full.note, "told first")
            await settle()
            nursery.start_soon(full.invoke, Full.note, "asked second")

    async with open_test_node() as node:
        full = await node.start(Full)
        for _ in range(2):  # one runs, one holds the only seat in line for it
            await full.tell(Full.work)
            await settle()
        await send_then_ask(full)
    assert order == ["told first", "asked second"]


async def test_a_factory_that_gives_a_living_agent_is_refused(virtual_clock) -> None:
    class Only(Agent):
        pass

    only = Only()
    async with open_test_node() as node:
        await node.start_child(ChildSpec("first", lambda: only))
        with pytest.raises(StartFailed, match="lives already"):
            await node.start_child(ChildSpec("second", lambda: only))


class SelfStarter(Agent, mailbox=MailboxOptions(size=2)):
    """Sends messages to itself before it takes any."""

    noted: list[str] = attrs.field(factory=list)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self.send(self.ref, SelfStarter.note, "one")
        self.send(self.ref, SelfStarter.note, "two")
        yield

    @action
    def note(self, word: str) -> None:
        self.noted.append(word)

    @action
    def all_noted(self) -> list[str]:
        return self.noted


async def test_b4_a_message_to_oneself_in_the_lifespan_takes_no_seat_from_others(virtual_clock) -> None:
    async with open_test_node() as node:
        ref = await node.start(SelfStarter)
        await settle()
        with trio.fail_after(1):
            for word in ("three", "four"):
                await ref.tell(SelfStarter.note, word)
            assert await ref.invoke(SelfStarter.all_noted) == ["one", "two", "three", "four"]


class Undecided(Agent):
    """Says twice why it ends, and then takes too long."""

    @action
    async def end(self) -> None:
        self.stop()
        self.stop(ExitReason("error", error=KeyError("worse")))
        await trio.sleep_forever()


async def test_r4_an_end_that_takes_too_long_has_the_reason_that_was_said_last(virtual_clock) -> None:
    async with open_test_node() as node:
        ref = await node.start_child(ChildSpec("one", Undecided, shutdown=1.0, restart="temporary"))
        async with ref.monitor() as downs:
            await ref.tell(Undecided.end)
            reason = (await downs.receive()).reason
        assert (reason.kind, str(reason.error)) == ("error", "'worse'")
        assert trio.current_time() == 1


class Overwhelmed(Agent, serial=True, mailbox=MailboxOptions(size=3, when_full="drop_oldest")):
    """Tells itself more than fits."""

    @action
    async def hold(self) -> None:
        await trio.sleep(1)

    @action
    def flood(self) -> None:
        for _ in range(4):
            self.ref.tell_nowait(Overwhelmed.nothing)

    @action
    def nothing(self) -> None:
        pass


async def test_m1_a_withdrawn_message_in_the_batch_in_hand_is_counted_once(virtual_clock) -> None:
    async with open_test_node() as node:
        ref = await node.start(Overwhelmed)
        await ref.tell(Overwhelmed.hold)
        await settle()
        await ref.tell(Overwhelmed.flood)
        with trio.move_on_after(0.5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.invoke, Overwhelmed.nothing)
                await settle()
                await ref.tell(Overwhelmed.nothing)
        await trio.sleep(2)
        n = ref.statistics()
        assert (n.waiting, n.cancelled, ref.mailbox_statistics().depth) == (0, 1, 0)
        assert n.accepted == n.handled + n.cancelled + n.dropped == 8


@pytest.mark.parametrize("watch", ["watch_dead_letters", "watch_crash_reports"])
async def test_what_watches_a_node_ends_with_it(watch: str, virtual_clock) -> None:
    async def listen(node: Node, task_status: trio.TaskStatus[None]) -> None:
        async with getattr(node, watch)() as feed:
            task_status.started()
            assert [item async for item in feed] == []

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery, open_test_node() as node:
            await nursery.start(listen, node)
        async with getattr(node, watch)() as feed:
            assert [item async for item in feed] == []


class NeverReady(Agent):
    """Sends to itself and is linked, but never takes a message."""

    peer: Any

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self.link(self.peer)
        self.send(self.ref, NeverReady.note)
        await trio.sleep_forever()
        yield

    @action
    def note(self) -> None:
        pass


class Warned(Agent, trap_exits=True):
    """Notes what its links end with."""

    downs: list[str] = attrs.field(factory=list)

    def on_exit(self, down: Down) -> None:
        self.downs.append(str(down.reason))

    @action
    def all_downs(self) -> list[str]:
        return self.downs


class Starter(Agent):
    """Starts a child that is never ready."""

    peer: Any

    @action
    async def start_one(self) -> None:
        await self.start(NeverReady, peer=self.peer)


async def test_l1_a_start_that_is_cancelled_is_a_shutdown(virtual_clock) -> None:
    async with open_test_node() as node:
        warned = await node.start(Warned)
        agent = await node.start(Starter, peer=warned)
        with trio.move_on_after(1):
            await agent.invoke(Starter.start_one)
        await settle()
        assert await warned.invoke(Warned.all_downs) == ["shutdown"]
        assert [letter.reason for letter in node.dead_letters] == ["stopped"]


def test_v1_a_class_variable_is_one_however_typing_is_called() -> None:
    class Counted(Agent):
        limit: t.ClassVar[int] = 3
        shared: t.ClassVar[list[int]] = []

    with pytest.raises(TypeError, match="limit"):
        Counted(limit=4)  # type: ignore[call-arg]
    assert Counted().shared is Counted.shared


class Hesitant(Agent, behaviours=("closed", "open"), mailbox=MailboxOptions(size=1, when_full="reject")):
    """Puts its first messages aside, and fails when it comes to them."""

    @action
    def fetch(self) -> None:
        if self.behaviour == "closed":
            self.stash()
        raise ActionFailed("nothing there")


async def asked(ref: Ref[Hesitant]) -> None:
    await ref.invoke(Hesitant.fetch)


async def asked_soon(ref: Ref[Hesitant]) -> None:
    await ref.within(9).invoke(Hesitant.fetch)


async def all_asked(ref: Ref[Hesitant]) -> None:
    await invoke_all([ref], Hesitant.fetch)


@pytest.mark.parametrize("ask", [asked, asked_soon, all_asked])
async def test_m6_stashing_leaves_no_trace_in_what_the_asker_sees(ask: Any, virtual_clock) -> None:
    seen: list[Exception] = []

    async def note(ref: Ref[Hesitant]) -> None:
        try:
            await ask(ref)
        except (ActionFailed, MailboxFull) as exc:
            seen.append(exc)

    async with open_test_node() as node:
        ref = await node.start(Hesitant)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, ref)
            await settle()
            await note(ref)  # there is one seat
            agent: Any = ref._link.agent  # type: ignore[attr-defined] # a full mailbox takes no message
            agent.become("open")
    assert [(type(exc), exc.__context__) for exc in seen] == [(MailboxFull, None), (ActionFailed, None)]


async def test_the_reason_that_callers_are_told_is_bounded(virtual_clock) -> None:
    """Each agent that dies of another's `AgentDied` adds to the text: it must not grow with their number."""

    class Relay(Agent):
        following: Any = None

        @action
        async def ask(self) -> None:
            if self.following is None:
                raise RuntimeError("x" * 500)
            await self.following.invoke(Relay.ask)

    async with open_test_node(SupervisorSpec("root", max_restarts=100)) as node:
        relay = None
        for _ in range(20):
            relay = await node.start(Relay, following=relay)
        assert relay is not None
        with pytest.raises(AgentDied) as caught:
            await relay.invoke(Relay.ask)
        assert len(caught.value.reason) == 1001
        assert len(str(caught.value)) < 1100


async def test_a_message_wakes_an_agent_whose_last_parked_sender_has_left(virtual_clock) -> None:
    """The agent was kept from inline turns for that sender's sake, and nobody gave it turns afterwards."""

    class Busy(Agent, mailbox=MailboxOptions(size=1)):
        turns: int = 0

        @action
        async def run(self) -> None:
            await trio.sleep(1)

        @action
        def turn(self) -> int:
            self.turns += 1
            return self.turns

    async with open_test_node() as node, trio.open_nursery() as nursery:
        busy = await node.start(Busy)
        for _ in range(2):  # one runs, one is in line for it and has the only seat
            nursery.start_soon(busy.invoke, Busy.run)
            await settle()
        with trio.move_on_after(0.5):
            await busy.invoke(Busy.run)
        await trio.sleep(1)
        busy.tell_nowait(Busy.turn)
        await settle()
        assert busy.statistics().waiting == 0
        assert await busy.invoke(Busy.turn) == 2
