"""Receipts: the sender of a message gets its id, and the number of agents that received it.

A relay gives messages their ids and does not report them to the sender, so the sender cannot match an
answer's `ref` to its message. The sender can set a member `receipt`, a text of its choice. The hub answers
with a message of the type `receipt` whose `ref` is the id. Errors about a frame repeat the member.

The receipt is sent once the hub has stored all that it stores of the frame; if that fails, an error
`unavailable` is sent instead. Delivery does not wait for that, so an answer might arrive before the receipt.
If something is still to be stored, a message of the type `passed` with the same content is sent at once,
before any answer. It means that the message was passed on, not that anything of it is stored.
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
        """Check the `receipt` member of a command; another extension carries out the command itself."""
        self.check(frame)
        return False

    def check(self, frame: HubFrame) -> None:
        """Refuse a `receipt` member that is not a text, or is too long."""
        found = frame.value("receipt")
        if found is not None and (not isinstance(found, str) or len(found) > LONGEST):
            raise HubRefusal("invalid_message", f"`receipt` is a text of {LONGEST} characters at most")

    def acknowledge(self, frame: HubFrame, fate: Fate) -> None:
        """Answer a message that requests a receipt."""
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
