"""The options of commands that look at a node while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from .._app import PRINTED, JsonLines, Switch, Texts, Within, whole
from ._connection import ServerOptions

if TYPE_CHECKING:
    from .._answers import AnswerPrinter

_NO_SERVER = ServerOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The options of all commands that look at a node."""

    server: ServerOptions = _NO_SERVER
    within: Within = None
    once: Annotated[Switch, Parameter(group=PRINTED)] = False
    """Print one snapshot on a terminal too (the default elsewhere), instead of a picture that moves."""
    json: JsonLines = False

    def answers(self) -> AnswerPrinter:
        """Return the printer of the answers."""
        from .._answers import AnswerPrinter

        return AnswerPrinter(json=self.json)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """The options of `trace`."""

    agent: Annotated[Texts, Parameter(metavar="PATH")] = None
    """Messages to the agent at this path, and to those below it. May be given several times."""
    trace: Annotated[int | None, Parameter(converter=whole, metavar="N")] = None
    """Messages of one trace: all that one request has caused, by its number (#)."""
    action: Annotated[str | None, Parameter(metavar="NAME")] = None
    """Messages about the action, property or event of this name."""
    log: Annotated[str | None, Parameter(metavar="FILE")] = None
    """A message log that they are written to, for replay and diff; it must not exist."""
    watch: WatchOptions = WatchOptions()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the view. An omitted option selects all agents, traces or actions."""
        only = {"trace": self.trace, "affordance": self.action}
        return {
            "paths": [path.strip("/") for path in self.agent or ("",)],
            **{name: value for name, value in only.items() if value is not None},
        }
