"""Questions to people: agents of this package tell each other over the hub while they wait for a person."""

from __future__ import annotations

from typing import Final

from .._extension import HubExtension

WAITING: Final = "waiting"
"""The type of the message, with the `ref` of the answer that is to come."""


class Questions(HubExtension):
    """The extension `questions`: the word of the hub that `waiting` is no answer, and nothing else.

    While the answer to a question waits for a person, who asked gets messages of the type `waiting` with the
    `ref` of that answer: `{"id", "key", "expires"}`, every 10 s, and null once it waits no longer. On hubs
    without the extension a client would take them for the answer, so there they are not sent.
    """

    name = "questions"
