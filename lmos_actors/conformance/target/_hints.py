"""Hints about a thing, from a file: facts that its description does not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.files import FileError, Mistake, did_you_mean, load

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from lmos_actors.files import DataPath, Document


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An action to invoke. Without an `input` (`msgspec.UNSET`), the message has no input."""

    action: str
    input: Any = msgspec.UNSET

    @property
    def has_input(self) -> bool:
        """Whether there is an input; it may be null."""
        return self.input is not msgspec.UNSET

    def members(self) -> dict[str, Any]:
        """Return the members that the input adds to an `invokeAction`: `{"input": ...}` or none."""
        return {"input": self.input} if self.has_input else {}


class NewValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value to write to a property, so that it changes."""

    value: Any


class _File(msgspec.Struct, frozen=True, kw_only=True):
    inputs: dict[str, Any] = {}
    triggers: dict[str, Call] = {}
    slow: Call | None = None
    fails: Call | None = None
    changes: dict[str, Call | NewValue] = {}


_NAMED: Final = (("inputs", "actions"), ("triggers", "events"), ("changes", "properties"))
_ONE: Final = {"actions": "action", "events": "event", "properties": "property"}


@attrs.frozen(kw_only=True)
class Hints:
    """Hints about affordances, by their names in the description.

    `inputs`: the inputs of actions. `triggers`: the calls that make events happen. `slow`: a call whose run
    takes about a second or more. `fails`: a call whose run fails. `changes`: the changes of properties.
    """

    inputs: dict[str, Any] = attrs.field(factory=dict[str, Any])
    triggers: dict[str, Call] = attrs.field(factory=dict[str, Call])
    slow: Call | None = None
    fails: Call | None = None
    changes: dict[str, Call | NewValue] = attrs.field(factory=dict[str, "Call | NewValue"])
    document: Document | None = attrs.field(default=None, repr=False, eq=False)
    """The file that they were read from, for the places of mistakes."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Hints:
        """Read a YAML, TOML or JSON file of hints. Blocks on the disk. Raises FileError with all mistakes."""
        loaded = load(path, _File)
        return cls(**msgspec.structs.asdict(loaded.value), document=loaded.document)

    def check(self, *, properties: Iterable[str], actions: Iterable[str], events: Iterable[str]) -> None:
        """Compare the names in the hints with a description. Raises FileError with each unknown name."""
        known = {"properties": list(properties), "actions": list(actions), "events": list(events)}
        wrong = [
            self._mistake(place, f'no {_ONE[kind]} "{name}"{did_you_mean(name, known[kind])}', key=key)
            for place, key, kind, name in self._names()
            if name not in known[kind]
        ]
        if wrong:
            raise FileError(wrong)

    def _names(self) -> Iterator[tuple[DataPath, bool, str, str]]:
        """Yield for each name: its place, whether it is a key, the kind of affordance, and the name."""
        for member, kind in _NAMED:
            for name, hint in getattr(self, member).items():
                yield (member, name), True, kind, name
                if isinstance(hint, Call) and member != "inputs":
                    yield (member, name, "action"), False, "actions", hint.action
        for member, call in (("slow", self.slow), ("fails", self.fails)):
            if call is not None:
                yield (member, "action"), False, "actions", call.action

    def _mistake(self, place: DataPath, message: str, *, key: bool) -> Mistake:
        if self.document is not None:
            return self.document.mistake(place, message, "name", key=key)
        return Mistake("hints", 0, 0, f"{'.'.join(map(str, place))}: {message}", "name")
