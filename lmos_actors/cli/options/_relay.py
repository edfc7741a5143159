"""The options of commands that act as an agent on a relay."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import PRINTED, JsonLines, Switch, Within
from ._connection import Server, ServerOptions

if TYPE_CHECKING:
    from .._answers import AnswerPrinter

_NO_SERVER = ServerOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The options of all commands that act as an agent on a relay."""

    server: ServerOptions = _NO_SERVER
    within: Within = None
    json: JsonLines = False
    quiet: Annotated[Switch, Parameter(name=["-q", "--quiet"], group=PRINTED)] = False
    """Print only answers and errors, no remarks."""

    def at(self, url: str) -> Server:
        """Return the relay; the token comes from --bearer, else from ARC_TOKEN. Raises ConfigError."""
        from lmos_actors.facades.relay import relay_url

        server = self.server
        if server.header:
            raise ConfigError("a relay takes no headers of ours", "--header")
        if server.bearer is None and server.basic is None and os.environ.get("ARC_TOKEN"):
            server = ServerOptions(bearer="env:ARC_TOKEN", tls=server.tls)
        return server.at(relay_url(url))

    def answers(self) -> AnswerPrinter:
        """Return the printer of the answers."""
        from .._answers import AnswerPrinter

        return AnswerPrinter(json=self.json, quiet=self.quiet)
