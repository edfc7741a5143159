"""The messages of one connection to an AgentRelay: requests, answers, and broadcasts.

A message to some agents is a request to each of them, and a message that refers to it is its answer. Not
every hub reports the id of a message to its sender. So an answer belongs to the message with the id that it
refers to, if a receipt or the sender's own copy has shown that id. Otherwise it belongs to the oldest message
that is still open at the answering agent. A message from the client to everybody is a one-way request to `*`;
such a message from another agent is an event of that agent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.errors import ActionFailed
from lmos_actors.facades.relay import ACKNOWLEDGEMENTS
from lmos_actors.files import is_list, listed, mapped
from lmos_actors.protocol.relay import (
    EVERYBODY,
    RELAY,
    RelayAnswer,
    RelayClient,
    RelayFault,
    RelayMessage,
)

if TYPE_CHECKING:
    from ._transcript import Transcript

MOST: Final = 1_000
"""Maximum messages that wait for an answer; the oldest are forgotten."""

TARGETS: Final = 256
"""Maximum targets of a message that are written."""

UNTYPED: Final = "message"
"""The name for the type of a message without one."""

QUESTION: Final = "question"
ANSWER: Final = "answer"
RECEIPTS: Final = "passed", "receipt"


@attrs.define(eq=False)
class _Said:
    """A message that `agent` may answer, or everybody if that is None; `id` is "" while unknown."""

    agent: str | None
    number: int
    type: str
    payload: Any
    id: str = ""
    receipt: Any = None


class RelayConversation:
    """One connection to a hub. The name of its client is known once the hub has sent the welcome."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._client = RelayClient()
        self._sent: deque[_Said] = deque(maxlen=MOST)
        self._asked: deque[_Said] = deque(maxlen=MOST)
        self._commands: deque[_Said] = deque(maxlen=MOST)

    @property
    def _name(self) -> str:
        return self._client.id or "client"

    # ---- what the client says

    def from_client(self, content: str | bytes) -> None:
        """Record a frame of the client."""
        try:
            frame: Any = msgspec.json.decode(content)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            frame = None
        members = mapped(frame)
        if not is_list(members.get("to")):
            self._transcript.unread += 1
            return
        to = [each for each in listed(members["to"])[:TARGETS] if isinstance(each, str)]
        kind = members.get("type")
        kind = kind if isinstance(kind, str) and kind else UNTYPED
        payload, receipt = self._shown(members.get("payload")), members.get("receipt")
        if RELAY in to:
            number = self._transcript.sent(RELAY, "invoke", kind, payload, self._name)
            self._commands.append(_Said(RELAY, number, kind, payload, receipt=receipt))
        elif not self._answers(members.get("ref"), to, kind, payload):
            self._say(to, kind, payload, receipt)

    def _shown(self, payload: Any) -> Any:
        return self._transcript.redaction.frame(payload)

    def _answers(self, ref: Any, to: list[str], kind: str, payload: Any) -> bool:
        """Record a frame that answers a message to the client; return whether there is such a message."""
        for said in self._asked:
            if ref and said.id == ref:
                self._asked.remove(said)
                self._answered(self._name, said, kind, payload)
                return True
        return False

    def _answered(self, agent: str, said: _Said, kind: str, payload: Any) -> None:
        more = {} if kind == ANSWER else {"type": kind}
        self._transcript.answered(agent, said.type, said.number, payload, more)

    def _say(self, to: list[str], kind: str, payload: Any, receipt: Any) -> None:
        if EVERYBODY in to:
            number = self._transcript.sent(EVERYBODY, "tell", kind, payload, self._name)
            self._sent.append(_Said(None, number, kind, payload, receipt=receipt))
            return
        for agent in dict.fromkeys(to):
            if agent != self._name:
                number = self._transcript.sent(agent, "invoke", kind, payload, self._name)
                self._sent.append(_Said(agent, number, kind, payload, receipt=receipt))

    def left(self) -> None:
        """Do nothing: messages on a relay stay valid after their sender has left."""

    # ---- what it hears

    def from_server(self, content: str | bytes) -> None:
        """Record a frame of the hub."""
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        unread = self._client.unread
        event = self._client.receive(data)
        self._transcript.unread += self._client.unread - unread
        if isinstance(event, RelayMessage):
            self._heard(event)
        elif isinstance(event, RelayAnswer):
            self._word(event)
        elif isinstance(event, RelayFault):
            self._refused(event)

    def _heard(self, message: RelayMessage) -> None:
        payload, kind = self._shown(message.payload), message.type or UNTYPED
        if message.sender == self._name:  # its own message, which has come back
            for mine in self._sent:
                if not mine.id and mine.payload == payload and mine.type == kind:
                    mine.id = message.id
        elif (said := self._meant(message)) is not None:
            if said.agent is None:
                more = {"broadcast": True}
                number = self._transcript.sent(
                    message.sender, "invoke", said.type, said.payload, self._name, more
                )
                said = _Said(message.sender, number, said.type, said.payload)
            else:
                self._sent.remove(said)
            self._answered(message.sender, said, kind, payload)
        elif self._name in message.to:
            number = self._transcript.sent(self._name, "invoke", kind, payload, message.sender)
            self._asked.append(_Said(self._name, number, kind, payload, message.id))
        else:
            self._transcript.event(message.sender, kind, payload)

    def _meant(self, message: RelayMessage) -> _Said | None:
        """Return the client's message that another message answers, or None if it answers none."""
        if not message.ref:
            return None
        mine = [said for said in self._sent if said.agent in (None, message.sender)]
        known = [said for said in mine if said.id == message.ref]
        if known or (message.type != ANSWER and not message.is_for(self._name)):
            return known[0] if known else None
        unknown = [said for said in mine if not said.id and (said.agent or said.type == QUESTION)]
        return unknown[0] if unknown else None

    def _word(self, answer: RelayAnswer) -> None:
        receipt = mapped(answer.payload).get("receipt")
        if answer.type in RECEIPTS:
            for said in (*self._sent, *self._commands):
                if receipt is not None and said.receipt == receipt:
                    said.id = answer.ref
            return
        for command in self._commands:
            if ACKNOWLEDGEMENTS.get(command.type) == answer.type:
                self._commands.remove(command)
                self._answered(RELAY, command, answer.type, self._shown(answer.payload))
                return

    def _refused(self, fault: RelayFault) -> None:
        output = self._shown({"code": fault.code, "message": fault.message})
        for waiting in (self._commands, self._sent):
            for said in waiting:
                is_meant = said.receipt == fault.receipt if fault.receipt else waiting is self._commands
                if is_meant:
                    waiting.remove(said)
                    self._transcript.failed(
                        said.agent or EVERYBODY, said.type, said.number, ActionFailed(output), output
                    )
                    return
