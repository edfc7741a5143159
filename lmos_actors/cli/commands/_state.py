"""The command `state` and its subcommands. Their docstrings are their help texts."""

from __future__ import annotations

import sys
from typing import Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from lmos_actors.errors import ConfigError

from .._app import Json, Switch  # noqa: TC001 - the application reads the types

state = App(
    name="state",
    help="""Look into the store in which a node keeps state, and copy it.

lmos-actors state ls node.db

lmos-actors state show node.db life

lmos-actors state turns node.db

lmos-actors state export node.db > node.jsonl

lmos-actors state import new.db < node.jsonl

lmos-actors state check node.db

lmos-actors state memories node.db

lmos-actors state forget node.db --identity alice

lmos-actors state backup node.db backup.db

lmos-actors state ls "redis://10.0.0.5?prefix=desk&password=env:REDIS_PASSWORD"

Help on a command: lmos-actors state ls --help

The file of a node that runs can be backed up; the other commands say that it is in use. A store in a \
Redis server is read while nodes write to it; its extra is redis.

Exit codes: 0 done; 1 the file is damaged, or has no such key; 2 the usage is wrong, or the file \
is no store; 3 it is in use, or the disk or the server cannot be read or written.""",
    help_format="plaintext",
)


def _place(_: Any, tokens: Any) -> str:
    """Parse the place of a store, also in the form of `serve --store`: `sqlite:FILE` means the file."""
    return str(tokens[0].value).removeprefix("sqlite:")


Store: TypeAlias = Annotated[
    str,
    Parameter(
        name="STORE",
        converter=_place,
        help="The file of the store, or the URL of one in a server: redis://HOST?prefix=NAME.",
    ),
]
File: TypeAlias = Annotated[str, Parameter(name="FILE", converter=_place, help="The file of the store.")]
Space: TypeAlias = Annotated[
    str | None, Parameter(metavar="SPACE", help="Only the records of this space, such as directory.things.")
]


@state.command(name="ls")
def ls(file: Store, /, *, space: Space = None, json: Json = False) -> int:
    """List the records: bytes, space and key.

    lmos-actors state ls node.db

    lmos-actors state ls node.db --space directory.things

    Unprintable characters, such as a line break in a key, are shown as escapes: \\\\n, \\\\x00.
    """
    from .._state import carried_out, list_records

    return carried_out(list_records, file, space, as_json=json)


@state.command(name="show")
def show(file: Store, key: Annotated[str, Parameter(name="KEY")], /, *, space: Space = None) -> int:
    """Print the value at a key: JSON if it is JSON, else bytes in hexadecimal digits.

    lmos-actors state show node.db life

    lmos-actors state show node.db urn:dev:lamp-7 --space directory.things

    Parameters
    ----------
    key
        The key. If several spaces have it, all of them are printed.
    """
    from .._state import carried_out, show_record

    return carried_out(show_record, file, key, space)


@state.command(name="turns")
def turns(file: Store, /, *, json: Json = False) -> int:
    """List the turns of chat agents that are in progress, or are resumed when their node starts.

    lmos-actors state turns node.db

    A line shows when the turn began, its agent, its caller's principal (- without one), the session, how \
many steps it has recorded, how often it was resumed, and the beginning of its message.
    """
    from .._state import carried_out, list_turns

    return carried_out(list_turns, file, as_json=json)


@state.command(name="export")
def export(file: Store, /) -> int:
    """Print all records as JSON lines, which import reads.

    lmos-actors state export node.db > node.jsonl

    A record is a line with space, key, and text, or base64 if the value is not text. A line before the \
records names the format, one after them has their number, so that a cut file is noticed.
    """
    from .._state import carried_out, export_records

    return carried_out(export_records, file)


@state.command(name="import", usage="Usage: lmos-actors state import [OPTIONS] STORE [LINES]")
def import_(
    file: Store,
    lines: Annotated[str, Parameter(name="LINES")] = "-",
    /,
    *,
    into: Switch = False,
) -> int:
    """Write what export has printed, to a new store.

    lmos-actors state import new.db node.jsonl

    lmos-actors state export node.db | lmos-actors state import new.db

    All records are written, or none. In a Redis server a program that has a store with writers=one open ends.

    Parameters
    ----------
    lines
        The exported lines; - is the standard input.
    into
        Write into an existing store, which must have none of the keys.
    """
    from .._state import carried_out, import_records

    if lines == "-":
        return carried_out(import_records, file, sys.stdin, into=into)
    try:
        with open(lines, encoding="utf-8") as source:
            return carried_out(import_records, file, source, into=into)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ConfigError(f"cannot be read: {error.strerror}", lines) from None


@state.command(name="check")
def check(file: Store, /) -> int:
    """Look for damage: of the pages and the index of the file, and of each record.

    lmos-actors state check node.db

    For a store in a server it also prints the identifier: id= in its URL asks for it.

    Exit code 1: it is damaged; the output says where.
    """
    from .._state import carried_out, check_store

    return carried_out(check_store, file)


Agent: TypeAlias = Annotated[
    str | None, Parameter(metavar="PATH", help="Only those of the agent of this path.")
]
Identity: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="NAME",
        help='Only those of this identity; "" is the one without a name, of a node without security.',
    ),
]


@state.command(name="memories")
def memories(file: Store, /, *, agent: Agent = None, identity: Identity = None, json: Json = False) -> int:
    """List whose memories agents have; of one identity the memories themselves, the newest first.

    lmos-actors state memories node.db

    lmos-actors state memories node.db --agent desk --identity alice

    A line has the number of memories, the path of the agent, and the identity; or the id of a memory, the \
path of the agent, the text, and its tags.
    """
    from .._state import carried_out, list_memories

    return carried_out(list_memories, file, agent, identity, as_json=json)


@state.command(name="forget")
def forget(file: Store, /, *, agent: Agent = None, identity: Identity = None) -> int:
    """Remove the memories of an identity, of an agent, or of one at the other.

    lmos-actors state forget node.db --identity alice

    lmos-actors state forget node.db --agent desk

    A program that has the store in a Redis server open with writers=one ends.

    Exit code 1: there are none.
    """
    from .._state import carried_out, forget_memories

    return carried_out(forget_memories, file, agent, identity)


@state.command(name="backup")
def backup(file: File, to: Annotated[str, Parameter(name="TO")], /) -> int:
    """Copy a store to a new file, also while a node has it open and writes to it.

    lmos-actors state backup node.db backup.db

    The copy is the store as it was after one of its commits.

    Parameters
    ----------
    to
        The copy; the file must not exist yet.
    """
    from .._state import back_up_store, carried_out

    return carried_out(back_up_store, file, to)
