"""The choice of affordances for cases: a property, or an action and its input."""

from __future__ import annotations

from difflib import SequenceMatcher
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.conformance.inputs import (
    another,
    as_object,
    largest,
    smallest,
    valid,
)

from ._hints import Call, Hints, NewValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ._target import Target

_FAILING: Final = ("fail", "fails", "failing", "failure")
_TIMES: Final = ("wait", "sleep", "delay", "second", "duration")
_UNSAFE: Final = "--allow-unsafe lets it be invoked"


class NotOffered(Exception):
    """The description offers nothing to run a case with; the text is the reason."""


class NotRun(Exception):
    """A case needs a permission or a hint; the text names its option."""


@attrs.frozen(kw_only=True)
class Roles:
    """The choice of affordances and values for the cases, determined by description, hints and seed.

    Methods that return one choice raise NotOffered if the description has none, and NotRun if it has one that
    may not be used without `allow_unsafe` or a hint. Names and calls are returned in the order of preference.
    A hint overrides the description, but does not permit an action that is not safe.
    """

    target: Target
    hints: Hints = attrs.field(factory=Hints)
    allow_unsafe: bool = False
    seed: str = "0"
    """Seed of invented inputs, which come from `Random(f"{seed}:{action}")`."""

    # --- properties

    def readable_property(self, wanted: Callable[[str], bool] | None = None) -> str:
        """Return the name of a readable property that `wanted` accepts."""
        found = [name for name in self.target.readable() if wanted is None or wanted(name)]
        return _first(found, "it describes no property that can be read for this")

    def writable_property(self) -> str:
        """Return the name of a property that can be read and written, so that its value can be restored."""
        return _first(self.target.restorable(), "it describes no property that can be both read and written")

    def read_only_property(self) -> str:
        """Return the name of a read-only property that can be read."""
        return _first(self.target.read_only(), "it describes no read-only property")

    def write_only_property(self) -> str:
        """Return the name of a write-only property."""
        return _first(self.target.write_only(), "it describes no write-only property")

    def observable_property(self) -> str:
        """Return the name of a property to observe, preferably of one that can be changed."""
        found = self.target.observable()
        changing = [name for name in found if self._is_changeable(name)]
        return _first((*changing, *found), "it describes no observable property")

    def change_of(self, name: str, value: Any) -> Call | NewValue:
        """Return a change of a property whose present value is `value`.

        It is the change in the hints or, with `allow_unsafe`, the writing of another value.
        """
        hinted = self.hints.changes.get(name)
        if isinstance(hinted, Call):
            return self.allowed(hinted)
        if hinted is None and name not in self.target.restorable():
            raise NotRun(f"what changes {name} is not known: name it under changes, --hints")
        if not self.allow_unsafe:
            raise NotRun(f"{name} would be written with another value: --allow-unsafe lets it")
        if hinted is not None:
            return hinted
        try:
            found = another(self.target.properties[name].schema, value, self._random(name))
        except ValueError:
            raise NotRun(f"no other value for {name} was found: name it under changes, --hints") from None
        return NewValue(value=found)

    def changeable_property(self) -> str:
        """Return the name of an observable property that `change_of` can change."""
        found = self.target.observable()
        if not found:
            raise NotOffered("it describes no observable property")
        for name in found:
            if self._is_changeable(name):
                return name
        self.change_of(found[0], None)  # which says why not
        raise NotRun(f"what changes {found[0]} is not known: name it under changes, --hints")

    def _is_changeable(self, name: str) -> bool:
        try:
            self.change_of(name, None)
        except NotRun:
            return False
        return True

    # --- actions

    def call(self, action: str) -> Call:
        """Return a call of an action with a valid input: the one in the hints, or one generated from the
        seed.

        The caller must check whether the action may be invoked.
        """
        return self._call(action, valid)

    def _call(self, action: str, invent: Callable[[dict[str, Any], Random], Any]) -> Call:
        if action in self.hints.inputs:
            return Call(action=action, input=self.hints.inputs[action])
        affordance = self.target.actions.get(action)
        if affordance is None or affordance.input is None:
            return Call(action=action)
        try:
            return Call(action=action, input=invent(affordance.input, self._random(action)))
        except ValueError:
            raise NotRun(f"no input for {action} could be made: name one under inputs, --hints") from None

    def safe_call(self, *, input: bool | None = None, output: bool | None = None) -> Call:
        """Return the call of an action that may be invoked, ends by itself, and is not meant to fail.

        `input` and `output`: True if the action must have a schema for it, False if it must have none, None
        for either.
        """
        names = [name for name in self._plain() if self._has(name, input, output)]
        asked = "".join(
            f" {'with' if wanted else 'without'} an {word}"
            for word, wanted in (("input", input), ("output", output))
            if wanted is not None
        )
        return self._first_call(names, f"it describes no action{asked}", self._quick)

    def safe_calls(self) -> tuple[Call, ...]:
        """Return the calls of all actions that `safe_call` accepts; at least one."""
        first = self.safe_call()
        return first, *(call for call in self._made(self._plain(), self._quick) if call != first)

    def _has(self, name: str, input: bool | None, output: bool | None) -> bool:
        action = self.target.actions[name]
        return input in (None, action.input is not None) and output in (None, action.output is not None)

    def slow_call(self) -> Call:
        """Return a call whose run takes a while: the one in the hints, or one of an asynchronous action.

        An action that seems to take a duration, judging by its name or the members of its input, is
        preferred.
        """
        if self.hints.slow is not None:
            return self.allowed(self.hints.slow)
        self._needs_actions()
        names = [name for name in self._plain() if self.target.actions[name].synchronous is not True]
        timed = [name for name in names if self._is_timed(name)]
        lasting = timed or [name for name in names if self.target.actions[name].synchronous is False]
        if not lasting:
            raise NotRun("it is not known which action takes a while: name one as slow, --hints")
        return self._first_call(lasting, "", lambda name: self._call(name, largest))

    def failing_call(self) -> Call:
        """Return a call whose run fails: from the hints, or of an action whose name suggests failure."""
        if self.hints.fails is not None:
            return self.allowed(self.hints.fails)
        self._needs_actions()
        names = [name for name in self.target.actions if self._is_failing(name)]
        if not names:
            raise NotRun("it is not known which action fails: name one as fails, --hints")
        return self._first_call(names, "", self.call)

    def streamed_call(self) -> Call:
        """Return the call of an action that takes no stream and answers with one (`lmosx:streams`).

        Its input is as large as possible, so that there are several items.
        """
        known = ((name, self.target.readable_part.streams_of(name)) for name in self.target.actions)
        names = [name for name, each in known if each and each.output and not each.input]
        why = "it describes no action that answers by a stream and takes none"
        return self._first_call(names, why, lambda name: self._call(name, largest))

    def fed_call(self, *, binary: bool, answers: bool = False) -> tuple[Call, str, dict[str, Any] | None]:
        """Return the call of an action with one input stream, the stream's name, and its items' schema.

        `binary`: the items are bytes, which have no schema; `answers`: the output is a stream, too.
        """
        found: dict[str, tuple[str, dict[str, Any] | None]] = {}
        for name in self.target.actions:
            streams = self.target.readable_part.streams_of(name)
            inputs = (streams and streams.input) or {}
            if len(inputs) != 1 or (answers and (streams is None or streams.output is None)):
                continue
            [(parameter, stream)] = inputs.items()
            if (stream.content_type != "application/json") == binary:
                found[name] = parameter, None if stream.schema is None else dict(stream.schema)
        why = f"it describes no action with one input stream of {'bytes' if binary else 'JSON'}"
        call = self._first_call(list(found), why + (" and an answer in items" * answers), self._quick)
        return call, *found[call.action]

    # --- events

    def event(self) -> str:
        """Return the name of an event, preferably of one with a hint for its trigger."""
        found = [*(name for name in self.target.events if name in self.hints.triggers), *self.target.events]
        return _first(found, "it describes no event")

    def triggers(self, event: str) -> tuple[Call, ...]:
        """Return the calls that may cause an event, the likeliest first, or () if none may be invoked."""
        hinted = self.hints.triggers.get(event)
        if hinted is not None:
            return (hinted,) if self._may(hinted.action) else ()
        calls = self._made(self._plain(), self._quick)
        likeliest = sorted(calls, key=lambda call: -_likeness(call.action, event))
        return tuple(likeliest[:12])  # no more are tried

    # --- what may be invoked, and in which order

    def _random(self, name: str) -> Random:
        return Random(f"{self.seed}:{name}")

    def _may(self, action: str) -> bool:
        return self.allow_unsafe or action in self.target.safe_actions()

    def allowed(self, call: Call) -> Call:
        """Return the call if it may be invoked, else raise NotRun."""
        if not self._may(call.action):
            raise NotRun(f"{call.action} is not safe: {_UNSAFE}")
        return call

    def _is_streamed(self, action: str) -> bool:
        streams = self.target.readable_part.streams_of(action)
        return streams is not None and bool(streams.output or streams.input)

    def _is_failing(self, action: str) -> bool:
        hinted = self.hints.fails is not None and self.hints.fails.action == action
        return hinted or action.lower() in _FAILING

    def _plain(self) -> list[str]:
        """Return the names of actions without streams that are not meant to fail."""
        names = self.target.actions
        return [each for each in names if not self._is_streamed(each) and not self._is_failing(each)]

    def _ordered(self, names: Iterable[str]) -> list[str]:
        """Return the names of the actions that may be invoked: hinted ones first, slow ones last."""
        allowed = [name for name in names if self._may(name)]
        return sorted(allowed, key=lambda name: (name not in self.hints.inputs, self._takes_long(name)))

    def _takes_long(self, action: str) -> bool:
        hinted = self.hints.slow is not None and self.hints.slow.action == action
        return hinted or self._is_timed(action) or self.target.actions[action].synchronous is False

    def _is_timed(self, action: str) -> bool:
        """Return whether an action seems to take a duration, judging by its name and its input's members."""
        schema = self.target.actions[action].input or {}
        names = " ".join([action, *as_object(schema.get("properties"))]).lower()
        return any(word in names for word in _TIMES)

    def _quick(self, action: str) -> Call:
        return self._call(action, smallest if self._takes_long(action) else valid)

    def _made(self, names: Iterable[str], make: Callable[[str], Call]) -> Iterator[Call]:
        for name in self._ordered(names):
            try:
                yield make(name)
            except NotRun:
                continue

    def _needs_actions(self) -> None:
        if not self.target.actions:
            raise NotOffered("it describes no action")

    def _first_call(self, names: list[str], why: str, make: Callable[[str], Call]) -> Call:
        """Return the first call that can be made for one of the names.

        Raises NotOffered with `why` if there are no names, and NotRun if no call may or can be made.
        """
        allowed = self._ordered(names)
        if not names:
            raise NotOffered(why)
        if not allowed:
            raise NotRun(f"{names[0]} is not safe: {_UNSAFE}")
        for call in self._made(allowed, make):
            return call
        return make(allowed[0])  # which says why not


def _first(names: Iterable[str], why: str) -> str:
    for name in names:
        return name
    raise NotOffered(why)


def _likeness(action: str, event: str) -> float:
    return SequenceMatcher(None, action.lower(), event.lower(), autojunk=False).ratio()
