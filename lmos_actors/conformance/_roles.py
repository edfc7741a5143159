"""What of a thing serves to try something out: which property, which action with which input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ._hints import Call, Hints, NewValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._inputs import Sample
    from ._target import Target


class NotOffered(Exception):
    """There is nothing to try it with: why."""


class NotRun(Exception):
    """It needs a permission or a hint: which, naming the option."""


@attrs.frozen(kw_only=True)
class Roles:
    """Picks what cases try things out with; the same for the same description, hints and seed.

    Methods that give one thing raise NotOffered where the description has none, and NotRun where it has one
    that may not be used without `allow_unsafe` or a hint. Names and calls come in the order of preference.
    """

    target: Target
    hints: Hints = attrs.field(factory=Hints)
    allow_unsafe: bool = False
    seed: str = "0"
    """The inputs that are invented come from `Random(f"{seed}:{action}")`."""

    # --- properties

    def readable_property(self, wanted: Callable[[str], bool] | None = None) -> str:
        """Name a property to read, one of those that `wanted` takes."""
        raise NotImplementedError

    def writable_property(self) -> str:
        """Name a property that can be read and written, so that what is read can be written back."""
        raise NotImplementedError

    def read_only_property(self) -> str:
        """Name a read-only property that can be read."""
        raise NotImplementedError

    def write_only_property(self) -> str:
        """Name a write-only property."""
        raise NotImplementedError

    def observable_property(self) -> str:
        """Name a property to observe: one that can be changed, if there is one."""
        raise NotImplementedError

    def change_of(self, name: str, value: Any) -> Call | NewValue:
        """Say what changes a property from `value`: the hint, or with `allow_unsafe` another value for it."""
        raise NotImplementedError

    def changeable_property(self) -> str:
        """Name an observable property for which `change_of` has an answer."""
        raise NotImplementedError

    # --- actions

    def call(self, action: str) -> Call:
        """Give the call of an action with a valid input: the hint's, or one invented by the seed."""
        raise NotImplementedError

    def safe_call(self, *, input: bool | None = None, output: bool | None = None) -> Call:
        """Give the call of an action that may be invoked, ends by itself, and does not fail as its purpose.

        `input`, `output`: True: it has a schema for it; False: it has none; None: no matter.
        """
        raise NotImplementedError

    def safe_calls(self) -> tuple[Call, ...]:
        """Give the calls of all actions that may be invoked, as `safe_call` has it; at least one."""
        raise NotImplementedError

    def unsafe_action(self) -> str:
        """Name an action that is not safe. It is not to be invoked but with `allow_unsafe`."""
        raise NotImplementedError

    def slow_call(self) -> Call:
        """Give the call of a run that takes a while: the hint's, else of an action not synchronous."""
        raise NotImplementedError

    def failing_call(self) -> Call:
        """Give the call of a run that fails: the hint's, else of an action that is called so."""
        raise NotImplementedError

    def streamed_call(self) -> Call:
        """Give the call of an action whose output is a stream (`lmosx:streams`) and that takes none."""
        raise NotImplementedError

    def wrong_input(self) -> tuple[str, Sample]:
        """Give an action that may be invoked, and an input that does not fit it."""
        raise NotImplementedError

    # --- events

    def event(self) -> str:
        """Name an event: one with a hint for its trigger, if there is one."""
        raise NotImplementedError

    def triggers(self, event: str) -> tuple[Call, ...]:
        """Give the calls that may make an event happen, the likeliest first."""
        raise NotImplementedError

    # --- names that are not there

    def unknown_property(self) -> str:
        """Give a name that no property has, nor anything else of the thing."""
        return self.target.unknown_property()

    def unknown_action(self) -> str:
        """Give a name that no action has, nor anything else of the thing."""
        return self.target.unknown_action()

    def unknown_event(self) -> str:
        """Give a name that no event has, nor anything else of the thing."""
        return self.target.unknown_event()

    def unknown_thing(self) -> str:
        """Give an id, a URI, that no thing known here has."""
        return self.target.unknown_thing()
