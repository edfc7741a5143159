"""Messages that an agent has sent to a relay, and the outcomes that it waits for."""

from __future__ import annotations

from typing import Any

import attrs
import trio


@attrs.frozen
class Receipt:
    """Outcome of a message: the id that the relay gave it, and how many got it.

    `unknown` are targets that were not there.
    """

    id: str
    delivered: int = 0
    unknown: tuple[str, ...] = ()


class Wait:
    """Something of the relay's that is waited for: an answer, or why there is none."""

    def __init__(self) -> None:
        self._value: Any = None
        self._error: Exception | None = None
        self._event = trio.Event()

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Set the value, or the error, unless there is one."""
        if not self._event.is_set():
            self._value, self._error = value, error
            self._event.set()

    async def wait(self) -> Any:
        """Wait for the value. Raise the error."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value


@attrs.define(eq=False)
class Sent:
    """A message or a command that is to be sent, and what is to come of it.

    `taken` is settled once the connection has it, `outcome` by what the relay says about it: the receipt, the
    id of the echo, the answer to a command. `answer` is that of another agent to a question.
    """

    data: bytes
    taken: Wait = attrs.field(factory=Wait)
    outcome: Wait = attrs.field(factory=Wait)
    answer: Wait | None = None
    receipt: str = ""
    echo: Any = None
    """What comes back: the type and the payload."""
    acknowledgement: str = ""
    """The type of the answer to a command."""

    def fail(self, error: Exception) -> None:
        """Settle all that is waited for with an error."""
        for each in (self.taken, self.outcome, self.answer):
            if each is not None:
                each.settle(error=error)
