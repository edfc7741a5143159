"""Limits of a group's node: numbers in the file that set fields of the option records of `open_node`.

This module names no fields: the fields of a record are its schema, and the record's own checks report what is
wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmos_actors.files import DataPath

    from ..model import Group

RECORDS: Final = (
    "node", "session", "connection", "door", "http", "omnia", "relay", "mcp", "directory", "metrics",
)  # fmt: skip
"""Keys of `limits` in a file that are arguments of `open_node`; `node` is its argument `limits`."""

SERVICES: Final = RECORDS[5:]
"""Those that a group has only if its key of that name asks for it."""

_NUMBERS: Final = ("int", "float", "int | None", "float | None")


def node_limits(group: Group) -> dict[str, dict[str, int | float]]:
    """Return the limits of a group's node, by argument of `open_node` and by field of its record."""
    given = {key: getattr(group.limits, key) for key in RECORDS}
    return {"limits" if key == "node" else key: numbers for key, numbers in given.items() if numbers}


def with_limits(arguments: dict[str, Any], limits: Mapping[str, Mapping[str, int | float]]) -> dict[str, Any]:
    """Return arguments of `open_node` with these limits set in their records. Raises ConfigError."""
    found = dict(arguments)
    for key, numbers in limits.items():
        given = arguments.get(key)
        record = _record_class(key)() if given is None or given is True else given
        found[key] = attrs.evolve(record, **numbers)
    return found


def limit_mistakes(group: Group) -> Iterator[tuple[DataPath, str, bool]]:
    """Yield mistakes in a group's node limits.

    Each has its path below the group, the reason, and whether the key is wrong instead of the value.
    """
    for argument, numbers in node_limits(group).items():
        key = "node" if argument == "limits" else argument
        here: DataPath = ("limits", key)
        if key in SERVICES and not getattr(group, key):
            yield here, f'the group has no "{key}"', True
            continue
        cls = _record_class(argument)
        known = [field.name for field in attrs.fields(cls) if field.type in _NUMBERS]
        mistakes: list[tuple[DataPath, str, bool]] = [
            ((*here, name), f'{cls.__name__} has no limit "{name}"{did_you_mean(name, known)}', True)
            for name in numbers
            if name not in known
        ]
        if not mistakes:
            mistakes = [
                ((*here, name), why, False)
                for name, value in numbers.items()
                if (why := _why_not(cls, {name: value}))
            ]
        if not mistakes and (why := _why_not(cls, numbers)):
            mistakes = [(here, why, False)]
        yield from mistakes


def _why_not(cls: Any, numbers: Mapping[str, int | float]) -> str:
    try:
        cls(**numbers)
    except ConfigError as error:
        return error.message
    except ValueError as error:
        return str(error)
    return ""


def _record_class(argument: str) -> Any:
    """Return the record class for an argument of `open_node`, and import only the package of that class."""
    cls: Any
    match argument:
        case "limits":
            from lmos_actors.node import NodeLimits

            cls = NodeLimits
        case "session":
            from lmos_actors.protocol.lmos import SessionOptions

            cls = SessionOptions
        case "connection":
            from lmos_actors.transport import ConnectionOptions

            cls = ConnectionOptions
        case "door":
            from lmos_actors.transport import DoorOptions

            cls = DoorOptions
        case "http":
            from lmos_actors.bindings import HttpOptions

            cls = HttpOptions
        case "omnia":
            from lmos_actors.facades import OmniaOptions

            cls = OmniaOptions
        case "relay":
            from lmos_actors.facades import RelayOptions

            cls = RelayOptions
        case "mcp":
            from lmos_actors.mcp import McpOptions

            cls = McpOptions
        case "directory":
            from lmos_actors.directory import DirectoryOptions

            cls = DirectoryOptions
        case _:
            from lmos_actors.observe import MetricsOptions

            cls = MetricsOptions
    return cls
