"""What agents of all groups ask people, in one list on the page of `up`, and the decisions on it."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Ref, action, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.assembly import NodeOptions
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.errors import StoreFailed
from lmos_actors.live import Do, LiveServer, OwnOperations, open_live
from lmos_actors.node import open_door, open_stages
from lmos_actors.persistence import Batch, Conflict, Durability, MemoryStore
from lmos_actors.security import Access, Security
from lmos_actors.supervision import SupervisorSpec
from lmos_actors.transport import Accept, FrontDoor, MemoryNetwork, endpoint_of
from tests.commands import called
from tests.deployment.places import Script, World, deployed, group
from tests.live.test_groups_view import answered, on_virtual_time, page_at
from tests.live.watching import NAMES, SECURITY, SUBPROTOCOL, Watcher, as_viewer, watching

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from lmos_actors.transport import Connection, Endpoint, Stream


@pytest.fixture(autouse=True)
def _secrets_of_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(f"LIVE_{name.upper()}", f"{name}-token")


AT = "ws://127.0.0.1:7000"
FRONT, BACK = "ws://127.0.0.1:8101", "ws://127.0.0.1:8102"


class Desk(Agent):
    """Asks a person."""

    @action(concurrency=100)
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}?", {"order": order}, key=order)


class Clerk(Agent):
    """Has a desk of another group ask."""

    desk: Ref[Desk]

    @action(concurrency=100)
    async def refund(self, order: str) -> bool:
        return bool(await self.desk.invoke(Desk.refund, order))


class Network(MemoryNetwork):
    """A network that counts the connections to each address."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[str] = []

    async def connect(self, endpoint: Endpoint, tls: Any, **options: Any) -> Stream:
        self.tried.append(f"ws://{endpoint.authority}")
        return await super().connect(endpoint, tls, **options)


def shown_at(**pages: str) -> dict[str, list[Script]]:
    """Return scripts of processes whose pages are at these addresses: front=URL."""
    return {f"{name}/1": [Script(page=f"{url.replace('ws', 'http')}/")] for name, url in pages.items()}


@asynccontextmanager
async def launched(
    network: MemoryNetwork, *, allowed: bool = True, **pages: str
) -> AsyncGenerator[tuple[World, Watcher]]:
    """Run a launcher of groups whose processes have their pages there, and look at its own."""
    page = NodeOptions(listen=AT, network=network, page=True, allow_operations=allowed)
    async with deployed(*map(group, pages), scripts=shown_at(**pages), page=page) as world:
        await world.launcher.wait_ready()
        async with watching(AT, network, ()) as watcher:
            yield world, watcher


def process(network: MemoryNetwork, url: str, **options: Any) -> Any:
    """Return a node that stands for the process of a group, as `up --allow-operations` starts it."""
    return open_node(listen=url, network=network, **{"allow_operations": True, **options})


async def listed(watcher: Watcher, holds: Any = bool, **arguments: Any) -> Any:
    """Look at the list, and wait until something holds of it; return it."""
    watcher.look("approvals", **arguments)
    view = lambda: watcher.views.get("it", {})  # noqa: E731
    await watcher.until(lambda: view() and holds(view()))
    return view()


def waits_for(*texts: str) -> Any:
    """Return whether a view has exactly these questions that wait."""

    def holds(view: Any) -> bool:
        waiting = [each["text"] for each in view["rows"].values() if each["state"] == "waiting"]
        return sorted(waiting) == sorted(texts)

    return holds


def key_of(view: Any, text: str) -> str:
    return next(f"groups/{key}" for key, row in view["rows"].items() if row["text"] == text)


# ---- the list


@on_virtual_time
async def test_near_and_far_questions_of_all_groups_stand_in_one_list_and_are_decided_there() -> None:
    network, got = MemoryNetwork(), list[tuple[str, bool]]()

    async def asks(ref: Ref[Any], verb: Any, order: str) -> None:
        got.append((order, await ref.invoke(verb, order)))

    async with (
        process(network, BACK) as back,
        process(network, FRONT) as front,
        launched(network, front=FRONT, back=BACK) as (world, watcher),
        trio.open_nursery() as nursery,
    ):
        await back.start(Desk)
        far = await front.consume(Desk, "http://127.0.0.1:8102/agents/desk")
        clerk, near = await front.start(Clerk, desk=far), await front.start(Desk)
        nursery.start_soon(asks, near, Desk.refund, "near")
        await trio.sleep(1)
        nursery.start_soon(asks, clerk, Clerk.refund, "far")
        view = await listed(watcher, waits_for("Refund near?", "Refund far?"))
        rows = [view["rows"][key] for key in view["order"]]
        assert [(each["process"], each["agent"]) for each in rows] == [
            ("back/1", "desk"),
            ("front/1", "desk"),
        ]
        assert (view["waiting"], view["apart"], rows[0]["data"]) == (2, {}, '{"order":"far"}')
        watcher.do("approve", key_of(view, "Refund far?"), "a", note="as agreed")
        await watcher.until(lambda: watcher.done)
        assert watcher.done[0]["outcome"] == "approved: desk asks: Refund far?"
        (kept,) = await back.find(Approvals).invoke(Approvals.entries, "decided")
        assert (kept.state, kept.by, kept.note) == ("approved", None, "as agreed")
        refused = await answered(watcher, "refuse", key_of(view, "Refund near?"), "b")
        assert refused["outcome"] == "refused: desk asks: Refund near?"
        view = await listed(watcher, waits_for())
        assert {each["state"] for each in view["rows"].values()} == {"approved", "refused"}
        assert [each.what for each in world.operated] == ["approve", "refuse"]
    assert sorted(got) == [("far", True), ("near", False)]


@on_virtual_time
async def test_nothing_is_asked_while_nobody_looks() -> None:
    network = Network()
    async with launched(network, front=FRONT) as (_, watcher):
        await trio.sleep(60)
        assert FRONT not in network.tried
        await listed(watcher, lambda view: "does not answer" in view["apart"].get("front/1", ""))
        await trio.sleep(20)
        seen = network.tried.count(FRONT)
        assert 9 <= seen <= 11, "every two seconds"
        watcher.send(type="leave", id="it")
        await trio.sleep(5.5)
        seen = network.tried.count(FRONT)
        await trio.sleep(60)
        assert network.tried.count(FRONT) == seen


@on_virtual_time
async def test_a_process_that_hangs_or_is_down_costs_the_others_nothing() -> None:
    network = MemoryNetwork()
    await network.listen(endpoint_of(BACK))  # nobody accepts
    pages = {"front": FRONT, "back": BACK, "down": "ws://127.0.0.1:8103"}
    async with (
        process(network, FRONT) as front,
        launched(network, **pages) as (_, watcher),
        trio.open_nursery() as nursery,
    ):
        desk = await front.start(Desk)
        nursery.start_soon(desk.invoke, Desk.refund, "o-1")
        began = trio.current_time()
        view = await listed(watcher, waits_for("Refund o-1?"))
        assert trio.current_time() - began < 1
        assert view["apart"]["back/1"] == "is being asked"
        view = await listed(watcher, lambda view: view["apart"]["back/1"] != "is being asked")
        assert view["apart"]["back/1"] == "does not answer"
        assert "nothing is listening there" in view["apart"]["down/1"]
        began = trio.current_time()
        for name, id in (("back", "a"), ("down", "b")):
            answer = await answered(watcher, "approve", f"groups/{name}/1/some-id", id)
            assert answer["code"] == "FAILED"
            assert answer["message"].startswith(f"{name}/1 decides nothing: ")
        assert trio.current_time() - began <= 10.5
        assert (await answered(watcher, "approve", key_of(view, "Refund o-1?"), "c"))["type"] == "done"


@on_virtual_time
async def test_a_process_that_ends_is_out_of_the_list_until_it_is_there_again() -> None:
    network, store = MemoryNetwork(), MemoryStore()
    async with launched(network, front=FRONT) as (_, watcher):
        async with process(network, FRONT, store=store) as front, trio.open_nursery() as nursery:
            desk = await front.start(Desk)
            nursery.start_soon(desk.invoke, Desk.refund, "o-1")
            await listed(watcher, waits_for("Refund o-1?"))
            nursery.cancel_scope.cancel("its caller ends, too")
        view = await listed(watcher, lambda view: view["apart"])
        assert (view["rows"], view["waiting"]) == ({}, 0)
        async with process(network, FRONT, store=store) as front:
            await front.start(Desk)
            view = await listed(watcher, waits_for("Refund o-1?"))
            assert (view["apart"], [each["awaited"] for each in view["rows"].values()]) == ({}, [False])
            kept = await answered(watcher, "approve", key_of(view, "Refund o-1?"))
            assert kept["outcome"].endswith("; no call waits for it: it is kept for the next one")


@on_virtual_time
async def test_what_waits_in_one_process_pushes_out_nothing_of_the_others() -> None:
    network = MemoryNetwork()
    async with (
        process(network, BACK) as back,
        process(network, FRONT) as front,
        launched(network, front=FRONT, back=BACK) as (_, watcher),
        trio.open_nursery() as nursery,
    ):
        few, many = await front.start(Desk), await back.start(Desk)
        nursery.start_soon(few.invoke, Desk.refund, "first of all")
        await trio.sleep(1)
        for number in range(70):
            nursery.start_soon(many.invoke, Desk.refund, f"o-{number}")
        view = await listed(watcher, lambda view: view["waiting"] == 71)
        assert len(view["order"]) == 51, "50 of each process"
        view = await listed(watcher, lambda view: len(view["order"]) == 3, rows=3)
        assert view["rows"][view["order"][-1]]["text"] == "Refund first of all?"
        nursery.cancel_scope.cancel("seen")


@on_virtual_time
async def test_of_many_processes_the_first_64_are_looked_at() -> None:
    network = Network()
    page = NodeOptions(listen=AT, network=network, page=True, allow_operations=True)
    usual = Script(page="http://127.0.0.1:8101/")
    async with deployed(group("front", 67), usual=usual, page=page) as world:
        await world.launcher.wait_ready()
        async with watching(AT, network, ()) as watcher:
            view = await listed(watcher, lambda view: len(view["apart"]) == 64)
            assert view["left_out"] == 3


@on_virtual_time
async def test_where_a_process_is_not_asked_the_list_says_why() -> None:
    network = Network()
    pages = {"far": "ws://192.0.2.1:80", "odd": "ws://127.0.0.1:80/?x=", "shut": FRONT, "own": AT}
    async with (
        process(network, FRONT, allow_operations=False),
        launched(network, **pages) as (world, watcher),
    ):
        await world.launcher.stop_all(world.launcher.group("odd"))
        view = await listed(
            watcher, lambda view: view["apart"].get("shut/1", "is being asked") != "is being asked"
        )
        assert view["apart"] == {
            "far/1": "has no page of its own at an address of this machine alone",
            "odd/1": "is stopped",
            "own/1": "has no page of its own at an address of this machine alone",
            "shut/1": "lets nobody decide: its group has no `allow_operations`",
        }
        assert set(network.tried) <= {AT, FRONT}
        gone = await answered(watcher, "approve", "groups/odd/1/x", "a")
        assert (gone["code"], gone["message"]) == ("GONE", "odd/1 is stopped: nothing is decided")


# ---- who may


@on_virtual_time
async def test_access_rules_of_a_group_hold_against_the_launcher() -> None:
    network = MemoryNetwork()
    rules = Security(schemes=SECURITY.schemes, access={"desk": Access(invoke=("ann",), approve=("ann",))})
    async with (
        process(network, BACK, security=rules, allow_operations=False) as back,
        launched(network, back=BACK) as (_, watcher),
        trio.open_nursery() as nursery,
    ):
        desk = await back.start(Desk)
        nursery.start_soon(desk.invoke, Desk.refund, "o-1")
        view = await listed(
            watcher, lambda view: view["apart"].get("back/1", "is being asked") != "is being asked"
        )
        assert view["apart"]["back/1"].startswith("has access rules: log in at its own page")
        assert (view["rows"], view["waiting"]) == ({}, 0)
        (found,) = await back.find(Approvals).invoke(Approvals.entries)
        answer = await answered(watcher, "approve", f"groups/back/1/{found.id}")
        assert (answer["code"], "decides nothing" in answer["message"]) == ("FAILED", True)
        assert len(await back.find(Approvals).invoke(Approvals.entries)) == 1
        nursery.cancel_scope.cancel("seen")


@pytest.mark.parametrize("proxied", [False, True])
def test_it_takes_allow_operations_and_this_machine(proxied: bool) -> None:
    async def world() -> None:
        network = Network()
        headers = ((b"x-forwarded-for", b"192.0.2.1"),) if proxied else ()
        async with (
            process(network, FRONT),
            launched(network, allowed=proxied, front=FRONT),
            watching(AT, network, headers) as watcher,
        ):
            assert "approvals" not in watcher.hello["views"]
            view = await listed(watcher)
            assert (view["rows"], view["waiting"]) == ({}, 0)
            answer = await answered(watcher, "approve", "groups/front/1/x")
            assert answer["code"] == ("FORBIDDEN" if proxied else "UNKNOWN")
            await trio.sleep(10)
            assert FRONT not in network.tried

    on_virtual_time(world)()


async def test_a_decision_takes_the_right_to_approve(virtual_clock: trio.testing.MockClock) -> None:
    async def decide(do: Do) -> str:
        return f"{do.note} {do.answer}"

    network = MemoryNetwork()
    rules = {"groups.front*": Access(operate=("ann",), approve=("bob",))}
    page = page_at(network, Security(schemes=SECURITY.schemes, access=rules))
    own = OwnOperations({}, lambda path: [], {"approve": decide})
    at = NodeOptions(listen="ws://127.0.0.1:1", network=MemoryNetwork(), page=False)
    async with open_stages(SupervisorSpec("root", ()), at) as stages:
        await open_door(stages, page, LiveServer(own))
        for who, kind in (("ann", "error"), ("bob", "done")):
            async with watching(AT, network, as_viewer(who)) as watcher:
                watcher.do("approve", "groups/front/1/x", note="n", answer="{}")
                answer = (await watcher.until(lambda each=watcher: each.done + each.errors))[0]  # type: ignore[misc]
                assert (answer["type"], answer.get("outcome", "n {}")) == (kind, "n {}")


async def test_long_answers_are_not_kept_and_come_again_as_they_were(
    virtual_clock: trio.testing.MockClock,
) -> None:
    async def decide(do: Do) -> str:
        return do.answer[-2:]

    network = MemoryNetwork()
    page = NodeOptions(listen=AT, network=network, page=True, allow_operations=True)
    own = OwnOperations({}, lambda path: [], {"approve": decide})
    at = NodeOptions(listen="ws://127.0.0.1:1", network=MemoryNetwork(), page=False)
    async with open_stages(SupervisorSpec("root", ()), at) as stages:
        await open_door(stages, page, LiveServer(own))
        async with watching(AT, network, ()) as watcher:
            tracemalloc.start()
            for number in range(60):
                watcher.do("approve", "groups/a/1/x", str(number), answer=f"{number:0200000}")
                await watcher.until(lambda number=number: len(watcher.done) > number)  # type: ignore[misc]
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert size < 3_000_000
            watcher.do("approve", "groups/a/1/x", "7", answer=f"{7:0200000}")
            await watcher.until(lambda: len(watcher.done) > 60)
            assert (watcher.done[-1]["id"], watcher.done[-1]["outcome"]) == ("7", "07")
            watcher.do("approve", "groups/a/1/x", "7", answer=f"{8:0200000}")
            assert (await watcher.until(lambda: watcher.errors))[0]["code"] == "ID_TAKEN"


# ---- decisions


@on_virtual_time
async def test_of_two_people_who_decide_at_once_one_wins_and_the_other_is_told() -> None:
    network = MemoryNetwork()
    async with (
        process(network, BACK) as back,
        launched(network, back=BACK) as (_, one),
        watching(AT, network, ()) as other,
        trio.open_nursery() as nursery,
    ):
        desk = await back.start(Desk)
        nursery.start_soon(desk.invoke, Desk.refund, "o-1")
        key = key_of(await listed(one, waits_for("Refund o-1?")), "Refund o-1?")
        one.do("approve", key, "a")
        other.do("refuse", key, "b")
        both = [
            (await each.until(lambda each=each: each.done + each.errors))[0]  # type: ignore[misc]
            for each in (one, other)
        ]
        lost = next(each for each in both if each["type"] == "error")
        won = next(each for each in both if each["type"] == "done")
        (kept,) = await back.find(Approvals).invoke(Approvals.entries, "decided")
        assert won["outcome"] == f"{kept.state}: desk asks: Refund o-1?"
        assert (lost["code"], lost["message"]) == ("DECIDED", f"somebody has {kept.state} it already")
        again = await answered(one, "approve", key.replace("/back/1/", "/back/1/x"), "c")
        assert again["code"] == "UNKNOWN"


class Failing(MemoryStore):
    """A store that fails on demand."""

    fails = False

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        if self.fails:
            raise StoreFailed(self.name, "it is full", "make room")
        return super().commit(batches, durability)


@on_virtual_time
async def test_what_a_process_has_not_kept_is_not_reported_as_decided() -> None:
    network, store = MemoryNetwork(), Failing()
    async with (
        process(network, BACK, store=store) as back,
        launched(network, back=BACK) as (_, watcher),
        trio.open_nursery() as nursery,
    ):
        desk = await back.start(Desk)
        nursery.start_soon(desk.invoke, Desk.refund, "o-1")
        key = key_of(await listed(watcher, waits_for("Refund o-1?")), "Refund o-1?")
        wrongs = [("{", "ANSWER_INVALID"), ('{"a": 1}', "ANSWER_INVALID"), ("[1]", "FAILED")]
        wrongs += [("[" * levels + "]" * levels, "ANSWER_INVALID") for levels in (66, 9_000)]
        for number, (answer, code) in enumerate(wrongs):
            watcher.do("approve", key, f"a{number}", answer=answer)
            wrong = (await watcher.until(lambda: watcher.errors)).pop()
            assert (wrong["code"], "has not said" in wrong["message"]) == (code, False)
        store.fails = True
        assert (await answered(watcher, "approve", key, "b"))["code"] == "STORE_FAILED"
        await listed(watcher, waits_for("Refund o-1?"))
        store.fails = False
        await trio.sleep(60)  # until the writer has tried again
        assert (await answered(watcher, "approve", key, "c"))["type"] == "done"


class Stuck(Agent):
    """Stands for `approvals` of a process that is killed while it keeps a decision."""

    begun: trio.Event

    @action(name="approve")
    async def keep(self, id: str, note: str) -> None:
        self.begun.set()
        await trio.sleep_forever()


class Confused(Agent):
    """Stands for `approvals` of a process that answers something else."""

    @action(name="approve")
    def keep(self, id: str, note: str) -> dict[str, int]:
        return {"state": 7}


@on_virtual_time
async def test_an_odd_answer_to_a_decision_is_none() -> None:
    network = MemoryNetwork()
    async with process(network, BACK, allow_operations=False) as back, launched(network, back=BACK) as world:
        await back.start_child(ChildSpec("approvals", Confused))
        answer = await answered(world[1], "approve", "groups/back/1/x")
        said = "what its process answers cannot be read: the list shows whether it is decided"
        assert (answer["code"], answer["message"]) == ("FAILED", said)


@pytest.mark.parametrize("killed", [True, False])
def test_a_process_that_is_killed_while_it_keeps_a_decision(killed: bool) -> None:
    async def world() -> None:
        network, begun = MemoryNetwork(), trio.Event()
        async with launched(network, back=BACK) as (_, watcher):
            async with process(network, BACK, allow_operations=False) as back:
                await back.start_child(ChildSpec("approvals", partial(Stuck, begun=begun)))
                watcher.do("approve", "groups/back/1/x")
                await begun.wait()
                if killed:
                    back.force_stop()
                else:
                    await watcher.until(lambda: watcher.errors)
            (answer,) = await watcher.until(lambda: watcher.errors)
            assert (answer["code"], watcher.done) == ("FAILED", [])
            assert answer["message"].startswith("back/1 has not said whether it has kept the decision: ")

    on_virtual_time(world)()


# ---- processes that send what they should not


ROW = {"id": "x", "agent": "desk", "text": "?", "state": "waiting", "asked": 1.0, "expires": 2.0}
SHOWN = {"waiting": 1, "order": ["x"], "rows": {"x": ROW}}
HELLO = {"type": "hello", "software": "s", "node": "n", "started": 1.0, "rights": ["approve"]}
DEEP: Any = {"a": 1}
for _ in range(65):
    DEEP = {"a": DEEP}
SENT: dict[str, Any] = {
    "a form without an end": {**SHOWN, "rows": {"x": {**ROW, "form": DEEP}}},
    "a number without an end": {**SHOWN, "waiting": 2**63},
    "objects without an end": b'{"type": "changes", "patches": {"asked": ' + b'{"a": ' * 9_000,
    "no object": 5,
    "a negative number": {**SHOWN, "waiting": -1},
    "a row that lacks something": {**SHOWN, "rows": {"x": {"id": "x"}}},
    "a text that is none": {**SHOWN, "rows": {"x": {**ROW, "text": 7}}},
    "a time that is none": {**SHOWN, "rows": {"x": {**ROW, "asked": "now"}}},
    "too much": {**SHOWN, "rows": {"x": {**ROW, "text": "x" * (1 << 20)}}},
}


class Odd:
    """The live view of a process, which sends one state, whatever it is asked."""

    def __init__(self, sent: Any) -> None:
        changes = {"type": "changes", "number": 1, "time": 0.0}
        is_whole = isinstance(sent, bytes)
        self._sent = sent if is_whole else json.dumps({**changes, "patches": {"asked": sent}}).encode()
        self._out = [json.dumps(HELLO).encode()]

    async def serve(self, connection: Connection) -> None:
        self._connection = connection
        connection.wake()
        await connection.run(self)

    def text(self, text: str) -> None:
        if json.loads(text)["type"] == "look":
            self._out.append(self._sent)
            self._connection.wake()

    def binary(self, data: bytes) -> None:
        pass

    def frames(self, room: int) -> list[bytes]:
        found, self._out = self._out, []
        return found


@asynccontextmanager
async def beside(sent: Any) -> AsyncGenerator[Watcher]:
    """Look at the list of a process that sends something odd, and of one whose desk asks a person."""
    network = MemoryNetwork()

    def fail(error: BaseException) -> None:
        raise error

    def route(_: Any) -> Accept:
        return Accept(SUBPROTOCOL, Odd(sent).serve)

    door = FrontDoor(await network.listen(endpoint_of(BACK)), route=route, on_failure=fail)
    async with trio.open_nursery() as nursery, process(network, FRONT) as front:
        await nursery.start(door.serve)
        desk = await front.start(Desk)
        nursery.start_soon(desk.invoke, Desk.refund, "o-1")
        async with launched(network, back=BACK, front=FRONT) as (_, watcher):
            yield watcher
        nursery.cancel_scope.cancel("seen")


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_a_process_that_shows_what_is_to_harm_the_list(sent: object) -> None:
    why = "does not answer" if isinstance(sent, bytes) else "shows what cannot be read"

    async def world() -> None:
        async with beside(sent) as watcher:
            view = await listed(watcher, waits_for("Refund o-1?"))
            view = await listed(watcher, lambda view: view["apart"].get("back/1") != "is being asked")
            assert view["apart"] == {"back/1": why}
            await listed(watcher, waits_for("Refund o-1?"))
            assert watcher.errors == []

    on_virtual_time(world)()


LARGE = {**SHOWN, "rows": {"x": {**ROW, "text": "x" * 900_000}}}
TWICE = {**SHOWN, "order": ["x"] * 100_000}


@pytest.mark.parametrize(("sent", "rows"), [(LARGE, 1), (TWICE, 2)], ids=["large", "twice"])
def test_a_row_of_a_process_takes_no_room_of_the_others(sent: object, rows: int) -> None:
    async def world() -> None:
        async with beside(sent) as watcher:
            view = await listed(watcher, lambda view: view["waiting"] == 2)
            texts = [row["text"] for row in view["rows"].values()]
            assert (len(texts), "Refund o-1?" in texts) == (rows, True)

    on_virtual_time(world)()


# ---- how `up` starts processes, and a real one

DESKS = """
from lmos_actors import Agent


class Desk(Agent):
    def started(self) -> None:
        self.nursery.start_soon(self.ask)

    async def ask(self) -> None:
        print(f"{self.path} is approved: {await self.approve(f'Open {self.path}', key='open')}", flush=True)
"""

FILE = """
lmos: deployment/v1
name: desk
agents:
  desk: {from: agent, use: "desks.py:Desk"}
  till: {from: agent, use: "desks.py:Desk"}
  vault: {from: agent, use: "desks.py:Desk"}
groups:
  front: {agents: [desk]}
  back: {agents: [till]}
  safe: {agents: [vault], security: security.yaml}
"""

RULES = """
schemes: [{scheme: bearer, tokens: {alice: "file:alice"}}]
access: {vault: {approve: [alice]}}
"""


@pytest.fixture
def project(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    files = {
        "desks.py": DESKS,
        "desk.yaml": FILE,
        "security.yaml": RULES,
        "pyproject.toml": "",
        "alice": "a-token",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    return tmp_path


@pytest.mark.parametrize("key", ["", "public_url: https://desk.example", "security: security.yaml"])
def test_groups_that_ask_nobody_who_they_are_are_opened_to_this_machine(project: Path, key: str) -> None:
    text = FILE.replace("{agents: [desk]}", f"{{agents: [desk], {key}}}")
    (project / "desk.yaml").write_text(text, encoding="utf-8")
    deployment = load_deployment(str(project / "desk.yaml"), classes=False).deployment
    for operations in (True, False):
        plan = launch_plan(deployment, "desk.yaml", operations=operations)
        opened = [each.name for each in plan.groups if "--allow-operations" in each.arguments]
        assert opened == ([*([] if key else ["front"]), "back"] if operations else [])


@pytest.mark.slow
def test_real_processes_are_asked_and_decide(project: Path) -> None:
    call = partial(called, folder=project, timeout=50)
    assert call(("up", "desk.yaml", "--detach", "--allow-operations")).returncode == 0

    async def decide() -> None:
        page = json.loads(call(("status", "desk.yaml", "--json")).stdout)["page"]
        async with open_live(page) as viewer:
            viewer.look("asked", "approvals")
            while (
                len((view := viewer.views.get("asked", {"rows": {}}))["rows"]) < 2
                or "safe/1" not in view["apart"]
            ):
                await viewer.wait()
            assert view["apart"]["safe/1"].startswith("has access rules")
            keys = {row["text"]: f"groups/{key}" for key, row in view["rows"].items()}
            viewer.do("a", "approve", keys["Open desk"])
            viewer.do("b", "refuse", keys["Open till"])
            while len(viewer.done) < 2:
                await viewer.wait()
                assert viewer.errors == []

    try:
        trio.run(decide)
        assert "desk is approved: True" in call(("logs", "front")).stdout
        assert "till is approved: False" in call(("logs", "back")).stdout
    finally:
        call(("down", "desk.yaml"))
