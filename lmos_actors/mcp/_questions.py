"""Questions of servers to the user (elicitation), which people answer as approvals.

A server's question is the text of a stranger, and is treated as such:

- **It is asked only during calls**, a few questions at a time, and a question ends with the last call in
  progress. A server that keeps asking is declined.
- **A form has the shape that the protocol allows**: fields with a name and a plain value. It is rebuilt from
  the known parts, so that nothing else of a server's schema is ever compiled or shown. A field with a default
  may be left out: the default is then in the answer. A default that does not fit is ignored.
- **A question for a secret is declined**, as answers are kept and others with the right can see them. Such a
  question is recognized by its words, and may be missed: people decide what they write. A question that would
  send them to a URL is declined, too.
- **The time limits of calls are paused** while somebody is asked, for a bounded time per call.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from unicodedata import normalize

import msgspec
import trio

from lmos_actors._core import printable, schema_complaint, schema_problem
from lmos_actors.approvals import Clock
from lmos_actors.errors import LmosActorsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

Outcome: TypeAlias = "tuple[Literal['accept', 'decline', 'cancel'], dict[str, Any] | None]"
"""The answer to a question of a server: the action taken, and the content."""

MOST_OPEN: Final = 4
"""Maximum questions of one server at a time."""

MOST_IN_A_ROW: Final = 20
"""Maximum questions of one server before one of the calls in progress has ended."""

MOST_FIELDS: Final = 50
MOST_CHOICES: Final = 200
TEXT: Final = 1_000
"""Maximum characters shown of a server's message, and of each title."""

LONGEST_NAME: Final = 100
"""Maximum characters of a field's name."""

FORM_BYTES: Final = 16_384

_KEYWORDS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "string": {"minLength": int, "maxLength": int, "default": str},
    "number": {"minimum": (int, float), "maximum": (int, float), "default": (int, float)},
    "integer": {"minimum": (int, float), "maximum": (int, float), "default": int},
    "boolean": {"default": bool},
    "array": {"minItems": int, "maxItems": int, "default": list},
}
_FORMATS: Final = ("email", "uri", "date", "date-time")

_SECRETS: Final = (
    r"pass ?(word|phrase|code|wd)|passwor[dt]|kennwort|\bpwd\b|secret|credential|"
    r"(private|api|access) ?key|"
    r"(access|auth|authentication|bearer|refresh|session|api) token|(credit|debit) ?card|card number|"
    r"\bcv[vc]2?\b|security code|\bpin\b|\bssn\b|social security|one time (code|password)|\botp\b|"
    r"seed phrase|recovery (code|phrase)|\b2fa\b"
)
_IN_MESSAGE: Final = re.compile(_SECRETS)
_IN_FIELD: Final = re.compile(rf"{_SECRETS}|\btoken\b")


class Declined(Exception):
    """Raised if a question is declined without asking people; the text has the reason."""


class Questions:
    """The questions of one server.

    `ask` asks people, and returns the outcome; without it, all questions are declined. `seconds` is how long
    a question may wait, and how long the time limit of a call may be paused. `note` is called with each
    declined question and the reason.
    """

    def __init__(
        self,
        ask: Callable[[str, dict[str, Any]], Awaitable[Outcome]] | None,
        seconds: float,
        note: Callable[[str, str], None],
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._note = note
        self._clocks: dict[Clock, None] = {}
        """The clocks of the calls in progress, and of the start."""
        self._calls = 0
        self._stops = 0
        self._open: dict[trio.CancelScope, None] = {}
        self._in_a_row = 0

    @contextmanager
    def during_call(self, scope: trio.CancelScope) -> Generator[None]:
        """During the block, pause the deadline of a call whenever people are asked."""
        self._calls += 1
        try:
            with self.put_off(scope):
                yield
        finally:
            self._calls -= 1
            self._in_a_row = 0
            if not self._calls:
                for each in self._open:
                    each.cancel("the call that it belongs to has ended")

    @contextmanager
    def put_off(self, scope: trio.CancelScope) -> Generator[None]:
        """During the block, pause a deadline whenever people are asked."""
        clock = Clock(self._seconds)
        clock.add(scope)
        self._clocks[clock] = None
        if self._stops:
            clock.stop()
        try:
            yield
        finally:
            del self._clocks[clock]

    @contextmanager
    def standing_still(self) -> Generator[None]:
        """Pause all deadlines during the block, in which people are asked."""
        self._stops += 1
        if self._stops == 1:
            for clock in self._clocks:
                clock.stop()
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                for clock in self._clocks:
                    clock.go()

    async def answer(self, message: str, schema: Any, mode: str) -> Outcome:
        """Return people's answer to a question of the server. Raise nothing but Cancelled."""
        try:
            form = self._checked(message, schema, mode)
        except Declined as error:
            self._note(message, str(error))
            return "decline", None
        assert self._ask is not None
        self._in_a_row += 1
        scope = trio.CancelScope()
        self._open[scope] = None
        try:
            with self.standing_still(), scope:
                return await self._ask(printable(message[:TEXT]), form)
        except LmosActorsError as error:
            self._note(message, f"nobody can be asked: {error}")
            return "decline", None
        finally:
            del self._open[scope]
        return "cancel", None

    def _checked(self, message: str, schema: Any, mode: str) -> dict[str, Any]:
        """Return the form that people are asked to fill in. Raise Declined."""
        if self._ask is None:
            raise Declined("elicitation is declined here")
        if mode != "form":
            raise Declined("it would send the user to a URL")
        if not self._calls:
            raise Declined("no call is in progress")
        if len(self._open) >= MOST_OPEN or self._in_a_row >= MOST_IN_A_ROW:
            raise Declined("it asks too much")
        if not message.strip():
            raise Declined("it says nothing")
        if _IN_MESSAGE.search(_words(message)):
            raise Declined("it asks for a secret")
        return form_of(schema)


def form_of(schema: Any) -> dict[str, Any]:
    """Rebuild a form as the protocol defines it; everything else in the schema is left out.

    Raise Declined for a form that has fields other than plain ones, is too large, or asks for a secret.
    """
    given = _object(schema, "the form")
    fields = _object(given.get("properties", {}), "the fields")
    if given.get("type") != "object" or len(fields) > MOST_FIELDS:
        raise Declined(f"a form is an object with at most {MOST_FIELDS} fields")
    try:
        required = msgspec.convert(given.get("required") or [], list[str])
    except msgspec.ValidationError:
        raise Declined("the fields that it needs are not named by texts") from None
    if not all(name in fields for name in required):
        raise Declined("it needs fields that it does not have")
    written_anew = {name: _field(name, each) for name, each in fields.items()}
    form: dict[str, Any] = {
        "type": "object",
        "properties": written_anew,
        "additionalProperties": False,
        "required": [name for name in required if "default" not in written_anew[name]],
    }
    written = _json(form)
    size = len(written.encode())
    if size > FORM_BYTES:
        raise Declined(f"the form has {size} bytes, and {FORM_BYTES} are taken")
    problem = schema_problem(written)
    if problem is not None:
        raise Declined(f"the form is not right: {problem}")
    return form


def _field(name: str, schema: Any) -> dict[str, Any]:
    given = _object(schema, f"the field {name[:40]!r}")
    kind: Any = given.get("type")
    if not isinstance(kind, str) or kind not in _KEYWORDS:
        raise Declined(f"the field {name[:40]!r} is none of {', '.join(_KEYWORDS)}")
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise Declined("a field has a name that nobody can read")
    shown = [(key, given.get(key)) for key in ("title", "description")]
    texts = {key: printable(text[:TEXT]) for key, text in shown if isinstance(text, str)}
    if given.get("format") == "password" or any(map(_IN_FIELD.search, map(_words, (name, *texts.values())))):
        raise Declined("it asks for a secret")
    field: dict[str, Any] = {"type": kind, **texts}
    for key, of in _KEYWORDS[kind].items():
        value: Any = given.get(key)
        if value is None:
            continue
        if not isinstance(value, of) or (of is not bool and isinstance(value, bool)):
            raise Declined(f"{key} of the field {name[:40]!r} is of a wrong type")
        if isinstance(value, float) and not math.isfinite(value):
            raise Declined(f"{key} of the field {name[:40]!r} is no number")
        field[key] = value
    if kind == "string":
        if given.get("format") in _FORMATS:
            field["format"] = given["format"]
        field.update(_choices(given))
    elif kind == "array":
        items = _object(given.get("items"), f"the choices of {name[:40]!r}")
        chosen = _choices(items)
        if not chosen:
            raise Declined(f"the field {name[:40]!r} is a list without choices")
        field["items"] = {"type": "string", **chosen}
        field["uniqueItems"] = True
    if "default" in field and schema_complaint(_json(field), field["default"], formats=True) is not None:
        del field["default"]
    return field


def _choices(given: dict[str, Any]) -> dict[str, Any]:
    """Return the choices of a text field: `enum`, or `oneOf` with titles."""
    texts: Any = given.get("enum")
    names: Any = given.get("enumNames")
    titled: Any = given.get("oneOf") or given.get("anyOf")
    if texts is None and titled is None:
        return {}
    try:
        if texts is not None:
            values = msgspec.convert(texts, list[str])
            titles = values if names is None else msgspec.convert(names, list[str])
        else:
            options = msgspec.convert(titled, list[_Option])
            values, titles = [each.const for each in options], [each.title or each.const for each in options]
    except msgspec.ValidationError as error:
        raise Declined(f"its choices are not right: {error}") from None
    if not 0 < len(values) <= MOST_CHOICES or len(titles) != len(values):
        raise Declined(f"a field has 1 to {MOST_CHOICES} choices, each with one title")
    shown = [printable(each[:TEXT]) for each in titles]
    if shown == values:
        return {"enum": values}
    return {"oneOf": [{"const": value, "title": title} for value, title in zip(values, shown, strict=True)]}


class _Option(msgspec.Struct):
    const: str
    title: str = ""


def _json(schema: dict[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Declined(f"{what} is no object")
    return cast("dict[str, Any]", value)


def _words(text: str) -> str:
    """Return a text split into words for the search: `apiKey` and `API_KEY` are both `api key`."""
    plain = normalize("NFKC", text)
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain)
    return re.sub(r"[\W_]+", " ", split).casefold()
