"""Validation of language models: of mocks, and of live models in simulated worlds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean, mapped
from lmos_actors.system.model import WORLDS, Called, Done, Mock, Progressed, Replay, is_real

from ...doubles import is_live, is_model, tools_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames
    from lmos_actors.system.model import Rule

    from ._condition_validator import ConditionValidator

GENERATE: Final = "generate"
"""The only action of a model."""

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 0}

_SEEN: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "text": _TEXT,
        "instructions": _TEXT,
        "offered": {"type": "array", "items": _TEXT},
        "tools": {"type": "object"},
        "errors": {"type": "object", "additionalProperties": _TEXT},
        "files": {"type": "array"},
        "messages": {"type": "array"},
        "answer": {},
    },
}
"""The schema of the part of a request that rules see."""

_END: Final[Mapping[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "reason": {"enum": ["stop", "tools", "length", "refused"]},
                "input_tokens": _WHOLE,
                "output_tokens": _WHOLE,
                "cached": _WHOLE,
            },
        },
        _TEXT,
        {"type": "null"},
    ]
}
"""The schema of the end of a reply."""

_WAY_OUT: Final = (
    "it asks a provider over the network, and there is none in world: {}; take a mock (from: mock, "
    "speaks: model), a recording (from: replay, with this class in use), or world: websocket"
)

_ANSWERED: Final = re.compile(r"\$\.(?:tools|errors)\.([\w-]+)")


class ModelValidator:
    """The validator of the language models of a file; mistakes go to `names`."""

    seen: Mapping[str, Any] = _SEEN
    """The schema of the part of a request that rules see."""

    def __init__(self, names: CellNames, conditions: ConditionValidator) -> None:
        self.names = names
        self.conditions = conditions

    def live(self) -> None:
        """Refuse models that query a provider if the world is simulated and so has no network access."""
        world = self.names.cell.data.get("world", "memory")
        if world in WORLDS and is_real(world):
            return
        given = mapped(self.names.cell.data.get("agents"))
        for name, cls in self.names.classes.items():
            entry = self.names.entry(name)
            if entry is None:
                continue  # it could not be read, which is reported already
            if is_live(cls) and not isinstance(entry, Mock | Replay):
                of_tree = name not in given and name not in self.names.populations
                path: DataPath = ("tree", "use") if of_tree else (*self.names.places[name], "use")
                who = f'"{name}" of the tree' if of_tree else f'"{name}"'
                self.names.report(path, f"{who} is {cls.__name__}, a live model: {_WAY_OUT.format(world)}")

    def mock(self, name: str, entry: Mock, path: DataPath) -> None:
        """Check the class of a mock, and that its rules wait only for tools that its rules call."""
        cls: Any = self.names.classes.get(name)
        if cls is not None and not is_model(cls):
            why = f'what takes the place of "{name}" is a {cls.__name__}, a language model is none'
            self.names.report((*path, "speaks"), why)
        called = _called(entry)
        for index, rule in enumerate(entry.rules):
            here = (*path, "rules", index, "when")
            for place, tool in enumerate(tools_after(rule.when)):
                after: DataPath = (*here, "after")
                where = after if isinstance(rule.when.after, str) else (*after, place)
                self._awaited(tool, called, where)
            for each in rule.when.match:
                found = _ANSWERED.match(each)
                if found is not None:
                    self._awaited(found[1], called, (*here, "match", each), key=True)

    def _awaited(self, tool: str, called: list[str], path: DataPath, *, key: bool = False) -> None:
        if tool not in called:
            why = f'no rule of the mock calls "{tool}", so it does not answer{did_you_mean(tool, called)}'
            self.names.report(path, why, key=key)

    def rule(self, rule: Rule, path: DataPath) -> None:
        """Check the parts of a rule that are special to a model: action, failures, and parts of answers."""
        action = rule.when.action
        if action not in (None, GENERATE):
            near = did_you_mean(str(action), [GENERATE])
            why = f'a language model has no action "{action}"{near}: leave it out'
            self.names.report((*path, "when", "action"), why)
        if rule.fail is not UNSET:
            self._failure(rule.fail.code, (*path, "fail"))
        for index, part in enumerate(() if rule.reply is UNSET else rule.reply):
            here = (*path, "reply", index)
            if isinstance(part, Progressed):
                self.names.report(here, "a language model has no progress", "shape")
            elif isinstance(part, Done):
                self.conditions.equal(part.done, _END, (*here, "done"))
            elif isinstance(part, Called) and not part.call.tool.strip():
                self.names.report((*here, "call", "tool"), "the name of a tool is expected here", "shape")

    def _failure(self, code: str, path: DataPath) -> None:
        from lmos_actors import llm

        known = [
            llm.MODEL_BUSY,
            llm.MODEL_UNAVAILABLE,
            llm.MODEL_CUT,
            llm.MODEL_MALFORMED,
            llm.REQUEST_REFUSED,
            llm.KEY_REFUSED,
        ]
        if code not in known:
            why = f'"{code}" is no failure of a language model{did_you_mean(code, known)}'
            self.names.report((*path, "code"), why)


def _called(entry: Mock) -> list[str]:
    """Return the names of the tools that the rules of a mock call."""
    parts = [part for rule in entry.rules if rule.reply is not UNSET for part in rule.reply]
    return list(dict.fromkeys(part.call.tool for part in parts if isinstance(part, Called)))
