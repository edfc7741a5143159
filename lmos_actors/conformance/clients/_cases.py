"""Cases for clients, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.card import (
    binding,
    extension,
    lmos,
    rfc6455,
)

if TYPE_CHECKING:
    from lmos_actors.conformance.card import Section

_COMMON: Final = lmos("Common Message Requirements")


@attrs.frozen
class ClientCase:
    """A demand on a client. `how`: what the client must do so that the case is tried; "" for any client."""

    id: str
    title: str
    section: Section
    expected: str
    how: str = ""

    @property
    def challenge(self) -> str:
        """The second part of the id, which is the name of a challenge in the input of `prove`."""
        return self.id.partition(".")[2]


PASSIVE: Final = (
    ClientCase(
        "client.handshake",
        "The handshake is that of RFC 6455",
        rfc6455("4.1"),
        "GET with Host, Upgrade: websocket, Connection: Upgrade, version 13 and a key of 16 bytes in base64",
    ),
    ClientCase(
        "client.subprotocol",
        "The subprotocol is offered",
        binding("WebSocket Protocol Handshake"),
        "lmosprotocol in Sec-WebSocket-Protocol",
    ),
    ClientCase("client.masked", "Frames are masked", rfc6455("5.3"), "every frame of a client has a mask"),
    ClientCase(
        "client.frames",
        "Frames are well formed",
        rfc6455("5.2"),
        "no reserved bits or opcodes, whole control frames of 125 bytes at most, parts in their order",
    ),
    ClientCase("client.utf-8", "Texts are UTF-8", rfc6455("8.1"), "UTF-8 in text messages"),
    ClientCase(
        "client.text",
        "Messages are texts",
        lmos("WebSocket Messages"),
        "text messages, and binary ones only as items of streams",
    ),
    ClientCase("client.json", "Messages are JSON objects", lmos("WebSocket Messages"), "one JSON object"),
    ClientCase(
        "client.types",
        "Types of messages are those of consumers",
        lmos("LMOS Message Types"),
        "a messageType that the table lists for consumers, in its spelling",
    ),
    ClientCase(
        "client.members",
        "Mandatory members are present",
        lmos("Common Message Members Table"),
        "thingID, messageID, messageType, and what the type demands, each of its type",
    ),
    ClientCase(
        "client.spelling",
        "Members are spelt as in the tables",
        lmos("Common Message Members Table"),
        "thingID, messageID, correlationID; name; data",
    ),
    ClientCase("client.ids", "Ids are UUIDs", _COMMON, "messageID and correlationID are UUIDs of version 4"),
    ClientCase(
        "client.fresh-ids",
        "A messageID is used once",
        _COMMON,
        "another messageID in each message, but for the repeat of the same request",
    ),
    ClientCase("client.thing-id", "The thing is the one described", _COMMON, "the id of the description"),
    ClientCase(
        "client.offered",
        "Only offered operations are requested",
        lmos("Properties"),
        "names and operations that the description has",
    ),
    ClientCase(
        "client.input",
        "Inputs match the description",
        lmos("invokeAction"),
        "input and data that the data schemas of the description allow",
    ),
    ClientCase(
        "client.pongs", "Pings are answered", rfc6455("5.5.3"), "a pong with what was in the ping, soon"
    ),
    ClientCase(
        "client.returns-close",
        "A Close is answered by a Close",
        rfc6455("5.5.1"),
        "a Close frame, soon",
        "invoke challenge_restart: the connection is closed after its answer",
    ),
    ClientCase(
        "client.close",
        "It ends its connections with a Close",
        rfc6455("7.1.2"),
        "a Close with a code that may be sent, before the stream ends",
        "close a connection",
    ),
    ClientCase(
        "client.nothing-after-close",
        "Nothing comes after its Close",
        rfc6455("5.5.1"),
        "no frame after a Close frame",
        "close a connection",
    ),
)
"""Cases about everything that a client sends."""

_ACTION: Final = lmos("actionStatus")
_ERROR: Final = lmos("error")

CHALLENGES: Final = (
    ClientCase(
        "client.read",
        "The value of a property is understood",
        lmos("propertyReading"),
        "the value",
        "read challenge_read; its value is the token",
    ),
    ClientCase(
        "client.write",
        "A property is written, and read back",
        lmos("writeProperty"),
        "the value read back",
        "write any text to challenge_slate, read it back: the value then is the token",
    ),
    ClientCase(
        "client.zoned-time",
        "A time with a zone is understood",
        _COMMON,
        "the value of a reading whose timestamp has a suffix of RFC 9557",
        "read challenge_time; its value is the token",
    ),
    ClientCase(
        "client.output",
        "The output of an action is understood",
        _ACTION,
        "the output",
        "invoke challenge_output; the token is in its output",
    ),
    ClientCase(
        "client.pending",
        "A run may be pending",
        lmos("Request-Reply"),
        "the output that comes after pending",
        "invoke challenge_pending; the token is in its output",
    ),
    ClientCase(
        "client.progress",
        "A run may be in progress",
        lmos("One Request-Multiple Responses"),
        "the output that comes after in progress",
        "invoke challenge_progress; the token is in its output",
    ),
    ClientCase(
        "client.failure",
        "A failed run is distinguished from a completed one",
        _ACTION,
        "the output, and that it failed",
        "invoke challenge_failure; the token is in its output. Prove it with `failed`: true",
    ),
    ClientCase(
        "client.error",
        "An error is understood",
        _ERROR,
        "the detail, and that it failed",
        "invoke challenge_error; the token is in the detail of the error. Prove it with `failed`: true",
    ),
    ClientCase(
        "client.numeric-status",
        "The status of an error may be a number",
        _ERROR,
        "the detail, and that it failed; many write the status as a number",
        "invoke challenge_numeric_status; the token is in the error's detail. Prove it with `failed`: true",
    ),
    ClientCase(
        "client.observe",
        "A change of an observed property is understood",
        lmos("observeProperty"),
        "the value that it has changed to",
        "observe challenge_changing; the token is its second value",
    ),
    ClientCase(
        "client.event",
        "An event is understood",
        lmos("event"),
        "the data of the event",
        "subscribe to challenged, invoke challenge_event; the token is in the data of the event",
    ),
    ClientCase(
        "client.other-thing",
        "Two things share a socket",
        _COMMON,
        "the value of the other thing",
        "read challenge_read of the Conformance thing B, which is described at / of the server; "
        "its value is the token",
    ),
    ClientCase(
        "client.reversed",
        "Answers may come in any order",
        _COMMON,
        "to each request its own answer",
        "invoke challenge_reversed with which: 1, then with which: 2 before the answer; the token is that "
        "of the first, a blank, and that of the second",
    ),
    ClientCase(
        "client.unknown-members",
        "Unknown members are ignored",
        _ACTION,
        "the output",
        "invoke challenge_unknown_members; the token is in its output",
    ),
    ClientCase(
        "client.unknown-type",
        "A message of an unknown type is ignored",
        lmos("LMOS Message Types"),
        "the output that comes after it",
        "invoke challenge_unknown_type; the token is in its output",
    ),
    ClientCase(
        "client.stray-event",
        "An event without a subscription is ignored",
        lmos("event"),
        "the output that comes after it",
        "invoke challenge_stray_event; the token is in its output",
    ),
    ClientCase(
        "client.stray-answer",
        "An answer without a request is ignored",
        _COMMON,
        "the output of its own answer",
        "invoke challenge_stray_answer; the token is in its output",
    ),
    ClientCase(
        "client.stray-pong",
        "An unsolicited pong is ignored",
        rfc6455("5.5.3"),
        "the output that comes after it",
        "invoke challenge_stray_pong; the token is in its output",
    ),
    ClientCase(
        "client.fragments",
        "A message may come in parts, with a ping between them",
        rfc6455("5.4"),
        "the output that comes in three frames",
        "invoke challenge_fragments; the token is in its output",
    ),
    ClientCase(
        "client.long",
        "A message may be long",
        rfc6455("5.2"),
        "the output of over 65,535 bytes",
        "invoke challenge_long; the token is in its output",
    ),
    ClientCase(
        "client.letters",
        "Texts come through unchanged, both ways",
        rfc6455("8.1"),
        "each letter of the output",
        "invoke challenge_letters; the token is in its output, all of it",
    ),
    ClientCase(
        "client.stream",
        "An input stream keeps to its credit",
        extension("Streams, Credit"),
        "five items, none of them without credit, and an end that counts them",
        "invoke challenge_stream with five texts as its input stream words; the token is in its output",
    ),
    ClientCase(
        "client.reconnects",
        "After 1012 it connects again",
        extension("How connections end"),
        "another connection, and the proof on it",
        "invoke challenge_restart; the token is in its output. Then the connection closes with 1012: prove "
        "it on another one",
    ),
)
"""Cases about what a client understands, which it shows by `prove`."""


@attrs.frozen(kw_only=True)
class ClientCases:
    """The cases for clients of one protocol.

    `passive`: cases judged by what a client sends and does; `challenges`: cases judged by what it proves.
    `proof`: the words after "no client has ever", which say how a client proves something.
    """

    passive: tuple[ClientCase, ...]
    challenges: tuple[ClientCase, ...]
    proof: str

    @property
    def all(self) -> tuple[ClientCase, ...]:
        """All cases."""
        return (*self.passive, *self.challenges)


CASES: Final = ClientCases(passive=PASSIVE, challenges=CHALLENGES, proof="invoked prove")
CLIENT_CASES: Final = CASES.all
