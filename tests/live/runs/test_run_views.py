"""The live view of runs: what its views have of a log while that is written, and what a viewer may do."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.errors import ConnectFailed
from lmos_actors.live import open_live
from lmos_actors.live.runs import Outcome, Pace, RunHead, RunsBoard, RunsServer
from lmos_actors.simulation import TraceLog, simulate
from lmos_actors.transport import MemoryNetwork, connect, endpoint_of
from tests.live.watching import SUBPROTOCOL, Watcher, watching

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock


class Till(Agent):
    """Sells."""

    @action
    def sell(self, count: int) -> int:
        if count < 0:
            raise ValueError("nothing is taken back")
        return count

    @action
    async def hang(self) -> None:
        await trio.sleep_forever()


TREE = SupervisorSpec("root", [SupervisorSpec("shop", [ChildSpec(f"till{n}", Till) for n in range(3)])])


@pytest.fixture(scope="module")
def log_of_a_shop() -> list[str]:
    """Return the log of a run in which one till sells, one crashes, and one still works."""

    async def story() -> None:
        async with open_node(TREE) as node:
            tills = [node.find(Till, f"shop/till{n}") for n in range(3)]
            for count in range(5):
                await tills[0].invoke(Till.sell, count)
                await trio.sleep(0.5)
            with pytest.raises(Exception, match="died"):
                await tills[1].invoke(Till.sell, -1)
            tills[2].tell_nowait(Till.hang)
            await trio.sleep(1)
            taken.extend(log.lines())

    taken: list[str] = []
    log = TraceLog()
    simulate(story, log=log)
    return [f"{line}\n" for line in taken]


def board_of(*ids: str, speed: float | None = 1.0, **more: Any) -> RunsBoard:
    """Return a board of some runs, of which the first is under way."""
    board = RunsBoard(Pace(speed))
    board.plan([RunHead(id=id, label=f"seed={id}", file="shop.yaml", name="shop", **more) for id in ids])
    board.begin(ids[0])
    return board


def of_a_till(path: str) -> str:
    return "Till"


def node_of(path: str) -> str:
    return "there" if path == "b" else "here"


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@asynccontextmanager
async def watched(board: RunsBoard) -> AsyncGenerator[Watcher]:
    """Serve a board, and watch it for a block."""
    network = MemoryNetwork()
    server = RunsServer(board, network)
    await server.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        async with watching(server.url.replace("http", "ws").rstrip("/"), network, ()) as watcher:
            yield watcher
        server.stop()
    assert not server.failures


async def test_a_log_shows_the_agents_of_its_run_as_a_node_would(
    virtual_clock: MockClock, log_of_a_shop: list[str]
) -> None:
    board = board_of("1", class_of=of_a_till)
    board.take_lines("".join(log_of_a_shop))
    async with watched(board) as watcher:
        assert watcher.hello["kind"] == "runs"
        watcher.look("tree", open=["shop"])
        tree = await watcher.until(lambda: watcher.views.get("it"))
        assert tree["order"] == ["", "shop", "shop/till0", "shop/till1", "shop/till2"]
        assert tree["rows"]["shop/till0"]["handled"] == 5
        assert tree["rows"]["shop/till1"] | {"handled": 0} == {
            "kind": "agent",
            "name": "till1",
            "class": "Till",
            "status": "running",
            "life": 2,
            "waiting": 0,
            "handled": 0,
            "running": 0,
            "level": 2,
        }
        assert tree["rows"]["shop/till2"]["running"] == 1
        assert tree["rows"][""]["below"]["restarts"] == 1
        watcher.look("crashes", "crashes")
        crashes = await watcher.until(lambda: watcher.views.get("crashes"))
        assert [row["agent"] for row in crashes["rows"].values()] == ["shop/till1"]
        watcher.look("flow", "flow", paths=["shop/till0"], affordance="sell", records=4)
        flow = await watcher.until(lambda: watcher.views.get("flow"))
        assert flow["edges"] == {
            "user > shop/till0 > sell": {
                "from": "user",
                "to": "shop/till0",
                "affordance": "sell",
                "sent": 5,
                "failed": 0,
            }
        }
        assert [record["kind"] for record in flow["records"].values()][-3:] == [
            "sent",
            "delivered",
            "answered",
        ]
        watcher.look("network", "network")
        network = await watcher.until(lambda: watcher.views.get("network"))
        assert network["of"] == "agents"
        assert network["links"]["user>shop/till0"]["sent"] == 5


async def test_what_is_open_below_several_supervisors_is_shown(virtual_clock: MockClock) -> None:
    board = board_of("1")
    paths = ("a/x/1", "a/x/2", "b/x/1", "b/y/1")
    board.take_lines(
        lines(*({"n": n, "t": 0.0, "kind": "started", "agent": path} for n, path in enumerate(paths, 1)))
    )
    async with watched(board) as watcher:
        watcher.look("tree", open=["a", "a/x", "b", "b/x"])
        tree = await watcher.until(lambda: watcher.views.get("it"))
        assert tree["order"] == ["", "a", "a/x", "a/x/1", "a/x/2", "b", "b/x", "b/x/1", "b/y"]
        assert tree["total"] == 9


async def test_agents_of_a_run_are_found_and_ranked_also_those_that_come_later(
    virtual_clock: MockClock,
) -> None:
    board = board_of("1", class_of=of_a_till)
    sent = {"t": 0.0, "kind": "sent", "affordance": "go", "verb": "tell"}
    board.take_lines(lines(*({**sent, "n": n, "id": n, "agent": f"shop/{n % 2}"} for n in (1, 2, 3))))
    async with watched(board) as watcher:
        watcher.look("find", text="TILL")
        watcher.look("top", "top")
        found = await watcher.until(lambda: watcher.views.get("it"))
        assert (found["order"], found["searched"], found["complete"]) == (["shop/1", "shop/0"], 2, True)
        top = await watcher.until(lambda: watcher.views.get("top"))
        assert {path: row["most"] for path, row in top["rows"].items()} == {"shop/1": 2, "shop/0": 1}
        board.take_lines(lines({**sent, "n": 4, "id": 4, "agent": "shop/2"}))
        await watcher.until(lambda: watcher.views["it"]["order"] == ["shop/1", "shop/0", "shop/2"])
        watcher.look("tree", open=["shop"], at="shop/2", rows=0)
        await watcher.until(lambda: watcher.views["it"].get("at") == 4)
        watcher.look("tree", "wrong", run=5)
        await watcher.until(lambda: watcher.errors)
        assert "$.run" in watcher.errors[0]["message"]


async def test_values_of_long_records_are_text_and_not_taken_for_whole(virtual_clock: MockClock) -> None:
    board = board_of("1")
    sent = {"t": 0.0, "kind": "sent", "agent": "a", "affordance": "go", "verb": "tell"}
    inputs: list[Any] = [{"text": "short"}, {"text": "x" * 5_000}]
    board.take_lines(lines(*({**sent, "n": n, "id": n, "input": one} for n, one in enumerate(inputs, 1))))
    async with watched(board) as watcher:
        watcher.look("flow")
        view = await watcher.until(lambda: watcher.views.get("it"))
        short, long = view["records"].values()
        assert (short["input"], short["json"]) == ('{"text":"short"}', True)
        assert long["input"].startswith('{"text":"xxx')
        assert len(long["input"]) == 300
        assert "json" not in long


async def test_a_client_hears_of_what_has_come_while_it_did_not_wait(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    server = RunsServer(board_of("1"), network)
    await server.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        async with open_live(server.url, network=network) as client:
            client.look("it", "tree")
            await trio.sleep(10)
            with trio.fail_after(1):
                await client.wait()
            assert "it" in client.views
        server.stop()


@pytest.mark.parametrize(("nodes", "ends"), [(("here", "there"), "there"), (None, "root")])
async def test_messages_to_a_node_that_ends_go_with_it(
    virtual_clock: MockClock, nodes: tuple[str, ...] | None, ends: str
) -> None:
    board = board_of("1", nodes=None if nodes is None else lambda: nodes, node_of=node_of)
    records: list[dict[str, Any]] = [{"kind": "started", "agent": path} for path in ("a", "b")]
    records += [{"kind": "sent", "agent": "b", "affordance": "go", "id": id} for id in (1, 2)]
    records += [{"kind": "sent", "agent": "a", "affordance": "go", "id": 3}]
    records += [{"kind": "delivered", "agent": "b", "id": 1}]
    records += [{"kind": "fault", "agent": ends, "fault": "restart", "id": "end"}]
    board.take_lines(lines(*({"n": n, "t": 1.0, **each} for n, each in enumerate(records, 1))))
    async with watched(board) as watcher:
        watcher.look("tree", rows=3)
        rows = (await watcher.until(lambda: watcher.views.get("it")))["rows"]
        assert [rows["b"][name] for name in ("status", "waiting", "running")] == ["restarting", 0, 0]
        assert rows["a"]["waiting"] == (0 if nodes is None else 1)
        board.take_lines(lines({"n": 9, "t": 2.0, "kind": "started", "agent": "b", "incarnation": 1}))
        await watcher.until(lambda: watcher.views["it"]["rows"]["b"]["status"] == "running")


async def test_steps_series_and_links_come_beside_the_log(virtual_clock: MockClock) -> None:
    board = board_of("1", nodes=lambda: ("here", "there"), node_of=node_of)
    fault = {"n": 3, "t": 1.0, "kind": "fault", "agent": "network", "fault": "partition", "id": "cut"}
    board.take_lines(
        lines(
            {"schema": "lmos-actors/trace/v1", "seed": 1},
            {"n": 1, "t": 0.0, "kind": "started", "agent": "a", "incarnation": 1},
            {"n": 2, "t": 0.0, "kind": "started", "agent": "b", "incarnation": 1},
            {**fault, "sides": [["here"], ["there"]], "targets": 2},
            {
                "n": 4,
                "t": 1.5,
                "kind": "fault",
                "agent": "there",
                "fault": "restart",
                "id": "end",
                "down": 1.0,
            },
            {"end": 4, "sha256": ""},
        )
    )
    news = {
        "at": 2.0,
        "waits": True,
        "steps": [[0, "invoke a.go", "shop.yaml:3:5", "running", 1.0, None]],
        "steps_total": 2,
        "series": {"known": [[0.5 * n, None if n == 0 else float(n)] for n in range(250)]},
        "aggregates": {"known": "max"},
        "checks": [["all", "passed", 1.5, "", ""]],
        "links": [["here", "there", 7, 1, 2, 1, 1, 0.1, 0.05]],
        "on_way": [["here", "there", "go", 1.9, 2.5], ["here", "there", "go", 0.1, 0.2]],
    }
    board.take_news(json.dumps(news).encode())
    async with watched(board) as watcher:
        for view in ("run", "network", "series"):
            watcher.look(view, view)
        await watcher.until(lambda: len(watcher.views) == 3)
        run, network, series = (watcher.views[view] for view in ("run", "network", "series"))
        assert (run["time"], run["waits"], run["speed"], run["records"]) == (2.0, True, 1.0, 4)
        assert run["steps"] == [
            {"text": "invoke a.go", "status": "running", "place": "shop.yaml:3:5", "begin": 1.0}
        ]
        assert run["checks"] == [{"name": "all", "status": "passed", "at": 1.5}]
        assert [each["id"] for each in run["faults"]] == ["end", "cut"]
        assert network["nodes"] == {
            "here": {"status": "up", "agents": 1},
            "there": {"status": "down", "agents": 1, "down": 1},
        }
        link = network["links"]["here>there"]
        assert link == {
            "from": "here",
            "to": "there",
            "cut": True,
            "sent": 7,
            "lost": 1,
            "under_way": 3,
            "loss": 0.1,
            "delay": 0.05,
        }
        assert [message["due"] for message in network["under_way"]] == [2.5]
        chunks = series["series"]["known"]["chunks"]
        assert {number: len(points) for number, points in chunks.items()} == {"0": 100, "1": 100, "2": 50}
        assert chunks["0"][:2] == [[0.0], [0.5, 1.0]]


async def test_steps_are_shown_as_they_stand_at_the_time_of_the_clock(virtual_clock: MockClock) -> None:
    board = board_of("1")
    steps = [
        [0, "invoke a.go", "shop.yaml:3:5", "passed", 0.0, 0.4],
        [1, "wait for 5s", "shop.yaml:4:5", "passed", 0.4, 5.4],  # over for the run, which the pace holds
        [2, "invoke a.go", "shop.yaml:5:5", "running", 5.4, None],
    ]
    news = {"at": 3.0, "waits": True, "steps": steps, "steps_done": 2, "steps_total": 3}
    board.take_news(json.dumps(news).encode())
    async with watched(board) as watcher:
        watcher.look("run", "run")
        await watcher.until(lambda: "steps" in watcher.views.get("run", {}))
        run = watcher.views["run"]
        assert [(step["text"], step["status"]) for step in run["steps"]] == [
            ("invoke a.go", "passed"),
            ("wait for 5s", "running"),
        ]
        assert run["steps_done"] == 1
        board.take_news(json.dumps({"at": 5.4}).encode())
        await watcher.until(lambda: watcher.views["run"]["time"] == 5.4)
        assert [step["status"] for step in watcher.views["run"]["steps"]] == ["passed", "passed", "running"]
        assert watcher.views["run"]["steps_done"] == 2


async def test_a_series_of_any_length_is_bounded(virtual_clock: MockClock) -> None:
    board = board_of("1")
    for begin in range(0, 20_000, 500):
        samples = [[float(n), float(n)] for n in range(begin, begin + 500)]
        board.take_news(json.dumps({"series": {"s": samples}}).encode())
    async with watched(board) as watcher:
        watcher.look("series")
        view = await watcher.until(lambda: watcher.views.get("it"))
        points = [point for chunk in view["series"]["s"]["chunks"].values() for point in chunk]
        assert len(points) <= 1_001
        assert points[0] == [0.0, 0.0]
        assert points[-1] == [19_999.0, 19_999.0]
        assert points[1][0] == view["series"]["s"]["every"]


async def test_many_nodes_stand_as_their_populations(virtual_clock: MockClock) -> None:
    board = board_of("1")
    records: list[dict[str, Any]] = []
    for n in range(100):
        records.append({"n": n + 1, "t": 0.0, "kind": "started", "agent": f"peer/{n}", "incarnation": 1})
    sent = {"kind": "sent", "affordance": "go", "from": "peer/1", "verb": "tell"}
    records += [{"n": 101 + n, "t": 1.0, "agent": f"peer/{n}", "id": n, **sent} for n in range(5)]
    board.take_lines(lines(*records))
    async with watched(board) as watcher:
        watcher.look("network")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["nodes"] == {"peer": {"status": "up", "agents": 100, "members": 100}}
        assert view["links"]["peer>peer"]["sent"] == 4  # not the one to itself
        assert len(view["under_way"]) == 5


async def test_an_agent_that_has_crashed_is_down_until_it_is_started_again(virtual_clock: MockClock) -> None:
    board = board_of("1")
    begun = {"n": 1, "t": 0.0, "kind": "started", "agent": "a", "incarnation": 1}
    board.take_lines(
        lines(begun, {"n": 2, "t": 1.0, "kind": "crashed", "agent": "a", "reason": "ValueError"})
    )
    async with watched(board) as watcher:
        watcher.look("network")
        await watcher.until(lambda: watcher.views.get("it"))
        assert watcher.views["it"]["nodes"] == {"a": {"status": "down", "agents": 1, "down": 1}}
        board.take_lines(lines({**begun, "n": 3, "t": 2.0, "incarnation": 2}))
        await watcher.until(lambda: watcher.views["it"]["nodes"]["a"]["status"] == "up")
        board.take_lines(lines({"n": 4, "t": 3.0, "kind": "stopped", "agent": "a", "reason": "shutdown"}))
        await watcher.until(lambda: watcher.views["it"]["nodes"]["a"]["status"] == "stopped")


async def test_the_pace_is_changed_once_for_each_id(virtual_clock: MockClock) -> None:
    board = board_of("1", "2")
    changes: list[tuple[Pace, bool]] = []
    board.on_pace = lambda pace, is_step: changes.append((pace, is_step))
    async with watched(board) as watcher:
        for number, what in enumerate(("pause", "step", "go", "faster", "slower", "slower")):
            watcher.do(what, id=f"d{number}")
            watcher.do(what, id=f"d{number}")
        await watcher.until(lambda: len(watcher.done) == 12)
        assert [(pace.speed, pace.is_paused, is_step) for pace, is_step in changes] == [
            (1.0, True, False),
            (1.0, True, True),
            (1.0, False, False),
            (2.0, False, False),
            (1.0, False, False),
            (0.5, False, False),
        ]
        board.end("1", Outcome(status="passed", seconds=1.0, time=2.0))
        for number, (what, path) in enumerate((("pause", "1"), ("halt", ""), ("pause", "9"))):
            watcher.do(what, path, id=f"e{number}")
        await watcher.until(lambda: len(watcher.errors) == 3)
        assert [error["code"] for error in watcher.errors] == ["GONE", "UNKNOWN", "GONE"]


async def test_nobody_holds_real_time_up(virtual_clock: MockClock) -> None:
    board = board_of("1", is_real=True)
    async with watched(board) as watcher:
        watcher.do("pause")
        await watcher.until(lambda: watcher.errors)
        assert watcher.errors[0]["code"] == "REAL_TIME"


async def test_of_many_runs_the_last_are_kept_whole(virtual_clock: MockClock) -> None:
    ids = [str(number) for number in range(1, 400)]
    board = board_of(*ids)
    for id in ids[:350]:
        board.begin(id)
        board.end(id, Outcome(status="failed", seconds=1.0, time=2.0, failures=("it broke",)))
    async with watched(board) as watcher:
        watcher.look("runs")
        watcher.look("run", "old", run="1")
        watcher.look("tree", "gone", run="1")
        await watcher.until(lambda: len(watcher.views) == 3)
        runs = watcher.views["it"]
        assert (runs["current"], runs["total"], len(runs["order"]), runs["from"]) == ("350", 399, 300, 99)
        assert runs["counts"] == {"failed": 350, "waiting": 49}
        assert watcher.views["old"]["failures"] == ["it broke"]
        assert watcher.views["gone"] == {"gone": True, "id": "1"}


async def test_a_page_of_another_origin_sees_no_runs(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    server = RunsServer(board_of("1"), network)
    await server.listen()
    place = server.url.replace("http", "ws") + "live"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        headers = ((b"origin", b"http://evil.example"),)
        with pytest.raises(ConnectFailed, match="403"):
            await connect(network, place, subprotocols=[SUBPROTOCOL], headers=headers)
        stream = await network.connect(endpoint_of(place), None)
        async with stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 403 ")
        server.stop()
