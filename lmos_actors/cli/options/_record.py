"""The options of `record`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from .._app import REACHED, WRITTEN, Switch, Texts
from ._connection import ClientTlsOptions

if TYPE_CHECKING:
    from lmos_actors.recording import RecordRequest

_NO_TLS = ClientTlsOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The options of `record`."""

    to: Annotated[str, Parameter(metavar="URL", group=REACHED)]
    """The server, or a place there: a ws, wss, http or https URL."""
    out: Annotated[str, Parameter(metavar="FILE", group=WRITTEN)]
    """The message log to write. The file must not exist."""
    listen: Annotated[str, Parameter(metavar="HOST:PORT", group=REACHED)] = "127.0.0.1:0"
    """Where clients connect, on this machine; port 0 finds a free one."""
    speaks: Annotated[Literal["lmos", "omnia", "relay"] | None, Parameter(group=REACHED)] = None
    """The protocol of the WebSockets. Unless given, it is found from their addresses, subprotocols and \
messages."""
    description: Annotated[Texts, Parameter(metavar="FILE", group=REACHED)] = None
    """A file or a URL with the description of a thing, if the server does not serve it: it says which \
values are secret. Without one all values are written as ***. May be given several times."""
    once: Annotated[Switch, Parameter(group=REACHED)] = False
    """End when the clients that came have left."""
    tls: Annotated[ClientTlsOptions, Parameter(group=REACHED)] = _NO_TLS

    def request(self) -> RecordRequest:
        """Return these options as a request for the recorder. Reads files. Raises ConfigError."""
        from lmos_actors.recording import RecordRequest

        from .._inputs import address_in

        return RecordRequest(
            to=self.to,
            out=self.out,
            listen=address_in(self.listen, "--listen"),
            speaks=self.speaks,
            descriptions=self.description or (),
            once=self.once,
            tls=self.tls.context(),
            insecure=self.tls.insecure,
        )
