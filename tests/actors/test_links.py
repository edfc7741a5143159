"""Links, exit signals, `trap_exits`, `on_exit`, reasons of `self.stop`: each rule of L1 has its test."""

# ruff: noqa: PT012, SIM117 -- what is raised leaves the life of a whole node; a line each for node and cast

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    NORMAL,
    SHUTDOWN,
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    Down,
    Event,
    ExitReason,
    NotAllowed,
    NotFound,
    Ref,
    SupervisorSpec,
    action,
    event,
    open_node,
    open_node_in_thread,
)
from lmos_actors.actors import slot_of
from lmos_actors.errors import RestartIntensityExceeded
from lmos_actors.testing import open_test_node, settle
from tests.actors.peers import (
    BUG,
    LOST,
    Peer,
    Slow,
    Trapper,
    add_up,
    agent_of,
    alive,
    cast,
    downs_of,
    links_of,
    tie_in_a_row,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


# ---- which reasons travel


@pytest.mark.parametrize(
    ("verb", "args", "left"),
    [
        (Peer.fail_quietly, (), "c"),
        (Peer.close, ("",), "c"),
        (Peer.close, ("why",), "c"),
        (Peer.end, (), "bc"),
    ],
    ids=["error", "shutdown", "shutdown with a detail", "normal"],
)
async def test_every_reason_but_normal_ends_the_other(virtual_clock, verb, args, left) -> None:
    for first, second in ("ab", "ba"):  # whoever made the link
        async with open_test_node() as node, cast(node, a=Peer, b=Peer, c=Peer) as refs:
            await refs[first].invoke(Peer.tie, second)
            await refs["a"].invoke(verb, *args)
            assert alive(refs) == left


async def test_a_crash_ends_the_other_with_the_very_same_reason(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "ab", a=Peer, b=Peer) as refs:
        async with refs["a"].monitor() as first, refs["b"].monitor() as second:
            with pytest.raises(AgentDied):
                await refs["a"].invoke(Peer.fail)
            mine, yours = await first.receive(), await second.receive()
            assert mine.reason is yours.reason
            assert mine.reason.error is BUG
            assert (mine.agent, yours.agent) == ("a", "b")


async def test_a_shutdown_ends_the_other_with_the_very_same_reason(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "ab", a=Peer, b=Peer) as refs:
        async with refs["b"].monitor() as downs:
            await refs["a"].invoke(Peer.close, "enough")
            assert (await downs.receive()).reason == ExitReason("shutdown", "enough")


async def test_whoever_is_told_to_stop_takes_the_linked_along(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "ab", a=Peer, b=Peer) as refs:
        async with refs["b"].monitor() as downs:
            await node.root.terminate_child("a")
            assert (await downs.receive()).reason == SHUTDOWN


async def test_linking_twice_is_once_and_unlinking_from_either_side(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "ab", "ab", "ba", a=Peer, b=Peer) as refs:
        assert links_of(refs["a"]) == links_of(refs["b"]) == 1
        await refs["b"].invoke(Peer.untie, "a")
        await refs["b"].invoke(Peer.untie, "a")
        assert links_of(refs["a"]) == links_of(refs["b"]) == 0
        await refs["a"].invoke(Peer.close, "")
        assert alive(refs) == "b"


async def test_a_link_to_oneself_is_none(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "aa", a=Peer) as refs:
        assert links_of(refs["a"]) == 0
        await refs["a"].invoke(Peer.count)


# ---- whom one can link to


class Asker(Agent):
    """Tells what a link raises."""

    @action
    def tie_to(self, name: str) -> str:
        try:
            self.link(self.find(Peer, name))
        except (AgentUnavailable, NotFound) as exc:
            return type(exc).__name__
        return "linked"


async def test_an_agent_that_does_not_run_cannot_be_linked(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        asker = await node.start(Asker)
        assert await asker.invoke(Asker.tie_to, "nobody") == "NotFound"
        nursery.start_soon(node.start_child, ChildSpec("slow", Slow))
        await settle()
        assert await asker.invoke(Asker.tie_to, "slow") == "AgentUnavailable"  # starting
        await trio.sleep(1)
        slow = node.find(Peer, "slow")
        nursery.start_soon(node.root.terminate_child, "slow")
        await settle()
        assert slow.statistics().state == "ending"
        assert await asker.invoke(Asker.tie_to, "slow") == "AgentUnavailable"
        with pytest.raises(AgentUnavailable):
            async with slow.link():
                pass
        await trio.sleep(2)
        assert await asker.invoke(Asker.tie_to, "slow") == "AgentUnavailable"  # down
        await node.root.delete_child("slow")
        assert await asker.invoke(Asker.tie_to, "slow") == "NotFound"  # gone
        with pytest.raises(NotFound):
            async with slow.link():
                pass


async def test_only_agents_of_this_process_can_be_linked(virtual_clock) -> None:
    class Elsewhere:
        path = "far/away"

    far: Any = Ref(Elsewhere())  # type: ignore[arg-type] # enough of a link to be refused
    async with open_test_node() as node, cast(node, a=Peer) as refs:
        agent = agent_of(refs["a"])
        for verb in (agent.link, agent.unlink, lambda ref: agent.monitor(ref, print)):
            with pytest.raises(NotAllowed, match="'far/away' is no agent of this process"):
                verb(far)


async def test_links_are_made_in_runs_and_tasks_too(virtual_clock) -> None:
    class Busy(Peer):
        @action
        async def tie_late(self, name: str) -> None:
            await trio.sleep(1)
            self.link(self.find(Peer, name))

        @action
        def tie_in_task(self, name: str) -> None:
            self.nursery.start_soon(self.tie_late, name)

    async with open_test_node() as node, cast(node, a=Busy, b=Peer, c=Peer) as refs:
        await refs["a"].invoke(Busy.tie_late, "b")
        await refs["a"].invoke(Busy.tie_in_task, "c")
        await trio.sleep(2)
        await refs["a"].invoke(Peer.fail_quietly)
        await settle()
        assert alive(refs) == ""


async def test_an_agent_that_has_ended_links_nobody(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer, b=Peer) as refs:
        old = agent_of(refs["a"])
        await refs["a"].invoke(Peer.end)
        for verb in (old.link, old.unlink):
            with pytest.raises(AgentUnavailable):
                verb(refs["b"])


async def test_a_link_belongs_to_the_incarnations(virtual_clock) -> None:
    tree = SupervisorSpec("root", [ChildSpec("a", Peer), ChildSpec("b", Peer)], max_restarts=10)
    async with open_test_node(tree) as node:
        a, b = node.find(Peer, "a"), node.find(Peer, "b")
        await a.invoke(Peer.tie, "b")
        await a.invoke(Peer.fail_quietly)
        await settle()
        assert (a.statistics().incarnation, b.statistics().incarnation) == (2, 2)
        await a.invoke(Peer.fail_quietly)
        await settle()
        assert (a.statistics().incarnation, b.statistics().incarnation) == (3, 2)


# ---- what becomes of the other's messages, runs and lifespan


async def test_the_linked_ends_at_once_and_everybody_is_answered(virtual_clock) -> None:
    outcomes: list[object] = []

    async def ask(ref: Ref[Any]) -> None:
        try:
            outcomes.append(await ref.invoke(Peer.wait, 5))
        except AgentDied as exc:
            outcomes.append(exc.started)

    async with open_test_node() as node, trio.open_nursery() as nursery:
        async with cast(node, "ab", a=Peer, b=Peer) as refs:
            for _ in range(10):  # two more than run at a time
                nursery.start_soon(ask, refs["b"])
            await trio.sleep(1)
            await refs["a"].invoke(Peer.fail_quietly)
            await settle()
            assert trio.current_time() < 2
            assert sorted(map(bool, outcomes)) == [False] * 2 + [True] * 8
            assert add_up(*refs.values())
            assert refs["b"].statistics().dead_lettered == 10


async def test_the_linked_has_time_to_leave_its_lifespan(virtual_clock) -> None:
    left: list[float] = []

    class Leaves(Peer):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            try:
                yield
            finally:
                await trio.sleep(1)
                left.append(trio.current_time())

    async with open_test_node() as node, cast(node, "ab", a=Peer, b=Leaves) as refs:
        await refs["a"].invoke(Peer.fail_quietly)
        await trio.sleep(5)
        assert left == [1]


async def test_a_signal_travels_when_everything_has_unwound(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Slow, b=Peer) as refs:
        await refs["a"].invoke(Peer.tie, "b")
        await refs["a"].invoke(Peer.close, "")
        await trio.sleep(0.5)
        assert alive(refs) == "b"
        await trio.sleep(1)
        assert alive(refs) == ""


async def test_one_that_is_being_stopped_ends_at_once_too(virtual_clock) -> None:
    async with (
        open_test_node() as node,
        cast(node, "ab", a=Peer, b=Peer) as refs,
        trio.open_nursery() as tasks,
    ):
        with suppress(trio.WouldBlock):
            refs["b"].tell_nowait(Peer.wait, 4)
        await settle()
        tasks.start_soon(node.root.terminate_child, "b")
        await settle()
        assert refs["b"].statistics().state == "stopping"
        await refs["a"].invoke(Peer.fail_quietly)
        await settle()
        assert trio.current_time() < 1
        assert add_up(refs["a"], refs["b"])


async def test_an_exception_at_the_end_is_part_of_the_reason(virtual_clock) -> None:
    class Bad(Peer):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            yield
            raise LookupError("while ending")

    async with open_test_node() as node, cast(node, "ab", a=Bad, b=Trapper) as refs:
        await refs["a"].invoke(Peer.end)
        await settle()
        assert downs_of(refs["b"]) == [("a", "LookupError: while ending")]


# ---- starts


async def test_a_start_that_fails_signals_its_links(virtual_clock) -> None:
    class Fails(Peer):
        def started(self) -> None:
            self.link(self.find(Peer, "b"))
            raise BUG

    class FailsLater(Peer):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            self.link(self.find(Peer, "b"))
            await trio.sleep(1)
            raise BUG
            yield

    for kind in (Fails, FailsLater):
        async with open_test_node() as node, cast(node, b=Trapper) as refs:
            with suppress(Exception):
                await node.start_child(ChildSpec("a", kind))
            await settle()
            assert downs_of(refs["b"]) == [("a", "RuntimeError: bug")]


async def test_an_agent_may_be_ended_while_it_starts(virtual_clock) -> None:
    class Starts(Peer):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            self.link(self.find(Peer, "b"))
            await trio.sleep(1_000)
            yield

    async with open_test_node() as node, cast(node, b=Peer) as refs, trio.open_nursery() as nursery:
        failed: list[BaseException] = []

        async def start() -> None:
            try:
                await node.start_child(ChildSpec("a", Starts))
            except Exception as exc:
                failed.append(exc)

        nursery.start_soon(start)
        await trio.sleep(1)
        await refs["b"].invoke(Peer.fail_quietly)
        await settle()
        assert trio.current_time() < 2
        assert [str(exc) for exc in failed] == [
            "a could not start: lifespan() was cancelled before it was entered"
        ]
        cause = failed[0].__cause__
        assert cause is not None
        assert cause.__cause__ is BUG
        assert node.root.which_children() == []


async def test_a_restart_that_a_link_ends_is_tried_again(virtual_clock) -> None:
    class Starts(Peer):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            self.link(self.find(Peer, "b"))
            await trio.sleep(1)
            yield

    tree = SupervisorSpec("root", [ChildSpec("b", Peer), ChildSpec("a", Starts)], max_restarts=10)
    async with open_test_node(tree) as node:
        a, b = node.find(Peer, "a"), node.find(Peer, "b")
        await a.invoke(Peer.fail_quietly)  # takes b with it
        await trio.sleep(0.5)
        assert a.statistics().state == "starting"
        await b.invoke(Peer.fail_quietly)
        await trio.sleep(3)
        assert (a.statistics().state, b.statistics().state) == ("running", "running")
        assert a.statistics().incarnation == 2
        assert links_of(a) == links_of(b) == 1


async def test_ended_just_before_it_was_opened(virtual_clock) -> None:
    """The lifespan has been entered, the supervisor has not gone on yet: the agent ends, and is restarted."""

    class Starts(Peer):
        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[None]:
            self.link(self.find(Peer, "b"))
            await trio.sleep(1)
            if self.find(Peer, "b").statistics().incarnation == 1:
                self.find(Peer, "b").tell_nowait(Peer.fail_quietly)
            yield

    tree = SupervisorSpec("root", [ChildSpec("b", Peer), ChildSpec("a", Starts)], max_restarts=10)
    async with open_test_node(tree) as node:
        await trio.sleep(5)
        a = node.find(Peer, "a")
        assert a.statistics().state == "running"
        assert links_of(a) == links_of(node.find(Peer, "b")) == 1


# ---- trap_exits


async def test_traps_are_told_every_reason_with_normal(virtual_clock) -> None:
    async with open_test_node() as node:
        async with cast(node, "at", "bt", "ct", "tx", t=Trapper, a=Peer, b=Peer, c=Peer, x=Peer) as refs:
            with pytest.raises(AgentDied):
                await refs["a"].invoke(Peer.fail)
            await refs["b"].invoke(Peer.close, "why")
            await refs["c"].invoke(Peer.end)
            await settle()
            assert downs_of(refs["t"]) == [
                ("a", "RuntimeError: bug"),
                ("b", "shutdown: why"),
                ("c", "normal"),
            ]
            assert alive(refs) == "tx"
            assert links_of(refs["t"]) == 1
            assert [down.incarnation for down in agent_of(refs["t"]).downs] == [1, 1, 1]


async def test_on_exit_has_a_seat_of_its_own(virtual_clock) -> None:
    class Crowded(Trapper, serial=True):
        pass

    async with open_test_node() as node:
        crowd = {f"p{n}": Peer for n in range(100)}
        async with cast(node, t=Crowded, **crowd) as refs, trio.open_nursery() as tasks:
            for name in crowd:
                await refs["t"].invoke(Peer.tie, name)
            tasks.start_soon(refs["t"].invoke, Peer.wait, 1)
            await settle()
            for _ in range(64):
                refs["t"].tell_nowait(Peer.count)
            with pytest.raises(trio.WouldBlock):
                refs["t"].tell_nowait(Peer.count)
            for name in crowd:
                await refs[name].invoke(Peer.end)
            assert agent_of(refs["t"]).downs == []  # a run is open, and turns wait for it
            assert add_up(refs["t"])
            await trio.sleep(2)
            assert downs_of(refs["t"]) == [(name, "normal") for name in crowd]
            assert refs["t"].statistics().accepted == 100 + 1 + 64
            assert add_up(refs["t"])


async def test_what_has_come_before_unlink_is_still_told(virtual_clock) -> None:
    class Leaves(Trapper):
        @action
        def watch_it_end(self, name: str) -> None:
            self.unlink(self.find(Peer, name))

    async with open_test_node() as node, cast(node, "tx", "ty", t=Leaves, x=Peer, y=Peer) as refs:
        refs["x"].tell_nowait(Peer.end)
        refs["t"].tell_nowait(Leaves.watch_it_end, "y")
        await settle()
        refs["y"].tell_nowait(Peer.end)
        await settle()
        assert downs_of(refs["t"]) == [("x", "normal")]


async def test_a_bug_in_on_exit_is_a_crash_like_any_other(virtual_clock) -> None:
    class Fragile(Peer, trap_exits=True):
        def on_exit(self, down: Down) -> None:
            raise LookupError("in on_exit")

    async with open_test_node() as node, cast(node, "af", "fb", a=Peer, f=Fragile, b=Trapper) as refs:
        await refs["a"].invoke(Peer.end)
        await settle()
        assert downs_of(refs["b"]) == [("f", "LookupError: in on_exit")]


async def test_on_exit_may_stop_link_and_start_over(virtual_clock) -> None:
    class Follows(Peer, trap_exits=True):
        def on_exit(self, down: Down) -> None:
            if down.agent == "a":
                self.link(self.find(Peer, "b"))
            else:
                self.stop(down.reason)

    async with open_test_node() as node, cast(node, "af", "ft", a=Peer, f=Follows, b=Peer, t=Trapper) as refs:
        await refs["a"].invoke(Peer.end)
        await settle()
        await refs["b"].invoke(Peer.close, "why")
        await settle()
        assert downs_of(refs["t"]) == [("f", "shutdown: why")]


def test_what_a_class_may_say() -> None:
    with pytest.raises(TypeError, match=r"trap_exits=True needs a `def on_exit"):

        class Without(Agent, trap_exits=True):
            pass

    with pytest.raises(
        TypeError, match=r"on_exit is never called: write class Unsaid\(Agent, trap_exits=True\)"
    ):

        class Unsaid(Agent):
            def on_exit(self, down: Down) -> None: ...

    class Mixin:
        def on_exit(self, down: Down) -> None: ...

    with pytest.raises(TypeError, match="never called"):

        class Mixed(Mixin, Agent):
            pass

    class MixedAndSaid(Mixin, Agent, trap_exits=True):
        pass

    async def wait(self: Any, down: Down) -> None: ...

    async def items(self: Any, down: Down) -> Any:
        yield

    def steps(self: Any, down: Down) -> Any:
        yield

    for unfit in (wait, items, steps, staticmethod(print), 5):
        with pytest.raises(TypeError, match=r"Unfit\.on_exit must be a plain def"):
            type(Agent)("Unfit", (Agent,), {"on_exit": unfit}, trap_exits=True)

    with pytest.raises(TypeError, match="the name is the agent's own"):

        class Offered(Agent, trap_exits=True):
            @action
            def on_exit(self, down: str) -> None: ...


async def test_traps_are_inherited_and_can_be_switched_off(virtual_clock) -> None:
    class Heir(Trapper):
        pass

    class SlotLifecycle(Trapper, trap_exits=False):
        pass

    async with open_test_node() as node, cast(node, "ab", "ac", a=Peer, b=Heir, c=SlotLifecycle) as refs:
        await refs["a"].invoke(Peer.close, "")
        await settle()
        assert alive(refs) == "b"
        assert downs_of(refs["b"]) == [("a", "shutdown")]

    with pytest.raises(TypeError, match="is never called"):

        class Confused(Trapper, trap_exits=False):
            def on_exit(self, down: Down) -> None: ...


# ---- reasons


async def test_stop_takes_reasons_as_data(virtual_clock) -> None:
    class Says(Peer):
        @action
        def say(self, kind: str) -> None:
            self.stop({"normal": NORMAL, "shutdown": SHUTDOWN, "error": LOST}[kind])

        @action
        def say_wrong(self) -> str:
            with pytest.raises(TypeError, match="a reason is an ExitReason"):
                self.stop("done")  # type: ignore[arg-type]
            return "refused"

    async with open_test_node() as node:
        for kind in ("normal", "shutdown", "error"):
            says = await node.start_child(ChildSpec(kind, Says, restart="temporary"))
            assert await says.invoke(Says.say_wrong) == "refused"
            async with says.monitor() as downs:
                await says.invoke(Says.say, kind)
                assert (await downs.receive()).reason.kind == kind


@pytest.mark.parametrize(
    ("restart", "reason", "incarnation"),
    [
        ("permanent", "", 2),
        ("transient", "", 1),
        ("transient", "error", 2),
        ("temporary", "error", 1),
    ],
)
async def test_supervisors_see_a_linked_death_as_any_other(
    virtual_clock, restart, reason, incarnation
) -> None:
    async with open_test_node() as node, cast(node, a=Peer) as refs:
        b: Ref[Any] = await node.start_child(ChildSpec("b", Peer, restart=restart))
        await refs["a"].invoke(Peer.tie, "b")
        if reason:
            await refs["a"].invoke(Peer.fail_quietly)
        else:
            await refs["a"].invoke(Peer.close, "")
        await settle()
        assert b.statistics().incarnation == incarnation


async def test_an_error_is_not_forgotten_when_the_agent_is_told_to_stop_too(virtual_clock) -> None:
    class Dawdles(Peer):
        @action
        def fail_slowly(self) -> None:
            self.stop(LOST)

    async with open_test_node() as node, cast(node, "at", a=Dawdles, t=Trapper) as refs:
        refs["a"].tell_nowait(Peer.wait, 2)
        await settle()
        await refs["a"].invoke(Dawdles.fail_slowly)
        await node.root.terminate_child("a")
        await settle()
        assert downs_of(refs["t"]) == [("a", "RuntimeError: bug")]


async def test_members_of_a_ring_count_each_for_their_supervisor(virtual_clock) -> None:
    names = "abcde"
    tree = SupervisorSpec("root", [ChildSpec(name, Peer) for name in names], max_restarts=3)
    with pytest.raises(RestartIntensityExceeded) as caught:
        async with open_test_node(tree) as node:
            for first, second in zip(names, names[1:] + names[0], strict=True):
                await node.find(Peer, first).invoke(Peer.tie, second)
            await node.find(Peer, "c").invoke(Peer.fail_quietly)
            await trio.sleep(1)
    assert caught.value.causes == (BUG,) * 4


# ---- order of endings


class Told(Agent):
    """Writes down what happens to it."""

    story: list[str]
    name: str
    links: tuple[str, ...] = ()

    def started(self) -> None:
        self.story.append(f"{self.name} starts")
        for name in self.links:
            self.link(self.find(Told, name))

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        yield
        self.story.append(f"{self.name} ends")


class ToldTrapper(Told, trap_exits=True):
    def on_exit(self, down: Down) -> None:
        self.story.append(f"{self.name} hears of {down.agent}: {down.reason}")


def told(story: list[str], kind: type[Told], name: str, *links: str) -> ChildSpec[Any]:
    return ChildSpec(name, partial(kind, story=story, name=name, links=links))


async def test_a_node_stops_in_order_with_links_across_branches(virtual_clock) -> None:
    story: list[str] = []
    tree = SupervisorSpec(
        "root",
        [
            SupervisorSpec("left", [told(story, ToldTrapper, "a"), told(story, ToldTrapper, "b", "left/a")]),
            SupervisorSpec("right", [told(story, ToldTrapper, "c", "left/a", "left/b")]),
        ],
    )
    async with open_test_node(tree):
        await trio.sleep(1)
        story.clear()
    assert story == [
        "c ends",
        "a hears of right/c: shutdown",
        "b hears of right/c: shutdown",
        "b ends",
        "a hears of left/b: shutdown",
        "a ends",
    ]


async def test_who_is_taken_along_at_the_end_is_restarted_at_most_as_often_as_allowed(virtual_clock) -> None:
    story: list[str] = []
    tree = SupervisorSpec(
        "root",
        [
            SupervisorSpec("left", [told(story, Told, name) for name in "abcdefgh"]),
            SupervisorSpec("right", [told(story, Told, "x", *(f"left/{name}" for name in "abcdefgh"))]),
        ],
    )
    async with open_test_node(tree):
        await trio.sleep(1)
    assert story.count("x starts") == 1
    assert sum(line.endswith("starts") for line in story) == sum(line.endswith("ends") for line in story)
    assert sum(line.endswith("starts") for line in story) <= 9 + 3


async def test_one_for_all_with_linked_children_restarts_each_once(virtual_clock) -> None:
    children = [ChildSpec(name, Peer) for name in "abc"]
    tree = SupervisorSpec("root", [SupervisorSpec("desk", children, strategy="one_for_all", max_restarts=1)])
    async with open_test_node(tree) as node:
        for first, second in ("ab", "bc", "ca"):
            await node.find(Peer, f"desk/{first}").invoke(Peer.tie, f"desk/{second}")
        desk = node.root.supervisor("desk")
        await desk.terminate_child("a")
        await settle()
        # b and c ended with it by themselves: the first of their exits restarts all
        assert [child.incarnation for child in desk.which_children()] == [2, 2, 2]


@pytest.mark.parametrize("ring", [False, True])
async def test_a_chain_of_five_thousand_needs_no_depth(virtual_clock, ring) -> None:
    count = 5_000
    tree = SupervisorSpec("root", max_restarts=1)
    async with open_test_node(tree) as node:
        crowd = await node.root.start_many(ChildSpec("p", Peer, restart="temporary"), count)
        tie_in_a_row(crowd, ring=ring)
        await crowd[0].invoke(Peer.fail_quietly)
        assert all(ref.statistics().state != "running" for ref in crowd)
        await settle()
        assert node.root.count_children().specs == 0
        assert add_up(*crowd)


async def test_a_linked_crowd_stops_with_its_node(virtual_clock) -> None:
    count = 1_000
    async with open_test_node() as node:
        crowd = await node.root.start_many(ChildSpec("p", Trapper), count)
        tie_in_a_row(crowd, ring=True)
        agents = [agent_of(ref) for ref in crowd]
    for number, agent in enumerate(agents):  # all are told at once: who is not done yet hears of neighbours
        heard = [down.agent for down in agent.downs]
        assert set(heard) <= {f"p-{(number + step) % count + 1}" for step in (-1, 1)}
        assert len(heard) == len(set(heard))


class Killer(Peer):
    """Ends another agent in the middle of its turn."""

    @action
    def kill(self, name: str, fail: bool) -> str:
        slot_of(self.find(Peer, name)).die(LOST)
        if fail:
            raise LookupError
        return "done"


async def test_what_a_turn_ends_does_not_end_that_turn_in_its_middle(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, "ab", a=Peer, b=Killer) as refs:
        refs["b"].tell_nowait(Killer.kill, "a", False)
        for _ in range(3):  # in the same batch
            refs["b"].tell_nowait(Peer.count)
        await settle()
        assert alive(refs) == ""
        assert add_up(*refs.values())
        assert refs["b"].statistics().waiting == 0


async def test_a_signal_that_comes_late_does_not_end_the_next_incarnation(virtual_clock) -> None:
    async with open_test_node() as node, cast(node, a=Peer):
        b = await node.start_child(ChildSpec("b", Killer))
        await b.invoke(Peer.tie, "a")
        with pytest.raises(AgentDied, match="LookupError"):
            await b.invoke(Killer.kill, "a", True)
        await settle()
        assert b.statistics().incarnation == 2


async def test_agents_of_two_nodes_can_be_linked(virtual_clock) -> None:
    class Reaches(Peer):
        @action
        def reach(self) -> None:
            self.link(yonder[0])

    yonder: list[Ref[Any]] = []
    async with open_test_node() as near, open_node() as far:
        async with cast(near, a=Reaches) as here, cast(far, b=Peer) as there:
            yonder.append(there["b"])
            await here["a"].invoke(Reaches.reach)
            await there["b"].invoke(Peer.fail_quietly)
            assert alive(here) == alive(there) == ""


def test_l1_agents_of_two_threads_are_not_linked_monitored_or_followed() -> None:
    class Other(Agent):
        happened: Event[int] = event()

    class Eager(Agent):
        other: Any

        @action
        def reach(self, how: str) -> str:
            try:
                if how == "link":
                    self.link(self.other)
                elif how == "monitor":
                    self.monitor(self.other, lambda _: None)
                else:
                    self.follow(self.other, Other.happened, lambda _: None)
            except NotAllowed as exc:
                return str(exc)
            return "done"

    async def reach_out(other: Ref[Other]) -> list[str]:
        async with open_node() as here:
            eager = await here.start(Eager, other=other)
            return [await eager.invoke(Eager.reach, how) for how in ("link", "monitor", "follow")]

    with open_node_in_thread() as portal:
        answers = trio.run(reach_out, portal.start(Other))
    assert len(answers) == 3
    for answer in answers:
        assert "is an agent of a node in another thread" in answer
