"""The options of commands that talk to one running agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from lmos_actors.errors import ConfigError

from .._app import PRINTED, REACHED, JsonLines, Switch, Texts, Within
from ._connection import ServerOptions, ThingServerOptions

if TYPE_CHECKING:
    from .._answers import AnswerPrinter

_NO_SERVER = ServerOptions()
_NO_THING_SERVER = ThingServerOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """The options of all commands that talk to one running agent."""

    server: ThingServerOptions = _NO_THING_SERVER
    thing: Annotated[str | None, Parameter(metavar="ID", group=REACHED)] = None
    """The id of the agent, if the URL is that of a WebSocket and not of an agent."""
    habits: Annotated[Literal["auto", "spec", "kotlin-wot"], Parameter(group=REACHED)] = "auto"
    """The dialect of LMOS that the agent speaks, if its handshake does not show it."""
    within: Within = None
    json: JsonLines = False
    raw: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print only values: texts as they are, anything else as JSON."""
    quiet: Annotated[Switch, Parameter(name=["-q", "--quiet"], group=PRINTED)] = False
    """Print only answers and errors, no progress and no remarks."""

    def answers(self) -> AnswerPrinter:
        """Return the printer of the answers. Raises ConfigError."""
        from .._answers import AnswerPrinter

        if self.json and self.raw:
            raise ConfigError("give --json or --raw, not both", "--raw")
        return AnswerPrinter(json=self.json, raw=self.raw, quiet=self.quiet)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConversationOptions:
    """The options of `chat`. Without `message`, lines of the standard input are the messages."""

    message: Annotated[str | None, Parameter(name=["-m", "--message"], metavar="TEXT")] = None
    """Send only this message, print the answer, and end."""
    session: Annotated[str | None, Parameter(metavar="ID")] = None
    """The id of a conversation to continue."""
    attach: Annotated[Texts, Parameter(metavar="FILE")] = None
    """A file that is uploaded and goes with the first message. May be given several times."""
    tool: Annotated[Texts, Parameter(metavar="TARGET")] = None
    """A typed function that the agent may have carried out here, as path/file.py:function or \
package.module:function. May be given several times."""
    yes: Switch = False
    """Carry out calls of tools that ask for consent without asking."""
    server: ServerOptions = _NO_SERVER
    within: Within = None
    json: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print the frames of the server, one a line, instead of the answers."""
    quiet: Annotated[Switch, Parameter(name=["-q", "--quiet"], group=PRINTED)] = False
    """Print only answers and errors."""
