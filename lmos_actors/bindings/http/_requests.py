"""A request over HTTP for an agent: Starlette's, with the parts of its path, its client and its preferences.

Starlette parses neither `Accept` nor lists of entity tags nor `Prefer`; the functions for these are used by
the other resources of a node too.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from lmos_actors._core import number_of
from lmos_actors.errors import InvalidInput

from ..exposure._access_middleware import principal_of
from ..exposure._description_security import anything
from ._responses import EVENTS, JSON, STREAM, HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from starlette.types import Receive, Scope, Send

    from ..exposure._description_security import Sees
    from ..exposure._descriptions import Descriptions
    from ._agent_request import AgentRequest

PREFIX: Final = b"/agents/"
MOST_PARTS: Final = 4  # of a path below `/agents/`

_STREAM: Final = tuple(Headers(STREAM).raw)

_CHARSETS: Final = ("utf-8", "utf8", "us-ascii", "ascii")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\["\\])*"')
_ESCAPED: Final = re.compile(r'\\(["\\])')
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def asked_at(descriptions: Descriptions, request: Request) -> Descriptions:
    """Return the descriptions for the address at which a request came."""
    return descriptions.at(request.headers.get("host"), secure=request.scope["scheme"] == "https")


class HttpRequest(Request):
    """A request for something below `/agents/`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.begun = False  # a part of the response has been sent
        self.verb = ""
        self.weight = 0  # about the bytes of memory that its input takes
        self.ask: AgentRequest | None = None
        # further parts than any resource has stay one; each is decoded on its own: "%2f" separates nothing,
        # and "." and ".." are names like any other
        self.parts = scope["raw_path"][len(PREFIX) :].decode("ascii", "replace").split("/", MOST_PARTS)
        if b"%" in scope["raw_path"]:
            self.parts = [unquote(part) for part in self.parts]
        state: dict[str, Any] = scope.get("state") or {}
        self.admission: Any = state.get("admission")
        self.sees: Sees = state.get("sees", anything)
        client = scope.get("client")
        self.label = "" if client is None else f"{client[0]}:{client[1]}"
        self.principal = principal_of(self.admission)
        self.header_names = dict(scope["headers"])  # for their names alone: some occur more than once

    @property
    def reads(self) -> bool:
        """Whether the request only reads: its method is GET or HEAD."""
        return self.method in ("GET", "HEAD")

    @property
    def owner(self) -> str:
        """The owner of the runs that this client may query: its principal, or without one its address."""
        return f"@{self.principal}" if self.principal is not None else self.label.rpartition(":")[0]

    def header(self, name: bytes) -> str | None:
        """Return the value of a header that occurs once, else None."""
        if name not in self.header_names:  # most of the names that are looked up are absent
            return None
        found = self.headers.getlist(name.decode())
        return found[0] if len(found) == 1 else None

    async def whole_body(self) -> bytes:
        """Return the body. Raises ClientDisconnect if the client leaves before its end.

        Unlike `body` it keeps nothing, because a request may wait long for its agent, after its input has
        been decoded. It does not read from the async generator `stream` either, because most bodies are one
        message, and trio keeps track of every generator.
        """
        parts: list[bytes] = []
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def send_events(
        self, frames: AsyncGenerator[bytes, None], last: Callable[[], bytes], kind: str = EVENTS
    ) -> None:
        """Answer with a stream, of server-sent events or another media type: all `frames`, then the `last`.

        Raises the errors of `frames`.

        A StreamingResponse of Starlette would leave a generator that is not exhausted to the garbage
        collector, and with it a listener to its agent. It also sends the last part as if there were more,
        while a client whose credentials have expired may receive the end of its response, but no more parts.
        """
        self.begun = True
        headers = [(b"content-type", kind.encode()), *_STREAM]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(frames):
            async for frame in frames:
                await self._send({"type": "http.response.body", "body": frame, "more_body": True})
        await self._send({"type": "http.response.body", "body": last()})

    def remaining(self) -> float | None:
        """Return the seconds until the consumer gives up; None without the header `LMOS-Remaining`.

        Raises InvalidInput.
        """
        if b"lmos-remaining" not in self.header_names:
            return None
        text = self.header(b"lmos-remaining")
        if text is None:
            return None
        if not _NUMBER.fullmatch(text):
            raise InvalidInput("LMOS-Remaining is not a number of seconds")
        return float(text)

    def key(self) -> str | None:
        """Return the key in `Idempotency-Key`, with or without quotes (RFC 8941). Raises InvalidInput."""
        if b"idempotency-key" not in self.header_names:
            return None
        text = self.header(b"idempotency-key")
        if text is None:
            raise InvalidInput("several keys", "Idempotency-Key")
        if not text.startswith('"'):
            return text
        if not _QUOTED.fullmatch(text):
            raise InvalidInput("it is no quoted string", "Idempotency-Key")
        return _ESCAPED.sub(r"\1", text[1:-1])

    def preferences(self) -> dict[str, str]:
        """Return the preferences in `Prefer` (RFC 7240), names in lower case; unknown ones are left out."""
        found: dict[str, str] = {}
        if b"prefer" not in self.header_names:
            return found
        for value in self.headers.getlist("prefer"):
            for part in value.split(","):
                name, _, text = part.partition(";")[0].partition("=")
                found.setdefault(name.strip().lower(), text.strip().strip('"'))
        return found

    def wait(self) -> float | None:
        """Return the seconds for which the consumer prefers to wait, None without a preference."""
        text = self.preferences().get("wait", "")
        return float(text) if _NUMBER.fullmatch(text) else None


# ---- media types (RFC 9110, 8.3 and 12.5.1)


def best_of(headers: Headers, offered: Sequence[str]) -> str | None:
    """Return the offered media type that `Accept` prefers, the first among equals.

    None if it accepts none.
    """
    ranges = ",".join(headers.getlist("accept"))
    if ranges in ("", "*/*"):
        return offered[0]
    accepted = [_range(part) for part in ranges.split(",")]
    best = max(offered, key=lambda kind: _quality(kind, accepted))  # of equal ones max returns the first
    return best if _quality(best, accepted) > 0 else None


def negotiate(headers: Headers, offered: Sequence[str]) -> str:
    """Return the media type to answer with. Raises HttpError 406 where none is accepted."""
    best = best_of(headers, offered)
    if best is None:
        raise HttpError(406, f"accept {' or '.join(offered)}")
    return best


def check_content_type(headers: Headers) -> None:
    """Raise HttpError 415 unless the headers say that a body is JSON in UTF-8, and not compressed."""
    check_encoding(headers)
    if media_type(headers) != JSON:
        raise HttpError(415, "send application/json in UTF-8", {"accept-post": JSON})


def check_encoding(headers: Headers) -> None:
    """Raise HttpError 415 for a compressed body."""
    if any(each.strip().lower() != "identity" for each in headers.getlist("content-encoding")):
        raise HttpError(415, "send the body without Content-Encoding")


def media_type(headers: Headers) -> str | None:
    """Return the media type of a body, without parameters; None without such a header.

    Return "" for a repeated header, or for a charset other than UTF-8.
    """
    kinds = headers.getlist("content-type")
    if len(kinds) != 1:
        return "" if kinds else None
    kind, *parameters = (word.strip().lower() for word in kinds[0].split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            return ""
    return kind


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (word.strip().lower() for word in part.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            return kind, _number(parameter[2:])
    return kind, 1.0


def _number(text: str) -> float:
    try:
        return min(max(number_of(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _quality(kind: str, accepted: Sequence[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that matches the type."""
    for wanted in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        found = [quality for word, quality in accepted if word == wanted]
        if found:
            return max(found)
    return 0.0


# ---- entity tags (RFC 9110, 13.1)


def has_tag(headers: Headers, name: str, tag: str) -> bool:
    """Return whether a list of entity tags, as in If-None-Match, contains this tag, or `*`.

    Weak tags match as well, except in If-Match (13.1.1).
    """
    weak = "" if name == "if-match" else "W/"
    for each in ",".join(headers.getlist(name)).split(","):
        if each.strip().removeprefix(weak) in (tag, "*"):
            return True
    return False
