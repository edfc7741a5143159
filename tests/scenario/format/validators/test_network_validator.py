"""Mistakes in the network of a file, each of which is found at its place, and what counts as used."""

from __future__ import annotations

import pytest

from lmos_actors.files import FileError
from lmos_actors.scenario.format import load_scenario
from tests.scenario.project import Project

CREW = '''\
from __future__ import annotations

from functools import partial

from lmos_actors import Agent, ChildSpec, Property, Ref, SupervisorSpec, action, prop, sibling


class Store(Agent):
    """Is asked."""

    value: Property[int] = prop(default=0)

    @action
    def get(self) -> int:
        return self.value


class Front(Agent):
    """Asks."""

    store: Ref[Store]

    @action
    async def fetch(self) -> int:
        return await self.store.within(1.0).invoke(Store.get)


class Peer(Agent):
    """Has neighbours."""

    neighbours: tuple[Ref[Peer], ...]
    value: Property[int] = prop(default=0)

    def started(self) -> None:
        self.send(self.neighbours[0], Peer.take, 1)

    @action
    def take(self, value: int) -> None:
        self.value = value


TREE = SupervisorSpec(
    "root",
    [
        ChildSpec("front", partial(Front, store=sibling("desk/store"))),
        SupervisorSpec("desk", [ChildSpec("store", Store), ChildSpec("spare", Store)]),
    ],
)
'''

SIMULATION = """\
lmos: simulation/v1
name: regions
stop: {at: 10s}
agents:
  front: {from: agent, use: "crew.py:Front", args: {store: $(agents.store)}}
  store: {from: agent, use: "crew.py:Store"}
  clerks: {from: pool, use: "crew.py:Store", size: 3}
  spare: {from: agent, use: "crew.py:Front", args: {store: $(agents.clerks)}}
population: [{id: peer, count: 6, use: "crew.py:Peer"}]
topology: {kind: ring, of: peer}
tree:
  root:
    children: [front, spare, {name: desk, children: [store, clerks]}]
network:
  default: {latency: 5ms, jitter: {dist: exponential, mean: 1ms}, loss: 0.1}
  links:
    - {between: [west, east], latency: {dist: normal, mean: 80ms, deviation: 9ms}, bandwidth: 1MiB}
    - {from: west, to: peer, loss: 0.2}
nodes:
  west: [front]
  east: [desk, peer/0]
timeline:
  - {at: 1s, do: fault, id: split, kind: partition, sides: [[west], rest]}
  - {at: 2s, do: fault, id: slow, kind: latency, delay: 1s, duration: 1s}
  - {at: 2s, do: fault, id: lossy, kind: loss, share: 0.5, between: [west, east], duration: 1s}
  - {at: 2s, do: fault, id: away, kind: disconnect, how: hang, between: [spare, peer]}
  - {at: 2s, do: fault, id: blink, kind: disconnect}
  - {at: 2s, do: fault, id: boom, kind: crash, target: store}
  - {at: 2s, do: tell, target: front, action: fetch}
  - {at: 2s, do: tell, target: spare, action: fetch}
  - {at: 8s, do: heal, of: split}
  - {at: 9s, do: heal, of: away}
"""

DATAGRAMS = SIMULATION.replace("  default:", "  delivery: datagram\n  default:").replace(
    "  - {at: 2s, do: fault, id: blink, kind: disconnect}\n", ""
)

WIRE = SIMULATION.replace("network:", "world: wire\nnetwork:").replace(", peer/0]", "]")

SCENARIO = """\
lmos: scenario/v1
name: regions
agents:
  front: {from: agent, use: "crew.py:Front", args: {store: $(agents.store)}}
  store: {from: agent, use: "crew.py:Store"}
network: {}
nodes: {west: [front]}
steps:
  - {do: inject, id: split, fault: {kind: partition, sides: [[west], rest]}}
  - {do: heal, of: split}
  - {do: invoke, target: front, action: fetch}
"""

TREE = """\
lmos: scenario/v1
name: regions
tree: {use: "crew.py:TREE"}
network: {}
nodes: {west: [desk]}
steps:
  - {do: invoke, target: front, action: fetch}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("crew"))
    made.write("pyproject.toml", "")
    made.write("crew.py", CREW)
    return made


PLACE = "@"
"""Stands before the wrong word in what is written below."""


def wrong(text: str, old: str, *changes: tuple[str, str]) -> list[tuple[str, str, str, str]]:
    """Return what is in place of something in a file, and what is said of it."""
    return [(text, old, new, part) for new, part in changes]


WRONG = [
    # nodes
    *wrong(
        SIMULATION,
        "west: [front]",
        ("west: [@frnt]", 'no agent "frnt", did you mean "front"?'),
        ("west: @[]", "not empty"),
        ("west: [front, @front]", '"front" stands in a node twice, first in "west"'),
    ),
    *wrong(
        SIMULATION,
        "[front]\n  east: [desk, peer/0]",
        ("[front, peer/0]\n  east: [desk, @peer/0]", '"peer/0" stands in a node twice, first in "west"'),
    ),
    *wrong(
        SIMULATION,
        "[desk, peer/0]",
        ("[desk, peer, @peer/0]", '"peer/0" stands in a node twice, first in "east" with "peer"'),
    ),
    *wrong(
        SIMULATION,
        "west: [front]",
        ("west: [front, @store]", '"store" stands in a node twice, first in "east" with "desk"'),
        ("west: [front, @clerks/clerks-1]", "on one node: name the pool"),
        ("west: [front, @peer/6]", 'the last is "peer/5"'),
        ("west: [front, @user]", '"user" is a node of its own'),
        ("west: [front, @root]", "the root is on no node"),
        ("west: [front]\n  @user: [spare]", '"user" is the node of steps'),
        ("west: [front]\n  @peer: [spare]", '"peer" is an agent'),
        ("west: [front]\n  @desk: [spare]", '"desk" is a supervisor'),
        ("west: [front]\n  @my node: [spare]", "is not a name"),
    ),
    *wrong(
        SIMULATION,
        "[front, spare, {name: desk, children: [store, clerks]}]",
        (
            "[front, {name: @desc, children: [store, {name: more, children: [clerks]}]}, {name: "
            "desk, children: [spare]}]",
            'the children of "desc" are on several nodes, "store" and "clerks"',
        ),
    ),
    *wrong(
        TREE,
        'use: "crew.py:TREE"}\nnetwork: {}\nnodes: {west: [desk]}',
        (
            'use: @"crew.py:TREE"}\nnetwork: {}\nnodes: {west: [desk/store]}',
            'the children of "desk" are on several nodes',
        ),
        ('use: @"crew.py:TREE"}\nnetwork: {}', 'the children of "desk" are on several nodes'),
    ),
    *wrong(
        TREE,
        "west: [desk]",
        ("west: [desk, @desk/store]", '"desk/store" stands in a node twice, first in "west" with "desk"'),
    ),
    *wrong(
        TREE,
        "network: {}\nnodes",
        ("@nodes", '"nodes" needs a network, which the file has not'),
    ),
    # links
    *wrong(
        SIMULATION,
        "between: [west, east], lat",
        ("between: [@wst, east], lat", 'no node "wst", did you mean "west"?'),
        ("between: @[west, east, store], lat", "expected exactly 2 of them, saw 3"),
        ("between: [west, @west], lat", '"west" needs no link to itself'),
        ("between: [west, @front], lat", '"west" and "front" are on one node'),
        ("between: [clerks, @store], lat", 'are on one node of "east"'),
    ),
    *wrong(
        SIMULATION,
        "{from: west, to: peer, loss",
        ("@{from: west, loss", '"from" one "to" the other'),
    ),
    *wrong(
        SIMULATION,
        "from: west, to: peer",
        ("from: west, to: @pear", 'did you mean "peer"?'),
        ("from: user, to: @user", '"user" needs no link to itself'),
        ("from: peer/1, to: @peer/9", 'no "peer/9"'),
    ),
    *wrong(
        WIRE.replace("count: 6", "count: 70"),
        "kind: ring, of: peer",
        ("kind: complete, of: @peer", "4,830 pairs of nodes talk, or more, and in world: wire each has"),
    ),
    *wrong(
        WIRE.replace("count: 6", "count: 5000"),
        "kind: ring, of: peer",
        ("kind: complete, of: @peer", "24,995,000 pairs of nodes talk"),
        ("kind: star, of: @peer", "9,998 pairs of nodes talk"),
    ),
    *wrong(
        SIMULATION,
        "loss: 0.1}",
        ("loss: @1.0}", "less than 1"),
        ("loss: @-0.1}", "at least 0"),
        ("@los: 0.1}", 'did you mean "loss"?'),
        ("@corrupt: 0.1}", '"corrupt" changes bytes of connections'),
        ("@duplicate: 0.1}", '"duplicate" is of datagrams'),
        ("@reorder: 0.1}", '"reorder" is of datagrams'),
        ("@queue: 64KiB}", '"queue" is of datagrams'),
    ),
    *wrong(
        SIMULATION,
        "{latency: 5ms",
        ("{latency: @-5ms", "is not a duration"),
        ("{latency: @5", "the unit is missing"),
    ),
    *wrong(
        SIMULATION,
        "deviation: 9ms",
        ("deviation: @30ms", "below zero in its tail"),
    ),
    *wrong(
        SIMULATION,
        "{dist: normal, mean: 80ms, deviation: 9ms}",
        ("{dist: uniform, min: @-1ms, max: 2ms}", "is not a duration"),
        ("{dist: normal, mean: @80, deviation: 9ms}", "has no unit"),
    ),
    *wrong(
        SIMULATION,
        "bandwidth: 1MiB",
        ("bandwidth: @0B", "carries nothing"),
        ("bandwidth: @30B", "a message of 320 B takes 10.6667 s at that, and the run is over after 10 s"),
    ),
    *wrong(
        SCENARIO,
        "network: {}",
        ("network: {default: {bandwidth: @10B}}", "takes 32 s at that, and the run is over after 30 s"),
        (
            "timeout: 10m\nnetwork: {default: {bandwidth: @5B}}",
            "takes 64 s at that, and a connection ends after 60 s in which nothing comes",
        ),
        (
            "network: {delivery: datagram, default: {bandwidth: 1KiB, queue: @100B}}",
            "has room for no message",
        ),
        ("network: {delivery: datagram, default: {@queue: 8KiB}}", 'a "queue" without "bandwidth"'),
        (
            "network: {delivery: datagram, links: [{from: west, to: user, @queue: 8KiB}, "
            "{from: user, to: west, bandwidth: 1KiB}]}",
            'a "queue" without "bandwidth"',
        ),
        ("network: {delivery: @udp}", 'unknown word "udp" (known: stream, datagram)'),
        ("world: websocket\n@network: {}", "that of websocket is this machine's own"),
        ("world: wire\nnetwork: {delivery: @datagram}", "datagrams are of world: memory"),
    ),
    *wrong(
        SCENARIO,
        "network: {}\nnodes: {west: [front]}\nsteps:",
        (
            "relay: {}\nnetwork: {delivery: @datagram}\nnodes: {west: [front]}\n"
            "steps:\n  - {do: say, payload: hi}",
            '"relay" needs "delivery: stream"',
        ),
    ),
    # faults
    *wrong(
        SIMULATION,
        "sides: [[west], rest]",
        ("sides: @[[west]]", "a partition has two sides at least"),
        ("sides: [@[], rest]", "a side of nobody"),
        ("sides: [[@wst], rest]", 'no node "wst", did you mean "west"?'),
        ("sides: [@rest, [west]]", '"rest" is the last side'),
        ("sides: [[west, spare], [east, peer], @rest]", '"rest" is nobody'),
        ("sides: [[west], [east, @front]]", '"west", where "front" stands, is on two sides'),
        ("sides: [[west, @west], rest]", "is on that side already"),
        ("sides: [[peer/1], [@peer]]", 'some of "peer" are on a side already'),
        ("sides: [[peer], [@peer/1]]", '"peer/1" is on two sides'),
        ("sides: [{of: peer, count: 2}, [@peer]]", 'some of "peer" are picked'),
        ("sides: [[peer], {of: @peer, count: 2}]", 'all of "peer" are on a side'),
        ("sides: [{of: peer, count: @7}, rest]", "has 6 agents, fewer than 7"),
        ("sides: [{of: peer, count: 4}, {of: peer, count: @3}]", "4 are picked already"),
        ("sides: [{of: peer, share: @0.01}, rest]", "of 6 agents is none"),
        ("sides: [@{of: peer}, rest]", 'exactly one of "count" and "share"'),
        ("sides: [{of: @west, count: 1}, rest]", 'no population "west"'),
    ),
    *wrong(
        SIMULATION,
        "sides: [[west], rest]}",
        ("@target: store, sides: [[west], rest]}", '"target" does not apply'),
    ),
    *wrong(
        SIMULATION,
        "sides: [[west], rest]",
        ("sides: [[west], rest], @factor: 2", '"factor" does not apply'),
    ),
    *wrong(
        SIMULATION,
        "{at: 1s, do: fault, id: split, kind: partition, sides: [[west], rest]}",
        ("@{at: 1s, do: fault, id: split, kind: partition}", '"kind: partition" needs "sides"'),
    ),
    *wrong(
        SIMULATION,
        "delay: 1s, duration: 1s",
        ("delay: {dist: normal, mean: 1s, deviation: @1s}", "below zero in its tail"),
        ("delay: 1s, duration: @0s", "of no duration does nothing"),
    ),
    *wrong(
        SIMULATION,
        "share: 0.5, between: [west, east]",
        ("share: 0.5, between: [west, @wets]", 'no node "wets"'),
    ),
    *wrong(
        SIMULATION,
        "share: 0.5,",
        ("share: @1.0,", "less than 1"),
    ),
    *wrong(
        SIMULATION,
        "kind: disconnect}",
        ("kind: disconnect, @duration: 1s}", "half open, in an instant"),
        ("kind: disconnect, how: half_open, @duration: 1s}", "half open, in an instant"),
        ("kind: disconnect, how: @melt}", 'unknown word "melt" (known: reset, half_open, hang)'),
    ),
    *wrong(
        SCENARIO,
        "network: {}\nnodes: {west: [front]}\nsteps:\n  - {do: inject, id: split, fault: {kind: "
        "partition, sides: [[west],",
        (
            "steps:\n  - {do: inject, id: split, fault: {kind: @partition, sides: [[front],",
            '"kind: partition" needs a network',
        ),
    ),
    *wrong(
        DATAGRAMS,
        "kind: disconnect, how: hang",
        ("kind: @disconnect, how: hang", "datagrams have no connections"),
    ),
    # heal
    *wrong(
        SIMULATION,
        "of: split}",
        ("of: @splt}", 'no fault of the network has the id "splt", did you mean "split"?'),
        ("of: @slow}", '"slow" has a duration, and ends by itself'),
        ("of: @boom}", '"boom" is no fault of the network, and ends by itself'),
        ("of: @blink}", '"blink" is over in an instant'),
    ),
    *wrong(
        SIMULATION,
        "{at: 9s, do: heal, of: away}",
        (
            "{at: 9s, do: heal, of: away}\n  - {at: 9s, do: heal, of: @split}",
            '"split" is healed already, at 8s',
        ),
        (
            "{at: 9s, do: heal, of: away}\n  - {at: 9s, do: heal, of: @away}",
            '"away" is healed already, at 9s',
        ),
    ),
    *wrong(
        SIMULATION,
        "{at: 8s, do: heal",
        ("{at: @500ms, do: heal", '"split" begins later, at 1s'),
    ),
    *wrong(
        SCENARIO,
        "do: heal, of: split",
        ("do: heal, of: @spilt", 'did you mean "split"?'),
    ),
    # agents and topologies
    *wrong(
        SIMULATION,
        'count: 6, use: "crew.py:Peer"}]\ntopology: {kind: ring',
        (
            'count: 100000, use: "crew.py:Peer"}]\ntopology: {kind: @complete',
            "100000 agents that all know each other are too many, 5000 are the most",
        ),
    ),
]


@pytest.mark.parametrize(("text", "old", "new", "part"), WRONG)
def test_each_mistake_is_found_at_its_place(
    project: Project, text: str, old: str, new: str, part: str
) -> None:
    assert text.count(old) == 1
    marked = text.replace(old, new)
    before = marked[: marked.index(PLACE)]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    project.write("f.yaml", before + marked[len(before) + 1 :])
    with pytest.raises(FileError) as refused:
        load_scenario(project.root / "f.yaml")
    found = [(mistake.line, mistake.column, mistake.message) for mistake in refused.value.mistakes]
    assert [(line, column) for line, column, message in found if part in message] == [place], found
    assert len(found) == 1, found


@pytest.mark.parametrize("text", [SIMULATION, SCENARIO, TREE])
def test_a_file_without_mistakes(project: Project, text: str) -> None:
    project.write("f.yaml", text)
    assert load_scenario(project.root / "f.yaml").notes == ()


def test_a_mistake_is_shown_with_its_place_and_ends_in_2(project: Project) -> None:
    project.write("f.yaml", SIMULATION.replace("sides: [[west], rest]", "sides: [[wst], rest]"))
    ran = project.command("validate", "f.yaml")
    assert ran.code == 2
    assert ran.text.startswith('f.yaml:23:62: no node "wst", did you mean "west"?')


ASKED = "  - {at: 2s, do: tell, target: spare, action: fetch}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("west: [front]", "west: [front, spare]"),
        ("{from: west, to: peer", "{from: spare, to: peer"),
        ("sides: [[west], rest]", "sides: [[west, spare], rest]"),
        ("between: [spare, peer]", "between: [west, east]"),
    ],
)
def test_standing_in_a_node_or_at_an_end_of_a_link_is_no_use(project: Project, old: str, new: str) -> None:
    assert SIMULATION.count(old) == SIMULATION.count(ASKED) == 1
    project.write("f.yaml", SIMULATION.replace(ASKED, "").replace(old, new))
    with pytest.raises(FileError) as refused:
        load_scenario(project.root / "f.yaml")
    (mistake,) = refused.value.mistakes
    assert (mistake.line, mistake.column) == (8, 3)
    assert mistake.message.startswith('nothing uses the agent "spare"')
