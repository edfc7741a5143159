"""A provider of models on loopback: real HTTP in both wire formats, with answers and faults by script.

    async with open_provider() as server:
        server.reply(Reply(text=("Hel", "lo")), Reply(status=429, retry_after="0.1"))
        model = await node.start(OpenAIModel, model="test", key=None, url=server.openai_url)

The replies of the script are used one after the other; after the last one comes `server.default`, a reply or
a function from the request to one. `server.requests` has what was asked, `server.connections` counts what was
accepted, and `await server.client_left()` waits until a client has left in the middle of an answer.

Both formats say the same: reasoning, text, tools, end. Each piece is an event of its own. A fault happens
after `after` events.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import h11
import trio

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

Wire = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Fault = Literal["cut", "silent", "malformed", "endless", "error event", "no end", "not an event stream"]


@dataclass(frozen=True)
class Tool:
    """A tool that the model asks for; `arguments` come in these pieces."""

    name: str
    arguments: Sequence[str] = ("{}",)
    id: str = ""


@dataclass(frozen=True)
class Reply:
    """One answer. `wait` is in seconds, before each event; `ends` is what the format calls the end."""

    text: Sequence[str] = ("Hello", " there")
    tools: Sequence[Tool] = ()
    reasoning: Sequence[str] = ()
    signature: str = ""
    input_tokens: int = 12
    output_tokens: int = 5
    cached_tokens: int = 0
    ends: str | None = None
    model: str = "test-model-1"
    status: int = 200
    retry_after: str | None = None
    error: str = "the provider says no"
    error_type: str = "some_error"
    fault: Fault | None = None
    after: int = 0
    wait: float = 0.0
    raw: Sequence[bytes] = ()
    """What is sent in place of the stream of events, if anything."""
    bytes_at_a_time: int = 0
    """Of the stream of events; 0 sends each event at once."""
    whole: bytes = b""
    """All of the answer, with its head; the connection is closed after it."""
    until: trio.Event | None = None
    """Waited for before the first event."""


def refused(status: int, body: object, *headers: str) -> Reply:
    """Return an answer in its bytes: a body, which is made JSON if it is none yet, and these headers."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (f"HTTP/1.1 {status} No", f"content-length: {len(data)}", "connection: close", *headers, "", "")
    return Reply(whole="\r\n".join(head).encode() + data)


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ProviderServer:
    """The server; see above."""

    port: int = 0
    scheme: str = "http"
    default: Reply | Callable[[Received], Reply] = Reply()
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    most_at_once: int = 0
    _script: deque[Reply] = field(default_factory=deque)
    _left: int = 0
    _changed: trio.Event = field(default_factory=trio.Event)
    _answering: int = 0

    @property
    def openai_url(self) -> str:
        """The URL for clients of OpenAI's format."""
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        """The URL for clients of Anthropic's format."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def answering(self) -> int:
        """Requests that are being answered."""
        return self._answering

    def reply(self, *replies: Reply) -> None:
        """Add to the script."""
        self._script.extend(replies)

    async def client_left(self, times: int = 1) -> None:
        """Wait until clients have left so many answers before their end."""
        await self.until(lambda: self._left >= times)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; looked at when a request, an answer or a connection begins or ends."""
        while not condition():
            await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # ---- connections

    async def serve(self, stream: Wire) -> None:
        """Serve one connection."""
        self.connections += 1
        self.open_connections += 1
        self._note()
        try:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                await self._serve(stream, h11.Connection(h11.SERVER))
        finally:
            self.open_connections -= 1
            self._note()
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: Wire, http: h11.Connection) -> None:
        while True:
            received = await _read(stream, http)
            if received is None:
                return
            self.requests.append(received)
            self._answering += 1
            self.most_at_once = max(self.most_at_once, self._answering)
            self._note()
            try:
                kept = await self._watched(stream, http, received)
            finally:
                self._answering -= 1
                self._note()
            if not kept:
                return
            http.start_next_cycle()

    async def _watched(self, stream: Wire, http: h11.Connection, received: Received) -> bool:
        """Answer, and note if the client leaves meanwhile."""
        done = False

        async def watch() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await stream.receive_some(1)  # nothing comes during an answer but the end
            if not done:
                self._left += 1
                self._note()
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                done = await self._answer(stream, http, received)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.sleep_forever()  # `watch` sees it, too
            nursery.cancel_scope.cancel()
        return done

    async def _answer(self, stream: Wire, http: h11.Connection, received: Received) -> bool:
        """Answer a request; return whether the connection is to be kept."""
        if self._script:
            reply = self._script.popleft()
        else:
            reply = self.default if isinstance(self.default, Reply) else self.default(received)
        if reply.until is not None:
            await reply.until.wait()
        anthropic = received.path.endswith("/messages")
        if reply.whole:
            await stream.send_all(reply.whole)
            return False
        if reply.status != 200:
            await _send_json(stream, http, reply, anthropic)
            return True
        if not received.body.get("stream"):
            await _send_whole(stream, http, reply, anthropic)
            return True
        made = anthropic_events if anthropic else openai_events
        events = iter(reply.raw) if reply.raw else made(reply)
        kind = "text/html" if reply.fault == "not an event stream" else "text/event-stream"
        head = h11.Response(
            status_code=200, headers=[("content-type", kind), ("transfer-encoding", "chunked")]
        )
        await stream.send_all(http.send(head) or b"")
        for number in count():
            if reply.fault is not None and number >= reply.after:
                return await self._fail(stream, http, reply, anthropic)
            event = next(events, None)
            if event is None:
                break
            if reply.wait:
                await trio.sleep(reply.wait)
            size = reply.bytes_at_a_time or len(event)
            for start in range(0, len(event), size):
                await stream.send_all(http.send(h11.Data(data=event[start : start + size])) or b"")
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")
        return True

    async def _fail(self, stream: Wire, http: h11.Connection, reply: Reply, anthropic: bool) -> bool:
        async def send(event: bytes) -> None:
            await stream.send_all(http.send(h11.Data(data=event)) or b"")

        match reply.fault:
            case "cut":
                return False
            case "silent":
                await trio.sleep_forever()
            case "malformed":
                await send(
                    _event({"type": "content_block_delta"}, "content_block_delta", raw='{"choices": [{')
                )
            case "endless":
                more = openai_text("on and on ") if not anthropic else anthropic_text(0, "on and on ")
                while True:
                    await send(more * 64)
            case "error event":
                said = {"type": "error", "error": {"type": reply.error_type, "message": reply.error}}
                await send(_event(said, "error") if anthropic else _event({"error": said["error"]}))
            case "not an event stream":
                await send(b"<html><body>Welcome to the proxy.</body></html>")
            case _:
                pass
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")
        return True


@asynccontextmanager
async def open_provider(
    default: Reply | Callable[[Received], Reply] | None = None,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ProviderServer]:
    """Serve on loopback, on a free port if none is named; with `tls`, its URLs begin with https."""
    async with trio.open_nursery() as nursery:
        server = ProviderServer(scheme="http" if tls is None else "https")
        if default is not None:
            server.default = default
        listener = (await trio.open_tcp_listeners(port, host="127.0.0.1"))[0]
        server.port = listener.socket.getsockname()[1]
        listeners = [listener] if tls is None else [trio.SSLListener(listener, tls)]
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        yield server
        nursery.cancel_scope.cancel()


async def _read(stream: Wire, http: h11.Connection) -> Received | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(65_536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode().lower(): value.decode() for name, value in head.headers}
            return Received(head.target.decode(), headers, json.loads(body) if body else {})
        else:
            return None


async def _send_json(stream: Wire, http: h11.Connection, reply: Reply, anthropic: bool) -> None:
    error: dict[str, Any] = {"type": reply.error_type, "message": reply.error}
    said = {"type": "error", "error": error} if anthropic else {"error": {**error, "code": reply.error_type}}
    headers = [("retry-after", reply.retry_after)] if reply.retry_after is not None else []
    await _send(stream, http, reply.status, json.dumps(said).encode(), headers)


async def _send_whole(stream: Wire, http: h11.Connection, reply: Reply, anthropic: bool) -> None:
    if reply.fault == "malformed":
        body = b'{"choices": [{'
    else:
        body = json.dumps(anthropic_whole(reply) if anthropic else openai_whole(reply)).encode()
    await _send(stream, http, 200, body, [])


async def _send(
    stream: Wire, http: h11.Connection, status: int, body: bytes, headers: list[tuple[str, str]]
) -> None:
    known = [("content-type", "application/json"), ("content-length", str(len(body)))]
    out = http.send(h11.Response(status_code=status, headers=[*known, *headers])) or b""
    out += http.send(h11.Data(data=body)) or b""
    out += http.send(h11.EndOfMessage()) or b""
    await stream.send_all(out)


def _event(data: object, name: str = "", raw: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {raw or json.dumps(data)}\n\n".encode()


# ---- OpenAI's format


def openai_chunk(delta: dict[str, Any], reply: Reply, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event(
        {
            "id": "c-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": reply.model,
            "choices": [choice],
        }
    )


def openai_text(text: str) -> bytes:
    return openai_chunk({"content": text}, Reply())


def openai_events(reply: Reply) -> Iterator[bytes]:
    yield openai_chunk({"role": "assistant", "content": ""}, reply)
    for thought in reply.reasoning:
        yield openai_chunk({"reasoning_content": thought}, reply)
    for piece in reply.text:
        yield openai_chunk({"content": piece}, reply)
    for index, tool in enumerate(reply.tools):
        named = {"name": tool.name, "arguments": ""}
        asked = {"index": index, "id": tool.id or f"call-{index}", "type": "function", "function": named}
        yield openai_chunk({"tool_calls": [asked]}, reply)
        for piece in tool.arguments:
            yield openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, reply)
    yield openai_chunk({}, reply, reply.ends or ("tool_calls" if reply.tools else "stop"))
    last = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": reply.model, "choices": []}
    yield _event({**last, "usage": _openai_usage(reply)})
    yield b"data: [DONE]\n\n"


def _openai_usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


def openai_whole(reply: Reply) -> dict[str, Any]:
    """Return an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.text) or None}
    if reply.tools:
        message["tool_calls"] = [
            {
                "id": tool.id or f"call-{index}",
                "type": "function",
                "function": {"name": tool.name, "arguments": "".join(tool.arguments)},
            }
            for index, tool in enumerate(reply.tools)
        ]
    ends = reply.ends or ("tool_calls" if reply.tools else "stop")
    choice = {"index": 0, "message": message, "finish_reason": ends}
    head = {"id": "c-1", "object": "chat.completion", "created": 1, "model": reply.model}
    return {**head, "choices": [choice], "usage": _openai_usage(reply)}


# ---- Anthropic's format


def anthropic_event(kind: str, **members: Any) -> bytes:
    return _event({"type": kind, **members}, kind)


def anthropic_text(index: int, text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return anthropic_event("content_block_delta", index=index, delta=delta)


def anthropic_events(reply: Reply) -> Iterator[bytes]:
    usage = {"input_tokens": reply.input_tokens - reply.cached_tokens, "output_tokens": 1}
    if reply.cached_tokens:
        usage["cache_read_input_tokens"] = reply.cached_tokens
    head = {"id": "m-1", "type": "message", "role": "assistant", "model": reply.model, "content": []}
    yield anthropic_event(
        "message_start", message={**head, "stop_reason": None, "stop_sequence": None, "usage": usage}
    )
    index = -1
    if reply.reasoning:
        index += 1
        yield _begin(index, {"type": "thinking", "thinking": "", "signature": ""})
        for thought in reply.reasoning:
            yield _delta(index, {"type": "thinking_delta", "thinking": thought})
        yield _delta(index, {"type": "signature_delta", "signature": reply.signature or "signed"})
        yield anthropic_event("content_block_stop", index=index)
    if reply.text:
        index += 1
        yield _begin(index, {"type": "text", "text": ""})
        yield anthropic_event("ping")
        for piece in reply.text:
            yield anthropic_text(index, piece)
        yield anthropic_event("content_block_stop", index=index)
    for number, tool in enumerate(reply.tools):
        index += 1
        asked = {"type": "tool_use", "id": tool.id or f"call-{number}", "name": tool.name, "input": {}}
        yield _begin(index, asked)
        for piece in tool.arguments:
            yield _delta(index, {"type": "input_json_delta", "partial_json": piece})
        yield anthropic_event("content_block_stop", index=index)
    ends = reply.ends or ("tool_use" if reply.tools else "end_turn")
    delta = {"stop_reason": ends, "stop_sequence": None}
    yield anthropic_event("message_delta", delta=delta, usage={"output_tokens": reply.output_tokens})
    yield anthropic_event("message_stop")


def _begin(index: int, block: dict[str, Any]) -> bytes:
    return anthropic_event("content_block_start", index=index, content_block=block)


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return anthropic_event("content_block_delta", index=index, delta=delta)


def anthropic_whole(reply: Reply) -> dict[str, Any]:
    """Return an answer that is not streamed."""
    content: list[dict[str, Any]] = [{"type": "text", "text": "".join(reply.text)}] if reply.text else []
    content += [
        {
            "type": "tool_use",
            "id": tool.id or f"call-{number}",
            "name": tool.name,
            "input": json.loads("".join(tool.arguments)),
        }
        for number, tool in enumerate(reply.tools)
    ]
    usage = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    ends = reply.ends or ("tool_use" if reply.tools else "end_turn")
    head = {"id": "m-1", "type": "message", "role": "assistant", "model": reply.model, "content": content}
    return {**head, "stop_reason": ends, "stop_sequence": None, "usage": usage}
