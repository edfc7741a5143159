"""A thermostat that speaks LMOS, written from the texts alone on `websockets`, as others write one.

It shares no line with the kit, nor with the agents of this package.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from queue import Queue
from typing import TYPE_CHECKING, Any

from websockets.asyncio.server import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

ID = "urn:dev:thermostat"
BOOST = {"type": "object", "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 30}}}


def description(port: int) -> dict[str, Any]:
    """Describe the thermostat."""

    def forms(*ops: str) -> list[dict[str, Any]]:
        href = f"ws://127.0.0.1:{port}/thermostat"
        return [{"href": href, "subprotocol": "lmosprotocol", "op": ops, "contentType": "application/json"}]

    both = forms("readproperty", "writeproperty", "observeproperty", "unobserveproperty")
    target = {"type": "number", "minimum": 5, "maximum": 30, "observable": True, "forms": both}
    serial = {"type": "string", "readOnly": True, "forms": forms("readproperty")}
    running = forms("invokeaction", "queryaction", "cancelaction")
    boost = {"safe": True, "synchronous": False, "input": BOOST, "output": {"type": "number"}}
    return {
        "@context": [
            "https://www.w3.org/2022/wot/td/v1.1",
            {"lmos": "https://eclipse.dev/lmos/protocol/v1"},
        ],
        "@type": "lmos:Agent",
        "id": ID,
        "title": "Thermostat",
        "securityDefinitions": {"none": {"scheme": "nosec"}},
        "security": "none",
        "properties": {"target": target, "serial": serial},
        "actions": {"boost": {**boost, "forms": running}},
        "events": {
            "boosted": {"data": {"type": "number"}, "forms": forms("subscribeevent", "unsubscribeevent")}
        },
    }


class MalformedMessage(Exception):
    """A message that is answered by an error."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def is_number(value: object, low: float, high: float) -> bool:
    """Whether something is a number between two others."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


class Client:
    """One connection."""

    def __init__(self, house: House, socket: ServerConnection) -> None:
        self.house = house
        self.socket = socket
        self.feeds: dict[str, Any] = {}  # by name of a property or event: the request
        self.runs: dict[str, dict[str, Any]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def say(self, kind: str, request: dict[str, Any], **members: Any) -> None:
        message = {"thingID": ID, "messageID": str(uuid.uuid4()), "messageType": kind, **members}
        correlation = request.get("correlationID") or request.get("messageID")
        if isinstance(correlation, str):
            message["correlationID"] = correlation
        await self.socket.send(json.dumps(message))

    async def told(self, kind: str, request: dict[str, Any], **members: Any) -> None:
        await self.say(kind, request, **members, timestamp=datetime.now(UTC).isoformat())

    async def take(self, data: str | bytes) -> None:
        request: dict[str, Any] = {}
        try:
            request = self.read(data)
            await getattr(self, f"do_{request['messageType']}", self.unknown)(request)
        except MalformedMessage as bad:
            instance = f"urn:uuid:{uuid.uuid4()}"
            about = {"type": "about:blank", "title": "Error", "instance": instance}
            await self.say("error", request, status=str(bad.status), detail=str(bad), **about)

    def read(self, data: str | bytes) -> dict[str, Any]:
        try:
            request = json.loads(data)
        except (ValueError, RecursionError):
            raise MalformedMessage(400, "this is not JSON") from None
        if not isinstance(request, dict):
            raise MalformedMessage(400, "this is no object")
        for member in ("messageType", "messageID", "thingID"):
            if not isinstance(request.get(member), str):
                raise MalformedMessage(400, f"{member} is missing")
        if request["thingID"] != ID:
            raise MalformedMessage(404, "there is no such thing")
        return request

    async def unknown(self, request: dict[str, Any]) -> None:
        raise MalformedMessage(400, "there is no such type of message")

    def named(self, request: dict[str, Any], member: str, *known: str) -> str:
        name = request.get(member)
        if not isinstance(name, str):
            raise MalformedMessage(400, f"{member} is missing")
        if name not in known:
            raise MalformedMessage(404, f"there is no {name}")
        return name

    async def do_readProperty(self, request: dict[str, Any]) -> None:
        name = self.named(request, "name", "target", "serial")
        await self.told("propertyReading", request, name=name, value=self.house.values[name])

    async def do_writeProperty(self, request: dict[str, Any]) -> None:
        if self.named(request, "name", "target", "serial") == "serial":
            raise MalformedMessage(405, "serial is read-only")
        if not is_number(request.get("data"), 5, 30):
            raise MalformedMessage(400, "data is to be a number from 5 to 30")
        self.house.values["target"] = request["data"]
        await self.do_readProperty(request)
        for client, feed in self.house.listening("target"):
            await client.do_readProperty(feed)

    async def do_observeProperty(self, request: dict[str, Any]) -> None:
        self.feeds[self.named(request, "name", "target")] = request

    async def do_unobserveProperty(self, request: dict[str, Any]) -> None:
        self.feeds.pop(self.named(request, "name", "target"), None)

    async def do_subscribeEvent(self, request: dict[str, Any]) -> None:
        self.feeds[self.named(request, "event", "boosted")] = request

    async def do_unsubscribeEvent(self, request: dict[str, Any]) -> None:
        self.feeds.pop(self.named(request, "event", "boosted"), None)

    async def do_invokeAction(self, request: dict[str, Any]) -> None:
        self.named(request, "action", "boost")
        given = request.get("input", {})
        seconds = given.get("seconds", 0) if isinstance(given, dict) else None
        if not is_number(seconds, 0, 30):
            raise MalformedMessage(400, "seconds is to be a number from 0 to 30")
        run: dict[str, Any] = {"status": "pending"}
        self.runs[request.get("correlationID") or request["messageID"]] = self.runs["latest"] = run
        await self.status(request, run)
        run["task"] = asyncio.create_task(self.boost(request, run, seconds))
        self.tasks.add(run["task"])
        run["task"].add_done_callback(self.tasks.discard)

    async def boost(self, request: dict[str, Any], run: dict[str, Any], seconds: float) -> None:
        await asyncio.sleep(seconds)
        target = self.house.values["target"]
        run |= {"status": "completed", "output": target}
        for client, feed in self.house.listening("boosted"):
            await client.told("event", feed, event="boosted", data=target)
        await self.status(request, run)

    async def status(self, request: dict[str, Any], run: dict[str, Any]) -> None:
        members = {key: run[key] for key in ("status", "output") if key in run}
        await self.say("actionStatus", request, action="boost", **members)

    async def do_queryAction(self, request: dict[str, Any]) -> None:
        self.named(request, "action", "boost")
        run = self.runs.get(request.get("correlationID", "latest"))
        if run is None:
            raise MalformedMessage(404, "there is no such run")
        await self.status(request, run)

    async def do_cancelAction(self, request: dict[str, Any]) -> None:
        run = self.runs.get(request.get("correlationID", "latest"))
        if run is not None and run["status"] == "pending":
            run["task"].cancel()
            run["status"] = "failed"
        await self.do_queryAction(request)


class House:
    """The thermostat, and who is connected to it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"target": 20.5, "serial": "T-1"}
        self.clients: list[Client] = []
        self.port = 0

    def listening(self, name: str) -> list[tuple[Client, dict[str, Any]]]:
        return [(client, client.feeds[name]) for client in self.clients if name in client.feeds]

    async def on_connect(self, socket: ServerConnection) -> None:
        client = Client(self, socket)
        self.clients.append(client)
        try:
            async for data in socket:
                await client.take(data)
        finally:
            self.clients.remove(client)
            for task in client.tasks:
                task.cancel()

    def on_request(self, connection: ServerConnection, request: Request) -> Response | None:
        if "Upgrade" not in request.headers:
            page = connection.respond(HTTPStatus.OK, json.dumps(description(self.port)))
            del page.headers["Content-Type"]
            page.headers["Content-Type"] = "application/td+json"
            return page
        if request.headers.get("Sec-WebSocket-Version", "13") == "13":
            return None
        refused = connection.respond(HTTPStatus.UPGRADE_REQUIRED, "this speaks version 13\n")
        refused.headers["Sec-WebSocket-Version"] = "13"
        return refused


@contextmanager
def thermostat() -> Iterator[str]:
    """Serve it in a thread while entered; gives the URL of its description."""
    house = House()
    told: Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def main() -> None:
        over = asyncio.Event()
        words = {"process_request": house.on_request, "subprotocols": ["lmosprotocol"]}
        async with serve(house.on_connect, "127.0.0.1", 0, **words) as server:  # type: ignore[arg-type]
            house.port = next(iter(server.sockets)).getsockname()[1]
            told.put((asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    loop, over = told.get(timeout=10)
    try:
        yield f"http://127.0.0.1:{house.port}/thermostat"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
