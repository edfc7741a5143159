"""Validation of mocks and replays: rules, answers, and the classes that they replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import did_you_mean
from lmos_actors.system import NO_VOTING, VOTE, event_schema, input_schema, is_stream, output_schema
from lmos_actors.system.model import (
    USER,
    Bridge,
    Called,
    Chunk,
    Done,
    Mock,
    Progressed,
    Reasoned,
    Replay,
    Rule,
    Waited,
)
from lmos_actors.system.values import ANYTHING, misfits

from ...doubles import is_model, on_hub
from ._condition_validator import ConditionValidator, check_delay, check_exception
from ._model_validator import ModelValidator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames, ValueValidator

_ANSWERS: Final = ("output", "reply", "fail", "crash")
_OF_OTHERS: Final = ("omnia", "relay")
"""The protocols of agents that stand for no class."""

_MESSAGE: Final = "message"
"""The action of the rules of a mock that speaks Omnia's protocol."""
_WHEN: Final = ("action", "from", "after", "contains", "equals", "match")


class DoubleValidator:
    """The validator of mocks and replays; mistakes go to `names`."""

    def __init__(self, names: CellNames, validator: ValueValidator) -> None:
        self.names = names
        self.validator = validator
        self.conditions = ConditionValidator(names)
        self.models = ModelValidator(names, self.conditions)

    def check(self) -> None:
        self.models.live()
        for name, entry in self.names.agents.items():
            path = self.names.places[name]
            if isinstance(entry, Bridge):
                self._bridge(entry, path)
            elif isinstance(entry, Mock):
                self._speaks(entry, path)
                if entry.speaks == "model":
                    self.models.mock(name, entry, path)
                for index, rule in enumerate(entry.rules):
                    self._rule(name, rule, (*path, "rules", index))
                self._reached(entry, path)
            elif isinstance(entry, Replay) and entry.speaks == "model" and self._is_no_model(name, path):
                pass
            elif isinstance(entry, Replay) and entry.speaks in _OF_OTHERS and entry.use is not None:
                why = f'a replay that speaks {entry.speaks} stands for no class: leave out "use"'
                self.names.report((*path, "use"), why, "shape", key=True)
            elif isinstance(entry, Replay) and entry.use is None:
                self.names.refuse(entry, path, 'needs "use"', "args", "state")

    def _is_no_model(self, name: str, path: DataPath) -> bool:
        """Report an agent that speaks `model` but whose class is not a language model.

        Return whether it was reported.
        """
        cls: Any = self.names.classes.get(name)
        if cls is None or is_model(cls):
            return False
        self.names.report((*path, "speaks"), f"{cls.__name__} is no language model")
        return True

    def _bridge(self, entry: Bridge, path: DataPath) -> None:
        """Check that a bridge leads to a chat agent, or to an agent that others can reach."""
        if entry.url is None and self.names.hub.is_there:
            for index, name in enumerate(entry.follows):
                self.names.hub.check_name(name, (*path, "follows", index), USER)
        here, to = (*path, "to"), entry.to
        if to is None or not self.names.agent(to, here, asked=True):
            return
        cls: Any = self.names.class_of(to)
        if cls is None:
            return
        if entry.speaks == "relay":
            if cls.__contract__.options.private:
                self.names.report(here, f'"{to}" is {cls.__name__}, which is private: nobody reaches it')
            return
        from lmos_actors.facades import ChatAgent  # few files need it

        if not issubclass(cls, ChatAgent):
            self.names.report(here, f'"{to}" is {cls.__name__}, which is no ChatAgent')

    def _speaks(self, entry: Mock, path: DataPath) -> None:
        """Refuse keys of a mock that do not apply to its protocol."""
        if entry.speaks in ("omnia", "model") and entry.use is not None:
            what = "chat agent" if entry.speaks == "omnia" else "language model"
            why = f'a mock that speaks {entry.speaks} stands for any {what}: leave out "use"'
            self.names.report((*path, "use"), why, "shape", key=True)
        for key in ("use", "state") if entry.speaks == "relay" else ():
            if getattr(entry, key):
                why = f'a mock that speaks relay is a stranger: leave out "{key}"'
                self.names.report((*path, key), why, "shape", key=True)

    def _reached(self, entry: Mock, path: DataPath) -> None:
        """Report rules that no request can reach because an earlier rule matches all their requests."""
        if entry.speaks == "relay":
            entry = on_hub(entry)
        for index, rule in enumerate(entry.rules):
            for above, other in enumerate(entry.rules[:index]):
                same = other.when.action in (None, rule.when.action)
                if other.times is UNSET and ((other.when.any is True and same) or other.when == rule.when):
                    message = f"no request comes to this rule: number {above + 1} fits all that fit it"
                    self.names.report((*path, "rules", index), message, "shape")
                    break

    def _rule(self, name: str, rule: Rule, path: DataPath) -> None:
        speaks = self._speech_of(name)
        if speaks == "omnia":
            self._chat_rule(rule, path)
        elif speaks == "relay":
            self._stranger_rule(rule, path)
        elif speaks == "model":
            self.models.rule(rule, path)
        if speaks != "model":
            self._not_of_model(rule, path)
        if speaks != "relay":
            self.names.refuse(rule, path, "is that of the answer of a mock that speaks relay", "type")
        self._when(name, rule, (*path, "when"))
        answers = [key for key in _ANSWERS if getattr(rule, key) is not UNSET]
        if not answers:
            self.names.report(path, f"the rule has no answer: one of {', '.join(_ANSWERS)}", "shape")
        for key in answers[1:]:
            self.names.report((*path, key), f'"{key}" and "{answers[0]}": a rule has one', "shape", key=True)
        check_exception(self.names, rule.crash, (*path, "crash"))
        check_delay(self.names, rule.delay, (*path, "delay"))
        self._answers(name, rule, path)
        for event, data in rule.emit.items():
            here = (*path, "emit", event)
            if self.validator.member(name, "event", event, here, key=True):
                self.conditions.equal(data, event_schema(self.names.contract(name), event), here)

    def _when(self, name: str, rule: Rule, path: DataPath) -> None:
        when = rule.when
        values = (when.action, when.from_, when.after, when.contains, when.equals, when.match)
        given = [
            key for key, value in zip(_WHEN, values, strict=True) if value is not None and value is not UNSET
        ]
        given = [key for key in given if key != "match" or when.match]
        if when.any is True and given:
            self.names.report(
                (*path, "any"), '"any" is for every request: it stands alone', "shape", key=True
            )
        if when.any is not True and not given:
            self.names.report(path, f"one of {', '.join(_WHEN)}; any: true for every request", "shape")
        if when.from_ is not None and self._speech_of(name) == "relay":
            self.names.hub.check_name(when.from_, (*path, "from"), USER)
        elif when.from_ is not None and when.from_ != USER:
            self.names.check_group(when.from_, (*path, "from"))
        schema = self._asked(name, when.action, (*path, "action"))
        self.conditions.match(when.match, schema, (*path, "match"))
        if when.equals is not UNSET:
            self.conditions.equal(when.equals, schema, (*path, "equals"))

    def _asked(self, name: str, action: str | None, path: DataPath) -> Mapping[str, Any]:
        """Return the schema of the requests to which a rule applies."""
        if self._speech_of(name) == "omnia":
            return input_schema(self.names.contract(name).table["chat"])
        if self._speech_of(name) == "model":
            return self.models.seen
        if action is not None and self.validator.member(name, "action", action, path):
            return input_schema(self.names.contract(name).table[action])
        return ANYTHING

    def _not_of_model(self, rule: Rule, path: DataPath) -> None:
        """Refuse keys in a rule that apply only to a mock of a language model."""
        self.names.refuse(rule.when, (*path, "when"), 'is for a mock with "speaks: model"', "after")
        for index, part in enumerate(() if rule.reply is UNSET else rule.reply):
            if isinstance(part, Called | Reasoned):
                here, why = (*path, "reply", index), 'is for a mock with "speaks: model"'
                self.names.refuse(part, here, why, "call", "reasoning")

    def _speech_of(self, name: str) -> str:
        entry = self.names.agents.get(name)
        return entry.speaks if isinstance(entry, Mock) else "lmos"

    def _stranger_rule(self, rule: Rule, path: DataPath) -> None:
        """Check the parts of a rule that are special for a mock on the hub."""
        for index, part in enumerate(() if rule.reply is UNSET else rule.reply):
            if isinstance(part, Progressed):
                self.names.report(
                    (*path, "reply", index), "a mock that speaks relay has no progress", "shape"
                )
        self.names.hub.note_type(rule.when.action, (*path, "when", "action"))
        if rule.type is not UNSET:
            self.names.hub.note_type(rule.type, (*path, "type"))
        if rule.fail is not UNSET or rule.crash is not UNSET:
            self.names.refuse(rule, path, "is that of an answer, and this rule has none", "type")
        if rule.type == "vote" and not self.names.hub.has("voting"):
            self.names.report((*path, "type"), NO_VOTING.format("vote"))
        elif rule.type == "vote" and rule.output is not UNSET:
            self.conditions.equal(rule.output, VOTE, (*path, "output"))

    def _chat_rule(self, rule: Rule, path: DataPath) -> None:
        """Check the parts of a rule that are special for a mock with Omnia's protocol.

        Such a mock has one action, and all parts of its answers are texts.
        """
        action = rule.when.action
        if action not in (None, _MESSAGE):
            near = did_you_mean(str(action), [_MESSAGE])
            self.names.report(
                (*path, "when", "action"), f'a mock that speaks omnia has no action "{action}"{near}'
            )
        if rule.when.from_ is not None:
            why = '"from" is not known to a mock that speaks omnia'
            self.names.report((*path, "when", "from"), why, "shape", key=True)
        text = {"type": "string"}
        if rule.output is not UNSET:
            self.conditions.equal(rule.output, text, (*path, "output"))
        for index, part in enumerate(() if rule.reply is UNSET else rule.reply):
            here = (*path, "reply", index)
            if isinstance(part, Chunk):
                self.conditions.equal(part.chunk, text, (*here, "chunk"))
            elif isinstance(part, Done) and part.done is not None:
                self.conditions.equal(part.done, text, (*here, "done"))
            elif isinstance(part, Progressed):
                self.names.report(here, "a mock that speaks omnia has no progress", "shape")

    # --- answers

    def _answers(self, name: str, rule: Rule, path: DataPath) -> None:
        contract = self.names.contract(name)
        if rule.reply is not UNSET:
            self._parts(rule.reply, (*path, "reply"))
        if contract is None or self._speech_of(name) in ("omnia", "model"):
            return
        actions = [rule.when.action] if rule.when.action is not None else list(contract.actions)
        for action in actions:
            if action in contract.actions:
                self._answer(contract, action, rule, path)

    def _parts(self, reply: Any, path: DataPath) -> None:
        for index, part in enumerate(reply):
            if isinstance(part, Done) and index < len(reply) - 1:
                self.names.report((*path, index), 'nothing comes after "done"', "shape")
            if isinstance(part, Waited):
                check_delay(self.names, part.wait, (*path, index, "wait"))

    def _answer(self, contract: Any, action: str, rule: Rule, path: DataPath) -> None:
        op, stream = contract.table[action], is_stream(contract, action)
        schema = output_schema(op)
        if rule.output is not UNSET:
            schema = {"type": "array", "items": schema} if stream else schema
            every = (
                ""
                if rule.when.action is not None
                else f': the rule is for every action, "{action}" among them'
            )
            for here, message, key in misfits(rule.output, schema, (*path, "output")):
                self.names.report(here, f"{message}{every}", "shape", key=key)
        if rule.reply is UNSET:
            return
        ends = any(isinstance(part, Done) for part in rule.reply)
        if not stream and not ends:
            message = f'the reply has no end: "{action}" has one output, its last part is {{done: …}}'
            self.names.report((*path, "reply"), message, "shape", key=True)
        chunks = any(isinstance(part, Chunk) for part in rule.reply)
        for index, part in enumerate(rule.reply):
            self._part(part, op, (*path, "reply", index), stream=stream, text=chunks and not stream)

    def _part(self, part: Any, op: Any, path: DataPath, *, stream: bool, text: bool) -> None:
        schema = {"type": "string"} if text else output_schema(op)
        if isinstance(part, Chunk):
            self.conditions.equal(part.chunk, schema, (*path, "chunk"))
        elif isinstance(part, Done) and stream and part.done is not None:
            self.names.report((*path, "done"), f"{op.label} has many outputs, its end has none", "shape")
        elif isinstance(part, Done) and not stream:
            self.conditions.equal(part.done, schema, (*path, "done"))
        elif isinstance(part, Progressed) and op.progress is not None:
            self.conditions.equal(part.progress, op.progress.schema, (*path, "progress"))
