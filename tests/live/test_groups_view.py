"""The page of a deployment, by its protocol: groups, what processes print, operations; who may what."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors.assembly import NodeOptions
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.live import open_live
from lmos_actors.security import Access, Security
from lmos_actors.transport import MemoryNetwork, connect
from tests.deployment.places import Script, World, deployed, group
from tests.live.watching import SECURITY, as_viewer, watching
from tests.security.nodes.guarded import all_of, answer_in
from tests.supervision.world import run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tests.live.watching import Watcher

AT = "ws://127.0.0.1:7000"
SOME = Security(
    schemes=SECURITY.schemes,
    access={
        "groups.weather*": Access(inspect=("ann", "bob", "eve"), operate=("ann", "eve")),
        "*": Access(inspect=("ann", "bob"), operate=("ann",)),
    },
)
PAGE = "http://10.0.0.7:8123/"
SAYS = Script(
    url="ws://10.0.0.7:8123", page=PAGE, prints=("one", '{"event":"agent"}', "\x1b[31mtwo\x1b[0m\a")
)
DIES = Script(ends=3.0, says="RuntimeError: the password is swordfish")


def page_at(network: MemoryNetwork, security: Security | None = SOME, **options: Any) -> NodeOptions:
    return NodeOptions(listen=AT, network=network, security=security, page=True, **options)


def on_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in a simulated world."""

    def test_run() -> None:
        run(test)

    test_run.__name__, test_run.__doc__ = test.__name__, test.__doc__
    return test_run


@asynccontextmanager
async def looked_at(
    *groups: Any, viewer: str = "ann", **options: Any
) -> AsyncGenerator[tuple[World, Watcher, MemoryNetwork]]:
    """Run a launcher whose groups are ready, and look at its page."""
    network = MemoryNetwork()
    async with deployed(*groups, page=page_at(network), **options) as world:
        await world.launcher.wait_ready()
        async with watching(AT, network, as_viewer(viewer)) as watcher:
            yield world, watcher, network


async def answered(watcher: Watcher, what: str, path: str, id: str = "d1") -> Any:
    """Ask for an operation, and wait for its answer."""
    watcher.do(what, path, id)
    both = lambda: [each for each in (*watcher.done, *watcher.errors) if each.get("id") == id]  # noqa: E731
    return (await watcher.until(both))[0]


# ---- what is seen


@on_virtual_time
async def test_groups_and_processes_with_their_pages_and_lines() -> None:
    weather = group("weather", 2, content="0123456789abcdef")
    async with looked_at(weather, group("front"), usual=SAYS) as (world, watcher, _):
        assert {"groups", "logs", "tree", "audit"} <= set(watcher.hello["views"])
        assert not {"chats", "approvals"} & set(watcher.hello["views"])
        assert watcher.hello["operations"] == ["restart", "roll", "stop"]
        watcher.look("groups")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["order"] == ["weather", "weather/1", "weather/2", "front", "front/1"]
        assert view["rows"]["weather"] == {
            "kind": "group",
            "wanted": 2,
            "processes": 2,
            "ready": 2,
            "restarts": 0,
            "version": "01234567",
            "operations": ["restart", "roll", "stop"],
        }
        first = view["rows"]["weather/1"]
        assert (first["state"], first["generation"], first["page"]) == ("ready", 1, PAGE)
        assert (first["version"], first["operations"]) == ("01234567", ["restart", "stop"])
        watcher.look("logs", "lines", process="weather/2")
        lines = await watcher.until(lambda: watcher.views.get("lines", {}).get("rows"))
        assert [(each["process"], each["text"]) for each in lines.values()] == [
            ("weather/2", "one"),
            ("weather/2", "two\\x07"),
        ]
        numbers = set(lines)
        await world.launcher.logs.write("weather/2", ["three"])
        more = await watcher.until(lambda: set(watcher.views["lines"]["rows"]) - numbers)
        patches = watcher.changes[-1]["patches"]["lines"]["rows"]
        assert (set(patches), len(more)) == (more, 1), "only what has come is sent"


@on_virtual_time
async def test_a_change_under_way_shows_which_processes_are_of_the_version_before() -> None:
    async with looked_at(group("weather", 2, content="a" * 16)) as (world, watcher, _):
        watcher.look("groups")
        await watcher.until(lambda: watcher.views.get("it"))
        found = world.launcher.group("weather")
        found.plan = attrs.evolve(found.plan, content="b" * 16)
        watcher.do("roll", "groups/weather")
        rows = lambda: watcher.views["it"]["rows"]  # noqa: E731
        await watcher.until(lambda: rows()["weather/1"]["version"] == "b" * 8)
        assert rows()["weather/2"]["version"] == "a" * 8
        assert rows()["weather"]["rollout"] == {"step": "starting", "processes": [1]}
        assert watcher.views["it"]["doing"] == "restart --rolling weather"
        await watcher.until(lambda: watcher.done)
        await watcher.until(lambda: "rollout" not in rows()["weather"])


@on_virtual_time
async def test_without_security_states_are_seen_and_nothing_that_processes_print() -> None:
    network = MemoryNetwork()
    scripts = {"weather/1": [DIES, Script()]}
    async with deployed(group("weather"), scripts=scripts, page=page_at(network, None)) as world:
        await trio.sleep(10)
        assert "swordfish" in world.replica("weather/1").why
        async with watching(AT, network, ()) as watcher:
            assert "groups" in watcher.hello["views"]
            assert not {"logs", "audit", "crashes", "agent"} & set(watcher.hello["views"])
            watcher.look("groups")
            view = await watcher.until(lambda: watcher.views.get("it"))
            row = view["rows"]["weather/1"]
            assert (row["restarts"], "why" in row, "operations" in row) == (1, False, False)
            watcher.look("logs", "lines")
            refused = await watcher.until(lambda: watcher.errors)
            assert refused[0]["code"] == "FORBIDDEN"
            for what in ("restart", "roll", "stop"):
                answer = await answered(watcher, what, "groups/weather", what)
                assert (answer["type"], answer["code"]) == ("error", "FORBIDDEN")
        assert world.launcher.groups["weather"].members[1].generation == 2
        assert "swordfish" not in str(watcher.changes)


@on_virtual_time
async def test_who_has_rights_over_one_group_sees_and_runs_that_alone() -> None:
    scripts = {"front/1": [DIES, SAYS], "weather/1": [SAYS]}
    async with looked_at(group("weather"), group("front"), viewer="eve", scripts=scripts) as (_, watcher, _):
        await trio.sleep(10)
        watcher.look("groups")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["order"] == ["weather", "weather/1"]
        watcher.look("logs", "lines")
        lines = await watcher.until(lambda: watcher.views.get("lines", {}).get("rows"))
        assert {each["process"] for each in lines.values()} == {"weather/1"}
        assert (await answered(watcher, "restart", "groups/front", "a"))["code"] == "FORBIDDEN"
        assert (await answered(watcher, "restart", "groups/weather", "b"))["type"] == "done"


@on_virtual_time
async def test_who_may_look_and_not_operate_is_offered_nothing() -> None:
    async with looked_at(group("weather"), viewer="bob") as (_, watcher, _):
        watcher.look("groups")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert not any("operations" in row for row in view["rows"].values())
        assert (await answered(watcher, "stop", "groups/weather/1"))["code"] == "FORBIDDEN"


@on_virtual_time
async def test_an_address_that_is_none_of_a_page_is_no_link() -> None:
    odd = ("javascript:alert(1)", "data:text/html,x", "//evil.example/", f"http://{'a' * 300}/")
    scripts = {f"weather/{number}": [Script(page=url)] for number, url in enumerate(odd, start=1)}
    async with looked_at(group("weather", len(odd)), scripts=scripts) as (_, watcher, _):
        watcher.look("groups")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert not any("page" in row for row in view["rows"].values())


@on_virtual_time
async def test_a_process_that_prints_what_is_to_harm_its_launcher() -> None:
    deep = '{"event":' + "[" * 15_000
    many = tuple(f'{{"event":"listening","url":"ws://10.0.0.7:{n}/ws"}}' for n in range(500))
    odd = ('{"event":"listening","url":"ws://\\u001b[2Jx"}', f'{{"event":"listening","url":"{"a" * 9_000}"}}')
    says = f"\x1b[31mRuntimeError\x1b[0m: \x1b]0;title\x07\u202e{'x' * 5_000}"
    script = Script(prints=(deep, *odd, *many), ends=30.0, says=says)
    async with looked_at(group("weather"), scripts={"weather/1": [script]}) as (_, watcher, _):
        watcher.look("groups")
        row = lambda: watcher.views.get("it", {}).get("rows", {}).get("weather/1")  # noqa: E731
        ready = await watcher.until(lambda: row() and row().get("urls") and row())
        assert (ready["state"], ready["restarts"]) == ("ready", 0)
        assert ready["urls"] == [f"ws://10.0.0.7:{n}" for n in range(8)]
        await watcher.until(lambda: row()["restarts"])
        assert "RuntimeError: \\x1b]0;title\\x07\\u202exx" in row()["why"]
        assert len(row()["why"]) < 600


@on_virtual_time
async def test_who_has_rights_over_one_group_is_not_told_of_others() -> None:
    async with looked_at(group("weather"), group("front"), viewer="eve") as (world, watcher, network):
        watcher.look("groups")
        async with watching(AT, network) as other:
            other.do("roll", "groups/front")
            await other.until(lambda: other.progress)
            assert world.launcher.doing == "restart --rolling front"
            watcher.do("restart", "groups/weather")
            await watcher.until(lambda: watcher.progress)
            assert "front" not in watcher.progress[0]["text"]
            world.launcher.groups["weather"].members[1].restarts += 1
            rows = lambda: watcher.views.get("it", {}).get("rows", {})  # noqa: E731
            await watcher.until(lambda: rows() and rows()["weather/1"]["restarts"])
            assert "doing" not in watcher.views["it"]
            await other.until(lambda: other.done)


# ---- what is done


@on_virtual_time
async def test_a_group_is_rolled_with_its_progress_and_kept_in_the_audit_log() -> None:
    async with looked_at(group("weather", 2), group("front")) as (world, watcher, _):
        world.place.take()
        answer = await answered(watcher, "roll", "groups/weather")
        assert answer["outcome"] == "weather: 1 replaced by 1; weather: 2 replaced by 2"
        told = [each["text"] for each in watcher.progress]
        assert told == ["has begun", "weather: 1 replaced by 1", "weather: 2 replaced by 2"]
        steps = [line.split(" ", 1)[1] for line in world.place.take()]
        both = [f"{what} weather/{number}" for number in (1, 2) for what in ("stop", "end", "start", "ready")]
        assert steps == both
        watcher.look("audit")
        rows = (await watcher.until(lambda: watcher.views.get("it")))["rows"].values()
        (row,) = rows
        assert (row["who"], row["what"], row["path"]) == ("ann", "roll", "groups/weather")
        assert (row["state"], row["outcome"]) == ("done", answer["outcome"])
        assert [(each.who, each.what, each.state) for each in world.operated] == [("ann", "roll", "done")]


@on_virtual_time
async def test_one_process_is_restarted_and_stopped_and_the_others_stay() -> None:
    async with looked_at(group("weather", 3)) as (world, watcher, _):
        world.place.take()
        restarted = await answered(watcher, "restart", "groups/weather/2", "a")
        assert restarted["outcome"] == "weather/2: stopped, and started again; weather/2: ready"
        stopped = await answered(watcher, "stop", "groups/weather/3", "b")
        assert stopped["outcome"] == "weather/3: stopped"
        await trio.sleep(30)
        assert world.states() == {"weather/1": "ready", "weather/2": "ready", "weather/3": "stopped"}
        assert not any("weather/1" in line for line in world.place.take())
        watcher.look("groups")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["rows"]["weather/3"]["operations"] == ["restart"]
        assert (await answered(watcher, "restart", "groups/weather/3", "c"))["type"] == "done"
        assert world.states()["weather/3"] == "ready"


@on_virtual_time
async def test_a_group_is_stopped_and_started_again() -> None:
    async with looked_at(group("weather", 2), group("front")) as (world, watcher, _):
        assert (await answered(watcher, "stop", "groups/weather", "a"))["outcome"] == "weather: stopped"
        assert set(world.states().values()) == {"stopped", "ready"}
        outcome = (await answered(watcher, "restart", "groups/weather", "b"))["outcome"]
        assert outcome == "weather: stopped, and started again; weather: ready"
        assert set(world.states().values()) == {"ready"}


@on_virtual_time
async def test_operations_wait_for_what_is_under_way_and_say_why_they_fail() -> None:
    scripts = {"weather/1": [Script(), Script(ends=0.5, says="SyntaxError: oops")]}
    async with looked_at(group("weather"), group("front"), scripts=scripts) as (_, watcher, _):
        watcher.do("roll", "groups/weather", "a")
        await watcher.until(lambda: watcher.progress)
        answer = await answered(watcher, "restart", "groups/front/1", "b")
        assert watcher.progress[1]["text"] == "waits for what was asked before"
        failed = watcher.errors[0]
        assert (failed["id"], failed["code"], answer["type"]) == ("a", "FAILED", "done")
        assert "weather/1 did not become ready" in failed["message"]
        assert "oops" in failed["message"]


@on_virtual_time
async def test_what_a_process_has_printed_is_no_answer_for_who_may_not_see_it() -> None:
    dies = [Script(), Script(ends=0.5, says="the password is swordfish"), Script()]
    rights = {"*": Access(operate=("bob",)), "front*": Access()}
    security = Security(schemes=SECURITY.schemes, access=rights)
    network = MemoryNetwork()
    options: dict[str, Any] = {"scripts": {"weather/1": dies}, "page": page_at(network, security)}
    async with deployed(group("weather"), **options) as world:
        await world.launcher.wait_ready()
        async with watching(AT, network, as_viewer("bob")) as watcher:
            answer = await answered(watcher, "restart", "groups/weather/1")
            assert (answer["code"], "inspect" in answer["message"]) == ("FAILED", True)
            again = await answered(watcher, "restart", "groups/weather/1")
            assert "swordfish" not in repr((watcher.errors, watcher.progress, again))


@on_virtual_time
async def test_a_group_that_was_taken_out_and_put_back_while_an_operation_waited() -> None:
    async with looked_at(group("weather"), group("front")) as (world, watcher, _):
        plan = world.launcher.plan
        async with world.launcher.at_work("up"):
            watcher.do("roll", "groups/weather")
            await watcher.until(lambda: watcher.progress)
            assert watcher.progress[0]["text"] == "waits for what was asked before"
            weather, front = plan.groups
            fresh = attrs.evolve(weather, arguments=("serve", "another.yaml"))
            for groups in ((front,), (fresh, front)):
                async for _ in world.launcher.apply(attrs.evolve(plan, groups=groups)):
                    pass
        answer = (await watcher.until(lambda: watcher.done + watcher.errors))[0]
        assert answer["type"] == "done"
        assert "another.yaml" in world.place.orders[-1].arguments


@on_virtual_time
async def test_a_path_that_names_no_group_and_no_process_is_refused() -> None:
    async with looked_at(group("weather")) as (world, watcher, _):
        world.place.take()
        paths = {
            "": "INVALID",
            "control/launcher": "INVALID",
            "groups": "INVALID",
            "groups/weather/1/x": "INVALID",
            "groups/rain": "GONE",
            "groups/weather/2": "GONE",
            "groups/weather/01": "GONE",
            "groups/weather/²": "GONE",
            f"groups/weather/{'9' * 4000}": "GONE",
        }
        for number, (path, code) in enumerate(paths.items()):
            assert (await answered(watcher, "stop", path, f"a{number}"))["code"] == code, path
        assert (await answered(watcher, "roll", "groups/weather/1", "b"))["code"] == "INVALID"
        for what in ("drain", "hold", "release"):
            assert (await answered(watcher, what, "groups/weather", what))["code"] == "UNKNOWN"
        assert world.place.take() == []


@on_virtual_time
async def test_the_page_shows_the_end_and_goes_with_it() -> None:
    async with looked_at(group("weather", drain=5.0), usual=Script(drains=3.0)) as (world, watcher, network):
        watcher.look("groups")
        await watcher.until(lambda: watcher.views.get("it"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.launcher.stop)
            rows = lambda: watcher.views["it"]["rows"]  # noqa: E731
            await watcher.until(lambda: rows()["weather/1"]["state"] == "draining")
            refused = await answered(watcher, "restart", "groups/weather")
            assert (refused["code"], "ending" in refused["message"]) == ("FAILED", True)
            await watcher.until(lambda: rows()["weather/1"]["state"] == "stopped")
    with pytest.raises(ConnectFailed):
        async with open_live(AT, network=network, headers=as_viewer("ann")):
            pass


# ---- who is let in, and to what


@on_virtual_time
async def test_agents_are_not_reached_at_the_address_of_the_page() -> None:
    network = MemoryNetwork()
    async with deployed(group("weather"), page=page_at(network, None)) as world:
        launcher = "/agents/control.launcher"
        for path in ("/agents", launcher, f"{launcher}/actions/down", "/readyz"):
            stream = await network.connect(page_at(network).endpoints[0], None)
            lines = ("host: 127.0.0.1:7000", "connection: close", "content-type: application/json")
            head = "\r\n".join((f"POST {path} HTTP/1.1", *lines, "content-length: 2", "", "{}"))
            async with stream:
                await stream.send_all(head.encode())
                assert answer_in(await all_of(stream)).status == 404, path
        for path in ("/ws", launcher):
            with pytest.raises(ConnectFailed, match="404"):
                await connect(network, f"{AT}{path}", subprotocols=["lmosprotocol"])
        assert not world.launcher.ending.is_set()
        assert world.launcher.status().page == "http://127.0.0.1:7000/"


@on_virtual_time
async def test_who_does_not_log_in_sees_nothing() -> None:
    network = MemoryNetwork()
    async with deployed(group("weather"), page=page_at(network)):
        for headers in ((), as_viewer("nobody")):
            with pytest.raises(ConnectFailed, match="401"):
                async with open_live(AT, network=network, headers=headers):
                    pass


def test_a_page_that_others_reach_needs_security() -> None:
    with pytest.raises(ConfigError, match="not for all who reach"):
        NodeOptions(listen="ws://0.0.0.0:7000", insecure=True, page=True)

    async def main() -> None:
        open_page = NodeOptions(listen="ws://0.0.0.0:7000", network=MemoryNetwork(), page=True)
        with pytest.raises(ConfigError, match="anyone"):
            async with deployed(group("weather"), page=open_page):
                pass

    run(main)
