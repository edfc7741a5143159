"""A node that listens, and one that consumes: where, under which names, and how that ends."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import trio
import trustme
from trio.testing import MockClock

from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    ConfigError,
    Event,
    Node,
    NodeOptions,
    NotFound,
    Pool,
    Property,
    StartFailed,
    SupervisorSpec,
    action,
    event,
    open_node,
    open_node_in_thread,
    prop,
    simulate,
)
from lmos_actors.bindings import LmosServer
from lmos_actors.errors import IdTaken
from lmos_actors.supervision import RESERVED
from lmos_actors.testing import run_test
from lmos_actors.transport import ConnectFailed, ConnectionOptions, MemoryNetwork, endpoint_of
from tests.networks import default_network

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

GOODBYE = 10.0  # seconds that a node waits for its peers to close

URN = "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10"


class Slow(Agent):
    """Takes its time."""

    units: Property[str] = prop(default="celsius")

    @action(concurrency=9)
    async def work(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return f"done by {self.path}"


class Diarist(Agent):
    """Says when it ends."""

    name: str
    diary: list[str]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.diary.append(self.name)

    @action
    async def work(self, seconds: float) -> str:
        await trio.sleep(seconds)
        self.diary.append(f"{self.name} answers")
        return self.name


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


@asynccontextmanager
async def two(**options: Any) -> AsyncGenerator[tuple[Node, Node]]:
    """A node that listens at ws://here:80, and one that is a client of it, which outlives it."""
    async with open_node() as client, open_node(listen="ws://here:80", **options) as node:
        yield node, client


# ---- where it listens


def test_an_agent_is_reached_by_its_description_and_by_its_address() -> None:
    async def main() -> None:
        async with two() as (node, client):
            near = await node.start(Slow)
            assert node.urls == ("ws://here",)
            for source in (
                "http://here/agents/slow",
                "http://here",
                "ws://here/agents/slow",
                "http://here/slow",
            ):
                far = await client.consume(Slow, source)
                assert await far.invoke(Slow.work, 1.0) == "done by slow"
                await far.write(Slow.units, source)
                assert await near.read(Slow.units) == source
            thing = await client.consume_thing("http://here/agents/slow")
            assert await thing.invoke("work", {"seconds": 0.5}) == "done by slow"
            assert node.connections == 2  # one for each address, whatever number of refs

    run(main)


def test_everything_in_the_tree_is_served_under_its_path() -> None:
    tree = SupervisorSpec(
        "root",
        [
            SupervisorSpec("desk", [ChildSpec("one", Slow, id=URN)]),
            Pool(Slow, 2, name="pool"),
            ChildSpec("two", Slow),
        ],
    )

    async def main() -> None:
        async with open_node() as client, open_node(tree, listen="ws://here:80"):
            for name in ("desk.one", "pool", "two"):
                far = await client.consume(Slow, f"http://here/agents/{name}")
                assert (await far.invoke(Slow.work, 0.1)).startswith(f"done by {name.replace('.', '/')}")
            for thing_id in (None, "desk.one"):
                with pytest.raises(ConfigError, match=r"; it links to http://here/agents/desk\.one, "):
                    await client.consume(Slow, "http://here/.well-known/wot", thing=thing_id)
            thing = await client.consume_thing("http://here/agents/desk.one")
            assert thing.id == URN
            by_id = await client.consume(Slow, "ws://here/ws", thing=URN)
            assert await by_id.invoke(Slow.work, 0.1) == "done by desk/one"

    run(main)


def test_a_description_is_there_while_its_agent_is_not() -> None:
    async def main() -> None:
        async with two() as (node, client):
            await node.start(Slow)
            await node.root.terminate_child("slow")
            thing = await client.consume_thing("http://here/agents/slow")
            assert thing.description is not None
            assert thing.description.title == "Slow"
            with pytest.raises(AgentUnavailable):
                await thing.invoke("work", {"seconds": 1})

    run(main)


def test_one_node_may_listen_in_several_places() -> None:
    async def main() -> None:
        places = ["ws://here:80", "ws://there:8080"]
        async with open_node() as client, open_node(listen=places) as node:
            await node.start(Slow)
            assert node.urls == ("ws://here", "ws://there:8080")
            for place in ("http://here", "http://there:8080"):
                thing = await client.consume_thing(f"{place}/agents/slow")
                assert thing.id == "http://here/agents/slow"
                assert thing.description is not None
                assert thing.description.actions is not None
                # there the client has come, and for that place it has credentials
                forms = thing.description.actions["work"].forms or ()
                assert [form.href for form in forms if form.subprotocol] == [
                    f"{place.replace('http', 'ws')}/ws"
                ]

    run(main)


def test_a_public_address_stands_in_descriptions_and_ids() -> None:
    async def main() -> None:
        async with two(public_url="wss://agents.example.org/edge/") as (node, client):
            await node.start(Slow)
            assert node.urls == ("ws://here",)
            with pytest.raises(ConnectFailed, match=r"agents\.example\.org"):
                await client.consume(Slow, "http://here/agents/slow")
            far = await client.consume(Slow, "ws://here", thing="https://agents.example.org/edge/agents/slow")
            assert await far.invoke(Slow.work, 0.1) == "done by slow"

    run(main)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"listen": "wx://here:80"}, "'wx'"),
    ({"listen": "here:80"}, "scheme"),
    ({"listen": "ws://here:80/agents"}, "has a path"),
    ({"listen": 8080}, "not 8080"),
    ({"listen": ["ws://here:80", 8080]}, "URL such as"),
    ({"listen": "wss://here:443"}, r"'wss://here:443' needs a certificate"),
    ({"listen": "ws://here:80", "tls": trio.Event()}, "SSLContext"),
    ({"listen": "ws://here:80", "public_url": "agents.example.org"}, "scheme"),
    ({"public_url": "ws://here:80"}, "goes with listen="),
    ({"listen": ["ws://here:80", "ws://here:80"]}, "cannot listen at here"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words for _, words in WRONG])
def test_where_it_cannot_listen_it_says_so(options: dict[str, Any], words: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=words):
            async with open_node(SupervisorSpec("root", [ChildSpec("a", Slow)]), **options):
                raise AssertionError("it has opened")
        async with open_node(listen="ws://here:80") as node:  # nothing is left listening
            assert node.urls == ("ws://here",)

    run(main)


def test_a_real_port_is_found_and_one_that_is_taken_is_named() -> None:
    async def main() -> None:
        async with open_node(listen="ws://127.0.0.1:0") as node, open_node() as client:
            await node.start(Slow)
            assert not node.urls[0].endswith(":0")
            far = await client.consume(Slow, f"{node.urls[0].replace('ws', 'http', 1)}/agents/slow")
            assert await far.invoke(Slow.work, 0.0) == "done by slow"
            with pytest.raises(ConfigError, match=node.urls[0].removeprefix("ws://")):
                async with open_node(listen=node.urls[0]):
                    raise AssertionError("it has opened")

    trio.run(main)


def test_it_listens_over_tls() -> None:
    import ssl

    authority: Any = trustme.CA()
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)

    async def main() -> None:
        listening = open_node(listen="wss://127.0.0.1:0", tls=theirs)
        async with listening as node, open_node(client_tls=ours) as client:
            await node.start(Slow)
            far = await client.consume(Slow, f"{node.urls[0].replace('wss', 'https', 1)}/agents/slow")
            assert await far.invoke(Slow.work, 0.0) == "done by slow"

    trio.run(main)


# ---- names and ids


@pytest.mark.parametrize("listen", [None, "ws://here:80"])
@pytest.mark.parametrize("name", RESERVED)
def test_names_that_mean_something_else_are_refused_listening_or_not(name: str, listen: str | None) -> None:
    async def main() -> None:
        for child in (ChildSpec(name, Slow), Pool(Slow, 2, name=name)):
            with pytest.raises(ConfigError, match="serves something else"):
                async with open_node(SupervisorSpec("root", [child]), listen=listen):
                    raise AssertionError("it has opened")
        async with open_node(listen=listen) as node:
            with pytest.raises(ConfigError, match="serves something else"):
                await node.start_child(ChildSpec(name, Slow))
            with pytest.raises(ConfigError, match="serves something else"):
                await node.start_pool(Pool(Slow, 2, name=name))
            below = await node.start_supervisor(SupervisorSpec("below"))
            await below.start_child(ChildSpec(name, Slow))

    run(main)


@pytest.mark.parametrize("name", RESERVED)
def test_supervisors_may_have_names_that_agents_may_not(name: str) -> None:
    tree = SupervisorSpec("root", [SupervisorSpec(name, [ChildSpec("slow", Slow)])])

    async def main() -> None:
        async with open_node(tree, listen="ws://here:80") as node, open_node() as client:
            far = await client.consume(Slow, f"http://here:80/agents/{name}.slow")
            assert await far.read(Slow.units) == "celsius"
            await node.root.terminate_child(name)
            await node.root.delete_child(name)
            await node.start_supervisor(SupervisorSpec(name, [ChildSpec("slow", Slow)]))

    run(main)


NAMES = [
    "50%", "50%25", "%2e", "a b", "a?b#c", "a+b", "a:b;c=d,e", "naïve", "天気", "👨\u200d👩\u200d👧",
    "~", "*", "\\", "n" * 200,
]  # fmt: skip
"""Names that are written otherwise in a URL than in a path."""


@pytest.mark.parametrize("name", NAMES)
def test_what_has_a_strange_name_is_reached_by_every_way(name: str) -> None:
    below = [ChildSpec(name, Slow), Pool(Slow, 1, name=f"{name}-pool")]
    tree = SupervisorSpec("root", [ChildSpec(name, Slow), SupervisorSpec(f"{name}-all", below)])

    async def main() -> None:
        async with open_node(tree, listen="ws://here:80"), open_node() as client:
            for path in (name, f"{name}-all/{name}", f"{name}-all/{name}-pool"):
                url = quote(path.replace("/", "."), safe="")
                for scheme in ("ws", "http"):
                    far = await client.consume(Slow, f"{scheme}://here:80/agents/{url}")
                    assert (await far.invoke(Slow.work, 0.0)).startswith(f"done by {path}")
                    assert far.path == path

    run(main)


def test_who_looks_for_a_child_beside_its_supervisor_hears_where_it_is() -> None:
    tree = SupervisorSpec("root", [SupervisorSpec("cellar", [ChildSpec("bell", Slow)])])

    async def main() -> None:
        async with open_node(tree, listen="ws://here:80"), open_node() as client:
            for place in ("agents/bell", "bell"):
                with pytest.raises(ConnectFailed, match=r"no agent 'bell', .* '/agents/cellar\.bell'"):
                    await client.consume(Slow, f"http://here:80/{place}")
            for url, thing in (("ws://here:80/agents/bell", None), ("ws://here:80/ws", "bell")):
                far = await client.consume(Slow, url, thing=thing)
                with pytest.raises(NotFound, match="no agent 'bell', did you mean 'cellar/bell'") as caught:
                    await far.read(Slow.units)
                assert caught.value.nearest == "cellar/bell"

    run(main)


def test_a_test_refuses_such_names_too() -> None:
    async def main(node: Node) -> None:
        raise AssertionError("it has opened")

    with pytest.raises(ConfigError, match="an agent cannot be called 'search'"):
        run_test(main, tree=SupervisorSpec("root", [ChildSpec("search", Slow)]))


def test_an_id_is_one_agents_alone() -> None:
    async def main() -> None:
        async with open_node(SupervisorSpec("root", [ChildSpec("a", Slow, id=URN)])) as node:
            with pytest.raises(IdTaken, match=f"'a' already has the id '{URN}'"):
                await node.start_child(ChildSpec("b", Slow, id=URN))
            with pytest.raises(StartFailed, match="already has the id") as caught:
                await node.start_supervisor(SupervisorSpec("s", [ChildSpec("b", Slow, id=URN)]))
            assert isinstance(caught.value.__cause__, IdTaken)
            await node.root.terminate_child("a")
            with pytest.raises(IdTaken):  # its spec is kept, and with it the id
                await node.start_child(ChildSpec("b", Slow, id=URN))
            await node.root.delete_child("a")
            await node.start_child(ChildSpec("b", Slow, id=URN))

    run(main)


def test_an_id_is_kept_over_crashes_of_the_agent_and_of_its_supervisor() -> None:
    desk = SupervisorSpec("desk", [ChildSpec("a", Slow, id=URN)], max_restarts=0, restart="permanent")

    async def main() -> None:
        from lmos_actors import ExitReason
        from lmos_actors.actors import slot_of

        async with two() as (node, client):
            supervisor = await node.start_supervisor(desk)
            far = await client.consume(Slow, "ws://here", thing=URN)
            for _ in range(2):
                slot_of(supervisor.child("a")).die(ExitReason("error", error=ValueError("no")))
                await node.find(Slow, "desk/a").ready()
                assert await far.invoke(Slow.work, 0.1) == "done by desk/a"

    run(main)


@pytest.mark.parametrize("id", ["", "weather", "urn:", "http://a b", 7, "urn:x:<y>"])
def test_an_id_is_a_uri(id: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a\.id: must be a URI"):
        ChildSpec("a", Slow, id=id)


def test_two_children_of_one_spec_have_different_ids() -> None:
    with pytest.raises(IdTaken, match="'a' already has the id"):
        SupervisorSpec("s", [ChildSpec("a", Slow, id=URN), ChildSpec("b", Slow, id=URN)])


def test_many_agents_of_one_spec_have_no_id() -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(ConfigError, match=r"^a\.id: "):
                await node.root.start_many(ChildSpec("a", Slow, id=URN), 2)

    run(main)


# ---- how it ends


def test_what_has_been_asked_is_answered_and_what_comes_then_is_refused() -> None:
    seen: list[str] = []

    async def main() -> None:
        async with open_node() as client, trio.open_nursery() as nursery:
            async with open_node(listen="ws://here:80") as node:
                await node.start(Slow)
                far = await client.consume(Slow, "ws://here/agents/slow")
                begun = trio.current_time()

                async def ask() -> None:
                    seen.append(await far.invoke(Slow.work, 3.0))

                async def ask_later() -> None:
                    await trio.sleep(2.0)
                    with pytest.raises(AgentUnavailable, match="shutting down"):
                        await far.invoke(Slow.work, 0.0)
                    seen.append("refused")

                nursery.start_soon(ask)
                nursery.start_soon(ask_later)
                await trio.sleep(1.0)
            seen.append(f"ended at {trio.current_time() - begun:.1f}")
            with pytest.raises(AgentUnavailable, match="no connection"):
                await far.invoke(Slow.work, 0.0)

    run(main)
    assert seen == ["refused", "done by slow", "ended at 3.0"]


def test_children_stop_in_reverse_order_and_their_last_answers_still_go_out() -> None:
    diary: list[str] = []
    answers: list[str] = []

    def spec(name: str) -> ChildSpec[Diarist]:
        return ChildSpec(name, lambda: Diarist(name=name, diary=diary))

    async def main() -> None:
        async with open_node() as client, trio.open_nursery() as nursery:
            async with open_node(SupervisorSpec("root", [spec("a"), spec("b")]), listen="ws://here:80"):
                for name, seconds in (("a", 2.0), ("b", 1.0)):
                    far = await client.consume(Diarist, f"ws://here/agents/{name}")

                    async def ask(far: Any = far, seconds: float = seconds) -> None:
                        answers.append(await far.invoke(Diarist.work, seconds))

                    nursery.start_soon(ask)
                await trio.sleep(0.5)
            diary.append("ended")

    run(main)
    assert diary == ["b answers", "b", "a answers", "a", "ended"]
    assert answers == ["b", "a"]


class Farewell(Agent):
    """Has a last word."""

    said: Event[str] = event()

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.said.emit("good-bye")


def test_those_who_listen_from_afar_hear_how_agents_stop() -> None:
    heard: list[Any] = []

    async def main() -> None:
        async with (
            open_node() as client,
            trio.open_nursery() as nursery,
            open_node(listen="ws://here:80") as node,
        ):
            await node.start(Farewell)
            far = await client.consume(Farewell, "ws://here/agents/farewell")

            async def listen(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                async with far.subscribe(Farewell.said) as said, far.monitor() as downs:
                    task_status.started()
                    heard.extend([await said.receive(), str((await downs.receive()).reason)])

            await nursery.start(listen)

    run(main)
    assert heard == ["good-bye", "shutdown"]


def test_a_drained_node_goes_on_without_its_network() -> None:
    async def main() -> None:
        async with two() as (node, client):
            near = await node.start(Slow)
            far = await client.consume(Slow, "ws://here/agents/slow")
            async with far.begin(Slow.work, 2.0) as call:
                begun = trio.current_time()
                await trio.sleep(0.5)  # on its way
                await node.drain()
                assert trio.current_time() - begun == pytest.approx(2.0)
                assert await call.result() == "done by slow"
            assert node.connections == 0
            assert await near.invoke(Slow.work, 0.1) == "done by slow"
            with pytest.raises(ConnectFailed):
                await client.consume_thing("http://here/agents/slow")
            await node.drain()

    run(main)


def test_a_peer_that_says_nothing_more_is_not_waited_for_long() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen="ws://here:80", network=network) as node:
            stream = await network.connect(endpoint_of("ws://here"), None)
            await stream.send_all(
                b"GET /ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 101")
            assert node.connections == 1
            begun = trio.current_time()
        assert 0 < trio.current_time() - begun <= GOODBYE

    run(main)


def test_a_peer_that_does_not_read_is_not_waited_for_long() -> None:
    async def main() -> None:
        network = MemoryNetwork(buffer=256)
        async with open_node(listen="ws://here:80", network=network) as node:
            await node.start(Slow)
            stream = await network.connect(endpoint_of("ws://here"), None)
            await stream.send_all(b"GET /agents/slow HTTP/1.1\r\nHost: here\r\n\r\n")
            await trio.sleep(1.0)
            begun = trio.current_time()
        assert trio.current_time() - begun == pytest.approx(GOODBYE)

    run(main)


def test_how_long_a_stopping_node_waits_is_an_option() -> None:
    async def main() -> None:
        network = MemoryNetwork(buffer=256)
        limits = ConnectionOptions(close_seconds=0.5, stop_seconds=0.25)
        async with open_node(listen="ws://here:80", network=network, connection=limits) as node:
            await node.start(Slow)
            stream = await network.connect(endpoint_of("ws://here"), None)
            await stream.send_all(b"GET /agents/slow HTTP/1.1\r\nHost: here\r\n\r\n")
            await trio.sleep(1.0)
            begun = trio.current_time()
        assert trio.current_time() - begun == pytest.approx(0.75)

    run(main)


def test_whoever_hurries_waits_for_nobody() -> None:
    async def main() -> None:
        async with open_node() as client:
            async with open_node(listen="ws://here:80") as node:
                await node.start(Slow)
                far = await client.consume(Slow, "ws://here/agents/slow")
                begun = trio.current_time()
                async with far.begin(Slow.work, 1_000.0) as call:
                    await trio.sleep(1.0)
                    node.force_stop()
                    with pytest.raises(AgentDied, match="had begun"):
                        await call.result()
            assert trio.current_time() - begun == pytest.approx(1.0)

    run(main)


def test_what_breaks_a_connection_is_kept_and_breaks_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = ValueError("a mistake of ours")
    accept = LmosServer.accept

    mistakes = [mistake]

    def fails_once(self: LmosServer, upgrade: Any) -> Any:
        if mistakes:
            raise mistakes.pop()
        return accept(self, upgrade)

    monkeypatch.setattr(LmosServer, "accept", fails_once)

    async def main() -> None:
        async with two() as (node, client):
            await node.start(Slow)
            with pytest.raises(ConnectFailed):
                await client.consume(Slow, "ws://here/agents/slow")
            assert node.connection_failures == (mistake,)
            far = await client.consume(Slow, "ws://here/agents/slow")
            assert await far.invoke(Slow.work, 0.1) == "done by slow"

    run(main)


# ---- virtual time


def test_where_time_is_virtual_no_socket_is_opened() -> None:
    async def main() -> str:
        async with two() as (node, client):
            await node.start(Slow)
            far = await client.consume(Slow, "http://here/agents/slow")
            assert default_network() is default_network()
            return await far.invoke(Slow.work, 60.0)

    assert simulate(main, seed=1) == "done by slow"
    assert run(main) == "done by slow"


def test_a_clock_that_does_not_jump_is_real_enough_for_sockets() -> None:
    async def main() -> str:
        return type(default_network()).__name__

    assert trio.run(main, clock=MockClock(rate=1.0)) == "TcpNetwork"
    assert trio.run(main) == "TcpNetwork"
    assert trio.run(main, clock=MockClock(autojump_threshold=inf)) == "TcpNetwork"


def test_the_page_for_machines_is_what_kotlin_wot_serves() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen="ws://here:80", network=network) as node:
            await node.start(Slow)
            stream = await network.connect(endpoint_of("ws://here"), None)
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            data = b""
            while chunk := await stream.receive_some():
                data += chunk
            assert b'"http://here/agents/slow"' in data
            assert json.dumps("Slow").encode() in data

    run(main)


def test_a_node_in_a_thread_listens_and_consumes() -> None:
    with open_node_in_thread(options=NodeOptions(listen="ws://127.0.0.1:0")) as portal:
        portal.start(Slow)

    tree = SupervisorSpec("root", [ChildSpec("slow", Slow)])
    thread = open_node_in_thread(tree, NodeOptions(listen="ws://127.0.0.1:0"))
    try:
        far = thread.portal.run(thread.node.consume_thing, f"{thread.node.urls[0]}/agents/slow")
        assert thread.portal.run(far.invoke, "work", {"seconds": 0.0}) == "done by slow"
    finally:
        thread.close()


def test_a_node_that_drains_over_some_seconds_says_so_and_answers_those_who_are_still_connected() -> None:
    async def main() -> None:
        network = MemoryNetwork()

        async def status(target: bytes, more: bytes = b"") -> bytes:
            stream = await network.connect(endpoint_of("ws://here"), None)
            async with stream:
                await stream.send_all(b"GET " + target + b" HTTP/1.1\r\nHost: here\r\n" + more + b"\r\n")
                return bytes(await stream.receive_some()).split(b" ")[1]

        upgrade = (
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: lmos\r\n"
        )
        async with (
            open_node(listen="ws://here:80", network=network) as node,
            open_node(network=network) as first,
            open_node(network=network) as second,
        ):
            await node.start(Slow)
            fars = [await each.consume(Slow, "ws://here/agents/slow") for each in (first, second)]
            for far in fars:
                await far.invoke(Slow.work, 0.1)
            assert await status(b"/readyz") == b"200"
            begun = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(node.drain, spread=4.0))
                await trio.sleep(1.0)
                assert node.connections == 1
                assert await status(b"/readyz") == b"503"
                assert await status(b"/ws", upgrade) == b"503"
                assert await fars[1].invoke(Slow.work, 0.1) == "done by slow"
                with pytest.raises(AgentUnavailable):
                    await fars[0].invoke(Slow.work, 0.1)
            assert trio.current_time() - begun == pytest.approx(4.0)
            assert node.connections == 0

    run(main)
