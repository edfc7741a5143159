"""Test nodes: a node on virtual time with a seed, with probes, fakes and faults."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple

import attrs
import trio

from lmos_actors._core import current_environment, for_async_with, set_environment
from lmos_actors.actors import Agent, ExitReason, slot_of
from lmos_actors.assembly import NodeOptions
from lmos_actors.node import Node, NodeStages, open_stages
from lmos_actors.supervision import ChildSpec, has_durable_agents

from ._faults import FaultPlan
from ._probe import LIMIT, Probe
from ._seeds import noting_seed, seed_of_run
from ._staging import NodeStaging
from ._world import deadlock_clock, enter_world, virtual

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping

    from lmos_actors._core import Instrument
    from lmos_actors.actors import Ref
    from lmos_actors.persistence import AsyncStore, Store
    from lmos_actors.supervision import SupervisorSpec

    from ._staging import Replacement

A = TypeVar("A", bound=Agent)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TestNode(Node):
    """A node with probes and a fault plan, made by `open_test_node`."""

    __test__ = False  # for pytest, which takes a class with such a name for tests

    def __init__(self, stages: NodeStages, stage: NodeStaging, seed: int | None) -> None:
        super().__init__(stages)
        self._stage = stage
        stage.agents = self.agents
        self._seed = seed

    @property
    def seed(self) -> int | None:
        """The seed of this world."""
        return self._seed

    @property
    def faults(self) -> FaultPlan:
        """The fault plan of this node; see `FaultPlan.on`."""
        return self._stage.faults

    async def probe(
        self, cls: type[A], name: str | None = None, *, limit: float = LIMIT, strict: bool = True
    ) -> Probe[A]:
        """Start a probe of an agent class under the root supervisor, named after the class; see `Probe`.

        Raises NameTaken.
        """
        probe = Probe(cls, limit=limit, strict=strict)
        self._stage.add(probe)
        if name is None:
            await self.start(probe.factory)
        else:
            await self.start_child(ChildSpec(name, probe.factory))
        return probe

    def crash(self, ref: Ref[Any], error: Exception, /) -> None:
        """End the present incarnation of an agent with an exception, as a bug in the agent would.

        Nothing happens if it is down already. `await ref.ready()` waits for the next incarnation.
        """
        slot_of(ref).die(ExitReason("error", error=error))


@for_async_with
@asynccontextmanager
async def open_test_node(
    tree: SupervisorSpec | None = None,
    *,
    seed: int | None = None,
    instrument: Instrument | None = None,
    replace: Mapping[type[Agent], Replacement] | None = None,
    faults: FaultPlan | None = None,
    store: Store | AsyncStore | str | None = None,
    circles: Literal["warn", "fail"] = "warn",
    strict_resume: bool = False,
) -> AsyncGenerator[TestNode]:
    """Open a node whose time is virtual and whose ids, chance and order of tasks follow from `seed`.

    `seed` defaults to the number in the environment's LMOS_ACTORS_SEED, else 0. An exception that leaves the
    block carries a note with the seed. Inside `simulate` the node belongs to that world and has its seed.
    `replace` puts fakes, probes or subclasses in the place of agent classes, wherever in the node such an
    agent is started. `faults` is a plan made beforehand, for agents that `tree` starts. `store` keeps the
    state of durable agents; it defaults to `"memory:"` if `tree` has any. Everything else is as in
    `open_node`.

    Raises AssertionError when the block ends without an exception, but a probe still has messages that were
    not expected or not answered, a fake was asked for an answer it does not have, or a planned fault or
    replacement never applied; also when the root supervisor ends before the block. Raises RuntimeError if
    time is real, and Deadlocked when the block can never end because everything in the run waits for
    something else.
    """
    environment = current_environment()
    chosen = environment.entropy.seed if environment is not None else seed_of_run() if seed is None else seed
    if store is None and tree is not None and has_durable_agents(tree):
        store = "memory:"
    stage = NodeStaging(replace, FaultPlan() if faults is None else faults)
    ended = False
    with noting_seed(chosen):
        async with AsyncExitStack() as stack:
            if environment is None:
                enter_world(stack, virtual(trio.lowlevel.current_clock()), chosen or 0)
            with _staged(stage):
                options = NodeOptions(
                    instrument=instrument, store=store, circles=circles, strict_resume=strict_resume
                )
                opened = open_stages(tree, options)
                node = TestNode(await stack.enter_async_context(opened), stage, chosen)
            with _describing_messages(stage), _failing_leftovers(stage):
                yield node
            ended = True
        if not ended:  # the node has cancelled the block and taken that back
            raise AssertionError("the test has not come to its end: the root supervisor ended before")


@contextmanager
def _staged(stage: NodeStaging) -> Generator[None]:
    """Make the node that is opened in the block get its agents from `stage`."""
    environment = current_environment()
    assert environment is not None
    stage.faults.begin(environment.entropy.stream, stage.reapply_faults)
    set_environment(attrs.evolve(environment, staging=stage))
    try:
        yield
    finally:
        set_environment(environment)


@contextmanager
def _describing_messages(stage: NodeStaging) -> Generator[None]:
    """Add the messages that wait for the test to the report of a deadlock."""
    environment = current_environment()
    assert environment is not None
    environment.describe.append(stage.describe)
    try:
        yield
    finally:
        environment.describe.remove(stage.describe)


@contextmanager
def _failing_leftovers(stage: NodeStaging) -> Generator[None]:
    """Fail a test that ended without an exception but left something open."""
    try:
        yield
    except BaseException as exc:
        for complaint in stage.complaints:
            exc.add_note(complaint)
        raise
    left = stage.problems()
    if left:
        raise AssertionError("\n".join(["the test left something open:", *(f"- {text}" for text in left)]))


def run_test(
    main: Callable[[TestNode, *Ts], Awaitable[T]],
    *args: *Ts,
    tree: SupervisorSpec | None = None,
    seed: int | None = None,
    instrument: Instrument | None = None,
    replace: Mapping[type[Agent], Replacement] | None = None,
    faults: FaultPlan | None = None,
) -> T:
    """Run `await main(node, *args)` on a new clock, in a node of `open_test_node`; return its result.

    This is for tests that are not coroutines: one example of a property test, one seed of many. Raises
    RuntimeError inside a trio run, AssertionError if the root supervisor ends before `main`, and what
    `open_test_node` and `main` raise.
    """

    async def run() -> T:
        opened = open_test_node(tree, seed=seed, instrument=instrument, replace=replace, faults=faults)
        async with opened as node:
            return await main(node, *args)
        raise AssertionError  # not reached: the node gives the block's result, or raises

    return trio.run(run, clock=deadlock_clock())
