"""What a description offers, sorted by what it is good for, and which of it serves to try something out."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._errors import nearest
from lmos_actors.protocol.td import Description, choose, effective_forms, method_of

from ._hints import Call, Hints, NewValue
from ._inputs import another, largest, samples, valid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmos_actors.protocol.td import ActionAffordance, AnyAffordance, EventAffordance, PropertyAffordance

    from ._inputs import Sample

_WEB: Final = ("https", "http")
_FAILING: Final = ("fail", "fails", "failing", "error", "crash", "raise")
_MISFITS: Final = ("conformance-unknown", "no-such-thing", "nothing-of-this-name")


@attrs.frozen(kw_only=True)
class HttpForm:
    """How an operation is carried out over HTTP."""

    url: str
    method: str
    content_type: str


@attrs.frozen(kw_only=True)
class Affordances:
    """The affordances of a thing, as far as its description can be read.

    All that it gives is in the order of the description, or of preference where one is said; it is the same
    for the same description, hints and random numbers. An action may be invoked if it is safe, or with
    `unsafe`. A hint stands over what the description seems to say, but for that.
    """

    readable_part: Description = attrs.field(factory=Description)
    """What of the description can be read; its hrefs are resolved as far as they can be."""

    @property
    def properties(self) -> dict[str, PropertyAffordance]:
        """The properties that can be read of the description, by name."""
        return self.readable_part.properties or {}

    @property
    def actions(self) -> dict[str, ActionAffordance]:
        """The actions, likewise."""
        return self.readable_part.actions or {}

    @property
    def events(self) -> dict[str, EventAffordance]:
        """The events, likewise."""
        return self.readable_part.events or {}

    @property
    def offers(self) -> frozenset[str]:
        """What the description has in `lmosx:offers`."""
        return frozenset(self.readable_part.offers or ())

    # --- properties

    def readable(self) -> tuple[str, ...]:
        """Name the properties that can be read."""
        return tuple(name for name, each in self.properties.items() if not each.write_only)

    def writable(self) -> tuple[str, ...]:
        """Name the properties that can be written."""
        return tuple(name for name, each in self.properties.items() if not each.read_only)

    def restorable(self) -> tuple[str, ...]:
        """Name the properties that can be read and written: what is read can be written back."""
        return tuple(name for name in self.readable() if not self.properties[name].read_only)

    def read_only(self) -> tuple[str, ...]:
        """Name the properties that can be read and are read-only."""
        return tuple(name for name in self.readable() if self.properties[name].read_only)

    def write_only(self) -> tuple[str, ...]:
        """Name the properties that can be written and are write-only."""
        return tuple(name for name in self.writable() if self.properties[name].write_only)

    def observable(self) -> tuple[str, ...]:
        """Name the properties that can be observed."""
        return tuple(name for name in self.readable() if self.properties[name].observable)

    def changes(
        self, name: str, value: Any, hints: Hints, random: Random, *, unsafe: bool = False
    ) -> Call | NewValue | None:
        """Say what changes a property from `value`: the hint, or another value if it can be written."""
        raise NotImplementedError

    # --- actions

    def safe_actions(self) -> tuple[str, ...]:
        """Name the actions that are safe."""
        return tuple(name for name, each in self.actions.items() if each.safe)

    def unsafe_actions(self) -> tuple[str, ...]:
        """Name the actions that are not."""
        return tuple(name for name, each in self.actions.items() if not each.safe)

    def call(self, action: str, hints: Hints, random: Random) -> Call | None:
        """Give the call of an action with a valid input, the hint's or an invented one; None if none can be made."""
        raise NotImplementedError

    def calls(self, hints: Hints, random: Random, *, unsafe: bool = False) -> tuple[Call, ...]:
        """Give calls of actions that may be invoked: quick ones that should complete with one answer first.

        Left out are those whose answer or whose input is a stream.
        """
        raise NotImplementedError

    def slow_call(self, hints: Hints, random: Random, *, unsafe: bool = False) -> Call | None:
        """Give the call of a run that takes a while: the hint's, else of an action that is not synchronous."""
        raise NotImplementedError

    def failing_call(self, hints: Hints, random: Random, *, unsafe: bool = False) -> Call | None:
        """Give the call of a run that fails: the hint's, else of an action that is called so."""
        raise NotImplementedError

    def streamed_call(self, hints: Hints, random: Random, *, unsafe: bool = False) -> Call | None:
        """Give the call of an action whose answer is a stream (`lmosx:streams`), and whose input is none."""
        raise NotImplementedError

    def wrong_inputs(
        self, hints: Hints, random: Random, *, unsafe: bool = False
    ) -> tuple[tuple[str, Sample], ...]:
        """Give inputs that do not fit, each with the action that may be invoked with it."""
        raise NotImplementedError

    # --- events

    def triggers(self, event: str, hints: Hints, random: Random, *, unsafe: bool = False) -> tuple[Call, ...]:
        """Give the calls that may make an event happen, the likeliest first."""
        raise NotImplementedError

    # --- over HTTP

    def http_form(self, kind: str, name: str, op: str) -> HttpForm | None:
        """Say how an operation (`readproperty`) on an affordance (`properties`, `level`) is done over HTTP."""
        raise NotImplementedError

    # --- what is not there

    def unknown_property(self) -> str:
        """Give a name that no property has, nor anything else of the thing."""
        return self._unknown("Property")

    def unknown_action(self) -> str:
        """Give a name that no action has, nor anything else of the thing."""
        return self._unknown("Action")

    def unknown_event(self) -> str:
        """Give a name that no event has, nor anything else of the thing."""
        return self._unknown("Event")

    def _unknown(self, kind: str) -> str:
        raise NotImplementedError
