"""`discover`, as its users see it: the docstring is the help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from .._app import ELSEWHERE, PRINTED, Switch
from ..options._security import OutwardOptions
from ._directory import app as app

SOUGHT = Group("Which agents", sort_key=1)

_NOTHING = OutwardOptions()


@app.command(sort_key=8, group=ELSEWHERE)
def discover(
    source: Annotated[str | None, Parameter(name="URL", negative=())] = None,
    /,
    *,
    title: Annotated[str | None, Parameter(group=SOUGHT)] = None,
    type: Annotated[str | None, Parameter(group=SOUGHT)] = None,
    capability: Annotated[str | None, Parameter(group=SOUGHT)] = None,
    affordance: Annotated[str | None, Parameter(metavar="NAME", group=SOUGHT)] = None,
    outward: OutwardOptions = _NOTHING,
    json: Annotated[Switch, Parameter(group=PRINTED)] = False,
) -> int:
    """List the agents at an address, in a directory, or on this network.

    lmos-actors discover http://127.0.0.1:8080

    lmos-actors discover directory.example.org --capability weather

    lmos-actors discover https://weather.example --credential https://weather.example=bearer:env:TOKEN

    lmos-actors discover

    A server is asked for its well-known URL; a directory for what it has. Without an address this network \
is listened to for three seconds, for who announces itself by DNS-SD (needs the extra mdns).

    Exit codes: 0 there are some; 1 there is none; 2 the usage is wrong; 3 nothing could be reached.

    Parameters
    ----------
    source
        The URL of a description, of a server or of a directory; or a host, with its port.
    title
        With this title.
    type
        With this word in its @type.
    capability
        With this capability.
    affordance
        With an action, a property or an event of this name.
    json
        Print JSON lines on a terminal too (the default elsewhere).
    """
    from .._discover import AgentQuery, discover

    criteria = {"title": title, "type": type, "capability": capability, "affordance": affordance}
    options = outward.options()
    return discover(AgentQuery(source=source or "mdns", criteria=criteria, options=options, json=json))
