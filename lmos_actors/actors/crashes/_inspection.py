"""The values of a living agent as text: its fields, and the messages that wait for it.

Nothing here calls the code of a value's class, and everything is bounded, as inspecting an agent must not
hold it up. Values marked secret are not shown, not even inside another text.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from lmos_actors._core import printable

from ..values import Secrets
from ._report_values import Message, fields_given, fields_of, message_of
from ._value_text import LIMIT, show_quietly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..values import Secrecy
    from ._report_values import Values

ROOM: Final = 64_000  # characters of all values together
FIELDS: Final = 100  # of an agent, or arguments of one message
NAME: Final = 100  # characters


class Inspection:
    """One inspection of an agent: `slot` is its slot, `items` are the mailbox items and runs to show."""

    def __init__(self, slot: Any, items: Sequence[Any] = ()) -> None:
        agent: Any = slot.agent
        kind = cast("Any", type(agent))
        self._values: Values = (
            fields_given(slot.spec.factory)
            if agent is None
            else fields_of(kind, dict(islice(agent.__dict__.items(), FIELDS)))
        )
        self._messages = [message_of(item) for item in items]
        self._room = ROOM
        self._secrets = found = Secrets()
        every = [self._values, *(message.values() for message in self._messages if message is not None)]
        for values in every:
            for value, secrecy in values.values():
                found.look(value, secrecy)

    def fields(self) -> dict[str, str]:
        """Return the present fields by name, or the given initial fields if the agent does not run."""
        return self._shown(self._values)

    def messages(self) -> list[dict[str, Any]]:
        """Return each item's `verb`, `affordance`, `arguments`, and `from` if known."""
        return [{} if message is None else self._message(message) for message in self._messages]

    def text(self, text: str) -> str:
        """Return another text about the agent, with the agent's secrets removed."""
        return printable(self._secrets.clean(text, LIMIT), keep="\n")

    def _message(self, message: Message) -> dict[str, Any]:
        shown: dict[str, Any] = {"verb": message.verb, "affordance": self.text(message.name)}
        shown["arguments"] = self._shown(message.values())
        if message.sender is not None:
            shown["from"] = message.sender.path
        return shown

    def _shown(self, values: Values) -> dict[str, str]:
        few = islice(values.items(), FIELDS)
        return {self.text(str(name)[:NAME]): self._value(value, secrecy) for name, (value, secrecy) in few}

    def _value(self, value: Any, secrecy: Secrecy) -> str:
        if self._room <= 0:
            return "…"
        text = show_quietly(value, self._secrets, secrecy, min(LIMIT, max(self._room, 32)))
        self._room -= len(text)
        return text
