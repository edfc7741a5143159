"""Receipts: who sends a message learns its id, and how many got it.

A relay gives messages their ids and does not tell them to the sender, so an answer's `ref` says nothing to
the one who asked. A member `receipt`, a text of the sender's, is answered with a message of the type
`receipt` whose `ref` is the id: before any answer can come. Errors about a frame repeat the member.

The receipt of a command, such as a vote, comes once everything that it has changed is kept, or an error if
it could not be. That of a message cannot wait for this: the answer might come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._extension import HubExtension, HubRefusal

if TYPE_CHECKING:
    from .._extension import Fate, HubFrame

LONGEST: Final = 256
"""Characters of a receipt."""


class Receipts(HubExtension):
    """The extension `receipts`."""

    name = "receipts"
    echoed = ("receipt",)

    def command(self, frame: HubFrame) -> bool:
        """Check the member; the command is another's."""
        self.check(frame)
        return False

    def check(self, frame: HubFrame) -> None:
        """Refuse a receipt that is no text, or too long."""
        found = frame.value("receipt")
        if found is not None and (not isinstance(found, str) or len(found) > LONGEST):
            raise HubRefusal("invalid_message", f"`receipt` is a text of {LONGEST} characters at most")

    def done(self, frame: HubFrame, fate: Fate) -> None:
        """Answer a message that asks for a receipt."""
        found = frame.value("receipt")
        if found is None:
            return
        payload: dict[str, Any] = {"receipt": found, "delivered": fate.delivered}
        payload["unknown"] = list(fate.unknown)

        def kept() -> None:
            self.hub.answer(frame.sender, "receipt", payload, frame.id)

        def lost() -> None:
            error = {"code": "unavailable", "message": "the relay could not keep it", "receipt": found}
            self.hub.answer(frame.sender, "error", error)

        if fate.outcome == "command":
            self.store.write({}, kept, lost)
        else:
            kept()
