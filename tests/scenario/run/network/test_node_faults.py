"""Restarts of single nodes of a network: what others see, what is lost and kept, and what files may say."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.files import FileError
from lmos_actors.reports import FileResult, NodeRestart, html_page
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.matrix import few_or_all, some
from tests.reports.test_html import report
from tests.scenario.project import Project
from tests.scenario.steps import answers, at_once, heal, inject, invoke, passed, reads, records, wait

if TYPE_CHECKING:
    from lmos_actors.reports import RunResult

CITY = '''\
from __future__ import annotations

from contextlib import asynccontextmanager

import trio

from lmos_actors import (
    Agent, AgentError, ChildSpec, Event, Gap, Property, Ref, SupervisorSpec, action, event, prop
)


class Shop(Agent):
    """Sells, and says so."""

    sold: Property[int] = prop(default=0)
    sale: Event[int] = event()
    customer: Ref[Customer] | None = None

    @action
    def sell(self, count: int = 1) -> int:
        self.sold += count
        self.sale.emit(count)
        return self.sold

    @action(concurrency=10)
    async def wrap(self) -> None:
        """Take long, and tell everybody if that is cut short."""
        try:
            await trio.sleep(1_000)
        finally:
            assert self.customer is not None
            self.send(self.customer, Customer.note, "cut short")
            self.sale.emit(1_000)

    @action(idempotent=True)
    def sell_one(self) -> None:
        self.sold += 1

    @action
    async def hire(self) -> None:
        await self.start(Clerk)


class Clerk(Agent):
    """Is hired by a shop."""

    def started(self) -> None:
        self.seen = 1


class Diner(Shop):
    """Takes its time to open and to close."""

    opens: float = 0.0

    @asynccontextmanager
    async def lifespan(self):
        await trio.sleep(self.opens)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(30)
            self.send(self.customer, Customer.note, "closed")
            self.sale.emit(1_000)


class Safe(Agent, durable=True):
    """Keeps what it has."""

    sold: Property[int] = prop(default=0)

    @action
    def sell(self, count: int = 1) -> int:
        self.sold += count
        return self.sold


class Customer(Agent):
    """Buys, and notes what has become of it."""

    shop: Ref[Shop]
    notes: Property[tuple[str, ...]] = prop(default=())

    @action
    def note(self, what: str) -> None:
        self.notes = (*self.notes, what)

    @action(concurrency=10)
    async def buy(self) -> str:
        return await self._ask(self.shop.within(5.0).invoke(Shop.sell))

    @action(concurrency=10)
    async def order(self) -> str:
        return await self._ask(self.shop.invoke(Shop.wrap))

    @action(concurrency=10)
    async def insist(self) -> str:
        await self.shop.ready()
        return await self.buy()

    @action
    async def retry(self) -> None:
        await self.shop.retrying(attempts=None, seconds=300.0).invoke(Shop.sell_one)

    async def _ask(self, asked) -> str:
        try:
            got = await asked
        except AgentError as error:
            got = type(error).__name__
        self.note(str(got))
        return str(got)

    @action(concurrency=10)
    async def listen(self) -> None:
        async with self.shop.subscribe(Shop.sale, gaps=True) as sales:
            async for sale in sales:
                self.note("gap" if isinstance(sale, Gap) else f"sale {sale}")

    @action(concurrency=10)
    async def watch(self) -> None:
        async with self.shop.monitor() as ends:
            async for end in ends:
                self.note(type(end).__name__)


class Peer(Agent):
    """Counts what neighbours say; tells them once a second."""

    neighbours: tuple[Ref[Peer], ...]
    number: int
    heard: Property[int] = prop(default=0)
    ticks: Property[int] = prop(default=0)

    unwinds: float = 0.0

    @asynccontextmanager
    async def lifespan(self):
        try:
            yield
        finally:
            self.ticks += 1_000
            with trio.CancelScope(shield=True):
                await trio.sleep(self.unwinds)

    def started(self) -> None:
        self.after(1.0, self.tick)

    def tick(self) -> None:
        self.ticks += 1
        self.after(1.0, self.tick)
        for neighbour in self.neighbours:
            self.send(neighbour, Peer.hear)

    @action
    def hear(self) -> None:
        self.heard += 1
'''

WORLDS = pytest.mark.parametrize("world", ["memory", "wire"])
AGENTS: dict[str, Any] = {
    "customer": {"from": "agent", "use": "city.py:Customer", "args": {"shop": "$(agents.shop)"}},
    "shop": {"from": "agent", "use": "city.py:Shop", "args": {"customer": "$(agents.customer)"}},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("city"))
    made.write("pyproject.toml", "")
    made.write("city.py", CITY)
    return made


def ran(project: Project, *steps: Any, seed: int = 1, **more: Any) -> RunResult:
    """Run a scenario with a customer and a shop, 50 ms apart."""
    data = {
        "lmos": "scenario/v1",
        "name": "city",
        "timeout": "1h",
        "agents": AGENTS,
        "network": {"default": {"latency": "50ms"}},
        "steps": list(steps),
        **more,
    }
    resolved = load_scenario(project.root / project.write("f.json", json.dumps(data)), seeds=[seed])
    return run_cell(resolved, resolved.cells[0], 1, real_limit=30)


def do(action: str, target: str = "customer", **more: Any) -> dict[str, Any]:
    return invoke(action, target, **more)


def restart(of: Any = "shop", id: str = "away", **more: Any) -> dict[str, Any]:
    return inject("restart", id=id, of=of, **more)


# ---- what others see


@WORLDS
def test_callers_see_what_callers_of_a_dead_process_see(project: Project, world: str) -> None:
    result = passed(
        ran(
            project,
            do("sell", "shop", input={"count": 5}),
            at_once(
                [do("order", id="order")],
                [do("wrap", "shop", error={"is": "OutcomeUnknown"})],
                [wait(1), restart(down="3s")],
                [wait(2), do("buy", id="early"), do("sell", "shop", error={"is": "AgentUnavailable"})],
            ),
            answers("order", "OutcomeUnknown"),
            answers("early", "AgentUnavailable"),
            do("sell", "shop", id="alone"),  # the user need not wait for a connection
            answers("alone", 1),
            do("insist", id="insist"),
            answers("insist", "2"),
            *reads("customer", "notes", ["OutcomeUnknown", "AgentUnavailable", "2"]),
            world=world,
            checks=[
                {"check": "restarts", "of": "shop", "equals": 0},
                {"check": "restarts", "of": "root", "equals": 0},
                {"check": "statistics", "of": "shop", "counter": "accepted", "equals": 5},
                {"check": "statistics", "of": "shop", "counter": "dead_lettered", "equals": 0},
                {"check": "never", "when": {"dead_letter": True}},
            ],
        )
    )
    (fault,) = result.faults
    assert (fault.kind, fault.targets, fault.end - fault.begin) == ("restart", ("shop",), 3.0)
    ends = [record["t"] for record in records(result, "network") if record["what"] == "disconnected"]
    assert ends[:2] == [fault.begin, pytest.approx(fault.begin + 0.05)]  # the user has perfect links


@WORLDS
def test_nothing_of_what_it_does_while_it_unwinds_reaches_anybody(project: Project, world: str) -> None:
    result = passed(
        ran(
            project,
            {"do": "tell", "target": "customer", "action": "listen"},
            at_once(
                [do("wrap", "shop", error={"is": "OutcomeUnknown"})],
                [
                    wait(1),
                    inject("pause", target="shop", duration="9s"),
                    *({"do": "tell", "target": "shop", "action": "sell"} for _ in range(3)),
                    restart(),
                    wait(100),
                ],
            ),
            *reads("customer", "notes", ["gap"]),
            world=world,
        )
    )
    after = [record for record in map(json.loads, result.log[1:]) if "kind" in record]
    begun = max(place for place, record in enumerate(after) if record["kind"] == "fault")
    until = max(place for place, record in enumerate(after) if record["kind"] == "healed")
    seen = [record for record in after[begun + 1 : until] if record["kind"] not in ("network", "healed")]
    lost = [("dead_letter", "shop")] * 3  # of the user, who does not know what has become of them
    assert [(record["kind"], record["agent"]) for record in seen] == [*lost, ("started", "shop")]


@WORLDS
def test_what_it_had_sent_arrives_and_is_cancelled_once_word_of_its_end_has_come(
    project: Project, world: str
) -> None:
    result = passed(
        ran(
            project,
            at_once(
                [{"do": "tell", "target": "customer", "action": "order"}],
                [wait(0.02), restart("customer")],
            ),
            world=world,
        )
    )
    wraps = [each for each in map(json.loads, result.log[1:]) if each.get("affordance") == "wrap"]
    assert [(each["kind"], each["t"]) for each in wraps] == [
        ("sent", 0.05),
        ("delivered", 0.05),
        ("cancelled", 0.07),
    ]
    assert len({each["id"] for each in wraps}) == 1


DINER: dict[str, Any] = {**AGENTS, "shop": {**AGENTS["shop"], "use": "city.py:Diner"}}


@WORLDS
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
def test_a_node_that_takes_long_to_unwind_is_away_until_then(
    project: Project, world: str, strategy: str
) -> None:
    """Nothing of it reaches anybody, and no supervisor waits for it."""
    crash = inject("crash", id="crash", target="customer")
    result = passed(
        ran(
            project,
            at_once([restart(down="2s")], [wait(5), crash]),
            wait(10),
            *reads("customer", "notes", []),
            *reads("shop", "sold", 0),
            agents=DINER,
            world=world,
            tree={"root": {"strategy": strategy, "children": ["customer", "shop"]}},
        )
    )
    assert [each for each in records(result, "event") if each["t"] <= 40] == []
    again = [(record["t"], record["agent"]) for record in records(result, "started") if record["t"] > 0]
    assert again == [(5.0, "customer"), (30.0, "shop")]
    assert {each.id: each.end for each in result.faults} == {"away": 30.0, "crash": 5.0}


@WORLDS
def test_a_node_that_takes_long_to_start_cannot_end_before_it_has(project: Project, world: str) -> None:
    agents = {**DINER, "shop": {**DINER["shop"], "args": {"customer": "$(agents.customer)", "opens": 20}}}
    result = ran(
        project,
        at_once([restart(down="2s")], [wait(40), restart(id="again")]),
        agents=agents,
        world=world,
    )
    assert (result.failures[0].expected, result.failures[0].saw) == (
        "a running node shop to restart",
        "it is down",
    )


@WORLDS
def test_subscriptions_and_monitors_go_on_with_the_next_one(project: Project, world: str) -> None:
    passed(
        ran(
            project,
            {"do": "tell", "target": "customer", "action": "listen"},
            {"do": "tell", "target": "customer", "action": "watch"},
            wait(1),
            do("sell", "shop"),
            wait(1),
            restart(down="500ms"),
            wait(60),
            do("sell", "shop"),
            wait(1),
            {"do": "read", "target": "customer", "property": "notes", "id": "notes"},
            {"do": "expect", "that": "output", "of": "notes", "contains": "sale 1"},
            *reads("customer", "notes", ["sale 1", "gap", "Down", "sale 1"]),
            world=world,
        )
    )


@WORLDS
@pytest.mark.parametrize("seconds", [1.2, 2.5, 4])
def test_it_connects_anew_whatever_attempt_it_had_under_way(
    project: Project, world: str, seconds: float
) -> None:
    result = passed(
        ran(
            project,
            do("buy"),
            inject("disconnect"),
            wait(seconds),  # an attempt takes two round trips
            restart("customer", down="500ms"),
            do("buy", id="next"),
            answers("next", "2"),
            world=world,
            network={"default": {"latency": "1s"}},
        )
    )
    assert [each for each in records(result, "network") if each["what"] == "connected"] == []


@WORLDS
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5])
def test_a_node_that_ends_in_a_handshake_is_not_connected_to(
    project: Project, world: str, seconds: float
) -> None:
    """Before or after the other node has answered; once it has in both round trips, the connection stands."""
    result = passed(
        ran(
            project,
            do("buy"),
            inject("disconnect"),
            wait(seconds),
            at_once(
                [restart(down="20s")],
                *([wait(each), do("buy", id=f"buy{each}")] for each in (5, 9, 13)),
            ),
            *(answers(f"buy{each}", "AgentUnavailable") for each in (5, 9, 13)),
            do("insist", id="insist"),
            answers("insist", "1"),
            world=world,
            network={"default": {"latency": "1s"}},
        )
    )
    shop = [each for each in records(result, "network") if each["from"] == "customer"]
    assert shop[-1]["what"] == "connected"
    assert all(each["t"] >= result.faults[-1].end for each in shop if each["what"] == "connected")


def test_waits_for_connections_are_drawn_anew_in_each_life(project: Project) -> None:
    """They are the same in both worlds."""
    steps: list[Any] = []
    for number in range(3):
        steps += [do("buy"), inject("disconnect"), wait(10)]
        steps.append(restart("customer", id=f"away{number}", down="500ms"))
    memory, wire = (
        [
            (each["t"], each["what"])
            for each in records(passed(ran(project, *steps, world=world)), "network")
            if (each["from"], each["to"]) == ("customer", "shop")
        ]
        for world in ("memory", "wire")
    )
    assert [what for _, what in memory] == ["disconnected", "connected"] * 3
    times = [time for time, _ in memory]
    waits = {round(end - begin, 6) for begin, end in zip(times[::2], times[1::2], strict=True)}
    assert len(waits) == 3
    assert [what for _, what in wire] == [what for _, what in memory]
    assert [time for time, _ in wire] == pytest.approx(times)


@WORLDS
def test_what_is_sent_while_it_unwinds_makes_no_connection(project: Project, world: str) -> None:
    """Heartbeats are counted from the comeback, though what unwinds has used that way before."""
    cut = inject("partition", id="cut", sides=[["customer"], ["shop"]])
    result = passed(
        ran(
            project,
            at_once(
                [do("wrap", "shop", error={"is": "OutcomeUnknown"})],  # sends once it is cut short
                [wait(1), restart(down="50s")],
                [wait(2), cut],
            ),
            wait(70),
            world=world,
        )
    )
    (noticed,) = [each["t"] for each in records(result, "network") if each["from"] == "shop"]
    assert 51 + 20 < noticed <= 51 + 60


@WORLDS
def test_what_it_has_answered_is_forgotten_with_it(project: Project, world: str) -> None:
    """A request that is made again is carried out again."""
    cut = inject("partition", id="cut", sides=[["shop"], ["customer"]], one_way=True)
    passed(
        ran(
            project,
            cut,
            at_once(
                [do("retry")],
                [
                    wait(1),
                    inject("disconnect"),  # what was answered is lost
                    *reads("shop", "sold", 1),
                    restart(),
                    heal("cut"),
                ],
            ),
            {"do": "read", "target": "shop", "property": "sold", "id": "again"},
            answers("again", 1),
            world=world,
        )
    )


@WORLDS
def test_behind_a_cut_the_end_of_a_node_is_noticed_by_pings(project: Project, world: str) -> None:
    """What says that it has ended does not come through."""
    cut = inject("partition", id="cut", sides=[["customer"], ["shop"]])
    result = passed(
        ran(
            project,
            do("buy"),
            cut,
            at_once([do("order", id="order")], [wait(1), restart(down="2s")]),
            answers("order", "OutcomeUnknown"),
            world=world,
        )
    )
    (noticed,) = [record["t"] for record in records(result, "network") if record["to"] == "shop"
                  and record["from"] == "customer" and record["what"] == "disconnected"]  # fmt: skip
    assert 5 <= noticed - result.faults[0].begin <= 7


@WORLDS
def test_a_step_behind_a_cut_goes_on_with_the_connection_that_it_has(project: Project, world: str) -> None:
    cut = inject("partition", id="cut", sides=[["user"], ["shop"]])
    result = passed(
        ran(
            project,
            do("sell", "shop"),
            cut,
            restart(),
            do("sell", "shop", error={"is": "OutcomeUnknown"}),
            heal("cut"),
            wait(1),
            *reads("shop", "sold", 0),
            world=world,
        )
    )
    ends = [each["t"] for each in records(result, "network") if each["what"] == "disconnected"]
    assert ends[0] == pytest.approx(6, abs=0.2)


def test_datagrams_to_a_node_that_is_away_are_lost(project: Project) -> None:
    result = passed(
        ran(
            project,
            do("buy"),
            at_once([restart(down="10s")], [wait(1), do("buy", id="late")]),
            answers("late", "DeadlineExceeded"),
            do("buy", id="back"),
            answers("back", "1"),
            network={"default": {"latency": "50ms"}, "delivery": "datagram"},
        )
    )
    lost = [record["affordance"] for record in records(result, "network") if record["what"] == "lost"]
    assert lost == ["sell"]


def test_what_waits_in_its_mailboxes_is_gone_without_a_word(project: Project) -> None:
    """Also where the messages have come over no connection that would end first."""
    passed(
        ran(
            project,
            inject("pause", target="shop", duration="9s"),
            *({"do": "tell", "target": "shop", "action": "sell"} for _ in range(3)),
            restart(),
            do("buy", id="next"),
            answers("next", "1"),
            network={"delivery": "datagram"},
            checks=[{"check": "never", "when": {"dead_letter": True}}],
        )
    )


def test_datagrams_of_what_unwinds_go_nowhere(project: Project) -> None:
    result = passed(
        ran(
            project,
            at_once([do("wrap", "shop", error={"is": "AgentDied"})], [wait(1), restart()]),
            wait(1),
            *reads("customer", "notes", []),
            network={"delivery": "datagram"},
        )
    )
    assert records(result, "network") == []


# ---- what is lost with it


def tree(*children: Any, **more: Any) -> dict[str, Any]:
    return {"root": {"max_restarts": 0, "strategy": "one_for_all", "children": list(children), **more}}


@WORLDS
def test_no_supervisor_counts_it_or_takes_others_along(project: Project, world: str) -> None:
    """Not with a strategy that restarts all, nor where no restart is allowed."""
    passed(
        ran(
            project,
            do("note", input={"what": "before"}),
            *(step for number in range(5) for step in (restart(id=f"away{number}", down="100ms"), wait(1))),
            do("note", input={"what": "after"}),
            *reads("customer", "notes", ["before", "after"]),
            world=world,
            tree=tree("customer", "shop"),
            checks=[{"check": "restarts", "of": "root", "equals": 0}],
        )
    )


@WORLDS
def test_what_befalls_others_starts_none_of_it(project: Project, world: str) -> None:
    """A sibling's crash restarts all the others, and none that is on a node that is away."""
    crash = inject("crash", target="customer")
    result = passed(
        ran(
            project,
            at_once([restart(down="5s")], [wait(1), crash, wait(1)]),
            do("sell", "shop"),
            world=world,
            tree=tree("customer", "shop", max_restarts=3),
            checks=[{"check": "restarts", "of": "shop", "equals": 0}],
        )
    )
    again = [(record["t"], record["agent"]) for record in records(result, "started") if record["t"] > 0]
    assert again == [(1.0, "customer"), (5.0, "shop")]


@WORLDS
def test_a_supervisor_that_gives_up_starts_none_of_it(project: Project, world: str) -> None:
    """That of a population is on all of its nodes; its next incarnation waits for those that are away."""
    population = [{**SIMULATION["population"][0], "max_restarts": 0}]
    result = simulated(
        project,
        [entry(5.5, kind="restart", of="peer/1", down="9s"), entry(7.5, kind="crash", target="peer/2")],
        population=population,
        world=world,
        checks=[{"check": "eventually", "of": "peer/1", "expr": "state.ticks >= 15", "by": "30s"}],
    )
    again = [
        (record["t"], record["agent"]) for record in records(passed(result), "started") if record["t"] > 0
    ]
    assert again == [(7.5, "peer/0"), (7.5, "peer/2"), (7.5, "peer/3"), (14.5, "peer/1")]


@WORLDS
def test_all_that_is_on_the_node_goes_and_comes_back(project: Project, world: str) -> None:
    """A supervisor with what is below it, a pool, some of a population; what agents had started is gone."""
    agents = {
        **AGENTS,
        "till": {"from": "agent", "use": "city.py:Shop", "restart": "transient"},
        "tills": {"from": "pool", "use": "city.py:Shop", "size": 2},
    }
    inner = {"name": "desk", "max_restarts": 0, "children": ["till", "tills"]}
    result = passed(
        ran(
            project,
            do("hire", "shop"),
            do("sell", "till"),
            do("sell", "tills"),
            {"do": "stop", "target": "till"},
            restart("city", down="1s"),
            *reads("till", "sold", 0),
            do("sell", "tills", id="first"),
            answers("first", 1),
            do("note", input={"what": "mine goes on"}),
            world=world,
            agents=agents,
            nodes={"city": ["desk", "shop"]},
            tree={"root": {"children": ["customer", "shop", inner]}},
            checks=[{"check": "restarts", "of": "desk", "equals": 0}],
        )
    )
    again = [record["agent"] for record in records(result, "started") if record["t"] >= 1]
    assert again == ["shop", "desk/till", "desk/tills/tills-1", "desk/tills/tills-2"]
    (fault,) = result.faults
    assert fault.restarted == (NodeRestart(node="city", agents=("shop", "desk"), end=fault.end),)


SIMULATION: dict[str, Any] = {
    "lmos": "simulation/v1",
    "name": "crowd",
    "stop": {"at": "30s"},
    "network": {"default": {"latency": "20ms"}},
    "population": [
        {"id": "peer", "count": 4, "use": "city.py:Peer", "args": {"number": "$(population.index)"}}
    ],
    "topology": {"kind": "complete", "of": "peer"},
    "checks": [{"check": "always", "of": "peer", "expr": "state.heard >= 0"}],
}


def simulated(project: Project, timeline: list[Any], **more: Any) -> RunResult:
    data = {**SIMULATION, "timeline": timeline, **more}
    resolved = load_scenario(project.root / project.write("s.json", json.dumps(data)), seeds=[1])
    return run_cell(resolved, resolved.cells[0], 1, real_limit=30)


def entry(at: float, **more: Any) -> dict[str, Any]:
    return {"at": f"{at}s", "do": "fault", **more}


@WORLDS
def test_some_of_a_population_are_picked(project: Project, world: str) -> None:
    result = simulated(
        project,
        [entry(5.5, kind="restart", pick={"of": "peer", "count": 2}, down="10s")],
        world=world,
        checks=[
            {"check": "eventually", "of": "peer", "expr": "state.ticks >= 29", "by": "30s"},
            {"check": "restarts", "of": "peer", "equals": 0},
            {"check": "always", "of": "peer", "expr": "restarts == 0"},
        ],
    )
    (fault,) = result.faults
    assert len(set(fault.targets)) == 2
    assert fault.restarted == tuple(
        NodeRestart(node=node, agents=(node,), end=15.5) for node in fault.targets
    )
    (failure,) = result.failures
    again = [record["agent"] for record in records(result, "started") if record["t"] > 1]
    assert tuple(again) == fault.targets
    assert "state.ticks" in failure.saw
    ticks = [record for record in records(result, "delivered") if 6 <= record["t"] < 15.5]
    assert {record["agent"] for record in ticks}.isdisjoint(fault.targets)


@WORLDS
@pytest.mark.parametrize("unwinds", [0, 5])
def test_nodes_that_begin_again_in_one_instant_are_connected(
    project: Project, world: str, unwinds: int
) -> None:
    """Neither is refused by the other, whichever is the first."""
    (peer,) = SIMULATION["population"]
    result = passed(
        simulated(
            project,
            [entry(5.5, kind="restart", of=["peer/1", "peer/2"], down="2s")],
            population=[{**peer, "args": {**peer["args"], "unwinds": unwinds}}],
            world=world,
        )
    )
    ends = {"peer/1", "peer/2"}
    assert [each for each in records(result, "network") if {each["from"], each["to"]} == ends] == []
    heard = [each["t"] for each in records(result, "delivered") if each["agent"] == "peer/2"]
    back = result.faults[0].end
    assert back is not None
    assert sum(back < t <= back + 1.1 for t in heard) >= 1


def test_results_say_when_each_node_was_back(project: Project) -> None:
    """A population that is on it as a whole is named as one, also on the page of results."""
    (peer,) = SIMULATION["population"]
    slow = {**peer, "id": "slow", "args": {"number": 0, "neighbours": [], "unwinds": 5}}
    result = passed(
        simulated(
            project,
            [entry(5.5, kind="restart", of=["east", "west"], down="2s")],
            population=[peer, slow],
            nodes={"east": ["peer"], "west": ["slow/0", "slow/2"]},
            checks=[],
        )
    )
    file = FileResult("s.json", "crowd", pass_rate=1.0, trials=1, cells=1, runs=[result])
    (shown,) = report(html_page([file], title="away"))["runs"]
    assert shown["faults"][0]["restarted"] == [
        {"node": "east", "agents": ["peer"], "end": 7.5},
        {"node": "west", "agents": ["slow/0", "slow/2"], "end": 10.5},
    ]


def test_a_failed_check_says_which_nodes_are_down(project: Project) -> None:
    result = simulated(
        project,
        [entry(5.5, kind="restart", of="peer/2", down="20s")],
        stop={"at": "20s"},
        checks=[{"check": "converges", "of": "peer", "field": "state.number", "within": "19s"}],
        measure={"every": "1s", "series": {"heard": {"agg": "sum", "of": "peer", "expr": "state.heard"}}},
    )
    assert "since 5.5 s peer/2 is down" in result.failures[0].saw


@WORLDS
def test_formulas_have_no_state_of_a_node_that_unwinds(project: Project, world: str) -> None:
    args = {**SIMULATION["population"][0]["args"], "unwinds": 5}
    series = {
        "here": {"agg": "count", "of": "peer", "expr": "state.ticks >= 0"},
        "most": {"agg": "max", "of": "peer", "expr": "state.ticks"},
    }
    passed(
        simulated(
            project,
            [entry(10.5, kind="restart", of="peer/2", down="2s")],
            population=[{**SIMULATION["population"][0], "args": args}],
            world=world,
            measure={"every": "1s", "series": series},
            checks=[
                {"check": "never", "when": {"expr": "series.most > 100"}},
                {"check": "eventually", "expr": "series.here == 3", "by": "12s"},
            ],
        )
    )


# ---- faults that meet


OTHERS = [
    [entry(5.5, kind="crash", target="peer/1", restart={"after": "9s"})],
    [entry(4, kind="crash", target="peer/1", restart={"after": "3s"})],
    [entry(4, kind="pause", target="peer/1", duration="9s")],
    [entry(4, kind="clock_skew", target="peer/1", rate=2, duration="9s")],
    [entry(5.5, kind="partition", sides=[["peer/1"], "rest"], duration="7s")],
    [entry(5.5, kind="disconnect", between=["peer/1", "peer/2"])],
    [entry(4, kind="swizzle", of="peer", every="500ms", duration="9s")],
    [entry(6, kind="restart", down="1s")],
    [entry(7.5, kind="restart", of="peer/2", down="1s")],
]


@pytest.mark.parametrize(
    ("more", "world"),
    some(product(OTHERS, ("memory", "wire")), of=3),
    ids=lambda value: value if isinstance(value, str) else value[0]["kind"] + value[0]["at"],
)
def test_with_any_other_fault_on_it_all_is_well_in_the_end(
    project: Project, more: list[Any], world: str
) -> None:
    timeline = [*more, entry(5.5, id="away", kind="restart", of=["peer/1", "peer/3"], down="2s")]
    checks = [
        {"check": "eventually", "of": f"peer/{number}", "expr": "state.ticks >= 15", "by": "30s"}
        for number in range(4)
    ]
    result = passed(simulated(project, timeline, world=world, checks=checks))
    assert all(fault.end is not None for fault in result.faults)


def test_a_node_that_is_down_cannot_end(project: Project) -> None:
    result = simulated(
        project,
        [entry(5, kind="restart", of="peer/1", down="9s"), entry(6, kind="restart", of="peer/1")],
    )
    (failure,) = result.failures
    assert (failure.expected, failure.saw) == ("a running node peer/1 to restart", "it is down")


@WORLDS
def test_agents_of_a_node_that_is_down_are_not_started_by_a_step(project: Project, world: str) -> None:
    result = ran(
        project,
        do("note", input={"what": "here"}),
        at_once([restart(down="5s")], [wait(1), {"do": "start", "target": "shop"}]),
        world=world,
    )
    assert result.failures[0].expected == "a shop that can be started"


# ---- what is kept


SAFES: dict[str, Any] = {
    "near": {"from": "agent", "use": "city.py:Safe"},
    "far": {"from": "agent", "use": "city.py:Safe"},
}


def sold(*counts: int, of: str) -> list[dict[str, Any]]:
    return [do("sell", of, input={"count": count}) for count in counts]


@WORLDS
@pytest.mark.parametrize("seed", few_or_all(range(2), range(4)))
@pytest.mark.parametrize("writes", ["kept", "lost", "torn"])
def test_a_node_loses_commits_of_its_own_alone(project: Project, world: str, writes: str, seed: int) -> None:
    key = {"key": "42"} if seed % 2 else {}  # with one it has a lease, which its node is granted anew
    result = passed(
        ran(
            project,
            *(step for number in range(3) for of in SAFES for step in sold(10**number, of=of)),
            restart("near", writes=writes),
            {"do": "read", "target": "near", "property": "sold", "id": "near"},
            {"do": "expect", "that": "output", "of": "near", "match": {"$.value": {"le": 111}}},
            *sold(1000, of="near"),
            *sold(1000, of="far"),
            *reads("far", "sold", 1111),
            {"do": "read", "target": "near", "property": "sold", "id": "last"},
            seed=seed,
            world=world,
            agents={**SAFES, "near": {**SAFES["near"], **key}},
            store={"latency": "5ms"},
        )
    )
    values = [record["value"] for record in records(result, "answered") if record["agent"] == "near"]
    after = values[-1] - 1000
    assert after in {"kept": (111,), "torn": (11,), "lost": (0, 1, 11)}[writes]


def test_what_is_under_way_to_the_store_is_there_as_a_whole_or_not_at_all(project: Project) -> None:
    """By the seed; what others have under way in the same commit is there, and what waits for it is not."""
    kept = []
    for seed in range(6):
        result = passed(
            ran(
                project,
                at_once(
                    [do("sell", "near", error={"is": "OutcomeUnknown"})],
                    [wait(0.125), do("sell", "far")],
                    [wait(0.25), do("sell", "near", error={"is": "OutcomeUnknown"})],
                    [wait(0.5), restart("near", down="2s")],
                ),
                *reads("far", "sold", 1),
                {"do": "read", "target": "near", "property": "sold", "id": "near"},
                seed=seed,
                agents=SAFES,
                store={"latency": "1s"},
            )
        )
        (restored,) = [record["restored"] for record in records(result, "started") if record["t"] > 1]
        assert records(result, "answered")[-1]["value"] == int(restored)
        kept.append(restored)
    assert set(kept) == {True, False}


# ---- what files may say


@pytest.mark.parametrize(
    ("fault", "more", "expected"),
    [
        ({"of": "shpo"}, {}, 'no node "shpo", did you mean "shop"?'),
        ({"of": "user"}, {}, '"user" is the node of steps, which does not end'),
        ({"of": ["shop", "shop"]}, {}, '"shop" is on a node that is named already'),
        ({"of": ["city", "shop"]}, {"nodes": {"city": ["shop"]}}, '"shop" is on a node that is named'),
        ({"of": []}, {}, "expected a list, not empty"),
        ({"pick": {"of": "shop", "count": 1}}, {}, '"shop" is one agent'),
        ({"of": "shop", "pick": {"of": "shop", "count": 1}}, {}, 'a restart has "of", or "pick", or is of'),
        ({"of": "shop", "target": "shop"}, {}, '"target"'),
        ({"of": "shop", "writes": "lost"}, {}, '"writes"'),
        ({"of": "shop", "duration": "1s"}, {}, '"duration"'),
        ({"of": "shop"}, {"network": None}, '"of" needs a network, which the file has not'),
        ({"pick": {"of": "shop", "count": 1}}, {"network": None}, '"pick" needs a network'),
    ],
)
def test_mistakes_are_found_at_their_place(
    project: Project, fault: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    data = {
        "lmos": "scenario/v1",
        "name": "city",
        "agents": AGENTS,
        "network": {},
        "steps": [do("buy"), {"do": "inject", "fault": {"kind": "restart", **fault}}],
        **more,
    }
    text = json.dumps({key: value for key, value in data.items() if value is not None}, indent=1)
    with pytest.raises(FileError) as caught:
        load_scenario(project.root / project.write("bad.json", text))
    messages = [str(mistake) for mistake in caught.value.mistakes]
    assert any(expected in message for message in messages), messages


def test_a_timeline_has_the_same_rules(project: Project) -> None:
    with pytest.raises(FileError) as caught:
        simulated(
            project,
            [
                entry(1, kind="restart", of=["peer", "peer/1"]),
                entry(2, kind="restart", pick={"of": "peer", "count": 9}),
                entry(3, kind="crash", target="peer/1", of="peer/1"),
            ],
        )
    assert [mistake.message for mistake in caught.value.mistakes] == [
        '"peer/1" is on a node that is named already',
        '"peer" has 4 agents, fewer than 9',
        '"of" does not apply to "kind: crash"',
    ]
