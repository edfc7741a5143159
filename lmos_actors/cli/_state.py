"""Reading and copying stores of kept state: the execution of `state`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, ParamSpec

import attrs
import msgspec

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
from lmos_actors.persistence import SERVER, back_up, range_of, server_store, turns_in
from lmos_actors.persistence.inspection import (
    ServerStore,
    exported,
    import_lines,
    opened_to_read,
    opened_to_write,
    plain_key,
    records_in,
)

from ._app import json_text
from ._exit_codes import FAILED, NOT_REACHED, USAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmos_actors.persistence import SqliteStore

P = ParamSpec("P")

SHOWN: Final = 1_000
"""Maximum records of one key and space that are printed."""

NO_NAME: Final = "(without a name)"
"""The printed identity of all callers of a node without security."""


def carried_out(work: Callable[P, int], *args: P.args, **options: P.kwargs) -> int:
    """Run the work of a command and return its exit code; an error of the store is printed, not raised."""
    try:
        return work(*args, **options)
    except StoreFailed as error:
        hint = ""
        if isinstance(error, StoreInUse):
            hint = "\nlmos-actors state backup copies it meanwhile; the other commands can look at the copy"
        print(f"lmos-actors: {error}{hint}", file=sys.stderr)
        if isinstance(error, StoreDamaged):
            return FAILED
        return USAGE if isinstance(error, StoreForeign | StoreNewer) else NOT_REACHED


def list_records(path: str, space: str | None, *, as_json: bool) -> int:
    """Print spaces, keys and sizes."""
    with opened_to_read(path) as store:
        rows = ((name, key, len(value)) for name, key, value in records_in(store, space))
        if as_json:
            print(json_text([{"space": name, "key": key, "bytes": size} for name, key, size in rows]))
            return 0
        for name, key, size in rows:
            print(f"{size:>9}  {plain_key(name)}  {plain_key(key)}")
    return 0


def show_record(path: str, key: str, space: str | None) -> int:
    """Print the values at a key, in one or all spaces, and the records below it: the facts of a journal."""
    with opened_to_read(path) as store:
        spaces = list(store.spaces()) if space is None else [space]
        values = [(name, value) for name in spaces if (value := store.get(name, [key])[0]) is not None]
        found = [(name, _shown(value)) for name, value in values]
        found += [(name, rows) for name in spaces if (rows := _parts_of(store, name, key))]
        if not found:
            known = (known for _, known, _ in records_in(store, space))
            near = nearest(key, known)
            hint = f', did you mean "{plain_key(near)}"?' if near else "; lmos-actors state ls lists the keys"
            print(
                f'lmos-actors: {store.name}: no record has the key "{plain_key(key)}"{hint}', file=sys.stderr
            )
            return FAILED
        for name, shown in found:
            if len(found) > 1:
                print(f"{plain_key(name)}:")
            print(shown)
    return 0


def list_turns(path: str, *, as_json: bool) -> int:
    """Print the turns of chat agents that are in progress."""
    with opened_to_read(path) as store:
        found = list(turns_in(store))
    if as_json:
        print(json_text([attrs.asdict(turn) for turn in found]))
        return 0
    for turn in found:
        began = f"{datetime.fromtimestamp(turn.began, UTC):%Y-%m-%d %H:%M:%SZ}"
        names = " ".join(plain_key(each) for each in (turn.agent, turn.owner or "-", turn.session))
        more = turn.wrong or f"{turn.steps} steps, resumed {turn.resumed} times"
        print(f"{began}  {names}  {more}  {plain_key(turn.text[:60])}")
    return 0


def _parts_of(store: SqliteStore | ServerStore, space: str, key: str) -> str:
    """Return the records of a space whose keys extend the given key by a part, one line each."""
    start, stop = range_of(key)
    records = store.scan(space, start=start, stop=stop, limit=SHOWN + 1)
    rows = [
        f"{plain_key(each.removeprefix(start))}  {_shown(value, indent=None)}"
        for each, value in records[:SHOWN]
    ]
    if len(records) > SHOWN:
        rows.append("... lmos-actors state export has all of them")
    return "\n".join(rows)


def export_records(path: str) -> int:
    """Print all records as JSON lines, with a line before and one after them."""
    with opened_to_read(path) as store:
        for line in exported(store):
            print(line)
    return 0


def import_records(path: str, lines: Iterable[str], *, into: bool) -> int:
    """Write the records of an export to a new store, or into an existing one. All are written, or none."""
    count = import_lines(path, lines, terms_of, into=into)
    print(f"{_named(path)}: {count} records", file=sys.stderr)
    return 0


def check_store(path: str) -> int:
    """Print the errors in a store, and return 1 if there are any."""
    with opened_to_read(path) as store:
        problems = list(store.problems())
        if problems:
            print("\n".join(f"{store.name}: {problem}" for problem in problems))
            print(f"lmos-actors: {store.name} is damaged; {StoreDamaged.WAY_OUT}", file=sys.stderr)
            return FAILED
        sizes = [len(value) for _, _, value in records_in(store)]
        id = f", id {store.id}" if isinstance(store, ServerStore) else ""
    print(f"{store.name}: {len(sizes)} records, {sum(sizes)} bytes, ok{id}")
    return 0


def list_memories(path: str, agent: str | None, identity: str | None, *, as_json: bool) -> int:
    """Print which identities have memories or, if `identity` is given, its memories."""
    with opened_to_read(path) as store:
        owners = list(owners_in(store, agent, identity))
        if not owners:
            print(f"{_named(path)}: there are no such memories", file=sys.stderr)
        if identity is None:
            if as_json:
                print(json_text([attrs.asdict(owner) for owner in owners]))
            for owner in () if as_json else owners:
                print(f"{owner.texts:>6}  {plain_key(owner.agent)}  {plain_key(owner.identity) or NO_NAME}")
            return 0
        found = [(owner, memory) for owner in owners for memory in memories_in(store, owner)]
        if as_json:
            rows = [{"agent": owner.agent, **msgspec.to_builtins(memory)} for owner, memory in found]
            print(json_text([{name: row[name] for name in row if name != "score"} for row in rows]))
        for owner, memory in () if as_json else found:
            tags = f"  [{', '.join(map(plain_key, memory.tags))}]" if memory.tags else ""
            print(f"{memory.id}  {plain_key(owner.agent)}  {plain_key(memory.text)}{tags}")
    return 0


def forget_memories(path: str, agent: str | None, identity: str | None) -> int:
    """Remove the memories of an agent, of an identity, or of one identity at one agent.

    Returns 1 if there are none, or if they were changed meanwhile. Raises ConfigError if neither is given.
    """
    if agent is None and identity is None:
        raise ConfigError("name --agent, --identity, or both: memories of all are not removed at once")
    with opened_to_read(path) as store:
        owners = list(owners_in(store, agent, identity))
        writes = removal_of(store, owners) if owners else []
    if not owners:
        print(f"lmos-actors: {_named(path)}: there are no such memories", file=sys.stderr)
        return FAILED
    with opened_to_write(path) as target:
        conflict = target.commit([writes], "power")[0]
    if conflict is not None:
        print(f"lmos-actors: {_named(path)}: they were changed meanwhile; try it again", file=sys.stderr)
        return FAILED
    texts, count = sum(owner.texts for owner in owners), len(owners)
    whose = f"{count} identities" if count > 1 else "1 identity"
    print(f"{_named(path)}: forgot {texts} memories of {whose}", file=sys.stderr)
    return 0


def _named(path: str) -> str:
    """Return the name of a store as printed: its path, or its URL without parameters."""
    return server_store(path) or path


def back_up_store(path: str, to: str) -> int:
    """Copy a store, in use or not, to a new file. Raise ConfigError for a store in a server."""
    if path.startswith(SERVER):
        raise ConfigError(
            "copies files; a Redis server makes copies of its own (BGSAVE), and `state export` prints all",
            "state backup",
        )
    back_up(path, to)
    print(f"wrote {to}", file=sys.stderr)
    return 0


def _shown(value: bytes, indent: int | None = 2) -> str:
    try:
        return json.dumps(json.loads(value), indent=indent, ensure_ascii=False)
    except (ValueError, RecursionError):
        return value.hex(" ", -2)
