"""Mailboxes: the bound, the four policies, what overtakes, what holds back (B1, B2, B4, M2 to M4)."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    ConfigError,
    ExitReason,
    MailboxFull,
    MailboxOptions,
    NotFound,
    Property,
    Ref,
    SupervisorSpec,
    action,
    prop,
)
from lmos_actors.actors import MailboxStatistics
from lmos_actors.testing import open_test_node, settle

POLICIES = ("wait", "reject", "drop_oldest", "drop_newest")


class Desk(Agent):
    """`work` takes a second of its one run; `note` is a turn."""

    units: Property[str] = prop(default="celsius")
    notes: tuple[str, ...] = ()

    @action
    async def work(self, seconds: float = 1.0) -> float:
        await trio.sleep(seconds)
        return trio.current_time()

    @action
    def note(self, text: str) -> tuple[str, ...]:
        self.notes += (text,)
        return self.notes

    @action
    def crash(self) -> None:
        raise KeyError("boom")


class Gate(Agent, serial=True):
    """Serial: while `hold` runs nothing else is taken from the mailbox."""

    notes: tuple[str, ...] = ()
    units: Property[str] = prop(default="celsius")

    @action
    async def hold(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @action
    async def crash_after(self, seconds: float) -> None:
        await trio.sleep(seconds)
        raise KeyError("boom")

    @action
    def note(self, text: str) -> tuple[str, ...]:
        self.notes += (text,)
        return self.notes


def gate(name: str = "gate", size: int = 2, when_full: str = "wait") -> ChildSpec[Gate]:
    return ChildSpec(name, Gate, mailbox=MailboxOptions(size=size, when_full=when_full))  # type: ignore[arg-type]


def depth(ref: Ref[Gate]) -> MailboxStatistics:
    return ref.mailbox_statistics()


async def held(node, nursery, *, size: int = 2, when_full: str = "wait", seconds: float = 10) -> Ref[Gate]:
    """A gate that is held for so many seconds."""
    ref = await node.start_child(gate(size=size, when_full=when_full))
    nursery.start_soon(ref.invoke, Gate.hold, seconds)
    await settle()
    return ref


class Answers:
    """What callers were answered, by name."""

    def __init__(self) -> None:
        self.all: dict[str, object] = {}

    async def of(self, name: str, verb, *args: object) -> None:
        assert name not in self.all
        try:
            self.all[name] = await verb(*args)
        except Exception as exc:
            self.all[name] = type(exc)


async def test_b2_one_bound_for_all_that_has_not_begun(virtual_clock) -> None:
    """B2: depth is queued and pending together; a begun run has given its seat up."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        desk = await node.start_child(ChildSpec("desk", Desk, mailbox=MailboxOptions(size=3)))
        for _ in range(6):
            nursery.start_soon(desk.invoke, Desk.work)
        await settle()
        counts = desk.statistics()
        assert (counts.running, counts.waiting, counts.accepted) == (1, 3, 4)
        assert depth(desk) == MailboxStatistics(depth=3, size=3, when_full="wait", parked=2)
        await trio.sleep(1.5)
        assert depth(desk).parked == 1
        await trio.sleep(4)
        counts = desk.statistics()
        assert (counts.running, counts.waiting, counts.accepted, counts.handled) == (1, 0, 6, 5)


async def test_b4_default_is_wait_with_64_seats(virtual_clock) -> None:
    async with open_test_node() as node:
        desk = await node.start(Desk)
        assert depth(desk) == MailboxStatistics(depth=0, size=64, when_full="wait", parked=0)


async def test_b4_wait_parks_senders_in_order(virtual_clock) -> None:
    """B4, M4: a parked sender is not yet accepted, and gets its seat in the order of arrival."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=1)
        answers = Answers()
        for n in range(5):
            nursery.start_soon(answers.of, f"ask {n}", ref.invoke, Gate.note, f"ask {n}")
            await settle()
            nursery.start_soon(answers.of, f"tell {n}", ref.tell, Gate.note, f"tell {n}")
            await settle()
        assert depth(ref) == MailboxStatistics(depth=1, size=1, when_full="wait", parked=9)
        assert ref.statistics().accepted == 2
        assert answers.all == {}
        await trio.sleep(11)
        assert answers.all["ask 4"] == tuple(f"{verb} {n}" for n in range(5) for verb in ("ask", "tell"))[:9]
        assert answers.all["tell 4"] is None
        assert ref.statistics().accepted == ref.statistics().handled == 11


async def test_b4_tell_nowait_raises_where_tell_would_wait(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=1)
        ref.tell_nowait(Gate.note, "one")
        with pytest.raises(trio.WouldBlock):
            ref.tell_nowait(Gate.note, "two")
        with pytest.raises(trio.WouldBlock):
            ref.tell_nowait(Gate.hold, 1)
        assert ref.statistics().refused == 0
        await trio.sleep(11)
        ref.tell_nowait(Gate.note, "three")
        assert await ref.invoke(Gate.note, "four") == ("one", "three", "four")


async def test_b4_reject_answers_mailbox_full(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=1, when_full="reject")
        ref.tell_nowait(Gate.note, "one")
        for verb in (ref.invoke, ref.tell):
            with pytest.raises(MailboxFull, match=r"'gate' is full \(1\)"):
                await verb(Gate.note, "two")
        with pytest.raises(MailboxFull):
            ref.tell_nowait(Gate.note, "two")
        with pytest.raises(MailboxFull):
            await ref.read(Gate.units)
        with pytest.raises(MailboxFull):
            await ref.within(5).invoke(Gate.note, "two")
        with pytest.raises(MailboxFull):
            async with ref.begin(Gate.note, "two"):
                pass
        with pytest.raises(MailboxFull):
            async with ref.within(5).begin(Gate.note, "two"):
                pass
        assert ref.statistics().refused == 7
        await trio.sleep(11)
        assert await ref.invoke(Gate.note, "three") == ("one", "three")
        assert node.dead_letters == ()


@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest"])
async def test_b4_dropping_answers_a_dropped_request(virtual_clock, when_full: str) -> None:
    """B4: of asks and tells in a mailbox of two, the oldest, or the new ones, are dropped; never in silence
    for a request, never with an error for a tell."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=2, when_full=when_full)
        answers = Answers()
        for name in ("a", "b", "c", "d"):
            nursery.start_soon(answers.of, name, ref.invoke, Gate.note, name)
            await settle()
        nursery.start_soon(answers.of, "tell", ref.tell, Gate.note, "e")
        await settle()
        ref.tell_nowait(Gate.note, "f")
        await trio.sleep(11)
        notes = await ref.invoke(Gate.note, "end")
        if when_full == "drop_oldest":
            dropped = ["a", "b", "c", "d"]
            assert notes == ("e", "f", "end")
        else:
            dropped = ["c", "d"]
            assert notes == ("a", "b", "end")
        assert answers.all["tell"] is None
        assert [name for name in "abcd" if answers.all[name] is MailboxFull] == dropped
        counts = ref.statistics()
        assert counts.dropped == 4
        assert counts.accepted == counts.handled + counts.dropped == 8
        assert node.dead_letters == ()


async def test_b4_drop_newest_with_a_call_and_a_deadline(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=1, when_full="drop_newest")
        ref.tell_nowait(Gate.note, "one")
        with pytest.raises(MailboxFull):
            await ref.within(3).invoke(Gate.note, "two")
        async with ref.begin(Gate.note, "three") as call:
            with pytest.raises(MailboxFull):
                await call.result()
        with pytest.raises(MailboxFull):
            await ref.write(Gate.units, "kelvin")
        await trio.sleep(1)
        assert trio.current_time() == 1, "and this task sleeps as any other"
        assert ref.statistics().dropped == 3


async def test_b4_drop_oldest_drops_from_the_line_of_a_concurrency_too(virtual_clock) -> None:
    """B2, B4: pending requests wait longest, so they go first."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        options = MailboxOptions(size=2, when_full="drop_oldest")
        desk = await node.start_child(ChildSpec("desk", Desk, mailbox=options))
        answers = Answers()
        for name in ("running", "oldest", "older", "new", "newer"):
            nursery.start_soon(answers.of, name, desk.invoke, Desk.work)
            await settle()
        await trio.sleep(20)
        assert answers.all == {
            "running": 1.0,
            "oldest": MailboxFull,
            "older": MailboxFull,
            "new": 2.0,
            "newer": 3.0,
        }


class Producer(Agent):
    """Sends with `self.send`, as a `def` agent does."""

    target: Ref[Gate]
    turns: int = 0

    @action
    def produce(self, texts: list[str]) -> None:
        self.turns += 1
        for text in texts:
            self.send(self.target, Gate.note, text)

    @action
    def taken(self) -> int:
        self.turns += 1
        return self.turns


async def test_b4_a_def_sender_is_held_back(virtual_clock) -> None:
    """B4: what does not fit stays in the sender's out-list, in order; it gets no turn until that is empty."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=2, seconds=10)
        producer = await node.start(Producer, target=ref)
        await producer.invoke(Producer.produce, [str(n) for n in range(7)])
        assert producer.statistics().state == "running"
        answers = Answers()
        nursery.start_soon(answers.of, "taken", producer.invoke, Producer.taken)
        await trio.sleep(9)
        assert answers.all == {}, "it took a turn though five of its messages found no seat"
        assert depth(ref) == MailboxStatistics(depth=2, size=2, when_full="wait", parked=5)
        await trio.sleep(2)
        assert answers.all == {"taken": 2}
        assert await ref.invoke(Gate.note, "end") == (*(str(n) for n in range(7)), "end")


async def test_b4_a_held_back_sender_is_bounded(virtual_clock) -> None:
    """B4: at most 1,024 messages in the out-list, beyond it MailboxFull."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=2, seconds=10)
        producer = await node.start(Producer, target=ref)
        async with producer.monitor() as downs:
            with pytest.raises(AgentDied, match="MailboxFull"):
                await producer.invoke(Producer.produce, ["x"] * 1027)
            assert isinstance((await downs.receive()).reason.error, MailboxFull)
        assert depth(ref).parked == 1024
        await producer.ready()
        with pytest.raises(AgentDied, match="MailboxFull"):
            await producer.invoke(Producer.produce, ["x"] * 1027)


async def test_b4_a_held_back_sender_goes_on_when_the_other_side_dies(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await node.start_child(gate(size=1))
        ref.tell_nowait(Gate.crash_after, 5)
        await settle()
        producer = await node.start(Producer, target=ref)
        await producer.invoke(Producer.produce, ["queued", "held", "held too"])
        answers = Answers()
        nursery.start_soon(answers.of, "taken", producer.invoke, Producer.taken)
        await trio.sleep(4)
        assert answers.all == {}
        await trio.sleep(2)
        assert answers.all == {"taken": 2}
        assert [letter.affordance for letter in node.dead_letters].count("note") == 3
        assert {letter.sender for letter in node.dead_letters if letter.affordance == "note"} == {"producer"}


async def test_b4_a_message_to_oneself_takes_a_reserved_seat(virtual_clock) -> None:
    """B4: never waits, 64 at most, beyond it MailboxFull, whatever the mailbox is full of."""

    class Selfish(Agent):
        done: int = 0

        @action
        def flood(self, count: int) -> int:
            for _ in range(count):
                self.send(self.ref, Selfish.step)
            return self.done

        @action
        def step(self) -> None:
            self.done += 1

        @action
        def how_many(self) -> int:
            return self.done

    async with open_test_node(SupervisorSpec("root", max_restarts=100)) as node:
        for when_full in POLICIES:
            options = MailboxOptions(size=1, when_full=when_full)  # type: ignore[arg-type]
            selfish = await node.start_child(ChildSpec(f"selfish-{when_full}", Selfish, mailbox=options))
            assert await selfish.invoke(Selfish.flood, 64) == 0
            await settle()
            assert await selfish.invoke(Selfish.how_many) == 64
            with pytest.raises(AgentDied, match="MailboxFull"):
                await selfish.invoke(Selfish.flood, 65)
            assert len(node.dead_letters) == 64 * (POLICIES.index(when_full) + 1)
            await selfish.ready()
            assert await selfish.invoke(Selfish.flood, 64) == 0, "the reserve is empty again"
            await settle()
            counts = selfish.statistics()
            assert counts.accepted == counts.handled + counts.dead_lettered


@pytest.mark.parametrize("when_full", POLICIES)
async def test_b4_messages_to_oneself_take_nobodys_seat(virtual_clock, when_full) -> None:
    """B4: the list is reserved: others find the seats there are, and nothing of it is dropped for them."""
    seen: list[str] = []

    class Selfish(Agent, serial=True):
        @action
        async def go(self) -> None:
            for _ in range(5):
                self.send(self.ref, Selfish.note, "own")
            await trio.sleep(5)

        @action
        def note(self, text: str) -> None:
            seen.append(text)

    async with open_test_node() as node:
        options = MailboxOptions(size=2, when_full=when_full)
        selfish = await node.start_child(ChildSpec("selfish", Selfish, mailbox=options))
        for _ in range(2):
            selfish.tell_nowait(Selfish.go)
            await settle()
            seats = 0
            for n in range(4):
                with suppress(trio.WouldBlock, MailboxFull):
                    selfish.tell_nowait(Selfish.note, f"{n}")
                    seats += 1
            assert seats == (4 if when_full.startswith("drop") else 2)
            await trio.sleep(6)
            kept = ["2", "3"] if when_full == "drop_oldest" else ["0", "1"]
            assert seen == ["own"] * 5 + kept
            seen.clear()


async def test_b4_a_def_sender_to_a_rejecting_agent_is_told(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=1, when_full="reject")
        producer = await node.start(Producer, target=ref)
        with pytest.raises(AgentDied, match="MailboxFull"):
            await producer.invoke(Producer.produce, ["one", "two"])


async def test_b4_sent_to_nobody_is_a_dead_letter(virtual_clock) -> None:
    async with open_test_node() as node:
        ref = await node.start_child(gate())
        producer = await node.start(Producer, target=ref)
        await node.root.terminate_child("gate")
        await producer.invoke(Producer.produce, ["lost"])
        (letter,) = node.dead_letters
        assert (letter.agent, letter.affordance, letter.sender) == ("gate", "note", "producer")
        assert "lost" in letter.message


async def test_b1_cancel_and_query_overtake(virtual_clock) -> None:
    """B1: they reach a queued request and a running one though the mailbox is full."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await held(node, nursery, size=1)
        async with ref.begin(Gate.note, "first") as queued, ref.begin(Gate.note, "second") as parked:
            assert depth(ref) == MailboxStatistics(depth=1, size=1, when_full="wait", parked=1)
            assert (await queued.query()).status == "pending"
            assert (await parked.query()).status == "pending"
            status = await queued.cancel("changed my mind")
            assert (status.status, status.cancelled, status.reason) == ("failed", True, "changed my mind")
            assert depth(ref).parked == 0, "the seat is free for the next"
            assert (await parked.cancel()).cancelled
        assert trio.current_time() == 0
        await trio.sleep(11)
        assert await ref.invoke(Gate.note, "end") == ("end",)


async def test_m2_a_crash_does_not_keep_the_queue(virtual_clock) -> None:
    """M2: queued requests get started=False, tells a dead letter, parked senders AgentUnavailable, the
    running one started=True."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        ref = await node.start_child(gate(size=2))
        answers: dict[str, BaseException] = {}

        async def of(name: str, verb, *args: object) -> None:
            try:
                await verb(*args)
            except Exception as exc:
                answers[name] = exc

        for name, verb, *args in (
            ("running", ref.invoke, Gate.crash_after, 5),
            ("queued", ref.invoke, Gate.note, "queued"),
            ("told", ref.tell, Gate.note, "told"),
            ("parked", ref.invoke, Gate.note, "parked"),
            ("parked tell", ref.tell, Gate.note, "parked tell"),
        ):
            nursery.start_soon(of, name, verb, *args)
            await settle()
        await trio.sleep(5)
        await settle()
        assert {name: type(exc) for name, exc in answers.items()} == {
            "running": AgentDied,
            "queued": AgentDied,
            "parked": AgentUnavailable,
            "parked tell": AgentUnavailable,
        }
        assert answers["running"].started  # type: ignore[attr-defined]
        assert not answers["queued"].started  # type: ignore[attr-defined]
        assert not answers["parked"].started  # type: ignore[attr-defined]
        assert [letter.message for letter in node.dead_letters] == ["('told',)"]
        counts = ref.statistics()
        assert (counts.accepted, counts.handled, counts.dead_lettered, counts.refused) == (3, 1, 2, 2)
        assert await ref.invoke(Gate.note, "new life") == ("new life",)


async def test_m3_dead_letters_are_records(virtual_clock) -> None:
    """M3: reason, target, sender if known, affordance, message of limited size; a ring of 1,000; a feed."""
    async with open_test_node() as node:
        ref = await node.start_child(gate(size=2000))
        async with node.watch_dead_letters(size=3) as feed:
            for _ in range(1001):
                ref.tell_nowait(Gate.note, "x" * 10_000)
            ref._link.die(CRASHED)  # type: ignore[attr-defined]
            assert len(node.dead_letters) == 1000
            assert node.statistics().dead_letters == 1001
            letter = node.dead_letters[-1]
            assert (letter.agent, letter.affordance, letter.sender) == ("gate", "note", None)
            assert "boom" in letter.reason
            assert len(letter.message) < 600
            assert feed.missed == 998
            assert await feed.receive() == letter


CRASHED = ExitReason("error", error=KeyError("boom"))


async def test_m3_the_feed_ends_with_its_block(virtual_clock) -> None:
    async with open_test_node() as node:
        ref = await node.start_child(gate())
        async with node.watch_dead_letters() as feed:
            pass
        ref.tell_nowait(Gate.note, "lost")
        ref._link.die(CRASHED)  # type: ignore[attr-defined]
        assert len(node.dead_letters) == 1
        with pytest.raises(trio.WouldBlock):
            feed.receive_nowait()


async def test_m4_first_in_first_out_for_every_verb(virtual_clock) -> None:
    """M4: reads and writes keep their place in line with actions, turns and runs alike."""
    seen: list[str] = []
    values: list[str] = []

    class Noter(Agent, serial=True):
        units: Property[str] = prop(default="celsius")

        @action
        def turn(self) -> None:
            seen.append(f"turn in {self.units}")

        @action
        async def run(self) -> None:
            seen.append(f"run in {self.units}")
            await trio.sleep(1)

    async with open_test_node() as node, trio.open_nursery() as nursery:
        noter = await node.start(Noter)

        async def read() -> None:
            values.append(await noter.read(Noter.units))

        expected = ["run in celsius"]
        noter.tell_nowait(Noter.run)
        for n in range(3):
            nursery.start_soon(noter.write, Noter.units, f"unit {n}")
            await settle()
            noter.tell_nowait(Noter.turn)
            noter.tell_nowait(Noter.run)
            nursery.start_soon(read)
            await settle()
            expected += [f"turn in unit {n}", f"run in unit {n}"]
    assert seen == expected
    assert values == ["unit 0", "unit 1", "unit 2"], "each before the write that follows it"


async def test_a_stopped_agents_mailbox_is_closed(virtual_clock) -> None:
    """R4: AgentUnavailable from every verb; NotFound once it is gone for good (L2)."""
    async with open_test_node() as node:
        ref = await node.start_child(gate())
        for remove, error in (
            (node.root.terminate_child, AgentUnavailable),
            (node.root.delete_child, NotFound),
        ):
            await remove("gate")
            for verb, *args in (
                (ref.invoke, Gate.note, "x"),
                (ref.invoke, Gate.hold, 1),
                (ref.tell, Gate.note, "x"),
                (ref.read, Gate.units),
                (ref.write, Gate.units, "x"),
                (ref.read_all,),
                (ref.within(1).invoke, Gate.note, "x"),
            ):
                with pytest.raises(error):
                    await verb(*args)
            with pytest.raises(error):
                ref.tell_nowait(Gate.note, "x")
            for block in (
                ref.begin(Gate.note, "x"),
                ref.within(1).begin(Gate.note, "x"),
                ref.observe(Gate.units),
                ref.subscribe_all(),
            ):
                with pytest.raises(error):
                    async with block:
                        pass
        with pytest.raises(NotFound):
            await ref.ready()
        assert ref.statistics().accepted == 0
        await trio.sleep(5)


@pytest.mark.parametrize(
    ("size", "when_full"),
    [(0, "wait"), (-1, "wait"), (1.5, "wait"), (True, "wait"), ("8", "wait"), (None, "wait"), (8, "drop")],
)
def test_mailbox_options_are_checked(size, when_full) -> None:
    with pytest.raises(ConfigError, match=r"size|when_full"):
        MailboxOptions(size=size, when_full=when_full)
