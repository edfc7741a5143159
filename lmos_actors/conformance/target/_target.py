"""The judged thing: its affordances, by the operations that they allow, and its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_URL, uuid5

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import Description, choose, effective_forms, expand, method_of

from ._lookup import is_url
from ._things import Thing, readable_part

if TYPE_CHECKING:
    from lmos_actors.protocol.td import (
        ActionAffordance,
        AnyAffordance,
        EventAffordance,
        Form,
        PropertyAffordance,
    )

_WEB: Final = ("https", "http")


@attrs.frozen(kw_only=True)
class HttpForm:
    """The request that carries out an operation over HTTP: its URL, method and content type."""

    url: str
    method: str
    content_type: str


@attrs.frozen(kw_only=True)
class Target:
    """A thing, its affordances in the order of its description, and how to reach it.

    `given`: the URL as requested. `others`: further things whose LMOS form leads to the same socket.
    `socket`: the `ws` or `wss` URL, or None if the description has no form for LMOS. `form`: the form with
    that URL, or None if the socket itself was given. `readable_part`: the readable part of the description;
    its base is absolute if an absolute one is known.
    """

    given: str
    thing: Thing
    others: tuple[Thing, ...] = ()
    socket: str | None = None
    form: Form | None = None
    readable_part: Description = attrs.field(factory=Description)

    @property
    def properties(self) -> dict[str, PropertyAffordance]:
        """The readable part of the description's properties, by name."""
        return self.readable_part.properties or {}

    @property
    def actions(self) -> dict[str, ActionAffordance]:
        """The readable part of the description's actions, by name."""
        return self.readable_part.actions or {}

    @property
    def events(self) -> dict[str, EventAffordance]:
        """The readable part of the description's events, by name."""
        return self.readable_part.events or {}

    @property
    def offers(self) -> frozenset[str]:
        """The value of `lmosx:offers` in the description."""
        return frozenset(self.readable_part.offers or ())

    # --- properties

    def readable(self) -> tuple[str, ...]:
        """Return the names of the properties that can be read."""
        return tuple(name for name, each in self.properties.items() if not each.write_only)

    def writable(self) -> tuple[str, ...]:
        """Return the names of the properties that can be written."""
        return tuple(name for name, each in self.properties.items() if not each.read_only)

    def restorable(self) -> tuple[str, ...]:
        """Return the names of properties that can be read and written, so that values can be restored."""
        return tuple(name for name in self.readable() if not self.properties[name].read_only)

    def read_only(self) -> tuple[str, ...]:
        """Return the names of the properties that are read-only and can be read."""
        return tuple(name for name in self.readable() if self.properties[name].read_only)

    def write_only(self) -> tuple[str, ...]:
        """Return the names of the properties that are write-only and can be written."""
        return tuple(name for name in self.writable() if self.properties[name].write_only)

    def observable(self) -> tuple[str, ...]:
        """Return the names of the properties that can be observed."""
        return tuple(name for name in self.readable() if self.properties[name].observable)

    def any_property(self, *, but: str | None = None) -> str:
        """Return the name of a readable property other than `but`, or else a name that no property has."""
        return next((name for name in self.readable() if name != but), None) or self.unknown_property()

    # --- actions

    def safe_actions(self) -> tuple[str, ...]:
        """Return the names of the actions that are declared safe."""
        return tuple(name for name, each in self.actions.items() if each.safe)

    # --- over HTTP

    def http_form(self, kind: str, name: str, op: str) -> HttpForm | None:
        """Return the HTTP form of an operation (`readproperty`) on an affordance (`properties`, `level`).

        Returns None without such a form. A form with a subprotocol, such as `sse`, is for observation only
        and does not count.
        """
        affordance = self._named(kind, name)
        if affordance is None:
            return None
        form = choose(effective_forms(self.readable_part, affordance), op, _WEB)
        try:
            url = None if form is None else expand(form.href, {})
        except ConfigError:
            return None
        if form is None or url is None:
            return None
        return HttpForm(url=url, method=method_of(form, op), content_type=form.content_type or "")

    def _named(self, kind: str, name: str) -> AnyAffordance | None:
        if kind == "properties":
            return self.properties.get(name)
        return self.actions.get(name) if kind == "actions" else self.events.get(name)

    # --- what is not there

    def unknown_property(self) -> str:
        """Return a name that no affordance of the thing has, for an unknown property."""
        return self._unknown("noSuchProperty")

    def unknown_action(self) -> str:
        """Return a name that no affordance of the thing has, for an unknown action."""
        return self._unknown("noSuchAction")

    def unknown_event(self) -> str:
        """Return a name that no affordance of the thing has, for an unknown event."""
        return self._unknown("noSuchEvent")

    def unknown_thing(self) -> str:
        """Return a URI that is the id of no known thing."""
        known = "\n".join([self.thing.id, *(other.id for other in self.others)])
        return uuid5(NAMESPACE_URL, known.encode("utf-8", "replace").decode()).urn

    def _unknown(self, word: str) -> str:
        known = [name.lower() for name in (*self.properties, *self.actions, *self.events)]
        number, name = 1, word
        while name.lower() in known:
            number += 1
            name = f"{word}{number}"
        return name

    # --- the other things

    def other(self, thing: Thing) -> Target:
        """Return another thing on the same socket as a target of its own."""
        described = readable_part(thing, thing.where if is_url(thing.where) else None)
        rest = tuple(each for each in (self.thing, *self.others) if each is not thing)
        return attrs.evolve(self, thing=thing, others=rest, readable_part=described)
