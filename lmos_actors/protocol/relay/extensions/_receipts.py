"""Receipts: the sender of a message learns its id, and how many agents got it.

A relay gives messages their ids and does not tell them to the sender, so an answer's `ref` says nothing to
the agent that asked. A member `receipt`, a text that the sender chooses, is answered with a message of the
type `receipt` whose `ref` is the id. Errors about a frame repeat the member.

The receipt comes once the hub has kept everything that it keeps of the frame; if it could not, an error
`unavailable` comes. Delivery does not wait for that, so an answer might come before the receipt. If there is
something to wait for, a message of the type `passed` with the same content comes at once, before any answer:
it says that the message was passed on, not that anything of it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._extension import HubExtension, HubRefusal

if TYPE_CHECKING:
    from .._extension import Fate, HubFrame

LONGEST: Final = 256
"""Limit on the characters of a receipt."""


class Receipts(HubExtension):
    """The extension `receipts`."""

    name = "receipts"
    echoed = ("receipt",)

    def command(self, frame: HubFrame) -> bool:
        """Check the member; the command itself belongs to another extension."""
        self.check(frame)
        return False

    def check(self, frame: HubFrame) -> None:
        """Refuse a receipt that is not a text, or too long."""
        found = frame.value("receipt")
        if found is not None and (not isinstance(found, str) or len(found) > LONGEST):
            raise HubRefusal("invalid_message", f"`receipt` is a text of {LONGEST} characters at most")

    def acknowledge(self, frame: HubFrame, fate: Fate) -> None:
        """Answer a message that asks for a receipt."""
        found = frame.value("receipt")
        if found is None:
            return
        payload: dict[str, Any] = {"receipt": found, "delivered": fate.delivered}
        payload["unknown"] = list(fate.unknown)

        def kept() -> None:
            self.hub.answer(frame.sender, "receipt", payload, frame.id)

        def lost() -> None:
            was = "it was passed on, and " if fate.outcome == "passed" else ""
            error = {"code": "unavailable", "message": f"{was}the relay could not keep it", "receipt": found}
            self.hub.answer(frame.sender, "error", error)

        is_known = frame.when_kept(kept, lost)
        if not is_known and fate.outcome == "passed":
            self.hub.answer(frame.sender, "passed", payload, frame.id)
