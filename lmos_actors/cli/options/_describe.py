"""The options of `describe`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from .._app import Json, Switch  # noqa: TC001 - the application reads the types
from ._connection import ServerOptions

_ALONE = ServerOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """The options of `describe`."""

    against: Annotated[str | None, Parameter(metavar="CLASS")] = None
    """Print every difference from the description of this class."""
    reader: Annotated[Literal["kotlin-wot"] | None, Parameter(name="--for")] = None
    """Print everything that this implementation cannot read."""
    strict: Switch = False
    """Tolerate nothing: each violation of TD 1.1 or LMOS is an error, and each difference except in \
wording."""
    base: Annotated[str | None, Parameter(metavar="URI")] = None
    """Where the agent is served, ws, wss, http or https; ws://127.0.0.1:8080 unless given."""
    name: Annotated[str | None, Parameter(metavar="NAME")] = None
    """The name of the agent there; the name of the class unless given."""
    id: Annotated[str | None, Parameter(metavar="URI")] = None
    """The URI of the agent; one made of base and name unless given."""
    server: ServerOptions = _ALONE
    json: Json = False
