"""The acts that a client must tolerate while it stays connected, and their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from lmos_actors.conformance.scripted import Disconnect, Out, SendClose, SendFrame, SendText
from lmos_actors.conformance.wire import BINARY, CONTINUATION, PING, TEXT

from ._absences import Absence, Farewell, RetryAfter, Unavailable
from ._cases import EXPIRED, FLAT, HURRIED, JUDGE, RENAMED, UNWELCOMED

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from lmos_actors.conformance.clients import ClientNotes, ConnectionLog

    from ._rules import Frame, FrameRules

STRANGER: Final = "mallory"
"""An agent that says what only the relay may say."""

IMPOSTOR: Final = "mallory-2"
"""The id that a false welcome of the stranger gives the client."""

_DEEP: Final = 20_000
_LETTERS: Final = ' Grüße \u00a0 \u2028 \U0001f469\u200d\U0001f680 "quoted" \\ \t e\u0301 \u05d0 \x7f'
_ODD: Final = (
    "null",
    "5",
    '"text"',
    "[1]",
    "{}",
    '{"from": 5, "to": {}, "payload": 1}',
    '{"type": ["welcome"]}',
)


class Peer(Protocol):
    """The connection of an agent, with the parts that acts use."""

    notes: ClientNotes
    log: ConnectionLog
    rules: FrameRules
    random: Random
    questions: dict[str, int]
    """The ids of questions that are being answered, and how often each was."""

    def known(self) -> Frame:
        """Return the payload of a welcome."""
        ...

    def message(self, sender: str, payload: Any, *, to: list[str] | None = None, **members: Any) -> Frame:
        """Return a message from a sender to this agent, and remember it as sent."""
        ...

    def own(self, type: str, payload: Any, **members: Any) -> Frame:
        """Return a frame from the relay itself to this agent."""
        ...

    def wrong(self, what: str, seen: str) -> None:
        """Note a mistake of the client."""


@attrs.frozen
class Act:
    """Something that a client must tolerate. `out` returns what is sent to the client.

    `seconds`: how long the client has to stay connected afterwards. `then` judges what it has done in that
    time.
    """

    case: str
    out: Callable[[Peer], list[Out]]
    seconds: float = 0.5  # a client that cannot bear something ends its connection by then
    then: Callable[[Peer], object] | None = None


@attrs.frozen
class End:
    """A way in which the hub ends a connection, and the expected reaction of the client."""

    case: str
    out: Out
    absence: type[Absence]


@attrs.frozen(kw_only=True)
class Program:
    """The course of a judged connection.

    `welcome` returns an agent's welcome; `at_once`: an act that begins with the connection; `steps`: acts
    that begin when the agent has been quiet for a while.
    """

    welcome: Callable[[Peer], Frame | None]
    at_once: Act | None = None
    steps: tuple[Act | End, ...] = ()


def _texts(*frames: Frame | str) -> list[Out]:
    return [SendText(each if isinstance(each, str) else json.dumps(each)) for each in frames]


# ---- acts


def _strange(peer: Peer) -> list[Out]:
    more: Frame = {"kit_x": {"a": [1, None]}, "traceparent": "00-1-2-01", "": 0}
    said = peer.message(JUDGE, "hm", type="no-such-type-of-anybody")
    return _texts({**said, **more}, peer.message(JUDGE, None, to=["*"]))


def _control_types(peer: Peer) -> list[Out]:
    peer.rules.others[IMPOSTOR] = "control-types"
    known: Frame = {"relay": "elsewhere", "version": "1", "capabilities": [], "extensions": []}
    return _texts(
        peer.message(STRANGER, known, type="welcome", to=[IMPOSTOR]),
        peer.message(STRANGER, {"code": "auth_mismatch", "message": "go away"}, type="error"),
        peer.message(STRANGER, None, type="pong"),
        peer.message(STRANGER, {"agents": [], "count": 0}, type="subscribed"),
        peer.message(STRANGER, {"status": "passed"}, type="vote_result", ref="m-0"),
    )


def _errors(peer: Peer) -> list[Out]:
    return _texts(
        peer.own("error", {"code": "no_such_code", "message": "hm"}),
        peer.own("error", {"error": "unavailable", "message": "hm"}),
        {"from": "relay", "type": "error", "error": "unavailable", "message": "hm"},
        peer.own("error", None),
    )


def _notices(peer: Peer) -> list[Out]:
    return _texts(
        peer.own("gap", {"lost": 3}), peer.own("no-such-word-of-the-relay", [1]), peer.own("pong", None)
    )


def _binary(peer: Peer) -> list[Out]:
    return [SendFrame(BINARY, json.dumps(peer.message(JUDGE, "in a binary frame")).encode())]


def _nested(peer: Peer) -> list[Out]:
    text = json.dumps(peer.message(JUDGE, "DEEP"))
    return _texts(text.replace('"DEEP"', "[" * _DEEP + "]" * _DEEP))


def _question_twice(peer: Peer) -> list[Out]:
    asked = peer.message(JUDGE, "What is your name?", type="question")
    peer.questions = {asked["id"]: 0}
    return _texts(asked, asked)


def _count_answers(peer: Peer) -> None:
    (count,) = peer.questions.values()
    if count == 1:
        peer.notes.tried("repeated")
    elif count:
        peer.wrong("repeated", f"{count} answers to one question")


def challenge(peer: Peer, case: str, **more: Any) -> Frame:
    """Return the message of a challenge, and note that it has begun."""
    payload = {"challenge": case, "token": peer.random.randbytes(6).hex(), **more}
    peer.notes.give(case, canonical(payload))
    peer.notes.begin(case, peer.log)
    return peer.message(JUDGE, payload, type="challenge")


def _fragments(peer: Peer) -> list[Out]:
    data = json.dumps(challenge(peer, "fragments", letters="ö"), ensure_ascii=False).encode()
    cut = data.index("ö".encode()) + 1  # in the middle of a letter
    return [
        SendFrame(TEXT, data[:5], fin=False),
        SendFrame(PING, peer.random.randbytes(8)),
        SendFrame(CONTINUATION, data[5:cut], fin=False),
        SendFrame(CONTINUATION, data[cut:]),
    ]


def _long(peer: Peer) -> list[Out]:
    return _texts(challenge(peer, "long", letters="x" * 60_000))


def _letters(peer: Peer) -> list[Out]:
    numbers = [0, -1.5, 1e300, 12345678901234567890, 9007199254740993, True, None]
    return _texts(challenge(peer, "letters", letters=_LETTERS, numbers=numbers))


def canonical(value: Any) -> str:
    """Return a value as JSON text that is the same for equal values."""
    return json.dumps(value, sort_keys=True)


ACTS: Final = (
    Act("pongs", lambda peer: [SendFrame(PING, peer.random.randbytes(8))], 0.0),
    Act("strange", _strange),
    Act("control-types", _control_types),
    Act("error", _errors),
    Act("notice", _notices),
    Act("no-json", lambda _: _texts("{oops", "")),
    Act("no-object", lambda _: _texts(*_ODD)),
    Act("binary", _binary),
    Act("nesting", _nested),
    Act("fragments", _fragments),
    Act("long", _long),
    Act("letters", _letters),
    Act("repeated", _question_twice, 2.0, _count_answers),
)

ENDS: Final = (
    End("restart", SendClose(1012, "the relay restarts"), Absence),
    End("lost", Disconnect(), Absence),
    End("retry-after", SendClose(1012, "the relay restarts"), RetryAfter),
    End("unavailable", SendClose(1012, "the relay restarts"), Unavailable),
    End("replaced", SendClose(4009, "replaced"), Farewell),
)


# ---- programs


def _welcome(peer: Peer) -> Frame | None:
    return peer.own("welcome", peer.known())


def _flat_welcome(peer: Peer) -> Frame | None:
    return {"type": "welcome", **peer.known()}


def _renaming_welcome(peer: Peer) -> Frame | None:
    peer.rules.others[RENAMED] = "renamed"
    peer.rules.id = f"{RENAMED}-2"
    return peer.own("welcome", peer.known())


USUAL: Final = Program(welcome=_welcome, steps=(*ACTS, *ENDS))

PROGRAMS: Final[dict[str, Program]] = {
    EXPIRED: Program(welcome=_welcome, steps=(End("expired", SendClose(4001, "token expired"), Farewell),)),
    HURRIED: Program(welcome=_welcome, steps=(End("hurried", SendClose(4029, "rate limit"), Farewell),)),
    UNWELCOMED: Program(
        welcome=lambda _: None,
        at_once=Act("no-welcome", lambda _: [], seconds=6.0),
        steps=ENDS[-1:],
    ),
    FLAT: Program(
        welcome=_flat_welcome, at_once=Act("flat-welcome", lambda _: [], seconds=2.0), steps=ENDS[-1:]
    ),
    RENAMED: Program(welcome=_renaming_welcome, steps=(ACTS[-1], ENDS[-1])),
}
"""The programs of the agents in `PARTS`. Each ends for good, so that its client ends too."""


def program_of(id: str) -> Program:
    """Return the program of an agent."""
    return PROGRAMS.get(id, USUAL)
