"""Messages that an agent sends later: after some seconds, or once the state of a durable agent is kept."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from lmos_actors.errors import AgentUnavailable, LmosActorsError

from .._trace_context import current_mark
from ..messages._operation import CHECKED
from ..refs._retrying import Retrying, found_link

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors._core import Timer

    from ..messages._operation import Operation


class Departure:
    """A message that is sent later, as if by a turn of its sender.

    If it has an operation, its `args` have been checked already.
    """

    __slots__ = ("_args", "_key", "_kwargs", "_link", "_op", "_sender", "timer", "trace")

    timer: Timer

    def __init__(
        self,
        sender: Any,  # a `Slot`, which stands above this file
        link: Any,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        op: Operation | None = None,
    ) -> None:
        self._sender = sender
        self._link = link
        self._key = key
        self._args = args
        self._kwargs = kwargs
        self._op = op
        self.trace = current_mark(sender.rt) if sender.traced else None

    @classmethod
    def planned(
        cls, sender: Any, link: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Departure:
        """Make a departure, checking the arguments if their types are known, else copying them.

        Raises InvalidInput, NotFound, NotAllowed.
        """
        op: Operation | None = link.table.get(key) if hasattr(link, "output_gate") else None
        if op is not None and not op.streams:
            return cls(sender, link, key, op.bind(args, kwargs), CHECKED, op)
        # no agent of this node, or none with that operation
        if isinstance(link, Retrying):
            link.check_no_key("send")
        found = found_link(link)
        op = _operation(found, key)
        if op is not None:
            if op.streams:
                op.check_one_way()
            bound = op.bind(args, kwargs)
            if hasattr(found, "output_gate"):
                return cls(sender, found, key, bound, CHECKED, op)
        return cls(sender, link, key, *deepcopy((args, dict(kwargs))))

    @property
    def sender(self) -> Any:
        """The agent that sends the message."""
        return self._sender

    @property
    def title(self) -> str:
        """The message and its receiver, as text."""
        return f"send {self._key.lstrip('=')} to {getattr(self._link, 'path', 'an agent')}"

    def fire(self) -> None:
        """Send the message, as its time has come."""
        self.timer.leave()
        if self._sender.output_gate is None:
            self.release()
        else:
            self._sender.output_gate.hold(self)

    def release(self) -> None:
        """Send the message now; a refused message is a dead letter, as no code is left to see the error."""
        sender, link, key = self._sender, self._link, self._key
        checked = self._kwargs is CHECKED
        turns = sender.turns
        turns.slot, turns.current = sender, self
        try:
            if checked and link.table.get(key) is not self._op:  # another agent has come since
                link.send_from(sender, key, self._args, {})
            else:
                link.send_from(sender, key, self._args, self._kwargs)
        except LmosActorsError as error:
            sender.rt.dead_letter(str(error), link, sender, key, self._args)
        finally:
            turns.slot, turns.leave = None, False

    def drop(self, why: str) -> None:
        """Record a dead letter, as the message is not sent; see `Output`."""
        self._sender.rt.dead_letter(why, self._link, self._sender, self._key, self._args)


def _operation(link: Any, key: str) -> Operation | None:
    """Return the operation of a key, or None if it is not known yet. Raises NotFound, NotAllowed."""
    find = getattr(link, "operation", None)
    try:
        found: Operation | None = None if find is None else find(key)
    except AgentUnavailable:
        return None
    return found
