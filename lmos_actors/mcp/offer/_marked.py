"""The prompts and the resources that agents of one class offer by actions (`prompt`, `resource`)."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import attrs
import msgspec

from lmos_actors.actors import MISSING
from lmos_actors.bindings import valued
from lmos_actors.errors import InvalidInput
from lmos_actors.protocol.td import without_notes

from ._names import OF_AGENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.actors import Operation

    from .._marks import Mark

MOST_VALUES: Final = 100
"""Maximum values of a completion, by the protocol."""

_PART: Final = re.compile(r"\{(\w+)\}")


@attrs.frozen(slots=False, eq=False)
class Marked:
    """An action that is a prompt or a resource."""

    name: str
    mark: Mark
    description: str
    op: Operation

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The Python names of the parameters, by their names on the wire."""
        return {each.wire_name: each.name for each in self.op.params}

    @property
    def needed(self) -> frozenset[str]:
        """The names on the wire of the parameters without a default."""
        return frozenset(each.wire_name for each in self.op.params if each.default is MISSING)

    def about(self, name: str) -> str:
        """Return the description of a parameter, by its name on the wire; empty if it has none."""
        shape = next(each.shape for each in self.op.params if each.wire_name == name)
        return str(without_notes(shape.schema).get("description", ""))

    def arguments(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Convert the texts from a client to the arguments of the action. Raises InvalidInput."""
        for name in texts:
            if name not in self.names:
                raise InvalidInput(f"there is no argument {name[:100]!r}", f"$.{name[:100]}")
        for name in sorted(self.needed - texts.keys()):
            raise InvalidInput(f"the argument {name!r} is needed", f"$.{name}")
        return {
            each.name: valued(texts[each.wire_name], each.shape.schema)
            for each in self.op.params
            if each.wire_name in texts
        }

    def uri_of(self, agent: str) -> str:
        """Return the URI, or its template, below the name of an agent; as written if the name is empty."""
        uri = self.mark.uri
        return f"{OF_AGENTS}{quote(agent, safe='')}/{uri.partition('://')[2]}" if agent else uri

    def texts_in(self, uri: str, agent: str) -> dict[str, str] | None:
        """Return the texts for the parts of a URI, by names on the wire; None for another resource's URI."""
        whole = self.uri_of(agent)
        start, _, rest = whole.partition("{")
        found = self._pattern.fullmatch(uri[len(start) :]) if rest else None
        if not uri.startswith(start) or (found is None and uri != whole):
            return None
        wire = {python: name for name, python in self.names.items()}
        parts = {} if found is None else found.groupdict()
        texts = {wire[name]: unquote(text) for name, text in parts.items()}
        spelt = {wire[name]: quote(texts[wire[name]], safe="") for name in self.mark.variables}
        again = _PART.sub(lambda part: spelt[wire[part[1]]], whole)
        return texts if again == uri else None  # there is one spelling of each

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The pattern for the end of the URI, from the first part that is filled in.

        A part ends at the first occurrence of the text after it, and the search does not backtrack. So no URI
        can make it try all places where the parts could end.
        """
        rest = self.mark.uri[self.mark.uri.find("{") :]
        _, *pieces = _PART.split(rest)  # names of parts, each with what comes behind it
        *ended, (last, end) = zip(pieces[::2], pieces[1::2], strict=True)
        begin = "".join(f"(?>(?P<{name}>[^/?#]+?){re.escape(behind)})" for name, behind in ended)
        return re.compile(f"{begin}(?P<{last}>[^/?#]+){re.escape(end)}")

    def choices(self, name: str, typed: str) -> list[str]:
        """Return the choices of a parameter's type that begin with a text."""
        shape = next(each.shape for each in self.op.params if each.wire_name == name)
        begin = typed.casefold()
        return [each for each in _texts_of(shape.schema) if each.casefold().startswith(begin)]


def _texts_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the values that a schema names, as texts."""
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    if schema.get("type") == "boolean":
        values = [True, False]
    texts = [each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in values]
    return texts + [text for each in schema.get("oneOf", ()) for text in _texts_of(each)]
