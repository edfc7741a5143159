"""Execution of `discover`: a search for agents at an address, in a directory, or on this network."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lmos_actors._core import printable
from lmos_actors.assembly import open_node
from lmos_actors.errors import TransportError

from ._exit_codes import FAILED, NOT_REACHED, OK
from ._loop import run_loop
from ._texts import SEVERAL_SERVERS, explained

if TYPE_CHECKING:
    from lmos_actors.discovery import Exploration, Found

    from .options._discover import DiscoverOptions


def discover(source: str, options: DiscoverOptions) -> int:
    """Print the agents found. Returns the exit code. Raises ConfigError."""
    connecting = options.outward.options()

    async def explored() -> Exploration:
        async with open_node(**connecting) as node:
            return await node.discover(
                source,
                title=options.title,
                type=options.type,
                capability=options.capability,
                affordance=options.affordance,
            )

    try:
        found = run_loop(explored)
    except TransportError as error:
        print(f"lmos-actors: {printable(explained(error, SEVERAL_SERVERS))}", file=sys.stderr)
        return NOT_REACHED
    _say(found, as_json=options.json or not sys.stdout.isatty())
    return OK if found.things else FAILED


def _say(explored: Exploration, *, as_json: bool) -> None:
    for url in explored.directories:
        print(f"lmos-actors: asked the directory at {url}", file=sys.stderr)
    for why in explored.left_out:
        print(f"lmos-actors: left out {printable(why)}", file=sys.stderr)
    if not explored.things:
        print("lmos-actors: no such agent was found", file=sys.stderr)
    if as_json:
        for found in explored.things:
            print(json.dumps(_members(found), ensure_ascii=False))
        return
    rows: list[list[str]] = []
    for found in explored.things:
        words = ", ".join(found.description.capabilities or ())
        row = (found.name, found.title, words, found.url or found.id or "")
        rows.append([printable(cell)[:200] for cell in row])
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for *shown, url in rows:
        cells = (cell.ljust(width) for cell, width in zip(shown, widths, strict=True))
        print("  ".join((*cells, url)).rstrip())


def _members(found: Found) -> dict[str, Any]:
    described = found.description
    types = described.type or ()
    return {
        "name": found.name,
        "title": found.title,
        "id": found.id,
        "url": found.url,
        "types": [types] if isinstance(types, str) else list(types),
        "capabilities": list(described.capabilities or ()),
        "properties": list(described.properties or ()),
        "actions": list(described.actions or ()),
        "events": list(described.events or ()),
        **({"directory": found.directory} if found.directory != found.url else {}),
    }
