"""A server of pages on a memory network: what is where, who asked for it, and how."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors.transport import MemoryNetwork, endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@attrs.frozen
class Page:
    """What is answered; `raw` in place of all of it, if there is any."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/td+json"),)
    raw: bytes | None = None

    def written(self) -> bytes:
        if self.raw is not None:
            return self.raw
        head = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in self.headers)]
        length = f"Content-Length: {len(self.body)}"
        return "\r\n".join([*head, length, "Connection: close", "", ""]).encode() + self.body


def described(data: Any, kind: str = "application/td+json") -> Page:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Page(text, headers=(("Content-Type", kind),))


def moved(location: str, status: int = 302) -> Page:
    return Page(status=status, headers=(("Location", location),))


SILENCE = Page(raw=b"")


class Pages:
    """Pages by origin and path; `asked` are the requests as they came."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self.pages = pages
        self.network = MemoryNetwork()
        self.asked: list[bytes] = []

    @property
    def paths(self) -> list[str]:
        return [request.split(b" ")[1].decode() for request in self.asked]

    async def serve(self, origin: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listener = await self.network.listen(endpoint_of(origin))
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                stream, _ = await listener.accept()
                nursery.start_soon(self._answer, origin, stream)

    async def _answer(self, origin: str, stream: trio.abc.Stream) -> None:
        request = b""
        async with stream:
            while not _is_whole(request):
                data = bytes(await stream.receive_some())
                if not data:
                    return
                request += data
            self.asked.append(request)
            page = self.pages.get(origin + request.split(b" ")[1].decode(), Page(status=404))
            if page is SILENCE:
                await trio.sleep_forever()
            try:
                await stream.send_all(page.written())
            except trio.BrokenResourceError:
                return


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return bool(end)


@asynccontextmanager
async def serving(pages: dict[str, Page], *more: str) -> AsyncGenerator[Pages]:
    """Serve pages, by their URLs, at their origins; `more` are origins without any."""
    served = Pages(pages)
    origins = ["/".join(url.split("/")[:3]) for url in pages]
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        for origin in dict.fromkeys([*origins, *more]):
            await nursery.start(served.serve, origin)
        try:
            yield served
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:  # by itself, not in a group
        raise failure
