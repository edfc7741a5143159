"""Random graphs of links: against a model, and under supervisors that restart and nodes that end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import (
    NORMAL,
    SHUTDOWN,
    Agent,
    AgentError,
    ChildSpec,
    Down,
    ExitReason,
    SupervisorSpec,
    action,
    simulate,
)
from lmos_actors.actors import Slot, slot_of
from lmos_actors.errors import RestartIntensityExceeded
from lmos_actors.testing import open_test_node, settle
from tests.actors.peers import LOST, Peer, Trapper, add_up, agent_of, tie_in_a_row
from tests.matrix import examples

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SIZE = 12
REASONS = (NORMAL, SHUTDOWN, LOST)
places = st.integers(0, SIZE - 1)
edges = st.lists(st.tuples(places, places), max_size=30)
exits = st.lists(st.tuples(places, st.sampled_from(REASONS)), max_size=6)


class Model:
    """What links are: fifteen lines."""

    def __init__(self, traps: list[bool], edges: list[tuple[int, int]]) -> None:
        self.traps = traps
        self.alive = dict.fromkeys(range(SIZE))
        self.links = {frozenset(edge) for edge in edges if len({*edge}) == 2}
        self.told: list[list[tuple[int, ExitReason]]] = [[] for _ in range(SIZE)]

    def exit(self, who: int, reason: ExitReason) -> None:
        if who in self.alive:
            del self.alive[who]
            mine = [link for link in self.links if who in link]
            self.links.difference_update(mine)
            for (other,) in (link - {who} for link in mine):
                if self.traps[other]:
                    self.told[other].append((who, reason))
                elif reason is not NORMAL:
                    self.exit(other, reason)


@given(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE), edges, exits, st.randoms(use_true_random=False))
def test_a_graph_of_links_ends_as_the_model(traps, edges, exits, random) -> None:
    simulate(partial(compare, Model(traps, edges), edges, exits, random))


async def compare(model: Model, edges: Any, exits: Any, random: Any) -> None:
    async with open_test_node() as node:
        refs = [
            await node.start_child(ChildSpec(str(place), Trapper if trap else Peer, restart="temporary"))
            for place, trap in enumerate(model.traps)
        ]
        agents = [agent_of(ref) for ref in refs]
        for edge in edges:
            tie_in_a_row([refs[place] for place in random.sample(edge, 2)], ring=False)
        for who, reason in exits:
            slot = slot_of(refs[who])
            if slot.agent is not None:
                slot.agent.stop(reason)
            model.exit(who, reason)
            await settle()
            assert [place for place, ref in enumerate(refs) if slot_of(ref).agent] == [*model.alive]
            for place in model.alive:
                told = sorted(
                    (int(down.agent), str(down.reason)) for down in getattr(agents[place], "downs", ())
                )
                assert told == sorted((by, str(why)) for by, why in model.told[place])
        assert add_up(*refs)


# ---- under supervisors


class Life(Agent):
    """Links itself at its start to those it can reach; begins and ends in no time or in some."""

    story: list[tuple[str, str]]
    name: str
    slow: float
    links: tuple[str, ...]

    def started(self) -> None:
        self.story.append((self.name, "starts"))
        self.link_all()

    def link_all(self) -> None:
        for name in self.links:
            try:
                self.link(self.find(Life, name))
            except AgentError:
                self.story.append((self.name, f"misses {name}"))

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        self.story.append((self.name, "enters"))
        try:
            self.link_all()
            await trio.sleep(self.slow)
            yield
            with trio.CancelScope(shield=True):
                await trio.sleep(self.slow)
        finally:
            self.story.append((self.name, "leaves"))

    @action
    def end(self, kind: int) -> None:
        self.stop(REASONS[kind])

    @action(concurrency=4)
    async def hold(self, name: str) -> None:
        async with self.find(Life, name).link():
            await trio.sleep(2)
            if name < self.name:
                raise LookupError(name)


class Trapping(Life, trap_exits=True):
    """Reacts to what it is told in a way that depends on who has ended."""

    def on_exit(self, down: Down) -> None:
        self.story.append((self.name, f"hears of {down.agent}"))
        match (len(down.agent) + len(self.story)) % 5:
            case 0:
                self.stop(down.reason)
            case 1:
                raise LookupError("in on_exit")
            case _:
                self.link_all()


agents = st.builds(
    dict,
    trap=st.booleans(),
    slow=st.sampled_from([0.0, 0.0, 0.5]),
    restart=st.sampled_from(["permanent", "transient", "temporary"]),
    links=st.lists(places.map(str), max_size=3).map(tuple),
)
strategies = st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])
branches = st.lists(
    st.tuples(strategies, st.integers(0, 4), st.lists(agents, min_size=1, max_size=4)), min_size=1, max_size=3
)
events = st.lists(
    st.tuples(st.floats(0, 2).map(lambda x: round(x, 1)), st.sampled_from(["end", "hold"]), places, places),
    max_size=12,
)


@given(branches, events, st.integers(0, 3))
@settings(max_examples=examples(60))
def test_a_tree_with_links_across_it_always_ends(branches, events, after) -> None:
    story: list[tuple[str, str]] = []
    slots: list[Slot] = []
    simulate(partial(live, story, slots, tree_of(story, branches), sorted(events), after))
    names = {name for name, _ in story}
    for name in sorted(names):
        mine = [what for who, what in story if who == name and what in ("enters", "leaves")]
        assert mine == ["enters", "leaves"] * (len(mine) // 2), "two lives never overlap, and each ends"
    for slot in slots:
        assert slot.agent is None
        assert slot.extra is None or not (slot.extra.links or slot.extra.monitors)
        n = slot.statistics()
        assert n.accepted == n.handled + n.cancelled + n.dropped + n.dead_lettered + n.waiting + n.running
        assert n.running == n.waiting == 0


def tree_of(story: Any, branches: Any) -> SupervisorSpec:
    count = 0
    supervisors = []
    for number, (strategy, max_restarts, members) in enumerate(branches):
        children = []
        for member in members:
            kind = Trapping if member["trap"] else Life
            fields = {"story": story, "name": str(count), "slow": member["slow"], "links": member["links"]}
            children.append(ChildSpec(str(count), partial(kind, **fields), restart=member["restart"]))
            count += 1
        supervisors.append(
            SupervisorSpec(
                f"s{number}", children, strategy=strategy, max_restarts=max_restarts, restart="transient"
            )
        )
    return SupervisorSpec("root", supervisors, max_restarts=20)


async def live(story: Any, slots: list[Slot], tree: SupervisorSpec, events: Any, after: float) -> None:
    try:
        async with open_test_node(tree) as node:
            slots += [slot_of(ref) for ref in node.agents()]
            for at, verb, who, other in events:
                await trio.sleep_until(at)
                try:
                    ref = node.find(Life, str(who))
                    if verb == "end":
                        ref.tell_nowait(Life.end, other % 3)
                    else:
                        ref.tell_nowait(Life.hold, str(other))
                except (AgentError, trio.WouldBlock):
                    continue
            await trio.sleep(after)
    except RestartIntensityExceeded:
        story.append(("root", "gives up"))
