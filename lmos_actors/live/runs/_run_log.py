"""The log of a run as it arrives: many lines of JSON at a time, parsed into records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Struct, field

from .._flow import VALUE, shown_fields, whole_values

if TYPE_CHECKING:
    from .._merge_patch import State

LONG_LINE: Final = 4_000
"""A line of more characters is kept with its long members cut."""

LONG_MEMBER: Final = 500


class LogRecord(Struct, gc=False):
    """One record of a log; members specific to its kind are parsed from the line when they are shown."""

    n: int = 0
    t: float = 0.0
    kind: str = ""
    agent: str = ""
    affordance: str | None = None
    from_: str | None = field(name="from", default=None)
    to: str | None = None
    id: int | str | None = None
    """The number of a message, or the name of a fault."""
    trace: int | None = None
    incarnation: int = 1
    reason: str = ""
    error: str | None = None
    fault: str = ""
    sides: list[list[str]] | None = None
    line: str = ""
    """The line itself."""
    is_shortened: bool = False
    """Whether `line` has some members cut."""

    def shown(self) -> State:
        """Return the record in the form that views show: values as text, cut if they are too long."""
        fields = {name: value for name, value in fields_of(self.line).items() if name not in OWN}
        shown = shown_fields(fields, {} if self.is_shortened else whole_values(fields), _text)
        shown |= {"n": self.n, "t": self.t, "kind": self.kind, "agent": self.agent}
        return shown if self.trace is None else {**shown, "trace": self.trace}


_READ: Final = msgspec.json.Decoder(LogRecord)
_READ_ANY: Final = msgspec.json.Decoder()


def records_in(lines: str) -> list[LogRecord]:
    """Return the records in complete lines of a log; the first and the last line of a log are no records."""
    found: list[LogRecord] = []
    for line in lines.split("\n"):
        record = _read(line)
        if record is not None and record.n:
            record.is_shortened = len(line) > LONG_LINE
            record.line = _shortened(line) if record.is_shortened else line
            found.append(record)
    return found


def _shortened(line: str) -> str:
    """Return a line whose long members have been turned into text and cut."""
    members = {name: _short(value) for name, value in fields_of(line).items()}
    return msgspec.json.encode(members).decode()


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if len(text) <= LONG_MEMBER else f"{text[:LONG_MEMBER]}…"


def _text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= VALUE else f"{text[: VALUE - 1]}…"


def _read(line: str) -> LogRecord | None:
    try:
        return _READ.decode(line)
    except msgspec.ValidationError:  # some member has an unusual type: read only those that all records have
        members = fields_of(line)
        known = {name: members[name] for name in ("n", "t", "kind", "agent") if name in members}
        return LogRecord(**known) if len(known) == len(OWN) else None
    except msgspec.DecodeError:
        return None


OWN: Final = ("n", "t", "kind", "agent")


def fields_of(line: str) -> dict[str, Any]:
    """Return all members of a line; {} if the line is not a JSON object."""
    try:
        found = _READ_ANY.decode(line)
    except msgspec.DecodeError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
