"""Messages that an agent sends later: after some seconds, or once the state of a durable agent is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.errors import LmosActorsError

from .._trace_context import current_mark
from ..messages._operation import CHECKED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors._core import Timer

    from ..messages._operation import Operation


class Departure:
    """A message that is sent later; it stands for the turn that would send it then.

    With an operation, `args` are checked for it already.
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
        """Check the arguments where the agent runs near. Raises InvalidInput, NotFound."""
        if not getattr(link, "table", None):
            return cls(sender, link, key, args, kwargs)
        op: Operation = link.operation(key)
        return cls(sender, link, key, op.bind(args, kwargs), CHECKED, op)

    @property
    def sender(self) -> Any:
        """The agent that sends it."""
        return self._sender

    def fire(self) -> None:
        """Send it, as its time has come."""
        self.timer.leave()
        if self._sender.output_gate is None:
            self.release()
        else:
            self._sender.output_gate.hold(self)

    def release(self) -> None:
        """Send it now; what is refused is a dead letter, as no code is left to see the error."""
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
        """See `Output`."""
        self._sender.rt.dead_letter(why, self._link, self._sender, self._key, self._args)
