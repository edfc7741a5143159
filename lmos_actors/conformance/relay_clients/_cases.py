"""The cases for clients of relays, as data.

Some are judged by what a client sends, some by whether it stays or reconnects after a message to it, and some
by what it sends to the agent `judge`. Some trials end a client permanently: each of these has its own agent,
one of `PARTS`, and the client connects with that agent's id.
"""

from __future__ import annotations

from typing import Final

from lmos_actors.conformance.card import relay, relay_page, relays, rfc6455
from lmos_actors.conformance.clients import ClientCase, ClientCases

JUDGE: Final = "judge"
"""The agent that asks clients, and to which they prove things."""

EXPIRED: Final = "expired"
HURRIED: Final = "hurried"
UNWELCOMED: Final = "unwelcomed"
FLAT: Final = "flat"
RENAMED: Final = "renamed"
PARTS: Final = (EXPIRED, HURRIED, UNWELCOMED, FLAT, RENAMED)
"""The ids of agents that meet one thing only, in place of everything that other agents meet."""

_FORMAT: Final = relay_page("message format")
_ERROR: Final = relay("error")
_STAYS: Final = "a second after its last message it is sent this, and has to stay"
_BACK: Final = "it stays until all else was tried; then its connection ends so"
_TEXT: Final = "the payload, sent back to judge with the type proof"


def _as(part: str, then: str = "") -> str:
    return f"connect as {part}, whose token is tok_{part}{then}"


SENT: Final = (
    ClientCase(
        "relayclient.handshake",
        "The handshake is that of RFC 6455",
        rfc6455("4.1"),
        "GET with Host, Upgrade: websocket, Connection: Upgrade, version 13 and a key of 16 bytes in base64",
    ),
    ClientCase(
        "relayclient.credentials",
        "The token is shown in one place",
        relay_page("authentication"),
        "Authorization: Bearer, or ?token=, or the same token in both",
    ),
    ClientCase(
        "relayclient.register",
        "An agent is registered by an object of JSON",
        relay_page("registration"),
        "POST /register with an object; agent_id, if there is one, is a text",
        "register an agent",
    ),
    ClientCase(
        "relayclient.masked", "Frames are masked", rfc6455("5.3"), "every frame of a client has a mask"
    ),
    ClientCase(
        "relayclient.frames",
        "Frames are well formed",
        rfc6455("5.2"),
        "no reserved bits or opcodes, whole control frames of 125 bytes at most, parts in their order",
    ),
    ClientCase("relayclient.utf-8", "Texts are UTF-8", rfc6455("8.1"), "UTF-8 in text messages"),
    ClientCase("relayclient.text", "Messages are texts", relays("frames"), "JSON in text frames"),
    ClientCase("relayclient.json", "Messages are JSON objects", _FORMAT, "one JSON object"),
    ClientCase(
        "relayclient.to",
        "A message names its recipients",
        _FORMAT,
        "`to`, an array of ids, which is not empty",
    ),
    ClientCase(
        "relayclient.payload",
        "A message has a payload",
        _FORMAT,
        "`payload`, null too; a command may have none, but for the reference relay",
    ),
    ClientCase(
        "relayclient.from",
        "An agent speaks as itself",
        _FORMAT,
        "no `from`, or the id that the welcome has named",
    ),
    ClientCase(
        "relayclient.own-members", "The relay decides the id and the time", _FORMAT, "neither `id` nor `ts`"
    ),
    ClientCase(
        "relayclient.types", "`type` and `ref` are texts", relay("Message Types"), "texts, where they are"
    ),
    ClientCase(
        "relayclient.commands",
        "Commands have what they need",
        relays("subscribed"),
        "subscribe and unsubscribe with `agents`, an array of ids",
        "follow an agent",
    ),
    ClientCase(
        "relayclient.size",
        "Messages keep to the size that is announced",
        relay_page("limits"),
        "65,536 bytes at most, as the welcome says",
    ),
    ClientCase(
        "relayclient.answer",
        "An answer names its question",
        relay("answer"),
        "`ref` with the id of a message that the client was sent",
        "answer a question of judge, which is sent while it stays",
    ),
    ClientCase(
        "relayclient.pongs", "Pings are answered", rfc6455("5.5.3"), "a pong with the payload of the ping"
    ),
    ClientCase(
        "relayclient.close",
        "The connection ends with a Close",
        rfc6455("7.1.2"),
        "a Close with a code that may be sent, and UTF-8 as its reason",
        "leave",
    ),
    ClientCase(
        "relayclient.returns-close", "A Close is answered by a Close", rfc6455("5.5.1"), "a Close", _BACK
    ),
    ClientCase(
        "relayclient.nothing-after-close",
        "After its Close a client sends nothing",
        rfc6455("5.5.1"),
        "no frame after the Close",
        "leave",
    ),
)

STAYS: Final = (
    ClientCase(
        "relayclient.strange",
        "Unknown types and members are no reason to leave",
        relay("Custom Types"),
        "the connection goes on after a message with a type and members that nobody knows",
        _STAYS,
    ),
    ClientCase(
        "relayclient.control-types",
        "Types of the relay are its own only from itself",
        relay("No enforcement"),
        "it goes on under its own id after welcome, error, pong and subscribed from another agent",
        _STAYS,
    ),
    ClientCase(
        "relayclient.error",
        "An error is no reason to leave",
        _ERROR,
        "the connection goes on after errors that nobody has asked for, of each shape that was seen",
        _STAYS,
    ),
    ClientCase(
        "relayclient.notice",
        "Unknown words of the relay are passed over",
        relay("Custom Types"),
        "the connection goes on after messages of the relay with types that it does not know",
        _STAYS,
    ),
    ClientCase(
        "relayclient.no-json",
        "A frame that is no JSON is passed over",
        _ERROR,
        "the connection goes on after `{oops` and an empty text",
        _STAYS,
    ),
    ClientCase(
        "relayclient.no-object",
        "A frame that is no message is passed over",
        _ERROR,
        "the connection goes on after null, 5, [1], {} and objects whose members are of other types",
        _STAYS,
    ),
    ClientCase(
        "relayclient.binary",
        "A binary frame is no reason to leave",
        relays("frames"),
        "the connection goes on after a message in a binary frame",
        _STAYS,
    ),
    ClientCase(
        "relayclient.nesting",
        "Arrays within arrays without end are passed over",
        _ERROR,
        "the connection goes on after a message with 20,000 nested arrays",
        _STAYS,
    ),
    ClientCase(
        "relayclient.repeated",
        "A message that comes twice is heard once",
        relays("subscribed"),
        "one answer to a question that comes twice with one id, as some relays send it to followers",
        "answer questions of judge",
    ),
    ClientCase(
        "relayclient.no-welcome",
        "A relay may send no welcome",
        relay("welcome"),
        "the connection goes on for six seconds without one",
        _as(UNWELCOMED),
    ),
    ClientCase(
        "relayclient.flat-welcome",
        "A welcome may be flat",
        relay("welcome"),
        "the connection goes on after a welcome whose members stand beside its type",
        _as(FLAT),
    ),
    ClientCase(
        "relayclient.renamed",
        "The welcome decides who one is",
        relay("welcome"),
        "no `from`, or the id of the welcome, though the agent was registered by another",
        _as(RENAMED, ", and say something"),
    ),
)

ENDS: Final = (
    ClientCase(
        "relayclient.restart",
        "After 1012 it comes back",
        relay_page("server"),
        "another connection within 30 seconds",
        _BACK,
    ),
    ClientCase(
        "relayclient.lost",
        "After a lost connection it comes back",
        relay_page("server"),
        "another connection within 30 seconds",
        _BACK,
    ),
    ClientCase(
        "relayclient.retry-after",
        "It keeps to Retry-After",
        relay_page("limits"),
        "after 429 with Retry-After: 2 no attempt for two seconds, and then one",
        _BACK,
    ),
    ClientCase(
        "relayclient.unavailable",
        "It tries again, and takes its time",
        relay_page("server"),
        "while it is refused by 503, ten attempts in two seconds at most; then another connection",
        _BACK,
    ),
    ClientCase(
        "relayclient.replaced",
        "After 4009 it does not come back",
        relays("second connection of one identity"),
        "no connection for five seconds: two clients would drive each other out for ever",
        _BACK,
    ),
    ClientCase(
        "relayclient.expired",
        "After 4001 it does not come back",
        relay_page("authentication"),
        "no connection for five seconds, as its token is not good any more",
        _as(EXPIRED),
    ),
    ClientCase(
        "relayclient.hurried",
        "After 4029 it takes its time",
        relay_page("limits"),
        "no connection for five seconds, as it has sent too much",
        _as(HURRIED),
    ),
    ClientCase(
        "relayclient.refused",
        "With a token that is refused it does not try again",
        relay_page("authentication"),
        "no other attempt with the same token for five seconds after 401; of some relays, after 4001",
        "connect with any token that does not begin with tok_",
    ),
)

PROVEN: Final = (
    ClientCase(
        "relayclient.behind-welcome",
        "What comes right behind the welcome is heard",
        relays("welcome"),
        _TEXT,
        "wait for the message with the type challenge and this word in its payload",
    ),
    ClientCase(
        "relayclient.fragments",
        "A message may come in parts, with a ping between them",
        rfc6455("5.4"),
        _TEXT,
        "wait for the message with the type challenge and this word in its payload",
    ),
    ClientCase(
        "relayclient.long",
        "A message may be long",
        relay_page("limits"),
        _TEXT,
        "wait for the message with the type challenge and this word in its payload, of 60,000 characters",
    ),
    ClientCase(
        "relayclient.letters",
        "Texts and numbers come through unchanged, both ways",
        _FORMAT,
        _TEXT,
        "wait for the message with the type challenge and this word in its payload",
    ),
    ClientCase(
        "relayclient.asks",
        "An answer is found by its ref",
        relay("answer"),
        "the payload of the answer to its own question, sent to judge with the type proof",
        "ask judge a question, of the type question; other answers come first",
    ),
)

CASES: Final = ClientCases(passive=(*SENT, *STAYS, *ENDS), challenges=PROVEN, proof="sent a proof to judge")
RELAY_CLIENT_CASES: Final = CASES.all
