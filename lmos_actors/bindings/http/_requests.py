"""A request over HTTP, read from its ASGI scope: its path, its principal, and its preferences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from lmos_actors.errors import InvalidInput

from ..exposure._description_security import anything
from ._accept import header_values

if TYPE_CHECKING:
    from ..exposure._description_security import Sees
    from ._agent_request import AgentRequest
    from ._answers import Receive, Send

PREFIX: Final = b"/agents/"
MOST_PARTS: Final = 4  # of a path below it

_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


class WebRequest:
    """One request for something below `/agents/`."""

    __slots__ = (
        "_send", "admission", "ask", "begun", "headers", "label", "method", "parts", "principal", "query",
        "receive", "sees", "verb", "weight",
    )  # fmt: skip

    def __init__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.receive = receive
        self._send = send
        self.begun = False
        self.verb = ""
        self.weight = 0  # bytes of memory that its input takes, about
        self.ask: AgentRequest | None = None
        self.method: str = scope["method"]
        self.query: bytes = scope["query_string"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.parts = parts_of(scope["raw_path"])
        state: dict[str, Any] = scope.get("state") or {}
        self.admission: Any = state.get("admission")
        self.sees: Sees = state.get("sees", anything)
        client = scope.get("client")
        self.label = "" if client is None else f"{client[0]}:{client[1]}"
        who = None if self.admission is None else self.admission.principal
        self.principal: str | None = None if who is None else who.name

    async def send(self, message: Any) -> None:
        """Send a part of an answer that is sent in parts."""
        self.begun = True
        await self._send(message)

    @property
    def reads(self) -> bool:
        """Whether it is GET or HEAD."""
        return self.method in ("GET", "HEAD")

    def header(self, name: bytes) -> str | None:
        """Return the value of a header that stands there once, else None."""
        found = [each for known, each in self.headers if known == name]
        return found[0].decode("latin-1") if len(found) == 1 else None

    @property
    def owner(self) -> str:
        """The owner of the runs it may query: its principal, or its address without one."""
        return f"@{self.principal}" if self.principal is not None else self.label.rpartition(":")[0]

    def remaining(self) -> float | None:
        """Return the seconds until the consumer gives up. Raises InvalidInput for what is no number."""
        text = self.header(b"lmos-remaining")
        if text is None:
            return None
        if not _NUMBER.fullmatch(text):
            raise InvalidInput("LMOS-Remaining is not a number of seconds")
        return float(text)

    def preferences(self) -> dict[str, str]:
        """Return what `Prefer` says (RFC 7240), names in lower case; what is not understood is left out."""
        found: dict[str, str] = {}
        for value in header_values(self.headers, b"prefer"):
            for part in value.split(","):
                name, _, text = part.partition(";")[0].partition("=")
                found.setdefault(name.strip().lower(), text.strip().strip('"'))
        return found

    def wait(self) -> float | None:
        """Return the seconds for which the consumer prefers to wait, None where it does not say."""
        text = self.preferences().get("wait", "")
        return float(text) if _NUMBER.fullmatch(text) else None


def parts_of(raw_path: bytes) -> list[str]:
    """Return the parts of a path below `/agents/`, each percent-decoded on its own.

    So a "%2f" parts nothing, and "." and ".." are names like any other. None of what leads nowhere.
    """
    found = raw_path[len(PREFIX) :].decode("ascii", "replace").split("/", MOST_PARTS)
    return [unquote(part) if "%" in part else part for part in found]
