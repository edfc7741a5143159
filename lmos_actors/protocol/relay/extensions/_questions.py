"""Questions to people: agents of this package report over the hub that they wait for a person."""

from __future__ import annotations

from typing import Final

from .._extension import HubExtension

WAITING: Final = "waiting"
"""The type of the message, with the `ref` of the answer that will come."""


class Questions(HubExtension):
    """The extension `questions`, which only announces that a `waiting` message is not an answer.

    While an answer waits for a person, the asking agent gets messages of the type `waiting` with the `ref` of
    that answer: `{"id", "key", "expires"}` every 10 s, and null once it no longer waits. They are not sent on
    hubs without the extension, where a client would take them for the answer.
    """

    name = "questions"
