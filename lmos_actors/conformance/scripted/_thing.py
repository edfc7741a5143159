"""A scripted thing: its values, actions and problems, independent of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
from jsonschema_rs import Draft7Validator

from ._description import VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json: TypeAlias = dict[str, Any]

_LMOS: Final = "https://eclipse.dev/lmos/protocol/v1/errors#"
_OURS: Final = "urn:lmos-actors:errors#"
ABSENT: Final = object()
"""Stands for an absent value; null is a value."""


class Problem(Exception):
    """A problem with a request. `status` as in HTTP; `more`: further members of the `error`."""

    def __init__(self, kind: str, title: str, status: int, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.type, self.title, self.status, self.detail, self.more = kind, title, status, detail, more


def invalid(detail: str, path: str = "$") -> Problem:
    """Return the problem of an invalid message or value."""
    return Problem(f"{_OURS}invalid-input", "Invalid Input", 400, detail, path=path)


def not_found(what: str, name: str) -> Problem:
    """Return the problem of a name that does not exist."""
    return Problem(f"{_LMOS}not-found", f"{what.title()} Not Found", 404, f"there is no {what} {name!r}")


def not_allowed(detail: str) -> Problem:
    """Return the problem of a property that cannot be read, written or observed."""
    return Problem(f"{_LMOS}operation-not-allowed", "Operation Not Allowed", 405, detail)


def reused() -> Problem:
    """Return the problem of a key that was already used for a different request."""
    return Problem(f"{_OURS}key-reused", "Key Reused", 422, "the key names another request")


def unsupported(kind: str) -> Problem:
    """Return the problem of an unknown message type."""
    title = "Unsupported Message Type"
    return Problem(f"{_LMOS}unsupported-message-type", title, 400, f"there is no message type {kind!r}")


def refused(output: Any) -> Problem:
    """Return the problem of an action that failed as declared, for HTTP; its data are further members."""
    data = cast("Json", output) if isinstance(output, dict) else {}
    kind, detail = f"{_OURS}action-failed", "the action has failed"
    return Problem(kind, "Action Failed", 409, detail, **{**data, "about": {"output": output}})


def failed(output: Any) -> Problem:
    """Return the problem of an action that failed as declared, for kotlin-wot, which gets a 500."""
    kind = f"{_LMOS}internal-server-error"
    return Problem(kind, "Action Failed", 500, "the action has failed", about={"output": output})


def cancelled(reason: str | None) -> Problem:
    """Return the problem of a cancelled run, for peers to which no status can report it."""
    return Problem(f"{_OURS}action-cancelled", "Action Cancelled", 500, reason or "the run was cancelled")


def too_late(started: bool) -> Problem:
    """Return the problem of a request whose deadline has passed."""
    kind = f"{_OURS}deadline-exceeded"
    return Problem(kind, "Deadline Exceeded", 503, "its seconds are over", started=started)


def too_many(what: str) -> Problem:
    """Return the problem of too many requests."""
    return Problem(f"{_OURS}mailbox-full", "Mailbox Full", 503, f"too many {what}", started=False)


@attrs.frozen
class Done:
    """The success of an action, with or without an output."""

    output: Any = ABSENT


@attrs.frozen
class Failed:
    """The declared failure of an action."""

    output: Any


@attrs.frozen
class Later:
    """The success of an action after a number of seconds."""

    seconds: float
    output: Any


@attrs.frozen
class Items:
    """An action's answer as a stream of the whole numbers from 0 to `to` - 1."""

    to: int


@attrs.frozen
class Taking:
    """The processing of input streams. `take` returns what an item adds to the answer; `end` the outcome."""

    take: Callable[[Any], list[Any]]
    end: Callable[[], Done]


Outcome: TypeAlias = Done | Failed | Later | Items | Taking


class ScriptedThing:
    """One thing: its description, its values, and callbacks for their changes.

    `seconds` returns its age. `changed(name, value)` and `happened(event, data)` are called
    in the turn in which a property changes or an event happens.
    """

    def __init__(self, name: str, describe: Callable[[str], Json], seconds: Callable[[], float]) -> None:
        self.name = name
        self.describe = describe
        self.seconds = seconds
        self.changed: Callable[[str, Any], object] = _nobody
        self.happened: Callable[[str, Any], object] = _nobody
        data = describe("ws://localhost")
        self.id: str = data["id"]
        self.properties: Mapping[str, Json] = data["properties"]
        self.actions: Mapping[str, Json] = data["actions"]
        self.events: Mapping[str, Json] = data["events"]
        self.streams: Mapping[str, Json] = data.get("lmosx:streams", {})
        self.keeps_answers = "lmosx:answers" in data
        self.values = {name: value for name, value in VALUES.items() if name in self.properties}
        self.rung = 0

    # ---- properties

    def property(self, name: str) -> Json:
        """Return the description of a property. Raises Problem 404."""
        found = self.properties.get(name)
        if found is None:
            raise not_found("property", name)
        return found

    def read(self, name: str) -> Any:
        """Return the value of a property. Raises Problem."""
        if self.property(name).get("writeOnly"):
            raise not_allowed(f"the property {name!r} is write-only")
        return self.value(name)

    def value(self, name: str) -> Any:
        """Return the present value of a property."""
        return round(self.seconds(), 3) if name == "uptime" else self.values[name]

    def readable(self) -> list[str]:
        """Return the names of the properties that can be read."""
        return [name for name, data in self.properties.items() if not data.get("writeOnly")]

    def check_observable(self, name: str) -> None:
        """Raise Problem if a property cannot be observed."""
        if not self.property(name).get("observable"):
            raise not_allowed(f"the property {name!r} is not observable")

    def check_write(self, name: str, value: Any, path: str) -> None:
        """Raise Problem if a property cannot be set to a value. `path`: the place of the value in the
        message.
        """
        data = self.property(name)
        if data.get("readOnly"):
            raise not_allowed(f"the property {name!r} is read-only")
        self.check(data, value, path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Set properties to checked values, and call `changed` for those that change."""
        for name, value in values.items():
            before = self.values[name]
            self.values[name] = value
            if before != value or type(before) is not type(value):
                self.changed(name, value)

    def check(self, schema: Json, value: Any, path: str) -> None:
        """Raise Problem if a value does not fit a schema."""
        known = {word: each for word, each in schema.items() if word != "forms"}
        try:
            wrong = next(Draft7Validator(known).iter_errors(value), None)
        except ValueError as error:  # half a letter, or a number beyond all bounds
            raise invalid(str(error)[:500], path) from None
        if wrong is not None:
            raise invalid(wrong.message[:500], path + _place(wrong.instance_path))

    # ---- actions and events

    def action(self, name: str) -> Json:
        """Return the description of an action. Raises Problem 404."""
        found = self.actions.get(name)
        if found is None:
            raise not_found("action", name)
        return found

    def check_event(self, name: str) -> None:
        """Raise Problem 404 if there is no such event."""
        if name not in self.events:
            raise not_found("event", name)

    def check_input(self, name: str, value: Any) -> None:
        """Raise Problem if an action does not accept an input."""
        schema = self.action(name).get("input")
        if schema is not None:
            self.check(schema, {} if value is ABSENT else value, "$")
        elif value not in (ABSENT, None, {}):
            raise invalid(f"the action {name!r} takes no input")

    def act(self, name: str, value: Any) -> Outcome:
        """Carry out an action; its input has been checked."""
        action: Callable[[Json], Outcome] = getattr(self, f"act_{name}")
        return action(cast("Json", value) if isinstance(value, dict) else {})

    def act_echo(self, value: Json) -> Outcome:
        return Done({"text": value["text"] * int(value.get("times", 1))})

    def act_add(self, value: Json) -> Outcome:
        return Done(int(value["a"] + value["b"]))

    def act_wait(self, value: Json) -> Outcome:
        return Later(value["seconds"], {"waited": value["seconds"]})

    def act_fail(self, _value: Json) -> Outcome:
        return Failed({"why": "it always fails"})

    def act_ring(self, value: Json) -> Outcome:
        self.rung += 1
        self.happened("rang", {"note": value["note"], "number": self.rung})
        return Done()

    def act_raise_alarm(self, _value: Json) -> Outcome:
        self.happened("alarm", "the alarm was raised")
        return Done()

    def act_reset(self, _value: Json) -> Outcome:
        self.write({name: VALUES[name] for name in self.values})
        return Done()

    def act_count(self, value: Json) -> Outcome:
        return Items(int(value["to"]))

    def act_total(self, _value: Json) -> Outcome:
        numbers: list[int] = []

        def take(number: int) -> list[Any]:
            numbers.append(int(number))
            return []

        return Taking(take, lambda: Done(sum(numbers)))

    def act_repeat(self, _value: Json) -> Outcome:
        return Taking(lambda item: [item], Done)


def _nobody(_name: str, _value: Any) -> None:
    """Ignore a change or an event."""


def _place(path: list[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
