"""Plain HTTP to a node on virtual time, and what its metrics say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import h11
from prometheus_client import parser
from prometheus_client.openmetrics import parser as open_parser

from lmos_actors.transport import endpoint_of
from tests.networks import default_network

if TYPE_CHECKING:
    from trio.abc import Stream

    from lmos_actors import Node


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class Line:
    """One connection, kept open from request to request."""

    def __init__(self, stream: Stream, host: str) -> None:
        self._stream = stream
        self._host = host
        self._state = h11.Connection(h11.CLIENT)

    async def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        if self._state.our_state is h11.DONE:
            self._state.start_next_cycle()
        said = {"Host": self._host} | {name.replace("_", "-"): value for name, value in headers.items()}
        data = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            said |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        state = self._state
        sent = state.send(h11.Request(method=method, target=path, headers=list(said.items()))) or b""
        sent += (state.send(h11.Data(data)) or b"") if data else b""
        await self._stream.send_all(sent + (state.send(h11.EndOfMessage()) or b""))
        return await self._answer()

    async def _answer(self) -> Answer:
        response: Any = None
        parts: list[bytes] = []
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                self._state.receive_data(bytes(await self._stream.receive_some()))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                headers = {name.decode().lower(): value.decode() for name, value in response.headers}
                return Answer(response.status_code, headers, b"".join(parts).decode())


async def line_to(node: Node) -> Line:
    endpoint = endpoint_of(node.urls[0])
    return Line(await default_network().connect(endpoint, None), endpoint.authority)


async def ask(node: Node, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
    """Ask once, over a connection of its own."""
    return await (await line_to(node)).ask(path, method, body, **headers)


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Give each sample of a text by its name and the values of its labels, in the order of their names.

    What prometheus_client cannot read, or reads otherwise than its strict parser, is a failure.
    """
    read: Any = open_parser if text.endswith("# EOF\n") else parser
    families: list[Any] = list(read.text_string_to_metric_families(text))
    found: dict[tuple[str, ...], float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found
