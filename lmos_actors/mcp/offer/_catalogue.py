"""The catalogue of a node for one client: the agents that it may see, and the meaning of names.

A name is known only if the client may do what it names. Every other name is unknown, whether it exists or
not, so that names cannot be guessed. System agents are not offered, because a model that may call tools must
not decide its user's questions (`approvals`), change what others find (directories), use models with the
node's key (models), or call the tools of its agents without these agents (MCP servers).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import attrs

from lmos_actors.actors import Event, Slot, is_of_system
from lmos_actors.supervision import is_member

from ._names import (
    ACTIONS,
    DIGEST_MARK,
    EVENTS,
    LONGEST_URI,
    OF_AGENTS,
    PROPERTIES,
    parts_of,
    resource_parts,
    resource_uri,
    tool_name,
)
from ._tools import offer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmos_actors.actors import Agent, Runtime
    from lmos_actors.bindings import Exposed, Exposure
    from lmos_actors.security import Admission, Verb

    from ._marked import Marked
    from ._tools import AgentOffer, AgentTool

T = TypeVar("T")


@attrs.frozen
class OfferedTool:
    """A tool of one agent."""

    name: str
    agent: Exposed
    tool: AgentTool


@attrs.frozen
class OfferedPrompt:
    """A prompt of one agent."""

    name: str
    agent: Exposed
    prompt: Marked


@attrs.frozen
class OfferedResource:
    """A property, an event or a marked action of one agent.

    For an action, `read` is the action itself, and `texts` are its arguments.
    """

    uri: str
    agent: Exposed
    kind: str
    name: str
    description: str
    read: Marked | None = None
    texts: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @property
    def source(self) -> tuple[str, str] | None:
        """The kind and the name of the property or event that reports changes; None if there is none.

        A resource of a pool has none.
        """
        kind, name = self.kind, self.name
        if not isinstance(self.agent.link, Slot):
            return None
        if self.read is not None:
            changes: Any = self.read.mark.changes
            if changes is None:
                return None
            is_event, name = isinstance(changes, Event), self.read.mark.changes.handle.name
            kind = EVENTS if is_event else PROPERTIES
        made = self.agent.cls.__contract__.properties.get(name)
        return (kind, name) if kind == EVENTS or (made is not None and made.observable) else None


def verb_of(kind: str) -> Verb:
    """Return the right that a kind of resource requires."""
    return "read" if kind == PROPERTIES else "subscribe" if kind == EVENTS else "invoke"


class BadCursor(ValueError):
    """Raised for a cursor that no list has returned."""


class Catalogue:
    """The offer of a node to MCP clients. The admission `None` permits everything.

    The tools and prompts of an agent that is offered `alone` are not prefixed with its name.
    """

    def __init__(self, rt: Runtime, exposure: Exposure, alone: str = "") -> None:
        self._rt = rt
        self._exposure = exposure
        self._alone = alone
        self._digests: dict[str, tuple[str, str]] = {}
        """The agent and its affordance for each name with a digest, as of `_version`."""
        self._version = -1

    # ---- what a name stands for

    def tool(self, name: str, admission: Admission | None) -> OfferedTool | None:
        """Return the tool with a name; None if the client may call no such tool."""
        exposed, what = self._named(name)
        found = None if exposed is None else offer_of(exposed.cls).tools.get(what)
        if exposed is None or found is None or not _may(admission, exposed.name, found.verb):
            return None
        return OfferedTool(name, exposed, found)

    def prompt(self, name: str, admission: Admission | None) -> OfferedPrompt | None:
        """Return the prompt with a name; None if the client may get no such prompt."""
        exposed, what = self._named(name)
        found = None if exposed is None else offer_of(exposed.cls).prompts.get(what)
        if exposed is None or found is None or not _may(admission, exposed.name, "invoke"):
            return None
        return OfferedPrompt(name, exposed, found)

    def _named(self, name: str) -> tuple[Exposed | None, str]:
        """Return the agent that a name refers to, and the name of its tool or prompt."""
        if DIGEST_MARK in name:
            parts = self._of_digest(name)
        elif self._alone:
            parts = (self._alone, name) if tool_name("", name) == name else None
        else:
            parts = parts_of(name)
        return (None, "") if parts is None else (self.agent(parts[0]), parts[1])

    def _of_digest(self, name: str) -> tuple[str, str] | None:
        if self._version != self._rt.population.version:
            self._digests = {
                found: (exposed.name, what)
                for exposed in self._agents()
                for offer in (offer_of(exposed.cls),)
                for what in (*offer.tools, *offer.prompts)
                if DIGEST_MARK in (found := self._name(exposed, what))
            }
            self._version = self._rt.population.version
        return self._digests.get(name)

    def _name(self, exposed: Exposed, what: str) -> str:
        return tool_name("" if self._alone else exposed.name, what)

    def resource(self, uri: str, admission: Admission | None) -> OfferedResource | None:
        """Return the resource with a URI; None if the client may read no such resource."""
        agent, kind, name = resource_parts(uri) or ("", "", "")
        exposed = self.agent(agent) if agent else None
        if exposed is None or not isinstance(exposed.link, Slot):
            return self._read(uri, admission)
        offer = offer_of(exposed.cls)
        about = (offer.properties if kind == PROPERTIES else offer.events).get(name)
        if about is None:
            return self._read(uri, admission)
        if not _may(admission, exposed.name, verb_of(kind)):
            return None
        return OfferedResource(uri, exposed, kind, name, about)

    def _read(self, uri: str, admission: Admission | None) -> OfferedResource | None:
        """Return the resource with a URI if an action provides it, otherwise None."""
        named = unquote(uri.removeprefix(OF_AGENTS).partition("/")[0]) if uri.startswith(OF_AGENTS) else ""
        exposed = self.agent(self._alone or named) if len(uri) <= LONGEST_URI else None
        if exposed is None or not _may(admission, exposed.name, "invoke"):
            return None
        for each in offer_of(exposed.cls).reads.values():
            texts = each.texts_in(uri, "" if self._alone else exposed.name)
            if texts is not None:
                return OfferedResource(uri, exposed, ACTIONS, each.name, each.description, each, texts)
        return None

    def agent(self, name: str) -> Exposed | None:
        """Return the offered agent or pool with a public name."""
        if "/" in name or self._alone not in ("", name):  # a path is not a public name
            return None
        exposed = self._exposure.named(name)
        return exposed if exposed is not None and is_offered(exposed) else None

    # ---- lists

    def _agents(self) -> Iterator[Exposed]:
        known = tuple(self._exposure)
        return (each for each in known if is_offered(each) and self._alone in ("", each.name))

    def classes(self) -> dict[str, type[Agent]]:
        """Return the classes of all offered agents, by public name."""
        return {exposed.name: exposed.cls for exposed in self._agents()}

    def tools(
        self, admission: Admission | None, after: str | None, most: int
    ) -> tuple[list[OfferedTool], str | None]:
        """Return a page of the tools that the client may call, by name, and the cursor of the next page.

        Raises BadCursor.
        """
        found = {
            (name := self._name(exposed, what)): OfferedTool(name, exposed, tool)
            for exposed in self._agents()
            for what, tool in offer_of(exposed.cls).tools.items()
            if _may(admission, exposed.name, tool.verb)
        }
        return _page(found, after, most)

    def prompts(
        self, admission: Admission | None, after: str | None, most: int
    ) -> tuple[list[OfferedPrompt], str | None]:
        """Return a page of the prompts that the client may get; see `tools`."""
        found = {
            (name := self._name(exposed, what)): OfferedPrompt(name, exposed, prompt)
            for exposed in self._agents()
            if _may(admission, exposed.name, "invoke")
            for what, prompt in offer_of(exposed.cls).prompts.items()
        }
        return _page(found, after, most)

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
        return _page(self._listed(admission, templates=False) | found, after, most)

    def templates(
        self, admission: Admission | None, after: str | None, most: int
    ) -> tuple[list[OfferedResource], str | None]:
        """Return a page of the resource templates that the client may read; see `tools`."""
        return _page(self._listed(admission, templates=True), after, most)

    def template(self, uri: str, admission: Admission | None) -> OfferedResource | None:
        """Return a template, or a resource that is an action, by the URI in its list."""
        return next((each for each in self._reads(admission) if each.uri == uri), None)

    def _listed(self, admission: Admission | None, *, templates: bool) -> dict[str, OfferedResource]:
        found = [each for each in self._reads(admission) if ("{" in each.uri) is templates]
        return {each.uri: each for each in reversed(found)}  # of two of one URI the first is read

    def _reads(self, admission: Admission | None) -> Iterator[OfferedResource]:
        for exposed in self._agents():
            if _may(admission, exposed.name, "invoke"):
                for name, each in offer_of(exposed.cls).reads.items():
                    uri = each.uri_of("" if self._alone else exposed.name)
                    yield OfferedResource(uri, exposed, ACTIONS, name, each.description, each)


def is_offered(exposed: Exposed) -> bool:
    """Return whether an agent is offered: not a system agent, and not a member of a pool."""
    return not is_of_system(exposed.cls) and not is_member(exposed.link)


def sees(admission: Admission | None, name: str) -> bool:
    """Return whether a client has any right over an agent."""
    verbs: tuple[Verb, ...] = ("read", "write", "invoke", "subscribe")
    return any(_may(admission, name, verb) for verb in verbs)


def _may(admission: Admission | None, name: str, verb: Verb) -> bool:
    return admission is None or admission.allows(name, verb)


def _resources(exposed: Exposed, offer: AgentOffer, admission: Admission | None) -> Iterator[OfferedResource]:
    for kind, named in ((PROPERTIES, offer.properties), (EVENTS, offer.events)):
        if _may(admission, exposed.name, verb_of(kind)):
            for name, about in named.items():
                yield OfferedResource(resource_uri(exposed.name, kind, name), exposed, kind, name, about)


def _page(found: Mapping[str, T], cursor: str | None, most: int) -> tuple[list[T], str | None]:
    """Return the entries after a cursor, and the next cursor.

    A cursor names an entry, so that no lasting entry is skipped while the list changes.
    """
    names = sorted(found)
    start = 0 if cursor is None else bisect_right(names, _name_in(cursor))
    page = names[start : start + most]
    return [found[name] for name in page], _cursor(page[-1]) if start + most < len(names) else None


def _cursor(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _name_in(cursor: str) -> str:
    try:
        name = urlsafe_b64decode(cursor[:4_096].encode("ascii")).decode()
    except ValueError:
        name = ""
    if name and _cursor(name) == cursor:
        return name
    raise BadCursor("the cursor is none that a list has returned")
