"""The things behind a recorded server whose descriptions have been seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import attrs
import msgspec

from lmos_actors.files import is_list, is_mapping
from lmos_actors.protocol.td import DescriptionError, effective_forms, load, method_of, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmos_actors.protocol.td import Description

    from ._redaction import Redaction

Schema: TypeAlias = "Mapping[str, Any]"

MOST: Final = 1_000
"""Maximum descriptions that are kept."""

OF_OUR_NODES: Final = re.compile(r"/agents/([^/?#]+)")
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")

ANYTHING: Final[Schema] = {}

ASKED: Final = ("readproperty", "writeproperty", "invokeaction")
LISTENED: Final = ("observeproperty", "subscribeevent")
"""The operations over HTTP that are written."""


@attrs.frozen
class Operation:
    """An operation at an address. `op` is its name in forms, `affordance` the affordance that it is on."""

    thing: Thing
    op: str
    affordance: str


@attrs.frozen(eq=False)
class Thing:
    """A thing whose description is known; `name` is its name in recordings."""

    id: str
    name: str
    description: Description

    def input_of(self, action: str) -> Schema | None:
        """Return the schema of the input of an action, None if it has no such action."""
        found = (self.description.actions or {}).get(action)
        return None if found is None else found.input or ANYTHING

    def output_of(self, action: str) -> Schema | None:
        """Return the schema of the output of an action, or of one item if the output is a stream."""
        found = (self.description.actions or {}).get(action)
        if found is None:
            return None
        streams = self.description.streams_of(action)
        if streams is not None and streams.output is not None:
            return streams.output.schema or ANYTHING
        return found.output or ANYTHING

    def progress_of(self, action: str) -> Schema | None:
        """Return the schema of the progress of an action."""
        if action not in (self.description.actions or {}):
            return None
        return self.description.progress_of(action) or ANYTHING

    def property_of(self, name: str) -> Schema | None:
        """Return the schema of a property."""
        found = (self.description.properties or {}).get(name)
        return None if found is None else {**found.schema, "writeOnly": found.write_only is True}

    def event_of(self, name: str) -> Schema | None:
        """Return the schema of the data of an event."""
        found = (self.description.events or {}).get(name)
        return None if found is None else found.data or ANYTHING


class Things:
    """The things whose descriptions have been seen."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._by_id: dict[str, Thing] = {}
        self._by_path: dict[str, Thing] = {}
        self._operations: dict[tuple[str, str, bool], Operation] = {}
        self._names: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def learn(self, text: bytes | str, source_url: str) -> int:
        """Store the descriptions in a text, which contains one or a list of several; return their number."""
        try:
            data = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return 0
        found = 0
        for each in data if is_list(data) else [data]:
            if is_mapping(each) and len(self._by_id) < MOST:
                found += self._learn(each, source_url)
        return found

    def _learn(self, data: dict[str, Any], source_url: str) -> bool:
        if "@context" not in data or not {"properties", "actions", "events"} & data.keys():
            return False
        try:
            description = load(data)
        except DescriptionError:
            return False
        thing_id = description.id or source_url
        for scheme in (description.security_definitions or {}).values():
            if scheme.location in ("header", "query", "cookie") and scheme.name:
                self._redaction.name_header(scheme.name)
        thing = Thing(thing_id, self.name_of(thing_id, _named_by(description, source_url)), description)
        self._by_id[thing_id] = thing
        for url in (thing_id, source_url):
            if (found := OF_OUR_NODES.search(url)) is not None:
                self._by_path[found[0]] = thing
        for method, path, op, affordance in _operations(description, source_url):
            if op in ASKED or op in LISTENED:
                self._operations[method, path, op in LISTENED] = Operation(thing, op, affordance)
        return True

    def find(self, thing_id: str) -> Thing | None:
        """Return a thing by its id, or None if its description is unknown.

        A client that has only an address makes an id from it, with the recorder's host. Such an id is found,
        too.
        """
        found = OF_OUR_NODES.search(thing_id)
        return self._by_id.get(thing_id) or (None if found is None else self._by_path.get(found[0]))

    def at(self, method: str, target: str, *, listens: bool) -> Operation | None:
        """Return the operation that an HTTP request carries out, or None if no known form describes it.

        With `listens` the client accepts a stream of events, so an observation is preferred to a read.
        """
        path = target.partition("?")[0]
        found = self._operations.get((method, path, True)) if listens else None
        return found or self._operations.get((method, path, False))

    def name_of(self, thing_id: str, hint: str = "") -> str:
        """Return the unique name of a thing in recordings."""
        known = self._names.get(thing_id)
        if known is not None:
            return known
        wanted = hint
        if not wanted:
            found = OF_OUR_NODES.search(thing_id)
            last = re.split(r"[/:#]", thing_id.rstrip("/:#"))[-1]
            wanted = last if found is None else unquote(found[1])
        base = plain_name(wanted)
        taken = set(self._names.values()) | {"user"}
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        if len(self._names) < MOST:
            self._names[thing_id] = name
        return name


def plain_name(text: str) -> str:
    """Return a text converted to a valid name of an agent in a scenario file."""
    name = _ODD.sub("-", text).strip("-")[:60]
    return name if re.match(r"[A-Za-z_]", name) else f"agent-{name}" if name else "agent"


def _named_by(description: Description, source_url: str) -> str:
    """Return the name of a thing at its node, else its title."""
    for _, path, _, _ in _operations(description, source_url):
        found = OF_OUR_NODES.match(path)
        if found is not None:
            return unquote(found[1])
    found = OF_OUR_NODES.search(source_url)
    return unquote(found[1]) if found is not None else description.title or ""


def _operations(description: Description, source_url: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield method, path, operation and affordance of all forms for HTTP."""
    base = resolve(source_url, description.base) if description.base else source_url
    described = attrs.evolve(description, base=base)
    for affordances in (described.properties, described.actions, described.events):
        for name, each in (affordances or {}).items():
            for form in effective_forms(described, each):
                if "{" in form.href or not form.href.lower().startswith(("http://", "https://")):
                    continue
                for op in form.ops:
                    try:
                        path = urlsplit(form.href).path or "/"
                    except ValueError:
                        continue
                    yield method_of(form, op), path, op, name
