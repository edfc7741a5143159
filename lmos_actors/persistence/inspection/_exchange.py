"""The records of a store as JSON lines, which another store can import: `state export`, `state import`.

The first line names the format. The last line has the number of records, so that a cut-off file is noticed.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from lmos_actors._core import read_json
from lmos_actors.errors import ConfigError

from .._address import SERVER
from .._backup import new_file
from .._store import Expected, Put, records_of
from ._opened import new_in_server, opened_file, opened_to_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .._sqlite import SqliteStore
    from .._store import Conflict
    from ._opened import ServerStore, ServerWriter

FORMAT: Final = "state/v1"
"""The format's name, in the first line."""

Terms: TypeAlias = "Callable[[str, str, bytes], tuple[str, ...]]"
"""Returns the terms by which a record is found, from its space, key and value."""


def records_in(
    store: SqliteStore | ServerStore, space: str | None = None
) -> Iterator[tuple[str, str, bytes]]:
    """Yield the space, key and value of each record, of one space or of all. Raise StoreFailed."""
    for name in store.spaces() if space is None else [space]:
        for key, value in records_of(store, name):
            yield name, key, value


def exported(store: SqliteStore | ServerStore) -> Iterator[str]:
    """Yield the lines of all records. Raise StoreFailed."""
    yield json.dumps({"lmos": FORMAT})
    count = 0
    for space, key, value in records_in(store):
        yield json.dumps({"space": space, "key": key, **_as_json(value)}, ensure_ascii=False)
        count += 1
    yield json.dumps({"records": count})


def import_lines(place: str, lines: Iterable[str], terms: Terms, *, into: bool) -> int:
    """Write exported lines to a new store, or `into` an existing one; return the number of records.

    Either all records are written or none. Raise StoreFailed. Raise ConfigError if a line is wrong, if the
    new store already exists, or if a key already exists.
    """
    records = _records(lines, terms)
    try:
        if not into and not place.startswith(SERVER):
            with new_file(place) as half, opened_file(half, read_only=False) as file:
                count = 0
                while page := list(islice(records, 1_000)):
                    count += _commit(file, page)
                return count
        read = list(records)  # before the store is changed
        with opened_to_write(place) if into else new_in_server(place) as store:
            return _commit(store, read)
    except UnicodeDecodeError as error:
        raise ConfigError(f"the export is no text: {error.reason}") from None


def plain_key(text: str) -> str:
    """Return a key in readable form: unprintable characters and the backslash are escaped."""
    return "".join(
        each if each.isprintable() and each != "\\" else each.encode("unicode_escape").decode()
        for each in text
    )


def _as_json(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _records(lines: Iterable[str], terms: Terms) -> Iterator[tuple[int, Put]]:
    """Yield the records of an export with their lines. Raise ConfigError."""
    count, ended = 0, False
    for number, line in enumerate(lines, 1):
        data = _line(number, line)
        if number == 1:
            if data != {"lmos": FORMAT}:
                raise ConfigError(f'the first line must be {{"lmos": "{FORMAT}"}}', "line 1")
        elif ended:
            raise ConfigError("there is something after the last line", f"line {number}")
        elif data.keys() == {"records"}:
            if data["records"] != count:
                raise ConfigError(f"there are {count} records, and not {data['records']}", f"line {number}")
            ended = True
        else:
            count += 1
            yield number, _put(number, data, terms)
    if not ended:
        raise ConfigError("the export is cut off: its last line is missing")


def _line(number: int, line: str) -> dict[str, Any]:
    try:
        data: Any = read_json(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not JSON: {error}", f"line {number}") from None
    if not isinstance(data, dict):
        raise ConfigError("must be an object", f"line {number}")
    return cast("dict[str, Any]", data)


def _put(number: int, data: dict[str, Any], terms: Terms) -> Put:
    space, key = data.get("space"), data.get("key")
    with suppress(KeyError, AttributeError, ValueError, TypeError):
        value = data["text"].encode() if "text" in data else b64decode(data["base64"], validate=True)
        if isinstance(space, str) and isinstance(key, str) and len(data) == 3:
            return Put(space, key, value, Expected.NOTHING, terms(space, key, value))
    raise ConfigError("must have space, key, and text or base64", f"line {number}")


def _commit(store: SqliteStore | ServerWriter, records: list[tuple[int, Put]]) -> int:
    """Write records in one batch; return their number. Raise ConfigError for a key that already exists."""
    try:
        conflict: Conflict | None = store.commit([[put for _, put in records]], "power")[0]
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if conflict is not None:
        number = next(number for number, put in records if (put.space, put.key) == conflict)
        space, key = map(plain_key, conflict)
        raise ConfigError(f'"{key}" is in "{space}" already; nothing is imported', f"line {number}")
    return len(records)
