"""From an address, a description or a file to refs: what is fetched, checked and chosen."""

from __future__ import annotations

import json
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import (
    Agent,
    ConfigError,
    DeadlineExceeded,
    NotFound,
    Property,
    action,
    describe,
    open_node,
    prop,
)
from lmos_actors.actors import AgentQuery
from lmos_actors.bindings import ConsumedThing, ContractWarning, consume, consume_thing, remote_ref
from lmos_actors.discovery import explore
from lmos_actors.protocol import td
from lmos_actors.transport import ConnectFailed, MemoryNetwork, endpoint_of
from tests.bindings.client_connections import Weather, Wire, peers_of, quiet, scripted, two_nodes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

KOTLIN = {  # as kotlin-wot writes it: no security, a bare word as id
    "@context": ["https://www.w3.org/2022/wot/td/v1.1", {"lmos": "https://eclipse.dev/lmos/protocol/v1"}],
    "@type": "lmos:Agent",
    "id": "chatagent",
    "title": "Chat",
    "actions": {
        "chat": {
            "input": {"type": "object"},
            "forms": [
                {"href": "http://kotlin/chatagent/actions/chat", "op": ["invokeaction"]},
                {
                    "href": "ws://kotlin/ws",
                    "contentType": "application/json",
                    "subprotocol": "lmosprotocol",
                    "op": ["invokeaction"],
                },
            ],
        }
    },
}


class Other(Agent):
    units: Property[int] = prop(default=3)

    @action
    def turn(self, city: str, more: str) -> str:
        return city + more


class Web:
    """A server of HTTP by hand, on a network in memory: answers by target, `asked` for."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.heads: list[bytes] = []

    def put(
        self,
        target: str,
        body: Any,
        status: str = "200 OK",
        kind: str = "application/td+json",
        extra: str = "",
    ) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n{extra}\r\n"
        self.answers[target] = head.encode() + text

    async def serve(self, url: str, task_status: Any) -> None:
        listener = await self.network.listen(endpoint_of(url))
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                stream, _ = await listener.accept()
                nursery.start_soon(self._answer, stream)

    async def _answer(self, stream: Any) -> None:
        head = await stream.receive_some(65_536)
        target = head.split(b" ")[1].decode()
        self.asked.append(target)
        self.heads.append(head)
        answer = self.answers.get(target, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        if answer:
            await stream.send_all(answer)
            await stream.aclose()
        else:
            await trio.sleep_forever()


@asynccontextmanager
async def web(*urls: str) -> AsyncGenerator[tuple[Web, Any]]:
    """Give a server of HTTP at those addresses, and peers that fetch from it."""
    made = Web()
    async with (
        trio.open_nursery() as nursery,
        scripted(offers=None, kotlin=True, network=made.network) as (peers, _),
    ):
        for url in urls or ("http://kotlin",):
            await nursery.start(made.serve, url)
        yield made, peers
        nursery.cancel_scope.cancel()


async def explored(peers: Any, source: str) -> None:
    """Look for agents at an address, as `discover` does."""
    await explore(peers, source, AgentQuery(), lambda *_: None)


# ---- our own nodes


@pytest.mark.parametrize(
    "source",
    [
        "http://server/agents/weather",
        "http://server/.well-known/wot",
        "http://server",
        "http://server/",
        "ws://server/agents/weather",
    ],
)
async def test_a_node_of_ours_is_consumed_by_any_of_its_addresses(autojump_clock: Any, source: str) -> None:
    async with two_nodes() as (_, client):
        ref = await consume(peers_of(client), Weather, source)
        assert await ref.invoke(Weather.turn, "Bonn") == "Bonn 1"
        thing = await consume_thing(peers_of(client), source)
        assert thing == ConsumedThing(thing._far, thing._ref)
        assert await thing.invoke("turn", {"city": "Bonn"}) == "Bonn 1"
        assert thing._ref == ref
        assert (thing.path, thing.id) == ("weather", "http://server/agents/weather")


async def test_one_of_several_is_named(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        await server.start(Other)
        peers = peers_of(client)
        for thing in ("http://server/agents/weather", "weather", "Weather"):
            ref = await consume(peers, Weather, "http://server", thing=thing)
            assert await ref.read(Weather.units) == "celsius"
        with pytest.raises(ConfigError, match=r"say which one by thing=; there are: .*weather, .*other"):
            await consume(peers, Weather, "http://server/")
        with pytest.raises(ConfigError, match="there is no 'wether'"):
            await consume(peers, Weather, "http://server", thing="wether")
        by_socket = await consume(peers, Weather, "ws://server/ws", thing="weather")
        assert await by_socket.read(Weather.units) == "celsius"


async def test_what_would_break_is_warned_of(autojump_clock: Any) -> None:
    async with two_nodes() as (_, client):
        with pytest.warns(ContractWarning) as caught:
            await consume(peers_of(client), Other, "http://server")
        (warning,) = caught
        text = str(warning.message)
        assert text.startswith("'Weather' is not what Other expects: ")
        assert "/properties/units" in text
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await consume(peers_of(client), Weather, "http://server")


async def test_a_file_leads_there_too(tmp_path: Path) -> None:
    async with two_nodes() as (server, client):
        described = td.with_forms(describe(Weather, id="weather"), "weather", server.urls)
        file = tmp_path / "weather.td.json"
        file.write_text(td.dump_text(described))
        ref = await consume(peers_of(client), Weather, file)
        assert await ref.read(Weather.units) == "celsius"
        assert ref == await consume(peers_of(client), Weather, str(file), thing="Weather")
        with pytest.raises(ConfigError, match="this describes 'weather', not 'other'"):
            await consume(peers_of(client), Weather, file, thing="other")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "the description is wrong"),
        ("[1]", "there are: none"),
        ("[", "no descriptions"),
        ('{"title": "x", "properties": 3}', "the description is wrong: .*/properties"),
        (json.dumps({**KOTLIN, "actions": {}}), "no form is for LMOS over a WebSocket"),
    ],
)
async def test_files_that_are_no_description_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    async with open_node(network=MemoryNetwork()) as node:
        with pytest.raises(ConfigError, match=expected) as caught:
            await consume_thing(peers_of(node), file)
        assert caught.value.path == str(file)


async def test_a_file_that_is_not_there_is_told() -> None:
    async with open_node(network=MemoryNetwork()) as node:
        with pytest.raises(ConfigError, match="No such file"):
            await consume_thing(peers_of(node), "nowhere.json")
        with pytest.raises(ConfigError, match="a URL begins with http"):
            await consume_thing(peers_of(node), "ftp://server/x")


# ---- servers of others


async def test_a_thing_of_kotlin_wot_is_found_at_the_root(autojump_clock: Any) -> None:
    def answer(wire: Wire, message: dict[str, Any]) -> None:
        wire.status(message, "completed", output={"text": "hello"})

    async with web() as (made, peers):
        peers.script(answer, None, kotlin=True)
        made.put("/", [KOTLIN], kind="application/json; charset=utf-8")
        thing = await consume_thing(peers, "http://kotlin")
        assert made.asked == ["/.well-known/wot", "/"]
        assert (thing.id, thing.url) == ("chatagent", "ws://kotlin/ws")
        assert await thing.invoke("chat", {"text": "hi"}) == {"text": "hello"}
        assert peers.wire.sent[0]["thingId"] == "chatagent"
        with pytest.raises(NotFound, match="no action 'chatt' on chatagent, did you mean 'chat'"):
            await thing.invoke("chatt")


async def test_a_description_without_id_is_known_by_its_address(autojump_clock: Any) -> None:
    async with web() as (made, peers):
        described = {**KOTLIN, "base": "ws://kotlin/socket/"}
        del described["id"]
        described["actions"] = {"chat": {"forms": [{"href": "x", "subprotocol": "lmosprotocol"}]}}
        made.put("/agent", described)
        thing = await consume_thing(peers, "http://kotlin/agent")
        assert (thing.id, thing.url) == ("http://kotlin/agent", "ws://kotlin/socket/x")


async def test_redirects_are_followed_within_limits(autojump_clock: Any) -> None:
    async with web("http://kotlin", "http://other") as (made, peers):
        made.put("/a", b"", "307 Temporary Redirect", extra="Location: http://other/b\r\n")
        made.put("/b", KOTLIN)
        thing = await consume_thing(peers, "http://kotlin/a", headers=((b"Authorization", b"Bearer x"),))
        assert thing.id == "chatagent"
        assert [b"authorization" in head.lower() for head in made.heads] == [True, False]
        made.put("/loop", b"", "302 Found", extra="Location: /loop\r\n")
        with pytest.raises(ConnectFailed, match="more than 5 redirects"):
            await consume_thing(peers, "http://kotlin/loop")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "it answered 503"),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\n\r\n"
            b'{"detail": "no agent wether, did you mean weather?"}',
            r"404 Not Found: no agent wether, did you mean weather\?$",
        ),
        (
            b"HTTP/1.1 400 No\r\nContent-Type: text/plain\r\n\r\nuse https://\n",
            "400 Bad Request: use https://$",
        ),
        (b"HTTP/1.1 400 No\r\nContent-Type: text/plain\r\n\r\na\nb", "400 Bad Request$"),
        (b"HTTP/1.1 400 No\r\nContent-Type: text/plain\r\n\r\n" + b"x" * 5000, "400 Bad Request$"),
        (b"HTTP/1.1 400 No\r\nContent-Type: text/html\r\n\r\n<p>", "400 Bad Request$"),
        (b"HTTP/1.1 400 No\r\nContent-Type: application/problem+json\r\n\r\n[1", "400 Bad Request$"),
        (b"HTTP/1.1 400 No\r\nContent-Type: application/problem+json\r\n\r\n[1]", "400 Bad Request$"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n", "is text/html"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "of no known type"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n", "compressed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}", "."),
        (b"nonsense\r\n\r\n", "."),
        (b"HTTP/1.1 302 Found\r\nLocation: ftp://x/\r\nContent-Length: 0\r\n\r\n", "."),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[/\r\nContent-Length: 0\r\n\r\n", "."),
        (b"", "no description within 30 s"),
    ],
)
async def test_what_is_no_description_is_refused(autojump_clock: Any, answer: bytes, expected: str) -> None:
    async with web() as (made, peers):
        made.answers["/agent"] = answer
        with pytest.raises((ConnectFailed, ConfigError), match=expected):
            await consume_thing(peers, "http://kotlin/agent")
        assert peers.statistics()["peers"] == 0


@pytest.mark.parametrize("look", [consume_thing, explored])
async def test_a_server_that_is_silent_is_asked_once(look: Any, autojump_clock: Any) -> None:
    async with web() as (made, peers):
        made.answers["/.well-known/wot"] = b""
        with pytest.raises(ConnectFailed, match="no description within 30 s"):
            await look(peers, "http://kotlin")
        assert (made.asked, trio.current_time()) == (["/.well-known/wot"], pytest.approx(30))


async def test_no_more_is_read_than_a_description_may_have(autojump_clock: Any) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    async with web() as (made, peers):
        made.answers["/agent"] = head + b" " * (td.MAX_BYTES + 1)
        with pytest.raises(ConnectFailed, match=f"longer than {td.MAX_BYTES} bytes"):
            await consume_thing(peers, "http://kotlin/agent")
        made.answers["/agent"] = head + b" " * td.MAX_BYTES
        with pytest.raises(ConfigError, match="the description is wrong"):
            await consume_thing(peers, "http://kotlin/agent")


async def test_nobody_there_is_told(autojump_clock: Any) -> None:
    async with web() as (_, peers):
        with pytest.raises(ConnectFailed, match="nothing is listening there"):
            await consume_thing(peers, "http://nowhere/agent")
        with pytest.raises(ConnectFailed, match="nothing is listening there"):
            await consume_thing(peers, "http://nowhere")


async def test_the_offers_of_a_description_count_where_the_handshake_says_nothing(
    autojump_clock: Any,
) -> None:
    async with web() as (made, peers):
        peers.script(None, None, kotlin=False)
        made.put("/agent", {**KOTLIN, "lmosx:offers": ["deadlines"]})
        thing = await consume_thing(peers, "http://kotlin/agent")
        with pytest.raises(DeadlineExceeded):
            await thing.within(1).invoke("chat")
        await quiet()
        assert peers.wire.last("invokeAction")["remaining"] == pytest.approx(1)


# ---- things by name


async def test_every_verb_by_name(autojump_clock: Any) -> None:
    async with two_nodes() as (server, client):
        thing = await consume_thing(peers_of(client), "http://server")
        assert thing.description is not None
        assert await thing.read("units") == "celsius"
        await thing.write("units", "kelvin")
        await thing.write_many({"units": "x", "limit": 4})
        assert await thing.read_all() == {"units": "x", "station": "Bonn"}
        async with thing.begin("forecast", {"city": "Rome"}) as call:
            assert await call.result() == "sunny in Rome"
        async with thing.stream("hours", {"number": 20}) as hours:
            assert [hour async for hour in hours] == list(range(20))
        await thing.tell("turn", {"city": "Oslo"})
        async with (
            thing.observe("units") as units,
            thing.subscribe("asked") as asked,
            thing.subscribe_all() as everything,
            thing.monitor() as downs,
        ):
            assert await units.receive() == "x"
            assert await thing.within(5).retrying().invoke("turn", {"city": "Kiel"}) == "Kiel 1"
            assert await asked.receive() == "Kiel"
            assert (await everything.receive()).event == "asked"
            with pytest.raises(Exception, match="boom"):
                await thing.invoke("crash")
            assert (await downs.receive()).reason.kind == "error"
        await thing.ready()
        for entering, expected in (
            (thing.reading("units"), "celsius"),
            (thing.writing("units", "y"), None),
            (thing.invoking("turn", {"city": "Bonn"}), "Bonn 1"),
        ):
            async with entering as asked_for:
                assert await asked_for.result() == expected
        async with thing.streaming("hours", {"number": 2}) as found:
            assert [hour async for hour in found] == [0, 1]
        for name, ask in (("property", thing.read("unit")), ("action", thing.invoke("turns"))):
            with pytest.raises(NotFound, match=f"no {name} .* did you mean"):
                await ask
        assert server.statistics().dead_letters == 0


@pytest.mark.parametrize("thing", ["http://[x/agents/y", "urn:x", "chatagent", ""])
async def test_an_id_that_is_no_address_names_itself(thing: str) -> None:
    async with scripted() as (peers, _):
        assert remote_ref(peers, Weather, "ws://server", thing).path == thing
