"""Runs of files with a network: what agents, steps and checks see of its nodes, links and faults."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET

from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.scenario.project import Project
from tests.scenario.steps import answers, heal, inject, invoke, passed, reads, records, wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.reports import RunResult

TOWN = '''\
from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import trio

from lmos_actors import Agent, AgentError, ChildSpec, Property, Ref, action, prop


class Till(Agent):
    """Counts what has been sold."""

    sold: Property[int] = prop(default=0)

    @action
    def sell(self, count: int = 1) -> int:
        self.sold += count
        return self.sold


class Safe(Till, durable=True):
    """A till that is kept."""


class Shop(Till):
    """Sells."""

    customer: Ref[Customer] | None = None

    @action(concurrency=10)
    async def wrap(self, seconds: float) -> int:
        await trio.sleep(seconds)
        self.sold += 1
        return self.sold

    @action
    async def catalogue(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            await trio.sleep(0.1)
            yield number

    @action
    async def count(self, items: AsyncIterator[int]) -> int:
        async for _ in items:
            self.sold += 1
        return self.sold

    @action
    async def advertise(self) -> str:
        assert self.customer is not None
        try:
            await self.customer.within(2.0).invoke(Customer.note, "advert")
        except AgentError as error:
            return type(error).__name__
        return "heard"


class Family(Agent):
    """Has a child, which runs errands for it."""

    took: Property[float] = prop(default=-1.0)

    @action
    async def send_child(self) -> None:
        child = await self.start(Errand)
        began = trio.current_time()
        await child.invoke(Errand.run, "within the family")
        self.took = round(trio.current_time() - began, 6)


class Errand(Agent):
    """Runs errands."""

    @action
    def run(self, what: str) -> str:
        return what


class Customer(Agent):
    """Buys, and notes what has become of it."""

    shop: Ref[Till]
    patience: float = 5.0
    notes: Property[tuple[str, ...]] = prop(default=())
    took: Property[float] = prop(default=0.0)

    @action
    def note(self, what: str) -> None:
        self.notes = (*self.notes, what)

    @action(concurrency=10)
    async def buy(self, count: int = 1) -> str:
        return await self._ask(self.shop.within(self.patience).invoke(Till.sell, count))

    @action(concurrency=10)
    async def order(self, seconds: float) -> str:
        return await self._ask(self.shop.within(self.patience).invoke(Shop.wrap, seconds))

    @action(concurrency=10)
    async def insist(self) -> str:
        await self.shop.ready()
        return await self.buy()

    @action(concurrency=10)
    async def read_catalogue(self, count: int) -> str:
        return await self._ask(self._read(count))

    async def _read(self, count: int) -> None:
        async with self.shop.stream(Shop.catalogue, count) as pages:
            async for page in pages:
                self.note(str(page))

    @action(concurrency=10)
    async def deliver(self, count: int) -> str:
        async def items():
            for number in range(count):
                await trio.sleep(0.1)
                yield number

        return await self._ask(self.shop.invoke(Shop.count, items()))

    async def _ask(self, asked) -> str:
        began = trio.current_time()
        try:
            await asked
        except AgentError as error:
            self.note(type(error).__name__)
        else:
            self.note("done")
        self.took = round(trio.current_time() - began, 6)
        return self.notes[-1]

    @action
    def tell(self, times: int = 1) -> None:
        for _ in range(times):
            self.send(self.shop, Till.sell, 1)

    @action
    def count_up(self, to: int) -> None:
        for number in range(to):
            self.send(self.shop, Till.sell, number)


class Neighbour(Agent):
    """Looks for others, by class, topic and group."""

    heard: Property[int] = prop(default=0)

    def started(self) -> None:
        self.join_group("street")
        self.follow(self.topic("news", str), self.hear)

    def hear(self, news: str) -> None:
        self.heard += 1

    @action
    def publish(self) -> None:
        self.topic("news", str).publish("a party")

    @action
    def members(self) -> list[str]:
        return [ref.path for ref in self.group("street", Neighbour).members()]

    @action
    async def look(self, name: str) -> str:
        try:
            await self.find(Till, name).invoke(Till.sell, 1)
        except AgentError as error:
            return str(error)
        return "found"

    @action
    async def look_around(self) -> int:
        return await self.find(Till, spread="round_robin").invoke(Till.sell, 1)


class Notebook(Agent, durable=True):
    """Keeps a ref."""

    till: Ref[Till] | None = None
    given: Ref[Till]

    @action
    def keep(self) -> None:
        self.till = self.given

    @action(snapshot_safe=True)
    async def use(self) -> str:
        assert self.till is not None
        try:
            await self.till.within(2.0).invoke(Till.sell, 1)
        except AgentError as error:
            return type(error).__name__
        return "done"


class Peer(Agent):
    """Knows the largest number that anybody has, after a while."""

    number: int
    neighbours: tuple[Ref[Peer], ...]
    best: Property[int] = prop(default=-1)
    heard: Property[int] = prop(default=0)

    def started(self) -> None:
        self.best = max(self.best, self.number)
        self.after(self.random.random(), self.pass_on)

    def pass_on(self) -> None:
        self.after(1.0, self.pass_on)
        self.send(self.random.choice(self.neighbours), Peer.take, self.best)

    @action
    def take(self, best: int) -> None:
        self.heard += 1
        self.best = max(self.best, best)

    @action
    def learn(self, best: int) -> None:
        self.best = max(self.best, best)
'''

AGENTS: dict[str, Any] = {
    "customer": {"from": "agent", "use": "town.py:Customer", "args": {"shop": "$(agents.shop)"}},
    "shop": {"from": "agent", "use": "town.py:Shop", "args": {"customer": "$(agents.customer)"}},
}
LATENCY = 0.05
TRIP = 2 * LATENCY


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("town"))
    made.write("pyproject.toml", "")
    made.write("town.py", TOWN)
    return made


def ran(project: Project, *steps: Any, seed: int = 1, **more: Any) -> RunResult:
    """Run a scenario with a customer and a shop, a network of 50 ms between them unless another is given."""
    data = {
        "lmos": "scenario/v1",
        "name": "town",
        "timeout": "1h",
        "agents": AGENTS,
        "network": {"default": {"latency": "50ms"}},
        "steps": list(steps),
        **more,
    }
    return ran_file(project, {key: value for key, value in data.items() if value is not UNSET}, seed)


def ran_file(project: Project, data: dict[str, Any], seed: int = 1) -> RunResult:
    resolved = load_scenario(project.root / project.write("f.json", json.dumps(data)), seeds=[seed])
    return run_cell(resolved, resolved.cells[0], 1, real_limit=30)


def instants_of(result: RunResult, action: str) -> list[float]:
    """Return when messages for an action came to their agent."""
    return [record["t"] for record in records(result, "delivered") if record["affordance"] == action]


def network_records(result: RunResult) -> list[str]:
    return [record["what"] for record in records(result, "network")]


# ---- steps


def do(action: str, target: str = "customer", **more: Any) -> dict[str, Any]:
    return invoke(action, target, **more)


def cut(id: str = "split", **more: Any) -> dict[str, Any]:
    return inject("partition", id=id, **{"sides": [["customer"], ["shop"]], **more})


# ---- links


def test_a_request_takes_two_ways_and_a_step_none(project: Project) -> None:
    passed(ran(project, do("buy", id="buy"), answers("buy", "done"), *reads("customer", "took", TRIP)))


def test_without_a_network_nothing_takes_time(project: Project) -> None:
    passed(ran(project, do("buy"), *reads("customer", "took", 0), network=UNSET))


@pytest.mark.parametrize(
    ("nodes", "links", "took"),
    [
        ({"town": ["customer", "shop"]}, [], 0),
        ({"west": ["customer"], "east": ["shop"]}, [{"between": ["west", "east"], "latency": "1s"}], 2),
        ({"west": ["customer"]}, [{"between": ["shop", "west"], "latency": "1s"}], 2),
        ({"west": ["customer"]}, [{"from": "west", "to": "shop", "latency": "1s"}], 1 + LATENCY),
        ({}, [{"between": ["customer", "shop"], "jitter": "10ms"}], 0.12),
        ({}, [{"between": ["customer", "shop"], "latency": {"dist": "constant", "value": "2s"}}], 4),
        ({}, [{"between": ["user", "customer"], "latency": "1s"}], TRIP),
    ],
)
def test_the_links_of_two_nodes(
    project: Project, nodes: dict[str, Any], links: Sequence[Any], took: float
) -> None:
    network = {"default": {"latency": "50ms"}, "links": links}
    passed(ran(project, do("buy"), *reads("customer", "took", took), network=network, nodes=nodes))


def test_links_of_the_user(project: Project) -> None:
    network = {"links": [{"between": ["user", "customer"], "latency": "1s"}]}
    result = passed(ran(project, do("buy", id="buy"), answers("buy", "done"), network=network))
    assert result.step_results[0].end == 2


def test_a_step_as_an_agent_crosses_its_links(project: Project) -> None:
    result = passed(ran(project, do("sell", "shop"), do("sell", "shop", **{"as": "customer"})))
    assert [step.end for step in result.step_results] == [0, TRIP]


def test_a_slow_line_takes_one_message_after_the_other(project: Project) -> None:
    result = passed(ran(project, do("tell", times=10), wait(9), network={"default": {"bandwidth": "1KiB"}}))
    sold = instants_of(result, "sell")
    assert len(sold) == 10
    assert all(0.3 < later - earlier < 0.4 for earlier, later in pairwise(sold))


# ---- faults

PATIENT = {**AGENTS["customer"], "args": {"shop": "$(agents.shop)", "patience": 1000.0}}
HASTY = {**AGENTS["customer"], "args": {"shop": "$(agents.shop)", "patience": 1.0}}
"""It has given up before a cut is noticed."""


@pytest.mark.parametrize("lasts", [1, 2])
def test_a_short_partition_is_a_delay(project: Project, lasts: float) -> None:
    story = (cut(), do("buy", wait=False), wait(lasts), heal("split"), wait(2 * lasts))
    result = passed(ran(project, *story, *reads("shop", "sold", 1), agents={**AGENTS, "customer": PATIENT}))
    (came,) = instants_of(result, "sell")
    assert lasts < came < 3 * lasts
    assert "disconnected" not in network_records(result)


def test_a_long_partition_ends_what_is_open(project: Project) -> None:
    """Noticed within 7 seconds, as an answer is owed; what was held is gone with its connection."""
    story = (
        do("order", seconds=100.0, wait=False),
        wait(7),
        cut(),
        do("buy", wait=False),
        wait(70),
        do("buy", id="later"),
        answers("later", "AgentUnavailable"),
        *reads("shop", "sold", 0),
        heal("split"),
        do("insist", id="again"),
        answers("again", "done"),
        *reads("shop", "sold", 1),
        *reads("customer", "notes", ["OutcomeUnknown", "OutcomeUnknown", "AgentUnavailable", "done"]),
    )
    result = passed(ran(project, *story, agents={**AGENTS, "customer": PATIENT}))
    assert network_records(result) == ["disconnected", "connected"]
    assert 7 + 5 <= records(result, "network")[0]["t"] <= 7 + 7


@pytest.mark.parametrize(("sides", "sold"), [([["shop"], ["customer"]], 1), ([["customer"], ["shop"]], 0)])
def test_one_way_the_first_side_is_heard_by_nobody(
    project: Project, sides: list[list[str]], sold: int
) -> None:
    """A question gets no answer either way: it does not get there, or its answer does not come back."""
    fault = inject("partition", id="split", sides=sides, one_way=True)
    story = (fault, do("buy", id="buy"), answers("buy", "DeadlineExceeded"), *reads("shop", "sold", sold))
    result = passed(ran(project, *story, heal("split"), agents={**AGENTS, "customer": HASTY}))
    (split,) = result.faults
    assert (split.sides, split.one_way) == (tuple(map(tuple, sides)), True)
    assert split.end == result.step_results[-1].end


def test_a_fault_of_latency_adds_up_and_ends(project: Project) -> None:
    slow = inject("latency", id="slow", delay="1s", duration="4s")
    slower = inject("latency", id="slower", delay="200ms", between=["customer", "shop"], duration="4s")
    story = (slow, slower, do("buy"), *reads("customer", "took", 2.5), wait(2), do("buy"))
    result = passed(ran(project, *story, *reads("customer", "took", TRIP)))
    assert [(fault.kind, fault.end) for fault in result.faults] == [("latency", 4), ("latency", 4)]


def test_a_loss_on_a_stream_is_a_delay(project: Project) -> None:
    lossy = inject("loss", id="lossy", share=0.5, duration="100s")
    result = passed(ran(project, lossy, do("tell", times=100), wait(200), *reads("shop", "sold", 100)))
    late = [record for record in records(result, "network") if record["what"] == "late"]
    assert 25 < len(late) < 75
    assert {record.get("affordance") for record in late} <= {"sell", None}  # None: credit for several
    assert all(("affordance" in record) != ("bytes" in record) for record in late)
    assert instants_of(result, "sell") == sorted(instants_of(result, "sell"))


@pytest.mark.parametrize("world", ["memory", "wire"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_connection_does_not_wait_for_what_the_one_before_it_has_lost(
    project: Project, world: str, seed: int
) -> None:
    lossy = inject("loss", id="lossy", share=0.9, duration="200s")
    story = (lossy, do("buy", wait=False), wait(200 + 60), do("buy", id="buy"), answers("buy", "done"))
    passed(ran(project, *story, world=world, seed=seed))


def test_a_reset_ends_what_is_open_and_is_over_at_once(project: Project) -> None:
    story = (do("order", seconds=1.0, wait=False), wait(0.5), inject("disconnect", id="reset"), wait(5))
    again = (do("buy", id="buy"), answers("buy", "done"))
    result = passed(ran(project, *story, *again, *reads("customer", "notes", ["OutcomeUnknown", "done"])))
    assert [(fault.begin, fault.end) for fault in result.faults] == [(0.5, 0.5)]
    assert network_records(result) == ["disconnected", "connected"]


def test_a_connection_that_hangs_is_noticed_as_a_cut_is(project: Project) -> None:
    hang = inject("disconnect", id="hang", how="hang", between=["shop", "customer"], duration="50s")
    story = (hang, do("order", seconds=1.0, id="order"), answers("order", "OutcomeUnknown"))
    result = passed(ran(project, *story, agents={**AGENTS, "customer": PATIENT}))
    noticed = [record["t"] for record in records(result, "network")][:1]
    assert noticed[0] == 5


@pytest.mark.parametrize("world", ["memory", "wire"])
@pytest.mark.parametrize(
    ("then", "noticed"),
    [
        ([do("buy", wait=False), wait(60)], 1 + TRIP),  # the next message is refused
        ([wait(60)], 1 + TRIP),  # as the first ping is, while an answer is owed
        ([cut(), wait(60)], 5),  # that ping is held, and nothing comes
    ],
)
def test_a_connection_that_is_half_open(
    project: Project, world: str, then: list[Any], noticed: float
) -> None:
    """It is gone at the shop, which lets go of what it did; the customer believes in it."""
    half = inject("disconnect", id="half", how="half_open", between=["shop", "customer"])
    story = (do("order", seconds=100, id="order", wait=False), wait(0.5), half, wait(0.5), *then)
    agents = {**AGENTS, "customer": PATIENT}
    result = passed(ran(project, *story, answers("order", "OutcomeUnknown"), agents=agents, world=world))
    assert [(fault.begin, fault.end) for fault in result.faults][:1] == [(0.5, 0.5)]
    first = next(record for record in records(result, "network"))
    assert (first["what"], first["t"]) == ("disconnected", pytest.approx(noticed, abs=0.1))


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_an_idle_connection_that_is_half_open_is_noticed_by_a_heartbeat(project: Project, world: str) -> None:
    half = inject("disconnect", id="half", how="half_open", between=["shop", "customer"])
    result = passed(ran(project, do("buy"), wait(0.5), half, wait(60), world=world))
    first = next(record for record in records(result, "network"))
    assert (first["what"], first["t"]) == ("disconnected", pytest.approx(40 + TRIP, abs=0.1))


# ---- heals


def test_heals_of_overlapping_partitions(project: Project) -> None:
    """The one that is left still cuts, and a fault that has ended is not healed twice."""
    story = (cut("one"), cut("two"), heal("one"), do("buy", id="buy"), answers("buy", "DeadlineExceeded"),
             heal("two"), do("buy", id="again"), answers("again", "done"), heal("one"))  # fmt: skip
    result = ran(project, *story, agents={**AGENTS, "customer": HASTY})
    (failure,) = result.failures
    assert (failure.expected, failure.saw) == ("the fault one in force", "it has not begun, or has ended")


PEERS: dict[str, Any] = {
    "lmos": "simulation/v1",
    "name": "peers",
    "stop": {"at": "10m", "when": "agree"},
    "population": [
        {"id": "peer", "count": 6, "use": "town.py:Peer", "args": {"number": "$(population.index)"}}
    ],
    "topology": {"kind": "complete", "of": "peer"},
    "network": {"default": {"latency": "20ms"}},
    "measure": {"every": "1s", "series": {"best": {"agg": "min", "of": "peer", "expr": "state.best"}}},
}


def at(seconds: float, **entry: Any) -> dict[str, Any]:
    return {"at": f"{seconds}s", **entry}


def agreeing(**more: Any) -> dict[str, Any]:
    return {"check": "converges", "name": "agree", "of": "peer", "field": "state.best", **more}


SIDES: Any = [
    [["peer/0", "peer/1"], "rest"],
    [{"of": "peer", "share": 0.5}, "rest"],
    [["peer/2"], ["peer/3"], ["peer/4", "peer/5"]],
    [{"of": "peer", "count": 1}, {"of": "peer", "count": 2}, "rest"],
]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    cuts=st.lists(
        st.tuples(st.sampled_from(SIDES), st.integers(1, 90), st.integers(1, 90), st.booleans()),
        min_size=2,
        max_size=5,
    )
)
def test_the_network_is_whole_again_after_all_heals_in_any_order(project: Project, cuts: list[Any]) -> None:
    timeline: list[Any] = []
    for number, (sides, begin, lasts, one_way) in enumerate(cuts):
        fault = {"do": "fault", "id": f"cut-{number}", "kind": "partition", "sides": sides}
        timeline += [at(begin, **fault, one_way=one_way), at(begin + lasts, do="heal", of=f"cut-{number}")]
    over = max(begin + lasts for _, begin, lasts, _ in cuts)
    news = at(over, do="tell", target="peer/0", action="learn", input={"best": 100})
    known = {"check": "eventually", "of": "peer", "expr": "state.best == 100", "by": f"{over + 120}s"}
    data = {**PEERS, "timeline": [*timeline, news], "checks": [agreeing(within="10m"), known]}
    result = passed(ran_file(project, data))
    assert all(fault.end is not None for fault in result.faults)


def test_the_log_names_who_is_cut_off(project: Project) -> None:
    """Those that were picked too, and of a large side the first."""
    split = {"do": "fault", "id": "split", "kind": "partition", "duration": "5s"}
    some = at(1, **split, sides=[{"of": "peer", "count": 2}, "rest"], one_way=True)
    slow = at(2, do="fault", kind="latency", delay="1s", between=["peer/1", "peer/0"], duration="1s")
    every = at(2, do="fault", kind="latency", delay="1s", duration="1s")
    crowd = [{**PEERS["population"][0], "count": 14}]
    data = {**PEERS, "population": crowd, "timeline": [some, slow, every], "checks": [agreeing(within="5m")]}
    result = passed(ran_file(project, data))
    faults = [*records(result, "fault"), *records(result, "healed")]
    cut, _, _ = result.faults
    (chosen, others), told = cut.sides, [record for record in faults if record["id"] == "split"]
    assert [record["kind"] for record in told] == ["fault", "healed"]
    assert all(record["sides"] == [[*chosen], [*others[:10], "… 2 more"]] for record in told)
    assert all(record["one_way"] is True for record in told)
    late = [record.get("between") for record in faults if record["fault"] == "latency"]
    assert sorted(late, key=str) == [None, None, *[["peer/1", "peer/0"]] * 2]


def test_who_is_picked_is_chance_from_the_seed(project: Project) -> None:
    fault = at(1, do="fault", id="split", kind="partition", sides=[{"of": "peer", "share": 0.5}, "rest"],
               duration="5s")  # fmt: skip
    data = {**PEERS, "timeline": [fault], "checks": [agreeing(within="5m")]}
    runs = [passed(ran_file(project, data, seed)) for seed in (1, 1, 2, 3)]
    sides = [run.faults[0].sides for run in runs]
    assert all(len(one) == len(other) == 3 and {*one, *other} == NODES for one, other in sides)
    assert sides[0] == sides[1]
    assert len({*sides}) > 1


NODES = {f"peer/{number}" for number in range(6)}


# ---- checks


def test_checks_know_when_a_partition_is_in_force_and_healed(project: Project) -> None:
    split = at(0, do="fault", id="split", kind="partition", sides=[["peer/0", "peer/1"], "rest"])
    never = {"check": "never", "when": {"expr": "series.best < 5", "fault_free": True}}
    data = {
        **PEERS,
        "timeline": [split, at(100, do="heal", of="split")],
        "checks": [agreeing(after="split.healed", within="40s"), never],
    }
    result = ran_file(project, data)
    agree, quiet = result.judged
    assert agree.ok
    assert agree.at is not None
    assert 100 < agree.at < 140
    assert not quiet.ok  # it takes a while after the heal
    assert quiet.at == 100


def test_a_network_that_never_heals_fails_and_says_who_is_cut_off_since_when(project: Project) -> None:
    split = at(0.03, do="fault", id="split", kind="partition", sides=[["peer/5"], "rest"])
    hang = at(0.02, do="fault", kind="disconnect", how="hang", between=["peer/0", "peer/1"])
    quiet = at(0.01, do="fault", id="quiet", kind="partition", sides=[["peer/4"], ["peer/3"]], one_way=True)
    news = at(10, do="tell", target="peer/0", action="learn", input={"best": 100})
    checks = [
        agreeing(within="5m"),
        agreeing(name="healed", after="split.healed", within="5m"),
        {"check": "eventually", "of": "peer", "expr": "state.best == 100", "by": "2m"},
    ]
    data = {**PEERS, "stop": {"at": "2m"}, "timeline": [split, hang, quiet, news], "checks": checks}
    agree, healed, known = ran_file(project, data).judged
    why = (
        "since 0.01 s peer/4 is not heard by peer/3; since 0.02 s peer/0 is cut off from peer/1; "
        "since 0.03 s peer/5 is cut off from peer/0, peer/1, peer/2, peer/3, peer/4"
    )
    assert not agree.ok
    assert agree.saw.endswith(f"other than the first are 1 agent: peer/5; {why}")
    assert (healed.ok, healed.saw) == (False, f"split was not healed; {why}")
    assert not known.ok
    assert known.saw.endswith(f"peer/5: state.best = 5; {why}")


# ---- a partition at the instant of something else


def test_at_the_instant_of_a_crash(project: Project) -> None:
    """The answer that the crash is does not come either; the supervisor restarts without the network."""
    story = (
        do("order", seconds=100.0, wait=False, id="order"),
        wait(1),
        cut(),
        inject("crash", id="boom", target="shop"),
        wait(1),
        *reads("shop", "sold", 0),
        *reads("customer", "notes", []),
        heal("split"),
        {"do": "expect", "that": "output", "of": "order", "equals": "AgentDied", "within": "5s"},
        do("buy", id="buy"),
        answers("buy", "done"),
    )
    passed(ran(project, *story, agents={**AGENTS, "customer": PATIENT}))


def test_at_the_instant_of_a_restart_of_the_node(project: Project) -> None:
    """A partition outlasts the node that it is in: the new one has the same network."""
    story = (
        cut(),
        inject("restart", id="power", down="1s"),
        do("buy", id="buy"),
        answers("buy", "DeadlineExceeded"),
        heal("split"),
        do("insist", id="again"),
        answers("again", "done"),
    )
    result = passed(ran(project, *story, agents={**AGENTS, "customer": HASTY}))
    assert [(fault.kind, fault.end is not None) for fault in result.faults] == [
        ("partition", True),
        ("restart", True),
    ]


def test_at_the_instant_of_a_drain(project: Project) -> None:
    """What runs at the shop is finished there, and its answer comes after the heal."""
    shop = {**AGENTS["shop"], "shutdown": "10s"}
    story = (
        do("order", seconds=3.0, wait=False, id="order"),
        wait(1),
        cut(),
        {"do": "stop", "target": "shop"},
        heal("split"),
        {"do": "expect", "that": "output", "of": "order", "equals": "done", "within": "10s"},
        do("buy", id="buy"),
        answers("buy", "AgentUnavailable"),
        {"do": "start", "target": "shop"},
        do("buy", id="again"),
        answers("again", "done"),
    )
    passed(ran(project, *story, agents={"customer": PATIENT, "shop": shop}))


@pytest.mark.parametrize(("lasts", "outcome"), [(3, "done"), (100, "OutcomeUnknown")])
def test_in_a_stream_with_credit(project: Project, lasts: float, outcome: str) -> None:
    """Items are held and come in order, none twice; a longer cut ends the stream at both ends."""
    story = (
        do("read_catalogue", count=200, wait=False, id="read"),
        wait(5),
        cut(),
        wait(lasts),
        heal("split"),
        {"do": "expect", "that": "output", "of": "read", "equals": outcome, "within": "5m"},
        {"do": "read", "target": "customer", "property": "notes"},
    )
    result = passed(ran(project, *story, agents={**AGENTS, "customer": PATIENT}))
    *pages, last = records(result, "answered")[-1]["value"]
    assert pages == [str(number) for number in range(200 if outcome == "done" else len(pages))]
    assert len(pages) > 40
    assert last == outcome


@pytest.mark.parametrize(("lasts", "outcome"), [(3, "done"), (100, "OutcomeUnknown")])
def test_in_a_stream_of_input_with_credit(project: Project, lasts: float, outcome: str) -> None:
    story = (
        do("deliver", count=200, wait=False, id="deliver"),
        wait(5),
        cut(),
        wait(lasts),
        heal("split"),
        {"do": "expect", "that": "output", "of": "deliver", "equals": outcome, "within": "5m"},
    )
    result = passed(ran(project, *story, agents={**AGENTS, "customer": PATIENT}))
    assert network_records(result)[:1] == ([] if outcome == "done" else ["disconnected"])


def test_in_a_commit_of_a_durable_agent(project: Project) -> None:
    """What was committed stays; its answer, which waits for the commit, does not come through the cut."""
    agents = {"customer": PATIENT, "shop": {"from": "agent", "use": "town.py:Safe"}}
    story = (
        do("buy", wait=False, id="buy"),
        wait(0.5),  # the commit takes a second
        cut(),
        wait(100),
        *reads("customer", "notes", ["OutcomeUnknown"]),
        *reads("shop", "sold", 1),
        inject("crash", id="boom", target="shop"),
        heal("split"),
        do("insist", id="again"),
        answers("again", "done"),
        *reads("shop", "sold", 2),
    )
    checks = [{"check": "restarts", "of": "shop", "equals": 1}]
    passed(ran(project, *story, agents=agents, store={"latency": "1s"}, checks=checks))


# ---- datagrams

UDP = {"delivery": "datagram", "default": {"latency": "50ms"}}


def test_datagrams_get_lost_and_doubled(project: Project) -> None:
    network = {**UDP, "default": {"latency": "50ms", "loss": 0.2, "duplicate": 0.1}}
    story = (do("tell", times=60), wait(1), do("tell", times=60), wait(1))
    result = passed(ran(project, *story, network=network))
    noted = network_records(result)
    lost, doubled = noted.count("lost"), noted.count("doubled")
    assert len(instants_of(result, "sell")) == 120 - lost + doubled
    assert 10 < lost < 40
    assert 3 < doubled < 25


def test_datagrams_overtake_one_another(project: Project) -> None:
    """Whether latencies differ, or the link says so."""
    uneven = {"latency": {"dist": "uniform", "min": "10ms", "max": "90ms"}}
    even: dict[str, Any] = {"latency": "50ms", "reorder": 0.3}
    for rules in (uneven, even):
        story = (do("count_up", to=50), wait(1), *reads("shop", "sold", sum(range(50))))
        result = passed(ran(project, *story, network={**UDP, "default": rules}))
        came = [
            record["input"]["count"]
            for record in records(result, "sent")
            if "count" in record.get("input", ())
        ]
        assert sorted(came) == list(range(50))
        assert came != list(range(50))
        overtaken = [record for record in records(result, "network") if record["what"] == "overtaken"]
        assert (5 < len(overtaken) < 30) == ("reorder" in rules)
        assert all(record["affordance"] == "sell" for record in overtaken)


def test_what_is_overtaken_is_counted(project: Project) -> None:
    network = {**UDP, "default": {"latency": "50ms", "reorder": 0.3}}
    checks = [{"check": "always", "expr": "network.overtaken < 3"}]
    result = ran(project, do("count_up", to=50), wait(1), network=network, checks=checks)
    noted = network_records(result).count("overtaken")
    assert [failure.saw for failure in result.failures] == [f"at 1 s network.overtaken = {noted}"]


def test_a_doubled_request_is_carried_out_once(project: Project) -> None:
    network = {**UDP, "default": {"latency": "50ms", "duplicate": 0.9}}
    story = [do("buy") for _ in range(5)]
    result = passed(ran(project, *story, wait(1), *reads("shop", "sold", 5), network=network))
    assert "doubled" in network_records(result)


def test_what_a_partition_stops_of_datagrams_is_gone(project: Project) -> None:
    story = (cut(), do("tell", times=3), wait(1), heal("split"), wait(10), *reads("shop", "sold", 0))
    assert network_records(passed(ran(project, *story, network=UDP))) == ["lost"] * 3


def test_datagrams_carry_no_streams(project: Project) -> None:
    story = (do("read_catalogue", count=3, id="read"), answers("read", "NotAllowed"))
    passed(ran(project, *story, network=UDP))


# ---- what is on a node


def test_children_are_on_the_node_of_their_agent(project: Project) -> None:
    agents = {**AGENTS, "family": {"from": "agent", "use": "town.py:Family"}}
    passed(ran(project, do("send_child", "family"), *reads("family", "took", 0), agents=agents))


def test_a_pool_is_on_one_node(project: Project) -> None:
    """Its members are asked over one connection, and by turns."""
    pool = {"from": "pool", "use": "town.py:Till", "size": 3}
    story = [do("buy", id=f"buy-{number}") for number in range(6)]
    nodes = {"west": ["customer"], "east": ["shop"]}
    networks: list[tuple[dict[str, Any], float]] = [({"default": {"latency": "50ms"}}, TRIP), ({}, 0)]
    for network, took in networks:
        agents = {"customer": AGENTS["customer"], "shop": pool}
        result = passed(
            ran(
                project, *story, *reads("customer", "took", took), agents=agents, nodes=nodes, network=network
            )
        )
        asked = [record["agent"] for record in records(result, "delivered") if record["affordance"] == "sell"]
        assert asked == [f"shop/shop-{number}" for number in (1, 2, 3)] * 2


@pytest.mark.parametrize(
    ("nodes", "heard"), [({}, True), ({"all": ["peer"]}, False), ({"some": ["peer/0", "peer/1"]}, True)]
)
def test_a_population_is_on_one_node_each_of_it_on_its_own_or_some_together(
    project: Project, nodes: dict[str, list[str]], heard: bool
) -> None:
    data = {**PEERS, "nodes": nodes, "checks": [agreeing(within="1m")]}
    data["network"] = {"delivery": "datagram", "default": {"loss": 0.3}}
    result = passed(ran_file(project, data))
    assert ("lost" in network_records(result)) is heard
    pairs = {(record["from"], record["to"]) for record in records(result, "network")}
    if "some" in nodes:
        ends = {end for pair in pairs for end in pair}
        assert "some" in ends
        assert not ends & {"peer/0", "peer/1"}


STREET: dict[str, Any] = {
    "agents": {
        **{name: {"from": "agent", "use": "town.py:Neighbour"} for name in ("anna", "ben", "cleo")},
        "near": {"from": "agent", "use": "town.py:Till"},
        "far": {"from": "agent", "use": "town.py:Till"},
    },
    "nodes": {"west": ["anna", "ben", "near"], "east": ["cleo", "far"]},
}


def test_topics_and_groups_end_at_the_node(project: Project) -> None:
    story = [
        do("publish", "anna"),
        *reads("anna", "heard", 1),
        *reads("ben", "heard", 1),
        *reads("cleo", "heard", 0),
        do("members", "anna", id="west"),
        answers("west", ["anna", "ben"]),
        do("members", "cleo", id="east"),
        answers("east", ["cleo"]),
    ]  # fmt: skip
    passed(ran(project, *story, **STREET))
    passed(ran(project, *story[:1], *reads("cleo", "heard", 1), agents=STREET["agents"], network=UNSET))


def test_agents_find_those_of_their_node(project: Project) -> None:
    story = [
        do("look", "anna", name="near", id="near"),
        answers("near", "found"),
        do("look", "anna", name="far", id="far"),
        answers("far", "no agent 'far' on the node 'west' that is a Till"),
        do("look", "cleo", name="far"),
        *(do("look_around", "anna") for _ in range(4)),
        *reads("near", "sold", 5),
        *reads("far", "sold", 1),
    ]
    passed(ran(project, *story, **STREET))


@pytest.mark.parametrize("restart", ["restart", "crash"])
def test_a_ref_that_was_kept_crosses_the_network(project: Project, restart: str) -> None:
    agents = {
        "notebook": {"from": "agent", "use": "town.py:Notebook", "args": {"given": "$(agents.till)"}},
        "till": {"from": "agent", "use": "town.py:Till"},
    }
    target = {"target": "notebook"} if restart == "crash" else {}
    split = cut(sides=[["notebook"], ["till"]])
    story = [
        do("keep", "notebook"),
        inject(restart, id="again", **target),
        do("use", "notebook", id="before"),
        answers("before", "done"),
        split,
        do("use", "notebook", id="after"),
        answers("after", "DeadlineExceeded"),
        *reads("till", "sold", 1),
    ]
    checks = [{"check": "restarts", "of": "notebook", "ge": 0}]
    passed(ran(project, *story, agents=agents, checks=checks))


# ---- determinism

LOSSY: dict[str, Any] = {
    **PEERS,
    "network": {"default": {"latency": {"dist": "exponential", "mean": "50ms"}, "loss": 0.1}},
    "timeline": [
        at(0.5, do="fault", id="split", kind="partition", sides=[{"of": "peer", "share": 0.5}, "rest"]),
        at(70, do="heal", of="split"),
    ],
    "checks": [agreeing(after="split.healed", within="5m")],
}


def test_the_same_seed_has_the_same_log(project: Project) -> None:
    one, again, other = (passed(ran_file(project, LOSSY, seed)) for seed in (7, 7, 8))
    assert one.log == again.log
    assert one.digest == again.digest != other.digest


@pytest.mark.slow
def test_a_run_is_compared_with_one_of_a_second_process(project: Project) -> None:
    ran = project.command("run", project.write("lossy.json", json.dumps({**LOSSY, "seeds": [7]})))
    assert ran.code == 0, ran.text
    assert "same log in a second process: 1 of 1" in ran.out


def test_one_more_link_changes_nothing_elsewhere(project: Project) -> None:
    """Chance is by name: each line draws for itself."""
    data: dict[str, Any] = {**LOSSY, "stop": {"at": "30s"}, "timeline": []}
    data["checks"] = [{"check": "always", "expr": "series.best >= -1"}]
    links = [{"between": ["peer/0", "peer/1"], "latency": "3s", "loss": 0.5}]
    came: list[list[Any]] = []
    for network in (data["network"], {**data["network"], "links": links}):
        sent = records(passed(ran_file(project, {**data, "network": network})), "sent")
        found = [(record["t"], record["from"], record["agent"]) for record in sent]
        came.append([one for one in found if {*one[1:]} != {"peer/0", "peer/1"}])
    assert came[0] == came[1]
    assert len(came[0]) > 100
