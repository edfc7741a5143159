"""The catalogue of a node for one client: the agents that it may see, and the meaning of the names it says.

A name stands for something only if the client may do it: all else is unknown, whether there is such a thing
or not, so that names cannot be tried out. Agents of the system are not offered. A model that may call tools
is not to decide what its user is asked (`approvals`), nor to change what others find (directories), to think
on the key of the node (models), or to call the tools of its agents past them (MCP servers).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.actors import Slot
from lmos_actors.approvals import Approvals
from lmos_actors.discovery import ThingDirectory
from lmos_actors.llm import Model
from lmos_actors.supervision import is_member

from .._server import McpServer
from ._names import DIGEST_MARK, EVENTS, PROPERTIES, parts_of, resource_parts, resource_uri, tool_name
from ._tools import offer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.actors import Agent, Runtime
    from lmos_actors.bindings import Exposed, Exposure
    from lmos_actors.security import Admission, Verb

    from ._tools import AgentOffer, AgentTool

SYSTEM: Final = (Approvals, ThingDirectory, Model, McpServer)
"""Classes of agents that are not offered."""

LONGEST_CURSOR: Final = 4_096


@attrs.frozen
class OfferedTool:
    """A tool of one agent."""

    name: str
    agent: Exposed
    tool: AgentTool


@attrs.frozen
class OfferedResource:
    """A property or an event of one agent."""

    uri: str
    agent: Exposed
    kind: str
    name: str
    description: str

    @property
    def verb(self) -> Verb:
        """The right that it needs."""
        return verb_of(self.kind)

    @property
    def can_change(self) -> bool:
        """Whether it can be subscribed to."""
        made = self.agent.cls.__contract__.properties.get(self.name)
        return self.kind == EVENTS or (made is not None and made.observable)


def verb_of(kind: str) -> Verb:
    """Return the right that a kind of resources needs."""
    return "read" if kind == PROPERTIES else "subscribe"


class BadCursor(ValueError):
    """A cursor that no list has returned."""


class Catalogue:
    """The offer of a node to MCP clients. `None` as an admission may do everything."""

    def __init__(self, rt: Runtime, exposure: Exposure) -> None:
        self._rt = rt
        self._exposure = exposure
        self._digests: dict[str, tuple[str, str]] = {}
        """Agent and tool by the names that have a digest, as of `_version`."""
        self._version = -1

    # ---- what a name stands for

    def tool(self, name: str, admission: Admission | None) -> OfferedTool | None:
        """Return a tool that the client may call, None where there is none of that name for it."""
        parts = self._of_digest(name) if DIGEST_MARK in name else parts_of(name)
        exposed = None if parts is None else self.agent(parts[0])
        if parts is None or exposed is None:
            return None
        found = offer_of(exposed.cls).tools.get(parts[1])
        if found is None or not _may(admission, exposed.name, found.verb):
            return None
        return OfferedTool(name, exposed, found)

    def _of_digest(self, name: str) -> tuple[str, str] | None:
        if self._version != self._rt.population.version:
            self._digests = {
                found: (exposed.name, what)
                for exposed in self._agents()
                for what in offer_of(exposed.cls).tools
                if DIGEST_MARK in (found := tool_name(exposed.name, what))
            }
            self._version = self._rt.population.version
        return self._digests.get(name)

    def resource(self, uri: str, admission: Admission | None) -> OfferedResource | None:
        """Return a resource that the client may read, None where there is none of that URI for it."""
        parts = resource_parts(uri)
        exposed = None if parts is None else self.agent(parts[0])
        if parts is None or exposed is None or not isinstance(exposed.link, Slot):
            return None
        _, kind, name = parts
        offer = offer_of(exposed.cls)
        about = (offer.properties if kind == PROPERTIES else offer.events).get(name)
        if about is None or not _may(admission, exposed.name, verb_of(kind)):
            return None
        return OfferedResource(uri, exposed, kind, name, about)

    def agent(self, name: str) -> Exposed | None:
        """Return the agent or pool of a public name that is offered at all."""
        if "/" in name:  # a path is not a public name
            return None
        exposed = self._exposure.named(name)
        return exposed if exposed is not None and is_offered(exposed) else None

    # ---- lists

    def _agents(self) -> Iterator[Exposed]:
        return (exposed for exposed in tuple(self._exposure) if is_offered(exposed))

    def classes(self) -> dict[str, type[Agent]]:
        """Return the classes of all agents that are offered, by public name."""
        return {exposed.name: exposed.cls for exposed in self._agents()}

    def tools(
        self, admission: Admission | None, after: str | None, most: int
    ) -> tuple[list[OfferedTool], str | None]:
        """Return a page of the tools that the client may call, by name, and the cursor of the next page.

        Raises BadCursor.
        """
        found = {
            tool_name(exposed.name, what): OfferedTool(tool_name(exposed.name, what), exposed, tool)
            for exposed in self._agents()
            for what, tool in offer_of(exposed.cls).tools.items()
            if _may(admission, exposed.name, tool.verb)
        }
        page, cursor = _page(sorted(found), after, most)
        return [found[name] for name in page], cursor

    def resources(
        self, admission: Admission | None, after: str | None, most: int
    ) -> tuple[list[OfferedResource], str | None]:
        """Return a page of the resources that the client may read; see `tools`."""
        found = {
            each.uri: each
            for exposed in self._agents()
            if isinstance(exposed.link, Slot)
            for each in _resources(exposed, offer_of(exposed.cls), admission)
        }
        page, cursor = _page(sorted(found), after, most)
        return [found[uri] for uri in page], cursor


def is_offered(exposed: Exposed) -> bool:
    """Return whether an agent is offered: no agent of the system, and no member of a pool."""
    return not issubclass(exposed.cls, SYSTEM) and not is_member(exposed.link)


def sees(admission: Admission | None, name: str) -> bool:
    """Return whether a client may do anything with an agent."""
    verbs: tuple[Verb, ...] = ("read", "write", "invoke", "subscribe")
    return any(_may(admission, name, verb) for verb in verbs)


def _may(admission: Admission | None, name: str, verb: Verb) -> bool:
    return admission is None or admission.allows(name, verb)


def _resources(exposed: Exposed, offer: AgentOffer, admission: Admission | None) -> Iterator[OfferedResource]:
    for kind, named in ((PROPERTIES, offer.properties), (EVENTS, offer.events)):
        if _may(admission, exposed.name, verb_of(kind)):
            for name, about in named.items():
                yield OfferedResource(resource_uri(exposed.name, kind, name), exposed, kind, name, about)


def _page(names: Sequence[str], cursor: str | None, most: int) -> tuple[Sequence[str], str | None]:
    """Return the names behind that of a cursor. So a list that changes loses nothing that stays."""
    start = 0 if cursor is None else bisect_right(names, _name_in(cursor))
    page = names[start : start + most]
    return page, _cursor(page[-1]) if start + most < len(names) else None


def _cursor(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _name_in(cursor: str) -> str:
    try:
        name = urlsafe_b64decode(cursor[:LONGEST_CURSOR].encode("ascii")).decode()
    except ValueError:
        name = ""
    if name and _cursor(name) == cursor:
        return name
    raise BadCursor("the cursor is none that a list has returned")
