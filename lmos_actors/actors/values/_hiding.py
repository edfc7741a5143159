"""Values and texts without their secrets: `***` is shown in place of a secret."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import msgspec

from lmos_actors._core import HIDDEN
from lmos_actors.errors import raise_interrupt

from ._secrets import OPEN, PARTS, ROWS, UNREAD, WHOLE, members_of, record_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._secrets import Secrecy

SHORTEST: Final = 4  # characters: shorter secrets are not looked for in texts
LONGEST: Final = 4096  # characters of a secret that are looked for; text behind them is cut off
FORMS: Final = 256  # texts looked for; with more of them no text is shown at all
LOOKED_AT: Final = 5000  # values looked at for secrets in them, where some are declared
GLANCED_AT: Final = 10_000  # records and containers looked at, where none are declared
SCANNED: Final = 100_000  # items of such containers

_PLAIN: Final[frozenset[Any]] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, bytearray, Decimal, UUID}
    | {date, datetime, time, timedelta, range, type}
)
_TEXTS: Final = (int, float, Decimal, UUID, date, time, timedelta)
_NONE: Final[dict[Any, Any]] = {}
_VIEWS: Final = (type(_NONE.keys()), type(_NONE.values()), type(_NONE.items()))
_KINDS: Final[tuple[Any, ...]] = (*ROWS, *_VIEWS)


def conceal(value: Any, secrecy: Secrecy) -> Any:
    """Return a value in the form that may be shown: dicts for records, `***` for secrets."""
    if secrecy in (WHOLE, UNREAD):
        return HIDDEN
    if not secrecy:
        return value
    if isinstance(secrecy, Mapping):
        if not isinstance(value, dict):
            return HIDDEN
        members = cast("dict[str, Any]", value)
        return {name: conceal_unchecked(item, secrecy.get(name, OPEN)) for name, item in members.items()}
    if isinstance(value, dict):
        return {key: conceal(item, PARTS) for key, item in value.items()}  # pyright: ignore
    record = members_of(value)
    if record is not None:
        return {m.wire: conceal(getattr(value, m.name, None), m.secrecy) for m in record}
    if isinstance(value, ROWS):
        return [conceal(item, PARTS) for item in cast("Iterable[Any]", value)]
    return value


def conceal_unchecked(value: Any, secrecy: Secrecy) -> Any:
    """Conceal an object in its JSON form, which does not show which parts are secret; see `conceal`."""
    is_known = secrecy != PARTS or value is None or members_of(value) is not None
    return conceal(value, secrecy) if is_known else HIDDEN


def conceal_all(args: tuple[Any, ...], secrecies: tuple[Secrecy, ...] | None) -> tuple[Any, ...]:
    """Return a message's arguments in the form that may be shown; without `secrecies`, nothing is secret."""
    if secrecies is None:
        return args
    return tuple(conceal(value, secrecy) for value, secrecy in zip(args, secrecies, strict=False))


def holds_secrets(value: Any) -> bool:
    """Return whether a value is or contains a record with a secret field."""
    members = members_of(value)
    if members is None:
        return any(holds_secrets(item) for item in _items(value))
    return any(m.secrecy or holds_secrets(getattr(value, m.name, None)) for m in members)


class Secrets:
    """The secrets found in some values, and a method that removes them from texts.

    The work is bounded: past the bound, `clean` shows nothing. A value may contain records with secrets
    anywhere, even if its type declares no secrets. The search for these goes level by level, and takes
    records that have secrets first. No value may use more than half of the looks that are left, so that a
    huge value does not prevent the search of later ones. If the search was incomplete, `clean` shows nothing
    once any of the values contained a record with a secret, as there may be more of them. Otherwise texts are
    shown, as most agents with very much data have no such records.
    """

    def __init__(self) -> None:
        self._forms: dict[str, None] = {}
        self._left = LOOKED_AT  # looks at values that are declared to hold secrets
        self._glances = GLANCED_AT  # looks at anything else
        self._scans = SCANNED
        self._is_cut = False
        self._has_records = False  # whether there are records with secrets
        self._pattern: re.Pattern[str] | None = None

    @property
    def too_many(self) -> bool:
        """Whether there may be secrets that have not been found."""
        return self._left < 0 or len(self._forms) > FORMS or (self._is_cut and self._has_records)

    @property
    def margin(self) -> int:
        """The number of characters after the last one shown that must be searched too."""
        return max(map(len, self._forms), default=0)

    def look(self, value: Any, secrecy: Secrecy = OPEN) -> None:
        """Find the secrets in a value; a value that cannot be read counts as too large to search.

        If the type declares no secrets, look for records with secrets in the value.
        """
        self._has_records = self._has_records or secrecy == PARTS
        try:
            if secrecy:
                self._look(value, secrecy)
            else:
                self._glance(value)
        except BaseException as error:  # noqa: ASYNC103 -- not in trio: a value's own code raised it
            raise_interrupt(error)
            if secrecy:
                self._left = -1
            self._is_cut = True

    def _glance(self, value: Any) -> None:
        """Find records with secret fields in a value, level by level."""
        room, seen = self._glances - self._glances // 2, {id(value): value}
        queue = deque[Any]([] if type(value) in _PLAIN else [value])
        while queue:
            if not room:
                self._is_cut = True
                return
            room -= 1
            self._glances -= 1
            inside = self._inside(queue.popleft())
            kinds = set(map(type, inside)) - _PLAIN
            urgent = set(filter(_has_secret_fields, kinds))
            self._has_records = self._has_records or bool(urgent)
            for item in inside if kinds else ():
                kind = cast("Any", type(item))
                if kind in _PLAIN or id(item) in seen:
                    continue
                if kind in urgent:
                    queue.appendleft(item)
                elif len(queue) <= room:
                    queue.append(item)
                else:
                    self._is_cut = True
                    continue
                seen[id(item)] = item  # kept, so that no other one gets its id meanwhile

    def _inside(self, value: Any) -> list[Any]:
        """Return the parts of a value except its secrets, which are added to this object."""
        members = members_of(value)
        if members is None:
            most = self._scans - self._scans // 2
            found = _items(value, most + 1)
            self._is_cut = self._is_cut or len(found) > most
            self._scans -= min(len(found), most)
            return found
        for m in members:
            if m.secrecy:
                self._has_records = True
                self._look(field_of(value, m.name), m.secrecy)
        return [field_of(value, m.name) for m in members if not m.secrecy]

    def _look(self, value: Any, secrecy: Secrecy) -> None:
        self._left -= 1
        if self._left < 0 or secrecy == UNREAD:
            return
        if secrecy == WHOLE:
            self._keep(value)
            return
        if isinstance(secrecy, Mapping):
            if isinstance(value, dict):
                for name, item in cast("dict[str, Any]", value).items():
                    self._look(item, secrecy.get(name, OPEN))
            return
        members = members_of(value)
        if members is not None:
            for m in members:
                self._look(field_of(value, m.name), m.secrecy or PARTS)
            return
        for item in _items(value, LOOKED_AT + 1):
            self._look(item, PARTS)

    def _keep(self, value: Any) -> None:
        self._left -= 1
        if self._left < 0:
            return
        if isinstance(value, Enum):
            value = value.value
        if type(value) is bool:
            return
        if isinstance(value, str):
            self._keep_text(str.__str__(value))
        elif isinstance(value, (bytes, bytearray)):
            self._keep_text(repr(bytes(value))[2:-1])
            self._keep_text(bytes(value).decode("utf-8", "replace"))
        elif isinstance(value, _TEXTS):
            self._keep_text(_written(value))
        else:
            members = members_of(value)
            few = LOOKED_AT + 1
            inner = _items(value, few) if members is None else [field_of(value, m.name) for m in members]
            for item in inner:
                self._keep(item)

    def _keep_text(self, text: str) -> None:
        if len(text) < SHORTEST:
            return
        self._pattern = None
        if len(text) > LONGEST:  # what follows is looked for in no form; which quotes it has decides on these
            text = text[:LONGEST] + "'" * ("'" in text) + '"' * ('"' in text)
        json = msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()
        for form in (text, repr(text)[1:-1], ascii(text)[1:-1], json[1:-1]):
            self._forms[form[:LONGEST]] = None

    def clean(self, text: str, limit: int) -> str:
        """Return at most `limit` characters of a text, with `***` in place of every secret."""
        if self.too_many:
            return HIDDEN
        text = str.__str__(text)
        if not self._forms:
            return text if len(text) <= limit else text[: limit - 1] + "…"
        shown: list[str] = []
        at = 0
        for found in self._compiled().finditer(text, 0, limit + self.margin):
            if found.start() >= limit:
                break
            shown += (text[at : found.start()], HIDDEN)
            at = found.end()
            if len(found[0]) == LONGEST:  # it may go on
                at = len(text)
                break
        shown.append(text[at:limit])
        whole = "".join(shown)
        return whole if max(at, limit) >= len(text) and len(whole) <= limit else whole[: limit - 1] + "…"

    def _compiled(self) -> re.Pattern[str]:
        if self._pattern is None:
            longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._pattern


@lru_cache(maxsize=1024)
def _has_secret_fields(cls: Any) -> bool:
    return any(m.secrecy for m in record_of(cls) or ())


def field_of(value: Any, name: str) -> Any:
    """Return a field of a record, without calling its `__getattribute__`; None if it has no value."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def _items(value: Any, most: int | None = None) -> list[Any]:
    """Return the items of a container of a usual kind, or of another object whose `repr` shows its items.

    For a derived class, only code of its base class is called. The result has at most `most` items.
    """
    if isinstance(value, MappingProxyType):
        value = dict(value)  # pyright: ignore
    if isinstance(value, dict):
        return list(islice(chain.from_iterable(dict.items(value)), most))  # pyright: ignore
    if isinstance(value, BaseException):
        return list(value.args)
    if isinstance(value, partial):
        return [*value.args, *value.keywords.values()]  # pyright: ignore
    kind: Any = next((kind for kind in _KINDS if isinstance(value, kind)), None)
    return list(islice(kind.__iter__(value), most)) if kind is not None else []


def _written(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than are ever written
        return ""
