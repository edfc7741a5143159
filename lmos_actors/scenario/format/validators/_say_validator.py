"""Validation of messages of `user` on the hub of a file: in steps and timeline entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean
from lmos_actors.system import NO_VOTING, VOTE
from lmos_actors.system.model import COMMANDS, EVERYBODY, HUB, QUESTION, USER
from lmos_actors.system.values import texts_at

from ...model import Say, is_answered, targets_of
from ._condition_validator import ConditionValidator
from ._timeline_validator import check_error

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames
    from lmos_actors.system.values import Schema

    from ...model import Saying

_TEXT: Final[Schema] = {"type": "string"}
MESSAGE: Final[Schema] = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "sender": _TEXT,
        "to": {"type": "array", "items": _TEXT},
        "type": _TEXT,
        "payload": {},
        "ref": _TEXT,
    },
    "additionalProperties": False,
}
"""A message as steps see it."""

RECEIPT: Final[Schema] = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "delivered": {"type": "integer"},
        "unknown": {"type": "array", "items": _TEXT},
    },
    "additionalProperties": False,
}
"""The receipt for a message without an answer."""

_VOTING: Final = ("vote", "proposal")
_NEEDED: Final = {"query": ("semantic",), "command": ("history", "semantic")}
"""For each command, the extensions of which it needs one."""

_TO_HUB: Final = (*COMMANDS, "vote")
_OWN: Final = ("id", "from", "ts", "to", "type", "ref", "payload", "receipt", "traceparent", "tracestate")
_TERMS: Final = ("deadline", "quorum")


def answer_to(step: Saying) -> Schema:
    """Return the schema of the answer to a step that sends a message on the hub."""
    return MESSAGE if is_answered(step) else RECEIPT


class SayValidator:
    """The validator of the messages of `user` on the hub; mistakes go to `names`."""

    def __init__(self, names: CellNames) -> None:
        self.names = names
        self.conditions = ConditionValidator(names)

    def check(self, step: Saying, path: DataPath) -> None:
        """Check a step or timeline entry that sends a message on the hub."""
        check_error(self.names, step.error, path)
        if not self.names.hub.needs((*path, "do"), '"do: say"'):
            return
        self._targets(step, path)
        self._type(step, path)
        for key in step.members:
            if key in _OWN or key in _TERMS:
                why = (
                    "has a key of its own"
                    if key in (*_TERMS, "to", "type", "ref", "payload")
                    else "is not yours"
                )
                self.names.report((*path, "members", key), f'the member "{key}" {why}', "shape", key=True)
        if step.error is not None and not is_answered(step):
            self._receipts((*path, "error"), "whether the hub refuses it")
        if isinstance(step, Say) and step.save and not is_answered(step):
            self._receipts((*path, "save"), "what becomes of a message")

    def _receipts(self, path: DataPath, what: str) -> None:
        if not self.names.hub.has("receipts"):
            why = f'{what} is known with the extension "receipts": "relay: {{extensions: [receipts]}}"'
            self.names.report(path, why, key=True)

    def _targets(self, step: Saying, path: DataPath) -> None:
        targets = targets_of(step)
        if not targets:
            self.names.report((*path, "to"), "nobody is to hear it", "shape")
        for name, here in texts_at(step.to, (*path, "to")):
            if name == HUB and len(targets) > 1:
                why = f'"{HUB}" stands alone: what is said to the hub is for nobody else'
                self.names.report(here, why, "shape")
            elif self.names.hub.check_name(name, here, EVERYBODY, HUB, USER):
                self.names.used[name] = None

    def _type(self, step: Saying, path: DataPath) -> None:
        here, kind, hub = (*path, "type"), step.type, self.names.hub
        hub.note_type(kind, here)
        if HUB in targets_of(step):
            self._command(step, path)
        if kind in _VOTING and not hub.has("voting"):
            self.names.report(here, NO_VOTING.format(kind))
        elif kind == "proposal" and targets_of(step) != (EVERYBODY,):
            self.names.report(
                (*path, "to"), 'a proposal goes to everybody: leave out "to"', "shape", key=True
            )
        elif kind == "vote":
            if step.ref is None:
                self.names.report(path, 'a vote is about a proposal: its id is "ref"', "shape")
            if step.payload is UNSET:
                why = 'a vote has a "payload": {approve: true} or {approve: false}'
                self.names.report(path, why, "shape")
            else:
                self.conditions.equal(step.payload, VOTE, (*path, "payload"))
        if kind == QUESTION:
            self.names.refuse(step, path, "does not go with a question", "ref")
        if kind != "proposal":
            self.names.refuse(step, path, "is of a proposal", *_TERMS)
        if step.deadline is not None and step.deadline <= 0:
            self.names.report((*path, "deadline"), "a proposal is open for a time", "shape")

    def _command(self, step: Saying, path: DataPath) -> None:
        """Check a command that is sent to the hub itself."""
        here, kind = (*path, "type"), step.type
        if kind is None:
            self.names.report(
                path, f'what is said to the hub has a "type": one of {", ".join(_TO_HUB)}', "shape"
            )
        elif kind not in _TO_HUB:
            self.names.report(here, f'the hub knows no "{kind}"{did_you_mean(kind, _TO_HUB)}')
        needed = _NEEDED.get(kind or "", ())
        if needed and not any(map(self.names.hub.has, needed)):
            more = " or ".join(f'"{each}"' for each in needed)
            self.names.report(here, f'the hub knows no "{kind}" without the extension {more}')
