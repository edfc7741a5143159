"""Messages that an agent has sent to a relay, and their awaited outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import ActionFailed

from ._faults import TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.protocol.relay import Welcomed

ACKNOWLEDGEMENTS: Final = {
    "ping": "pong",
    "subscribe": "subscribed",
    "unsubscribe": "unsubscribed",
    "list_subscriptions": "subscriptions",
    "command": "command_result",
    "query": "query_result",
}
"""The types of answers to commands."""

MAX_PAYLOAD: Final = 60 << 10
"""Maximum bytes of a payload, unless the relay allows less."""


def max_payload(welcome: Welcomed | None) -> int:
    """Return the maximum number of bytes of a payload for a relay."""
    most = None if welcome is None else welcome.limits.get("max_message_size")
    return min(MAX_PAYLOAD, most) if isinstance(most, int) and most > 0 else MAX_PAYLOAD


def check_size(data: bytes, welcome: Welcomed | None) -> None:
    """Raise ActionFailed for a frame above the relay's limit, which would end the connection."""
    most = None if welcome is None else welcome.limits.get("max_message_size")
    if isinstance(most, int) and 0 < most < len(data):
        text = f"the message takes {len(data)} bytes, and the relay takes {most} at most"
        raise ActionFailed({"code": TOO_LARGE, "message": text})


CANCEL: Final = "cancel"
"""The type of the message that takes a question back, by `ref`."""

NOBODY: Final = "nobody"
"""The code of the failure for a question that nobody got."""


@attrs.frozen
class Receipt:
    """The outcome of a message: the id that the relay gave it, and the number of receivers.

    `unknown` are targets that were not on the relay.
    """

    id: str
    delivered: int = 0
    unknown: tuple[str, ...] = ()


class Wait:
    """An awaited reaction of the relay: an answer, or the reason why there is none.

    `on_settled` is called once, with the answer and the error, one of which is None.
    """

    def __init__(self) -> None:
        self.on_settled: Callable[[Any, Exception | None], object] | None = None
        self._value: Any = None
        self._error: Exception | None = None
        self._event = trio.Event()

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Set the value, or the error, unless one is set."""
        if not self._event.is_set():
            self._value, self._error = value, error
            self._event.set()
            if self.on_settled is not None:
                self.on_settled(value, error)

    async def wait(self) -> Any:
        """Wait for the value, and return it. Raise the error."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value


@attrs.define(eq=False)
class Question:
    """A question to some agents, who alone may answer it, or to everybody."""

    sent: Sent
    asked: frozenset[str] | None
    answer: Wait = attrs.field(factory=Wait)
    id: str = ""
    """The id that answers refer to, once it is known."""
    withdrawn: bool = False
    cancel_at: str = ""
    """The agent that gets a `cancel` once the id is known."""
    reason: Any = None
    """The reason for the cancel, as its payload: then the cancel is answered."""
    on_waiting: Callable[[Any], object] | None = None
    """Called with the asked agents' reports about the person that they wait for."""

    def may_answer(self, agent: str) -> bool:
        """Return whether an agent may answer: it was asked, or everybody was."""
        return self.asked is None or agent in self.asked


@attrs.define(eq=False)
class Sent:
    """A message or a command to be sent, with its awaited outcome.

    `taken` is settled once the connection has taken the message. `outcome` is settled by the relay's
    reaction: the receipt, the id of the echo, or the answer to a command. Which reaction that is depends on
    which one of `receipt`, `echo` and `acknowledgement` is set.
    """

    data: bytes
    taken: Wait = attrs.field(factory=Wait)
    outcome: Wait = attrs.field(factory=Wait)
    question: Question | None = None
    receipt: str = ""
    echo: Any = None
    """The reply as its type and its payload."""
    acknowledgement: str = ""
    """The type of the answer to a command."""
    is_command: bool = False
    """Whether it goes to the relay itself."""
    is_passed: bool = False
    """Whether the relay has passed it on and is keeping it: its receipt is to come."""
    is_left: bool = False
    """Whether nobody waits for it any more."""
    number: int = 0
    """Its number among all sent messages."""
    follows_alone: bool = False
    """Whether a message that nothing acknowledges was sent between the echo before it and this one."""

    def fail(self, error: Exception) -> None:
        """Settle everything that waits for the message with an error."""
        for each in (self.taken, self.outcome, None if self.question is None else self.question.answer):
            if each is not None:
                each.settle(error=error)


def ids_of(to: str | Sequence[str]) -> list[str]:
    """Return the targets of a message as a list; `to` may also be a single id."""
    return [to] if isinstance(to, str) else list(to)
