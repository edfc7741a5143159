"""Groups: who is a member and for how long, as in OTP's pg, and broadcasts that wait for nobody."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Group,
    InvalidInput,
    MailboxFull,
    MailboxOptions,
    Node,
    NotFound,
    Ref,
    TraceLog,
    action,
    current_request,
    open_node,
)
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from lmos_actors.types import Joined, Left
from tests.actors.otp_pg.record import TABLE, program, tell_otp
from tests.matrix import some
from tests.supervision.otp.record import have_erlang

if TYPE_CHECKING:
    from collections.abc import Iterator


class Member(Agent):
    joins: tuple[str, ...] = ()
    heard: list[Any] = attrs.field(factory=list)

    def started(self) -> None:
        for name in self.joins:
            self.join_group(name)

    @action
    def hear(self, what: str) -> None:
        self.heard.append((what, current_request().consumer))

    @action
    def take(self, numbers: list[int], factor: int = 1) -> None:
        numbers.append(factor)
        self.heard.append(numbers)

    @action
    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.heard.append(seconds)

    @action
    def join(self, name: str) -> None:
        self.join_group(name)

    @action
    def leave(self, name: str) -> bool:
        return self.leave_group(name)

    @action
    def shout(self, what: str) -> int:
        return self.group("all", Member).broadcast(Member.hear, what)

    @action
    async def shout_later(self, what: str) -> int:
        await trio.sleep(1)
        return self.group("all", Member).broadcast(Member.hear, what)

    @action
    def shout_nonsense(self) -> None:
        self.group("all", Member).broadcast(Member.hear, 7)  # type: ignore[arg-type]

    @action
    def crash(self) -> None:
        raise KeyError("crash")

    @action
    def finish(self) -> None:
        self.stop()


class Special(Member):
    @action
    def hear(self, what: str) -> None:
        self.heard.append((f"special {what}", None))


class Stranger(Agent):
    def started(self) -> None:
        self.join_group("all")


def member(name: str, *joins: str, cls: type[Member] = Member, **options: Any) -> ChildSpec[Member]:
    def made() -> Member:
        return cls(joins=joins)

    return ChildSpec(name, made, **options)


def agent_of(ref: Ref[Any]) -> Any:
    return ref._link.agent  # type: ignore[attr-defined]


def paths(group: Group[Any]) -> list[str]:
    return [ref.path for ref in group.members()]


def accounts_add_up(node: Node) -> None:
    for s in (node.statistics(), *(ref.statistics() for ref in node.agents())):
        assert s.accepted == s.handled + s.cancelled + s.dropped + s.dead_lettered + s.waiting + s.running


# --- membership


async def test_members_are_in_the_order_of_joining_each_once(virtual_clock) -> None:
    async with open_test_node() as node:
        a, b = [await node.start_child(member(name)) for name in "ab"]
        group = node.group("all", Member)
        assert group.members() == []
        for ref in (b, a, b):
            await ref.invoke(Member.join, "all")
        assert group.members() == [b, a]
        assert await b.invoke(Member.leave, "all")
        assert group.members() == [b, a], "who joins twice leaves twice"
        assert await b.invoke(Member.leave, "all")
        assert not await b.invoke(Member.leave, "all")
        assert group.members() == [a]
        assert group.name == "all"
        assert not await a.invoke(Member.leave, "no such group")


async def test_a_group_is_seen_as_its_members_of_a_class(virtual_clock) -> None:
    async with open_test_node() as node:
        await node.start(Stranger)
        await node.start_child(member("a", "all"))
        await node.start_child(member("s", "all", cls=Special))
        assert paths(node.group("all", Agent)) == ["stranger", "a", "s"]
        assert paths(node.group("all", Member)) == ["a", "s"]
        assert paths(node.group("all", Special)) == ["s"]


async def test_membership_ends_with_the_incarnation(virtual_clock) -> None:
    async with open_test_node() as node:
        await node.start_child(member("a", "all"))
        b = await node.start_child(member("b", "all"))
        await b.invoke(Member.join, "more")
        group = node.group("all", Member)
        with pytest.raises(AgentDied):
            await b.invoke(Member.crash)
        assert paths(group) == ["a"]
        await b.ready()
        assert paths(group) == ["a", "b"], "started() joins again"
        assert node.group("more", Member).members() == [], "what a turn did is not repeated"
        await node.root.terminate_child("a")
        assert paths(group) == ["b"]
        await node.root.terminate_child("b")
        assert node._rt.groups == {}


async def test_a_failed_start_leaves_no_member(virtual_clock) -> None:
    class Failing(Agent):
        def started(self) -> None:
            self.join_group("all")
            raise ValueError("no")

    async with open_test_node() as node:
        with pytest.raises(Exception, match="no"):
            await node.start(Failing)
        assert node._rt.groups == {}


async def test_who_is_told_to_stop_is_no_member_any_more(virtual_clock) -> None:
    """It takes nothing new: a broadcast would only make dead letters of it."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        a = await node.start_child(member("a", "all", restart="temporary", shutdown=10.0))
        nursery.start_soon(a.invoke, Member.work, 5)
        await settle()
        await a.tell(Member.finish)
        await settle()
        assert a.statistics().state == "stopping"
        group = node.group("all", Member)
        assert group.members() == []
        assert group.broadcast(Member.hear, "anybody?") == 0
        agent_of(a).join_group("all")
        assert group.members() == [], "nor can it become one"
    assert node.dead_letters == ()


async def test_changes_are_watched(virtual_clock) -> None:
    async with open_test_node() as node:
        a = await node.start_child(member("a", "all"))
        group = node.group("all", Member)
        async with group.watch() as changes:
            assert group.members() == [a]
            b = await node.start_child(member("b", "all"))
            await b.invoke(Member.join, "all")
            await b.invoke(Member.leave, "all")
            await node.start(Stranger)
            with pytest.raises(AgentDied):
                await a.invoke(Member.crash)
            await a.ready()
            await b.invoke(Member.leave, "all")
            seen = [await changes.receive() for _ in range(4)]
            assert seen == [Joined("all", b), Left("all", a), Joined("all", a), Left("all", b)]
            with pytest.raises(trio.WouldBlock):
                changes.receive_nowait()
        async with group.watch(size=1) as changes:
            await b.invoke(Member.join, "all")
            await b.invoke(Member.leave, "all")
            assert changes.missed == 1
            assert await changes.receive() == Left("all", b)


async def test_the_end_of_the_node_ends_a_watch(virtual_clock) -> None:
    seen: list[Any] = []

    async def watch(group: Group[Member], task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        async with group.watch() as changes:
            task_status.started()
            seen.extend([type(change).__name__ async for change in changes])

    async with trio.open_nursery() as nursery, open_test_node() as node:
        group = node.group("all", Member)
        await nursery.start(watch, group)
        await node.start_child(member("a", "all"))
    assert seen == ["Joined", "Left"]
    assert group.members() == []
    async with group.watch() as changes:
        with pytest.raises(trio.EndOfChannel):
            await changes.receive()


async def test_names_without_members_and_watchers_leave_nothing_behind(virtual_clock) -> None:
    async with open_test_node() as node:
        a = await node.start_child(member("a"))
        for number in range(10):
            await a.invoke(Member.join, f"name {number}")
            await a.invoke(Member.leave, f"name {number}")
            async with node.group(f"name {number}", Member).watch():
                assert len(node._rt.groups) == 1
        assert node._rt.groups == {}


@pytest.mark.parametrize("name", [7, None])
async def test_a_name_is_text(virtual_clock, name) -> None:
    async with open_test_node() as node:
        a = await node.start(Member)
        for use in (agent_of(a).join_group, agent_of(a).leave_group, lambda n: node.group(n, Member)):
            with pytest.raises(TypeError, match="name is a str"):
                use(name)
        with pytest.raises(TypeError, match="class of its members"):
            node.group("all", a)  # type: ignore[type-var]


# --- broadcasts


async def test_a_broadcast_reaches_every_member_of_the_class(virtual_clock) -> None:
    async with open_test_node() as node:
        await node.start(Stranger)
        refs = [await node.start_child(member(name, "all")) for name in "ab"]
        special = await node.start_child(member("s", "all", cls=Special))
        outsider = await node.start(Member)
        assert node.group("all", Member).broadcast(Member.hear, "hello") == 3
        await settle()
        assert [agent_of(ref).heard for ref in refs] == [[("hello", None)]] * 2
        assert agent_of(special).heard == [("special hello", None)]
        assert agent_of(outsider).heard == []
        accounts_add_up(node)


async def test_a_broadcast_of_a_turn_has_a_sender_and_reaches_oneself(virtual_clock) -> None:
    async with open_test_node() as node:
        a, b = [await node.start_child(member(name, "all")) for name in "ab"]
        assert await a.invoke(Member.shout, "now") == 2
        assert await a.invoke(Member.shout_later, "later") == 2
        await settle()
        for ref in (a, b):
            assert agent_of(ref).heard == [("now", "a"), ("later", "a")]
        accounts_add_up(node)


async def test_what_can_change_is_copied_for_each(virtual_clock) -> None:
    async with open_test_node() as node:
        refs = [await node.start_child(member(name, "all")) for name in "abc"]
        mine = [1]
        assert node.group("all", Member).broadcast(Member.take, mine, factor=5) == 3
        mine.append(2)
        await settle()
        assert [agent_of(ref).heard for ref in refs] == [[[1, 5]]] * 3
        assert node.group("all", Member).broadcast(Member.take, numbers=[3]) == 3
        await settle()
        assert agent_of(refs[0]).heard[-1] == [3, 1]


async def test_what_cannot_change_is_checked_once_for_all_members_of_a_class(
    virtual_clock, monkeypatch
) -> None:
    async with open_test_node() as node:
        await node.root.start_many(member("m", "all"), 10)
        await node.root.start_many(member("s", "all", cls=Special), 10)
        bound: list[str] = []
        from lmos_actors.actors import Operation

        bind = Operation.bind

        def counted(self: Operation, args: Any, kwargs: Any) -> Any:
            bound.append(self.label)
            return bind(self, args, kwargs)

        monkeypatch.setattr(Operation, "bind", counted)
        assert node.group("all", Member).broadcast(Member.hear, "hello") == 20
        assert bound == ["Member.hear", "Member.hear", "Special.hear"], "once before anything is sent"


async def test_wrong_arguments_are_the_senders_fault_and_reach_nobody(virtual_clock) -> None:
    async with open_test_node() as node:
        a = await node.start_child(member("a", "all"))
        group = node.group("all", Member)
        for empty in (group, node.group("empty", Member)):
            with pytest.raises(InvalidInput):
                empty.broadcast(Member.hear, 7)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                empty.broadcast(Member.hear)  # type: ignore[call-arg]
        with pytest.raises(NotFound, match="no action 'hear' on Agent"):
            node.group("all", Agent).broadcast(Member.hear, "x")
        with pytest.raises(NotFound, match="no action 'hear' on Stranger"):
            node.group("all", Stranger).broadcast(Member.hear, "x")  # type: ignore[arg-type]
        assert a.statistics().accepted == 0
        with pytest.raises(AgentDied, match="InvalidInput"):
            await a.invoke(Member.shout_nonsense)


async def test_runs_are_begun_too(virtual_clock) -> None:
    async with open_test_node() as node:
        refs = [await node.start_child(member(name, "all")) for name in "ab"]
        assert node.group("all", Member).broadcast(Member.work, 2) == 2
        await trio.sleep(3)
        assert [agent_of(ref).heard for ref in refs] == [[2.0], [2.0]]
        accounts_add_up(node)


@pytest.mark.parametrize(
    ("when_full", "taken", "counts", "heard"),
    [
        ("wait", [2, 2, 1, 1], {"refused": 2}, [0, 1]),
        ("reject", [2, 2, 1, 1], {"refused": 2}, [0, 1]),
        ("drop_oldest", [2, 2, 2, 2], {"dropped": 2}, [2, 3]),
        ("drop_newest", [2, 2, 1, 1], {"dropped": 2}, [0, 1]),
    ],
)
async def test_a_full_member_holds_nobody_back(virtual_clock, when_full, taken, counts, heard) -> None:
    async with open_test_node() as node:
        full = await node.start_child(
            member("full", "all", mailbox=MailboxOptions(size=2, when_full=when_full))
        )
        roomy = await node.start_child(member("roomy", "all"))
        group = node.group("all", Member)
        assert [group.broadcast(Member.hear, str(n)) for n in range(4)] == taken
        await settle()
        assert [what for what, _ in agent_of(full).heard] == [str(n) for n in heard]
        assert len(agent_of(roomy).heard) == 4
        numbers = attrs.asdict(full.statistics())
        assert {name: numbers[name] for name in counts} == counts
        refused = counts.get("refused", 0)
        assert [(d.agent, d.affordance) for d in node.dead_letters] == [("full", "hear")] * refused
        assert all("mailbox of 'full' is full (2)" in d.reason for d in node.dead_letters)
        accounts_add_up(node)


async def test_a_broadcast_to_oneself_has_seats_of_its_own(virtual_clock) -> None:
    class Loud(Agent, mailbox=MailboxOptions(size=2)):
        heard: int = 0

        def started(self) -> None:
            self.join_group("loud")

        @action
        def hear(self) -> None:
            self.heard += 1

        @action
        def shout(self, times: int) -> list[int]:
            return [self.group("loud", Loud).broadcast(Loud.hear) for _ in range(times)]

    async with open_test_node() as node:
        loud = await node.start(Loud)
        assert await loud.invoke(Loud.shout, 70) == [1] * 64 + [0] * 6
        await settle()
        assert agent_of(loud).heard == 64
        assert len(node.dead_letters) == 6
        accounts_add_up(node)


async def test_a_member_whose_class_gave_the_action_another_name(virtual_clock) -> None:
    class Renamed(Member):
        @action(name="listen")
        def hear(self, what: str) -> None:
            pass

    async with open_test_node() as node:
        await node.start_child(member("r", "all", cls=Renamed))
        await node.start_child(member("a", "all"))
        assert node.group("all", Member).broadcast(Member.hear, "x") == 1
        assert [d.agent for d in node.dead_letters] == ["r"]


async def test_traced_broadcasts_are_tells(virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(instrument=log) as node:
        a, b = [await node.start_child(member(name, "all")) for name in "ab"]
        assert await a.invoke(Member.shout, "x") == 2
        await settle()
        assert len(agent_of(a).heard) == len(agent_of(b).heard) == 1
        accounts_add_up(node)
    records = [json.loads(line) for line in log.lines()]
    tells = [r for r in records if r.get("verb") == "tell" and r["affordance"] == "hear"]
    assert [(r["agent"], r["from"]) for r in tells if r["agent"] == "b"] == [("b", "a")]
    assert "a" in [r["agent"] for r in tells]
    assert len({r["trace"] for r in records if r.get("kind") == "sent" and "trace" in r}) == 1


# --- against OTP


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in TABLE.read_text().splitlines()]


def expected(seen: list[Any]) -> Iterator[Any]:
    """What ours is to show: a member once, and a change where somebody becomes or ceases to be one."""
    before: set[tuple[str, str]] = set()
    for answer, members, _ in seen:
        now = {(group, name) for group, names in members for name in names}
        yield answer, sorted(now), sorted(now - before), sorted(before - now)
        before = now


async def play(steps: list[Any]) -> list[Any]:
    seen: list[Any] = []
    async with open_node() as node:
        refs = {n: await node.start_child(member(n, restart="temporary")) for n in "abc"}
        groups = [node.group(name, Member) for name in "gh"]
        async with groups[0].watch() as one, groups[1].watch() as other:
            for verb, name, group in steps:
                answer = await act(node, refs[name], verb, group)
                members = sorted((g.name, ref.path) for g in groups for ref in g.members())
                changes = [*drained(one), *drained(other)]
                joined = sorted((c.group, c.member.path) for c in changes if isinstance(c, Joined))
                left = sorted((c.group, c.member.path) for c in changes if isinstance(c, Left))
                seen.append((answer, members, joined, left))
    return seen


async def act(node: Node, ref: Ref[Member], verb: str, group: str) -> str:
    if verb == "join":
        await ref.invoke(Member.join, group)
    elif verb == "leave":
        return "ok" if await ref.invoke(Member.leave, group) else "not_joined"
    elif verb == "crash":
        with pytest.raises(AgentDied):
            await ref.invoke(Member.crash)
    else:
        await node.root.terminate_child(ref.path)
    return "ok"


def drained(feed: Any) -> Iterator[Any]:
    while True:
        try:
            yield feed.receive_nowait()
        except trio.WouldBlock:
            return


@pytest.mark.parametrize("number", some(range(len(recorded())), of=3))
def test_recorded_programs_go_as_in_pg(number: int) -> None:
    record = recorded()[number]
    assert trio.run(play, record["steps"], clock=VirtualClock()) == list(expected(record["seen"]))


def test_the_table_holds_enough() -> None:
    records = recorded()
    verbs = {(step[0], seen[0]) for r in records for step, seen in zip(r["steps"], r["seen"], strict=True)}
    assert verbs == {
        ("join", "ok"),
        ("leave", "ok"),
        ("leave", "not_joined"),
        ("crash", "ok"),
        ("stop", "ok"),
    }
    assert len(records) >= 100


@pytest.mark.skipif(not have_erlang(), reason="no Erlang here")
def test_fresh_programs_go_as_in_pg() -> None:
    random = Random()
    programs = [program(random) for _ in range(10)]
    for steps, seen in zip(programs, tell_otp(programs), strict=True):
        assert trio.run(play, steps, clock=VirtualClock()) == list(expected(seen))  # type: ignore[arg-type]


# --- random programs

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "crash", "broadcast", "shout", "busy", "settle"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(steps=STEPS, policy=st.sampled_from(["wait", "reject", "drop_oldest", "drop_newest"]))
def test_whatever_happens_the_accounts_add_up(steps: list[tuple[str, int]], policy: Any) -> None:
    async def main() -> None:
        options = MailboxOptions(size=2, when_full=policy)
        async with open_test_node() as node, trio.open_nursery() as nursery:
            specs = [member(f"m{n}", "all", restart="temporary", mailbox=options) for n in range(4)]
            refs = [await node.start_child(spec) for spec in specs]
            for what, number in steps:
                ref = refs[number]
                alive = agent_of(ref) is not None
                if what == "broadcast":
                    node.group("all", Member).broadcast(Member.hear, "x")
                elif what == "settle":
                    await settle()
                elif alive and what in ("join", "leave"):
                    getattr(agent_of(ref), f"{what}_group")("all")
                elif alive:
                    nursery.start_soon(ask, ref, what)
            await trio.sleep(100)
            accounts_add_up(node)
            in_group = {r.path for r in node.group("all", Member).members()}
            assert in_group <= {ref.path for ref in refs if agent_of(ref) is not None}

    trio.run(main, clock=VirtualClock())


async def ask(ref: Ref[Member], what: str) -> None:
    with suppress(AgentDied, AgentUnavailable, MailboxFull, NotFound):
        if what == "crash":
            await ref.invoke(Member.crash)
        elif what == "shout":
            await ref.invoke(Member.shout, "y")
        else:
            await ref.invoke(Member.work, 1)
