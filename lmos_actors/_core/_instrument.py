"""Instruments: the hook by which the runtime reports what happens in it, and the encoding of records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from lmos_actors.errors import raise_interrupt

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal[
    "started",
    "stopped",
    "crashed",
    "restarting",
    "sent",
    "delivered",
    "answered",
    "dropped",
    "refused",
    "cancelled",
    "dead_letter",
    "progress",
    "item",
    "event",
    "changed",
    "circle",
    "fault",
    "healed",
    "network",
]
"""The kind of a record."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Instrument(Protocol):
    """A receiver of every record, in order, in the step in which the recorded event happened."""

    def record(self, kind: Kind, agent: str, fields: dict[str, object]) -> None:
        """Receive one record about `agent` (its path in the tree). Must not block and must not raise."""
        ...


class LogInstrument:
    """An instrument that writes every record to structlog, as plain data.

    `kind` is the name of the event; crashes are logged as errors.
    """

    def __init__(self, logger: str = "lmos_actors") -> None:
        # structlog takes long to import and most nodes have no use for it
        import structlog

        self._log = structlog.stdlib.get_logger(logger)

    def record(self, kind: Kind, agent: str, fields: dict[str, object]) -> None:
        """Write one record to structlog; see `Instrument`."""
        members = {_LOG_NAMES.get(name, name): plain(value) for name, value in fields.items()}
        if kind == "crashed" and "report" in fields:
            members["report"] = str(fields["report"])
        log = self._log.error if kind == "crashed" else self._log.info
        log(kind, agent=agent, **members)


_LOG_NAMES = {"event": "event_name", "agent": "agent_name"}


def encode_plain(fields: Mapping[str, object]) -> bytes:
    """Encode `fields` as one JSON object, members sorted, the same in every process.

    A value without a JSON form is written as its description; see `describe`.
    """
    try:
        return _ENCODER.encode(fields)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _ENCODER.encode({_text(name): _encode_one(value) for name, value in fields.items()})


def _encode_one(value: object) -> msgspec.Raw:
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.Raw(_ENCODER.encode(_text(describe(value))))


def plain(value: object) -> object:
    """Convert a value to plain data, replacing whatever has no JSON form by its description."""
    decoded: object = msgspec.json.decode(encode_plain({"value": value}))["value"]
    return decoded


def describe(value: object) -> str:
    """Return the `repr` of a value without memory addresses, or the name of its type if its `repr` fails."""
    try:
        return _ADDRESS.sub("", repr(value))
    except BaseException as error:  # noqa: ASYNC103 -- not in trio: a value's own code raised it
        raise_interrupt(error)
        return f"<{type(value).__qualname__}>"


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


_ENCODER = msgspec.json.Encoder(enc_hook=describe, order="deterministic")

PLAIN_JSON = _ENCODER.encode
PLAIN_LINES = _ENCODER.encode_lines
"""Encode as `encode_plain` first tries to; raise where that would go on value by value."""
