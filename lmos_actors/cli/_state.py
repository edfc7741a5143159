"""Looking into stores of kept state, and copying them: the execution of `state`."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec

from lmos_actors._core import read_json
from lmos_actors.errors import (
    ConfigError,
    StoreDamaged,
    StoreFailed,
    StoreForeign,
    StoreInUse,
    StoreNewer,
    nearest,
)
from lmos_actors.memories import memories_in, owners_in, removal_of, terms_of
from lmos_actors.persistence import (
    SERVER,
    Expected,
    Put,
    SqliteStore,
    back_up,
    new_file,
    range_of,
    records_of,
    server_store,
    turns_in,
)

from ._app import json_text
from ._server_store import ServerStore, written_to

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from lmos_actors.persistence import Conflict

    from ._server_store import ServerWriter

WRONG: Final = 1
USAGE: Final = 2
DISK: Final = 3

FORMAT: Final = "state/v1"
"""The first line of an export names it."""

IMPORTED_AT_ONCE: Final = 1_000

TEXT_SHOWN: Final = 60
"""Characters of a message that are printed."""

SHOWN: Final = 1_000
"""Records of one key and space that are printed."""

NO_NAME: Final = "(without a name)"
"""The identity of all callers of a node without security, as it is printed."""


def carried_out(work: Callable[[], int]) -> int:
    """Do what a command is for, and return the exit code; print what is wrong with a store."""
    try:
        return work()
    except StoreFailed as error:
        hint = ""
        if isinstance(error, StoreInUse):
            hint = "\nlmos-actors state backup copies it meanwhile; the other commands can look at the copy"
        print(f"lmos-actors: {error}{hint}", file=sys.stderr)
        if isinstance(error, StoreDamaged):
            return WRONG
        return USAGE if isinstance(error, StoreForeign | StoreNewer) else DISK


@contextmanager
def opened(path: str) -> Generator[SqliteStore | ServerStore]:
    """Open a store to be read for a block. Raise StoreFailed."""
    if path.startswith(SERVER):
        with ServerStore(path).opened() as served:
            yield served
        return
    with _file(path) as store:
        yield store


@contextmanager
def _file(path: str, *, read_only: bool = True) -> Generator[SqliteStore]:
    store = SqliteStore(path, read_only=read_only)
    store.open()
    try:
        yield store
    finally:
        store.close()


def list_records(path: str, space: str | None, *, as_json: bool) -> int:
    """Print spaces, keys and sizes."""
    with opened(path) as store:
        rows = ((name, key, len(value)) for name, key, value in _records(store, space))
        if as_json:
            print(json_text([{"space": name, "key": key, "bytes": size} for name, key, size in rows]))
            return 0
        for name, key, size in rows:
            print(f"{size:>9}  {_plain(name)}  {_plain(key)}")
    return 0


def show_record(path: str, key: str, space: str | None) -> int:
    """Print the values at a key, in one space or in all, and what belongs to it: the facts of a journal."""
    with opened(path) as store:
        spaces = list(store.spaces()) if space is None else [space]
        values = [(name, value) for name in spaces if (value := store.get(name, [key])[0]) is not None]
        found = [(name, _shown(value)) for name, value in values]
        found += [(name, rows) for name in spaces if (rows := _parts_of(store, name, key))]
        if not found:
            known = (known for _, known, _ in _records(store, space))
            near = nearest(key, known)
            hint = f', did you mean "{_plain(near)}"?' if near else "; lmos-actors state ls lists the keys"
            print(f'lmos-actors: {store.name}: no record has the key "{_plain(key)}"{hint}', file=sys.stderr)
            return WRONG
        for name, shown in found:
            if len(found) > 1:
                print(f"{_plain(name)}:")
            print(shown)
    return 0


def list_turns(path: str, *, as_json: bool) -> int:
    """Print the turns of chat agents that are in progress."""
    with opened(path) as store:
        found = list(turns_in(store))
    if as_json:
        print(json_text([attrs.asdict(turn) for turn in found]))
        return 0
    for turn in found:
        began = f"{datetime.fromtimestamp(turn.began, UTC):%Y-%m-%d %H:%M:%SZ}"
        names = " ".join(_plain(each) for each in (turn.agent, turn.owner or "-", turn.session))
        more = turn.wrong or f"{turn.steps} steps, resumed {turn.resumed} times"
        print(f"{began}  {names}  {more}  {_plain(turn.text[:TEXT_SHOWN])}")
    return 0


def _parts_of(store: SqliteStore | ServerStore, space: str, key: str) -> str:
    """Return the records of a space whose keys are a key and a part, each in a line."""
    start, stop = range_of(key)
    records = store.scan(space, start=start, stop=stop, limit=SHOWN + 1)
    rows = [f"{_plain(each.removeprefix(start))}  {_in_a_line(value)}" for each, value in records[:SHOWN]]
    if len(records) > SHOWN:
        rows.append("... lmos-actors state export has all of them")
    return "\n".join(rows)


def export_records(path: str) -> int:
    """Print all records as JSON lines, with a line before and one after them."""
    count = 0
    with opened(path) as store:
        print(json.dumps({"lmos": FORMAT}))
        for space, key, value in _records(store, None):
            print(json.dumps({"space": space, "key": key, **_as_json(value)}, ensure_ascii=False))
            count += 1
    print(json.dumps({"records": count}))
    return 0


def import_records(path: str, lines: Iterable[str], *, into: bool) -> int:
    """Write the records of an export: to a new store, or into one that is there. All of them, or none."""
    records = _exported(lines)
    try:
        count = _imported(path, records, into=into)
    except UnicodeDecodeError as error:
        raise ConfigError(f"the export is no text: {error.reason}") from None
    print(f"{_named(path)}: {count} records", file=sys.stderr)
    return 0


def _imported(path: str, records: Iterator[tuple[int, Put]], *, into: bool) -> int:
    if path.startswith(SERVER):
        read = list(records)  # before the store is changed
        with written_to(path, into=into) as server:
            return _commit(server, read)
    return _import_into(path, records) if into else _import_new(path, records)


def _import_into(path: str, records: Iterator[tuple[int, Put]]) -> int:
    with opened(path):
        pass  # there is such a store: it would be made below
    read = list(records)  # before the store is changed
    with _file(path, read_only=False) as store:
        return _commit(store, read)


def _import_new(path: str, records: Iterator[tuple[int, Put]]) -> int:
    count = 0
    with new_file(path) as half, _file(half, read_only=False) as store:
        while page := list(islice(records, IMPORTED_AT_ONCE)):
            count += _commit(store, page)
    return count


def check_store(path: str) -> int:
    """Print what is wrong with a store, and return 1 if anything is."""
    with opened(path) as store:
        problems = list(store.problems())
        if problems:
            print("\n".join(f"{store.name}: {problem}" for problem in problems))
            print(f"lmos-actors: {store.name} is damaged; {StoreDamaged.WAY_OUT}", file=sys.stderr)
            return WRONG
        sizes = [len(value) for _, _, value in _records(store, None)]
        id = f", id {store.id}" if isinstance(store, ServerStore) else ""
    print(f"{store.name}: {len(sizes)} records, {sum(sizes)} bytes, ok{id}")
    return 0


def list_memories(path: str, agent: str | None, identity: str | None, *, as_json: bool) -> int:
    """Print who has memories, and of one identity the memories themselves."""
    with opened(path) as store:
        owners = list(owners_in(store, agent, identity))
        if not owners:
            print(f"{_named(path)}: there are no such memories", file=sys.stderr)
        if identity is None:
            if as_json:
                print(json_text([attrs.asdict(owner) for owner in owners]))
            for owner in () if as_json else owners:
                print(f"{owner.texts:>6}  {_plain(owner.agent)}  {_plain(owner.identity) or NO_NAME}")
            return 0
        found = [(owner, memory) for owner in owners for memory in memories_in(store, owner)]
        if as_json:
            rows = [{"agent": owner.agent, **msgspec.to_builtins(memory)} for owner, memory in found]
            print(json_text([{name: row[name] for name in row if name != "score"} for row in rows]))
        for owner, memory in () if as_json else found:
            tags = f"  [{', '.join(map(_plain, memory.tags))}]" if memory.tags else ""
            print(f"{memory.id}  {_plain(owner.agent)}  {_plain(memory.text)}{tags}")
    return 0


def forget_memories(path: str, agent: str | None, identity: str | None) -> int:
    """Remove the memories of an agent, of an identity, or of one at the other; return 1 if there are none."""
    if agent is None and identity is None:
        raise ConfigError("name --agent, --identity, or both: memories of all are not removed at once")
    with opened(path) as store:
        owners = list(owners_in(store, agent, identity))
        writes = removal_of(store, owners) if owners else []
    if not owners:
        print(f"lmos-actors: {_named(path)}: there are no such memories", file=sys.stderr)
        return WRONG
    if path.startswith(SERVER):
        with written_to(path, into=True) as server:
            conflict = server.commit([writes], "power")[0]
    else:
        with _file(path, read_only=False) as file:
            conflict = file.commit([writes], "power")[0]
    if conflict is not None:
        print(f"lmos-actors: {_named(path)}: they were changed meanwhile; try it again", file=sys.stderr)
        return WRONG
    texts, count = sum(owner.texts for owner in owners), len(owners)
    whose = f"{count} identities" if count > 1 else "1 identity"
    print(f"{_named(path)}: forgot {texts} memories of {whose}", file=sys.stderr)
    return 0


def _named(path: str) -> str:
    """Return a store for people; a URL without its parameters."""
    return server_store(path) or path


def back_up_store(path: str, to: str) -> int:
    """Copy a store, whether it is in use or not, to a new file. Raise ConfigError for one in a server."""
    if path.startswith(SERVER):
        raise ConfigError(
            "copies files; a Redis server makes copies of its own (BGSAVE), and `state export` prints all",
            "state backup",
        )
    back_up(path, to)
    print(f"wrote {to}", file=sys.stderr)
    return 0


def _records(store: SqliteStore | ServerStore, space: str | None) -> Iterator[tuple[str, str, bytes]]:
    for name in store.spaces() if space is None else [space]:
        for key, value in records_of(store, name):
            yield name, key, value


def _plain(text: str) -> str:
    """Return a key for people: what does not print, and the backslash, as an escape."""
    return "".join(
        each if each.isprintable() and each != "\\" else each.encode("unicode_escape").decode()
        for each in text
    )


def _shown(value: bytes) -> str:
    try:
        return json_text(json.loads(value))
    except (ValueError, RecursionError):
        return value.hex(" ", -2)


def _in_a_line(value: bytes) -> str:
    try:
        return json.dumps(json.loads(value), ensure_ascii=False)
    except (ValueError, RecursionError):
        return value.hex(" ", -2)


def _as_json(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _exported(lines: Iterable[str]) -> Iterator[tuple[int, Put]]:
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
            yield number, _put(number, data)
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


def _put(number: int, data: dict[str, Any]) -> Put:
    space, key = data.get("space"), data.get("key")
    with suppress(KeyError, AttributeError, ValueError, TypeError):
        value = data["text"].encode() if "text" in data else b64decode(data["base64"], validate=True)
        if isinstance(space, str) and isinstance(key, str) and len(data) == 3:
            return Put(space, key, value, Expected.NOTHING, terms_of(space, key, value))
    raise ConfigError("must have space, key, and text or base64", f"line {number}")


def _commit(store: SqliteStore | ServerWriter, records: list[tuple[int, Put]]) -> int:
    """Write records in one batch; return their number. Raise ConfigError for a key that is there already."""
    try:
        conflict: Conflict | None = store.commit([[put for _, put in records]], "power")[0]
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if conflict is not None:
        number = next(number for number, put in records if (put.space, put.key) == conflict)
        space, key = map(_plain, conflict)
        raise ConfigError(f'"{key}" is in "{space}" already; nothing is imported', f"line {number}")
    return len(records)
