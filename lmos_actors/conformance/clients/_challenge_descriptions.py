"""Descriptions of things: those of the scripted server, with challenges and `prove` added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.scripted import described, described_b

from ._cases import CHALLENGES

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json

_TOKEN: Final = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}
_HOW: Final = {case.challenge: case.how for case in CHALLENGES}
_ACTIONS: Final = (
    "output", "pending", "progress", "failure", "error", "numeric-status", "event", "reversed",
    "unknown-members", "unknown-type", "stray-event", "stray-answer", "stray-pong", "fragments", "long",
    "letters", "stream", "restart",
)  # fmt: skip
CHALLENGE_OF: Final = {
    **{f"challenge_{each.replace('-', '_')}": each for each in _ACTIONS},
    "challenge_restart": "reconnects",
}
"""The challenge that each action puts."""


def _action(name: str, challenge: str) -> Json:
    made: Json = {"description": _HOW[challenge], "safe": True, "output": _TOKEN}
    if name == "challenge_reversed":
        which = {"type": "integer", "minimum": 1, "maximum": 2}
        made["input"] = {"type": "object", "properties": {"which": which}, "required": ["which"]}
    if name in ("challenge_pending", "challenge_progress"):
        made["synchronous"] = False
    if name in ("challenge_event", "challenge_error", "challenge_numeric_status"):
        del made["output"]
    return made


_PROVE: Final[Json] = {
    "description": "Shows that a challenge is solved: its word, and the token that it gave.",
    "safe": True,
    "input": {
        "type": "object",
        "properties": {
            "challenge": {"type": "string", "enum": list(_HOW)},
            "token": {"type": "string"},
            "failed": {"type": "boolean", "default": False, "description": "What gave the token has failed."},
        },
        "required": ["challenge", "token"],
    },
    "output": {
        "type": "object",
        "properties": {"right": {"type": "boolean"}, "why": {"type": "string"}},
        "required": ["right"],
    },
}


def describe_challenges(base: str) -> Json:
    """Return the description of the conformance thing with its challenges."""
    document = described(base)
    listen = {**document["events"]["rang"]["forms"][0]}
    invoke = {**document["actions"]["wait"]["forms"][0]}
    read = {**document["properties"]["version"]["forms"][0], "op": ["readproperty"]}

    def text(challenge: str, ops: tuple[str, ...], **words: bool) -> Json:
        return {
            "description": _HOW[challenge],
            "type": "string",
            **words,
            "forms": [{**read, "op": list(ops)}],
        }

    document["properties"] |= {
        "challenge_read": text("read", ("readproperty",), readOnly=True),
        "challenge_time": text("zoned-time", ("readproperty",), readOnly=True),
        "challenge_slate": text("write", ("readproperty", "writeproperty")),
        "challenge_changing": text(
            "observe",
            ("readproperty", "observeproperty", "unobserveproperty"),
            readOnly=True,
            observable=True,
        ),
    }
    document["actions"] |= {
        name: {**_action(name, challenge), "forms": [invoke]} for name, challenge in CHALLENGE_OF.items()
    }
    words = {"contentType": "application/json", "schema": {"type": "string"}}
    document["lmosx:streams"] |= {"challenge_stream": {"input": {"words": words}}}
    document["actions"]["prove"] = {**_PROVE, "forms": [invoke]}
    document["events"]["challenged"] = {"description": _HOW["event"], "data": _TOKEN, "forms": [listen]}
    challenges = " ".join(f"{word}: {how}." for word, how in _HOW.items())
    document["description"] += (
        f" Challenges are solved by reading, writing, invoking as they say. {challenges}"
    )
    return document


def describe_challenges_b(base: str) -> Json:
    """Return the description of the second thing, which has a challenge too."""
    document = described_b(base)
    form = {**document["properties"]["level"]["forms"][0], "op": ["readproperty"]}
    document["properties"]["challenge_read"] = {
        "description": _HOW["other-thing"],
        "type": "string",
        "readOnly": True,
        "forms": [form],
    }
    return document
