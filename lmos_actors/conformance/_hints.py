"""What a person knows of a thing and its description does not say: a file of hints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from lmos_actors.files import Document


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An action to invoke. Without an `input` (then it is `msgspec.UNSET`) the message has none."""

    action: str
    input: Any = msgspec.UNSET

    @property
    def has_input(self) -> bool:
        """Whether there is an input; it may be null."""
        return self.input is not msgspec.UNSET

    def members(self) -> dict[str, Any]:
        """Give the members of an `invokeAction` that say the input: `{"input": ...}` or none."""
        return {"input": self.input} if self.has_input else {}


class NewValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value to write to a property, so that it changes."""

    value: Any


@attrs.frozen(kw_only=True)
class Hints:
    """Hints, by the names of the description.

    `inputs`: what to invoke an action with. `triggers`: what makes an event happen. `slow`: a run that lasts
    a second or so at least. `fails`: a run that fails. `changes`: what changes a property.
    """

    inputs: dict[str, Any] = attrs.field(factory=dict[str, Any])
    triggers: dict[str, Call] = attrs.field(factory=dict[str, Call])
    slow: Call | None = None
    fails: Call | None = None
    changes: dict[str, Call | NewValue] = attrs.field(factory=dict[str, "Call | NewValue"])
    document: Document | None = attrs.field(default=None, repr=False, eq=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Hints:
        """Read a YAML, TOML or JSON file of hints. Blocks on the disk. Raises FileError with every mistake."""
        raise NotImplementedError

    def check(self, *, properties: Iterable[str], actions: Iterable[str], events: Iterable[str]) -> None:
        """Hold the names against those of a description. Raises FileError with every one that it has not."""
        raise NotImplementedError
