"""Texts of errors and values for people, and a check of which characters an output can encode.

An error is printed with its remedy, in terms of the options of a command.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import attrs

from lmos_actors._core import Spelling, printable
from lmos_actors.errors import ActionFailed

_AUTHORITY: Final = "to trust it, name its authority with --ca FILE"


def spelling(credentials: str, cert: str = "--cert") -> Spelling:
    """Return the wording of remedies after a refusal by a server; `cert` is the option for a certificate."""
    key = cert.replace("cert", "key")
    shown = f"show a certificate that it accepts, with {cert} FILE and {key} FILE"
    return Spelling(f"give credentials with {credentials}", shown, _AUTHORITY)


ONE_SERVER: Final = spelling("--bearer env:NAME or --basic USER:env:NAME")
"""The options of commands that connect to one server."""

ONE_THING: Final = spelling("--bearer env:NAME, --basic USER:env:NAME or --apikey env:NAME")
"""The options of commands that use one thing."""

ONE_RELAY: Final = attrs.evolve(ONE_SERVER, presence="is a relay there?")
"""The options of commands that act as an agent on a relay."""

SEVERAL_SERVERS: Final = spelling("--credential URL=bearer:env:NAME")
"""The options of commands that reach several servers, if one asks for credentials."""


_FOR_STRANGERS: Final = {
    "it speaks LMOS": "the commands call, read and observe talk to it",
    "it speaks Omnia": "the command chat talks to it",
    "it speaks AgentRelay": "the commands of relay talk to it",
}
"""The commands that talk to a server of another protocol, by a part of the error."""


def explained(error: Exception, options: Spelling = ONE_SERVER) -> str:
    """Return the text of an error and its remedy, in terms of the command's options."""
    if isinstance(error, ActionFailed):
        return _failure(error)
    from lmos_actors._core import remedy

    text = str(error)
    ways = (way for sign, way in _FOR_STRANGERS.items() if sign in text)
    fix = remedy(error, options) or next(ways, "")
    return f"{text}; {fix}" if fix and "did you mean" not in text else text


def _failure(error: ActionFailed) -> str:
    """Return the text of a declared failure: its code and detail, if any, then its data."""
    if error.output is None:
        return str(error)
    if error.code is None and error.detail is None:
        return f"the action failed: {for_people(error.output)}"
    data = f" {for_people(error.data)}" if error.data else ""
    return f"the action failed: {for_people(str(error))}{data}"


def for_people(value: Any, *, whole: bool = False) -> str:
    """Return a value as text for people, without control characters for a terminal."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, indent=2 if whole else None, ensure_ascii=False, default=as_base64)
    )
    return printable(text, keep="\n\t" if whole else "")


def as_base64(value: Any) -> Any:
    """Return a JSON form of a value that has none: bytes as base64, anything else as its text."""
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else str(value)


def takes_all(out: Any) -> bool:
    """Return whether a text stream can encode every character."""
    return str(getattr(out, "encoding", "")).lower().replace("-", "") == "utf8"
