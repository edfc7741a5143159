"""The descriptions of the things with riddles: those of the scripted server, and what `prove` is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.scripted import described, described_b

from ._cases import RIDDLES

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Json

_TOKEN: Final = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}
_HOW: Final = {case.riddle: case.how for case in RIDDLES}
_ACTIONS: Final = (
    "output", "pending", "progress", "failure", "error", "numeric-status", "event", "reversed",
    "unknown-members", "unknown-type", "stray-event", "stray-answer", "stray-pong", "fragments", "long",
    "letters", "restart",
)  # fmt: skip
RIDDLE_OF: Final = {
    **{f"riddle_{each.replace('-', '_')}": each for each in _ACTIONS},
    "riddle_restart": "reconnects",
}
"""The riddle of each action that puts one."""


def _action(name: str, riddle: str) -> Json:
    made: Json = {"description": _HOW[riddle], "safe": True, "output": _TOKEN}
    if name == "riddle_reversed":
        which = {"type": "integer", "minimum": 1, "maximum": 2}
        made["input"] = {"type": "object", "properties": {"which": which}, "required": ["which"]}
    if name in ("riddle_pending", "riddle_progress"):
        made["synchronous"] = False
    if name in ("riddle_event", "riddle_error", "riddle_numeric_status"):
        del made["output"]
    return made


_PROVE: Final[Json] = {
    "description": "Shows that a riddle is solved: its word, and the token that it gave.",
    "safe": True,
    "input": {
        "type": "object",
        "properties": {
            "riddle": {"type": "string", "enum": list(_HOW)},
            "token": {"type": "string"},
            "failed": {"type": "boolean", "default": False, "description": "What gave the token has failed."},
        },
        "required": ["riddle", "token"],
    },
    "output": {
        "type": "object",
        "properties": {"right": {"type": "boolean"}, "why": {"type": "string"}},
        "required": ["right"],
    },
}


def puzzling(base: str) -> Json:
    """Describe the conformance thing with its riddles."""
    document = described(base)
    listen = {**document["events"]["rang"]["forms"][0]}
    invoke = {**document["actions"]["wait"]["forms"][0]}
    read = {**document["properties"]["version"]["forms"][0], "op": ["readproperty"]}

    def text(riddle: str, ops: tuple[str, ...], **words: bool) -> Json:
        return {"description": _HOW[riddle], "type": "string", **words, "forms": [{**read, "op": list(ops)}]}

    document["properties"] |= {
        "riddle_read": text("read", ("readproperty",), readOnly=True),
        "riddle_time": text("zoned-time", ("readproperty",), readOnly=True),
        "riddle_slate": text("write", ("readproperty", "writeproperty")),
        "riddle_changing": text(
            "observe",
            ("readproperty", "observeproperty", "unobserveproperty"),
            readOnly=True,
            observable=True,
        ),
    }
    document["actions"] |= {
        name: {**_action(name, riddle), "forms": [invoke]} for name, riddle in RIDDLE_OF.items()
    }
    document["actions"]["prove"] = {**_PROVE, "forms": [invoke]}
    document["events"]["riddled"] = {"description": _HOW["event"], "data": _TOKEN, "forms": [listen]}
    riddles = " ".join(f"{word}: {how}." for word, how in _HOW.items())
    document["description"] += f" Riddles are solved by reading, writing, invoking as they say. {riddles}"
    return document


def puzzling_b(base: str) -> Json:
    """Describe the thing beside it, which has a riddle too."""
    document = described_b(base)
    form = {**document["properties"]["level"]["forms"][0], "op": ["readproperty"]}
    document["properties"]["riddle_read"] = {
        "description": _HOW["other-thing"],
        "type": "string",
        "readOnly": True,
        "forms": [form],
    }
    return document
