"""The answer message of each operation, by its verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import UNSET

from lmos_actors.actors import STREAM
from lmos_actors.errors import NotAllowed

from ..exposure._values import PLAIN, plain, plain_members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from lmos_actors.actors import Far
    from lmos_actors.protocol import lmos

_Clock: TypeAlias = "Callable[[], datetime]"
_Answer: TypeAlias = "Callable[[lmos.ThingSession, Far, Any, _Clock], None]"


def _one(session: lmos.ThingSession, far: Far, value: Any, at: _Clock) -> None:
    session.answer(far.asked, plain(value), at())


def _all(session: lmos.ThingSession, far: Far, values: dict[str, Any], at: _Clock) -> None:
    session.answer(far.asked, plain_members(values), at())


def _some(session: lmos.ThingSession, far: Far, values: dict[str, Any], at: _Clock) -> None:
    names: list[str] = far.asked.message.properties
    for name in names:
        if name not in values:
            raise NotAllowed(f"property {name!r} of {far.slot.path} is write-only")
    _all(session, far, {name: values[name] for name in names}, at)


def _written(session: lmos.ThingSession, far: Far, _: Any, at: _Clock) -> None:
    """Answer a write with the written value, as the protocol requires."""
    _one(session, far, far.args[0], at)


def _all_written(session: lmos.ThingSession, far: Far, _: Any, at: _Clock) -> None:
    _all(session, far, far.args[0], at)


def _done(session: lmos.ThingSession, far: Far, value: Any, _: _Clock) -> None:
    if far.op.kind == STREAM and far.asked.gathered is None and session.habits == "kotlin-wot":
        value = []  # its items are one array to such a peer, also where there are none
    if type(value) not in PLAIN:
        value = plain(value)
    elif value is None and has_no_result(far):
        value = UNSET
    session.complete(far.asked, value)


def has_no_result(far: Far) -> bool:
    """Return whether an action has no result but its items, or none at all."""
    shape = far.op.result_shape
    return far.op.kind == STREAM or (shape is not None and shape.type in (None, type(None)))


ANSWERS: Final[Mapping[str, _Answer]] = {
    "read": _one,
    "read_all": _all,
    "read_many": _some,
    "write": _written,
    "write_many": _all_written,
    "write_all": _all_written,
    "invoke": _done,
}
"""The functions that answer requests, except subscriptions. They raise LocalProtocolError for a value without
a JSON form."""


def lmos_offered(offered: tuple[str, ...]) -> bool:
    """Return whether a peer offered the LMOS subprotocol."""
    return "lmosprotocol" in offered
