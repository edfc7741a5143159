"""Ends of incarnations on other nodes, as monitors here receive them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lmos_actors.actors import Down, ExitReason
from lmos_actors.errors import LmosActorsError

from ._peer_listening import LOST

if TYPE_CHECKING:
    from collections.abc import Callable


class RemoteCrash(LmosActorsError):
    """The error that ended an agent of another process; its text is that of the exit reason there."""

    tells_class = True  # so that the text of an exit reason is the same near and far


def down_of(path: str) -> Callable[[Any], Down]:
    """Return what turns the data of the event `lmosx:exited` into a `Down`."""

    def convert(data: Any) -> Down:
        if data is LOST:
            return Down(path, 0, ExitReason("shutdown", "connection lost"))
        fields = _members(data)
        number = fields.get("incarnation")
        return Down(path, number if type(number) is int else 0, _reason(fields.get("reason")))

    return convert


def _members(data: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _reason(data: Any) -> ExitReason:
    fields = _members(data)
    kind, text = fields.get("kind"), fields.get("text")
    text = text if isinstance(text, str) else ""
    if kind == "normal":
        return ExitReason("normal")
    if kind == "shutdown":
        detail = text.removeprefix("shutdown").removeprefix(": ")
        return ExitReason("shutdown", detail or None)
    return ExitReason("error", error=RemoteCrash(text or "the agent has ended"))
