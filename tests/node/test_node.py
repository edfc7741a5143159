"""A node as a whole: opening, naming, finding, counting, ending; two of them in one run."""

# ruff: noqa: PT012 -- what is raised leaves the life of a whole node
from __future__ import annotations

import gc
import inspect
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    AgentUnavailable,
    ChildSpec,
    ConfigError,
    NodeOptions,
    NotFound,
    StartFailed,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.errors import RestartIntensityExceeded, StateMismatch, is_permanent
from lmos_actors.node import NodeLimits
from lmos_actors.testing import open_test_node
from tests.supervision.world import (
    Boom,
    Diary,
    Fussy,
    Worker,
    child,
    crash,
    living,
    run,
    settled,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Weather(Worker):
    units: str = "kelvin"

    @action
    def sky(self) -> str:
        return f"{self.units} on {self.path}"


class HTTPGate(Agent):
    pass


# ---- names


def test_the_options_of_a_node_are_the_arguments_of_open_node() -> None:
    taken = inspect.signature(open_node).parameters
    fields = {field.name: field.default for field in attrs.fields(NodeOptions) if field.init}
    assert {name: each.default for name, each in taken.items() if name != "tree"} == fields


def test_agents_are_named_after_their_class():
    async def main() -> None:
        async with open_test_node() as node:
            refs = [await node.start(Weather) for _ in range(3)]
            assert [ref.path for ref in refs] == ["weather", "weather-2", "weather-3"]
            assert (await node.start(HTTPGate)).path == "http-gate"
            made = await node.start(Weather, units="celsius")
            assert await made.invoke(Weather.sky) == "celsius on weather-4"
            await node.start_child(child("weather-6", Weather))
            assert [(await node.start(Weather)).path for _ in range(2)] == ["weather-5", "weather-7"]
            assert (await node.start(partial(Weather, units="x"))).path == "weather-8"  # type: ignore[arg-type]
            await crash(made)
            assert await made.invoke(Weather.sky) == "celsius on weather-4"

    run(main)


def test_names_after_many_of_that_name():
    async def main() -> None:
        async with open_test_node() as node:
            await node.root.start_many(child("weather", Weather), 3)
            paths = [(await node.start(Weather)).path for _ in range(3)]
            every = [ref.path for ref in node.agents()]
            assert len(set(every)) == 6
            assert paths[0] == "weather"

    run(main)


class Uncalled(Agent):
    size: int = 0

    def __attrs_post_init__(self) -> None:
        self.size = len(7)  # type: ignore[arg-type]


class Unwilling(Agent):
    """Raises what it is given, in its lifespan or its first turn."""

    error: Any
    late: bool = False

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        if not self.late:
            raise self.error
        yield

    def started(self) -> None:
        if self.late:
            raise self.error


def refused(text: str) -> ConfigError:
    """Return an error of an option that the system refuses."""
    error = ConfigError(text)
    error.__cause__ = OSError(98, "Address already in use")
    return error


@pytest.mark.parametrize(
    ("factory", "permanent"),
    [
        (Uncalled, True),
        (partial(Weather, wrong=1), True),
        (dict, True),
        (partial(Unwilling, error=ConfigError("no licence")), True),
        (partial(Unwilling, error=ConfigError("no licence"), late=True), True),
        (partial(Unwilling, error=StateMismatch("42", "it is of another class")), True),
        (partial(Unwilling, error=refused("cannot listen")), False),
        (partial(Unwilling, error=OSError(111, "refused")), False),
        (partial(Unwilling, error=TypeError("null in a row")), False),
        (partial(Unwilling, error=RuntimeError("not now"), late=True), False),
    ],
)
def test_a_failure_to_start_says_whether_it_comes_again(factory: Any, permanent: bool) -> None:
    """Below a supervisor as well as alone."""

    async def main() -> None:
        async with open_test_node() as node:
            with pytest.raises(StartFailed) as alone:
                await node.start_child(ChildSpec("one", factory))
            with pytest.raises(StartFailed) as below:
                await node.start_supervisor(SupervisorSpec("all", [ChildSpec("one", factory)]))
            assert (is_permanent(alone.value), is_permanent(below.value)) == (permanent, permanent)

    run(main)


def test_what_cannot_start_is_said_at_once():
    async def main() -> None:
        async with open_test_node() as node:
            with pytest.raises(StartFailed, match="weather could not start"):
                await node.start(Weather, wrong=1)  # type: ignore[call-arg]
            with pytest.raises(StartFailed):
                await node.start(dict)  # type: ignore[type-var]
            for wrong in (None, "weather", 3):
                with pytest.raises(ConfigError):
                    await node.start(wrong)  # type: ignore[arg-type]
            assert (await node.start(Weather)).path == "weather"
            assert len(node.agents()) == 1

    run(main)


# ---- finding


def test_find_looks_in_start_order_through_the_whole_tree():
    """L3."""

    async def main() -> None:
        spec = tree(
            child("a"),
            tree(child("w", Weather), name="s"),
            child("w2", Weather),
            tree(child("w2", Weather), child("a", Weather), name="t"),
        )
        async with open_test_node(spec) as node:
            assert [ref.path for ref in node.agents()] == ["a", "s/w", "w2", "t/w2", "t/a"]
            assert node.find(Weather).path == "s/w"
            assert node.find(Worker).path == "a"
            assert node.find(Weather, "w2").path == "w2"
            assert node.find(Weather, "t/w2").path == "t/w2"
            assert node.find(Weather, "a").path == "t/a"  # of that class
            assert node.find(Worker, "a").path == "a"
            for name in ("nobody", "s", "s/x", "x/w", "t/w2/x", "/", ""):
                with pytest.raises(NotFound):
                    await node.find(Weather, name).invoke(Weather.sky)
            with pytest.raises(NotFound, match="HTTPGate"):
                await node.find(HTTPGate).read_all()

    run(main)


def test_find_resolves_on_first_use_and_keeps_what_it_found():
    async def main() -> None:
        async with open_test_node() as node:
            early = node.find(Weather, "w")
            with pytest.raises(NotFound):
                await early.invoke(Weather.sky)
            ready: list[float] = []

            async def wait() -> None:
                await early.ready()
                ready.append(trio.current_time())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(3.0)
                await node.start_child(child("other", Weather))
                await settled()
                assert ready == []
                made = await node.start_child(child("w", Weather))
            assert ready == [3.0]
            assert early == made
            assert hash(early) == hash(made)
            await node.root.terminate_child("w")
            await node.root.delete_child("w")
            again = await node.start_child(child("w", Weather))
            with pytest.raises(NotFound):
                await early.invoke(Weather.sky)
            assert await node.find(Weather, "w").invoke(Weather.sky) == "kelvin on w"
            assert again != early

    run(main)


def test_find_does_not_take_what_is_down_for_what_it_is_not():
    async def main() -> None:
        async with open_test_node(tree(child("a"), child("w", Weather))) as node:
            await node.root.terminate_child("a")
            assert await node.find(Weather).invoke(Weather.sky) == "kelvin on w"
            await node.root.terminate_child("w")
            with pytest.raises(AgentUnavailable):
                await node.find(Weather).invoke(Weather.sky)

    run(main)


def test_ready_waits_for_an_agent_of_the_tree_that_is_still_starting():
    class Early(Worker):
        peer: Any = None

        def started(self) -> None:
            self.peer = self.find(Weather)
            self.send(self.peer, Worker.hello)
            with pytest.raises(NotFound):
                self.send(self.find(Weather, "nobody"), Worker.hello)

        @action
        async def ask(self) -> str:
            await self.peer.ready()
            return str(await self.peer.invoke(Weather.sky))

    async def main() -> None:
        async with open_test_node(tree(child("early", Early), child("w", Weather))) as node:
            assert await node.root.child("early").invoke(Early.ask) == "kelvin on w"
            (lost,) = node.dead_letters  # sent before there was anybody
            assert (lost.agent, lost.affordance, lost.sender) == ("w", "hello", "early")

    run(main)


# ---- looking


def test_the_tree_as_text():
    async def main() -> None:
        inner = tree(child("x"), name="s", strategy="rest_for_one", max_restarts=7, max_seconds=0.5)
        async with open_test_node(tree(child("a"), inner, child("b"))) as node:
            await crash(node.root.child("a"))
            await node.root.terminate_child("b")
            assert node.tree().splitlines() == [
                "root (one_for_one, 3 in 5 s)",
                "  a running #2",
                "  s (rest_for_one, 7 in 0.5 s)",
                "    x running #1",
                "  b stopped #1",
            ]

    run(main)


def test_counts_over_the_tree():
    async def main() -> None:
        async with open_test_node(tree(child("a"), tree(child("x"), tree(name="t"), name="s"))) as node:
            a, x = node.root.child("a"), node.root.supervisor("s").child("x")
            await a.invoke(Worker.hello)
            await x.invoke(Worker.hello)
            await x.tell(Worker.hello)
            await crash(a)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(x.invoke, Worker.sleep, 1.0)
                await settled()
                numbers = node.statistics()
            assert (numbers.agents, numbers.supervisors, numbers.restarts) == (2, 3, 1)
            assert (numbers.accepted, numbers.handled, numbers.running) == (5, 4, 1)
            assert (numbers.waiting, numbers.cancelled, numbers.dropped) == (0, 0, 0)
            assert (numbers.dead_lettered, numbers.dead_letters, numbers.refused) == (0, 0, 0)

    run(main)


# ---- opening and ending


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_that_cannot_start_leaves_nothing_running(seed: int):
    diary = Diary()

    async def main() -> None:
        before = gc.get_threshold()
        spec = tree(
            child("a", living(diary, leaving=2.0)),
            tree(child("x", living(diary)), child("bad", partial(Fussy, plan=[Boom("no")])), name="s"),
        )
        with pytest.raises(StartFailed, match="s/bad could not start: no") as caught:
            async with open_test_node(spec):
                raise AssertionError("not reached")
        assert isinstance(caught.value.__cause__, Boom)
        assert trio.current_time() == 2.0
        assert diary.lines == ["enter a", "enter s/x", "left s/x", "left a"]
        assert trio.lowlevel.current_task().child_nurseries == []
        assert gc.get_threshold() == before
        async with open_test_node(tree(child("a"))) as node:
            assert await node.root.child("a").invoke(Worker.hello) == 0

    run(main, seed=seed)


def test_the_body_and_the_root_both_fail():
    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with open_test_node(tree(child("a"), max_restarts=0)) as node:
                node.root.child("a").tell_nowait(Worker.crash)
                try:
                    await trio.sleep_forever()
                finally:
                    raise Boom("body")
        kinds = {type(error) for error in caught.value.exceptions}
        assert kinds == {Boom, RestartIntensityExceeded}

    run(main)


def test_a_root_that_fails_while_the_body_leaves():
    """What the children do at the very end still arrives."""
    diary = Diary()

    async def main() -> None:
        with pytest.raises(RestartIntensityExceeded):
            async with open_test_node(tree(child("a"), child("b", living(diary)), max_restarts=0)) as node:
                node.root.child("a").tell_nowait(Worker.crash)
                await settled()
        assert diary.lines == ["enter b", "left b"]

    run(main)


def test_values_of_the_body_pass_and_nothing_of_the_node_is_left():
    async def main() -> list[int]:
        values = []
        for _ in range(20):
            async with open_test_node(tree(child("a"))) as node:
                values.append(await node.root.child("a").invoke(Worker.hello))
                await node.root.child("a").invoke(Worker.sleep, 0.5)
        return values

    assert run(main) == [0] * 20


# ---- two nodes


def test_two_nodes_in_one_run_are_worlds_apart():
    before = gc.get_threshold()

    async def main() -> None:
        spec = tree(child("a", Weather), tree(child("x"), name="s"))
        async with open_test_node(spec) as one, open_test_node(spec) as two:
            first, second = one.root.child("a"), two.root.child("a")
            assert first != second
            assert len({first, second}) == 2
            await crash(first)
            assert first.statistics().incarnation == 2
            assert second.statistics().incarnation == 1
            assert one.find(Weather) == first
            assert two.find(Weather) == second
            with pytest.raises(RestartIntensityExceeded):
                async with open_test_node(tree(child("a"), max_restarts=0)) as three:
                    await crash(three.root.child("a"))
                    await trio.sleep_forever()
            assert await first.invoke(Worker.sleep, 1.0) == 1.0
            assert await second.invoke(Worker.sleep, 1.0) == 1.0
            assert one.statistics().restarts == 1
            assert two.statistics().restarts == 0

    run(main)
    assert gc.get_threshold() == before


def test_two_nodes_that_end_in_the_order_they_began():
    before = gc.get_threshold()

    async def main() -> None:
        async def hold(begin: float, end: float) -> None:
            await trio.sleep(begin)
            async with open_test_node(tree(child("a"))) as node:
                await node.root.child("a").invoke(Worker.sleep, end - begin)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, 0.0, 2.0)
            nursery.start_soon(hold, 1.0, 3.0)
            nursery.start_soon(hold, 1.5, 1.75)
        assert gc.get_threshold() == before

    run(main)
    assert gc.get_threshold() == before


def test_agents_of_one_node_use_those_of_another():
    class Bridge(Worker):
        other: Any = None

        @action
        async def ask(self, seconds: float) -> float:
            return float(await self.other.invoke(Worker.sleep, seconds))

        @action
        def pass_on(self) -> None:
            self.send(self.other, Worker.hello)

    async def main() -> None:
        async with open_test_node(tree(child("far"))) as one:
            far = one.root.child("far")
            async with open_test_node(tree(child("near", partial(Bridge, other=far)))) as two:
                near = two.root.child("near")
                assert await near.invoke(Bridge.ask, 2.0) == 2.0
                await near.invoke(Bridge.pass_on)
                await settled()
                assert far.statistics().handled == 2
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(far.invoke, Worker.sleep, 1.0)
                    await settled()
                await one.root.terminate_child("far")
                with pytest.raises(Exception, match="far"):
                    await near.invoke(Bridge.ask, 1.0)

    run(main)


async def test_open_node_refuses_what_is_no_tree(virtual_clock) -> None:
    with pytest.raises(ConfigError, match="open_node takes a SupervisorSpec, not"):
        async with open_node(Worker):
            pass


def test_how_much_a_node_remembers_is_an_option() -> None:
    async def main() -> None:
        tree = SupervisorSpec("root", [child("weather", Weather)], max_restarts=10)
        async with open_node(tree, limits=NodeLimits(dead_letters=3, crash_reports=2)) as node:
            ref = node.find(Weather)
            for _ in range(3):
                for _ in range(3):  # the last two become dead letters
                    ref.tell_nowait(Worker.crash, "boom")
                await ref.ready()
                await settled()
            assert (len(node.crash_reports), node.statistics().dead_letters) == (2, 6)
            assert len(node.dead_letters) == 3

    run(main)
