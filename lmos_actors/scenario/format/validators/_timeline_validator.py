"""Validation of the timeline, the end and the starts of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.errors import InvalidInput, NotAllowed, NotFound
from lmos_actors.files import DataPath, listed, mapped
from lmos_actors.system import is_stream, place_schema, tables_of
from lmos_actors.system.values import along, path_problem, select

from ...model import (
    Asking,
    DecidingAt,
    FaultAt,
    HealAt,
    Observe,
    Read,
    SayAt,
    Stream,
    Subscribe,
    TimedAsking,
    Write,
    WriteAt,
)
from ._condition_validator import check_in_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.system import CellNames, ValueValidator
    from lmos_actors.system.model import ExpectedError

    from ._fault_validator import FaultValidator

_VERBS: Final[dict[type, str]] = {Read: "read", Write: "write", WriteAt: "write", Observe: "observe"}


def check_error(names: CellNames, error: ExpectedError | None, path: DataPath) -> None:
    """Check the error that a step expects."""
    if error is None:
        return
    from lmos_actors.system.values import NOT_YET, error_names

    here, name, known = (*path, "error", "is"), error.is_, error_names()
    if name in NOT_YET:
        names.report(here, f'the error "{name}" is not available yet', "later")
    else:
        names.is_known(name, known, here, "error")
    if error.path is not None and (problem := path_problem(error.path)):
        names.report((*path, "error", "path"), problem, "shape")


def allows(step: Any, error: type[Exception]) -> bool:
    """Return whether a step expects the given error."""
    return step.error is not None and step.error.is_ in [above.__name__ for above in error.__mro__]


class TimelineValidator:
    """The validator of a timeline; mistakes go to `names`. `ids` has the entries by their ids.

    `say` checks an entry that sends a message on the hub.
    """

    def __init__(
        self,
        names: CellNames,
        validator: ValueValidator,
        faults: FaultValidator,
        say: Callable[[SayAt, DataPath], None],
    ) -> None:
        self.names = names
        self.validator = validator
        self.faults = faults
        self._say = say
        self.ids: dict[str, Any] = {}

    def check(self) -> None:
        stop = self.names.made.get(("stop",))
        if stop is not None and stop.at <= 0:
            self.names.report(("stop", "at"), "a simulation of no time has nothing in it", "shape")
        for name, entry in self.names.populations.items():
            if entry.start is not None:
                check_in_time(self.names, entry.start.over, (*self.names.places[name], "start", "over"))
        for index, raw in enumerate(listed(self.names.cell.data.get("timeline"))):
            self._entry(raw, ("timeline", index))

    def _entry(self, raw: Any, path: DataPath) -> None:
        entry = self.names.made.get(path)
        name, is_fault = mapped(raw).get("id"), mapped(raw).get("do") == "fault"
        if isinstance(name, str):
            self.names.define(name, "fault" if is_fault else "step", (*path, "id"))
            self.ids[name] = entry
        self.faults.any = self.faults.any or is_fault
        if entry is None:
            return
        check_in_time(self.names, entry.at, (*path, "at"), before_end=True)
        if isinstance(entry, FaultAt):
            self.faults.fault(entry, path)
        elif isinstance(entry, HealAt):
            self.faults.links.heal(entry, path)
        elif isinstance(entry, SayAt):
            self._say(entry, path)
        elif isinstance(entry, DecidingAt):
            self.names.agent(entry.target, (*path, "target"))
        elif isinstance(entry, TimedAsking):
            check_asking(self.validator, entry, path)


def check_asking(validator: ValueValidator, step: Asking | TimedAsking, path: DataPath) -> None:
    """Check the agent that a step or an entry addresses, and the request to that agent."""
    names, verb = validator.names, _VERBS.get(type(step))
    check_error(names, step.error, path)
    if not names.agent(step.target, (*path, "target"), far=True, asked=True):
        return
    if verb is not None and step.target in names.pools:
        why = f'"{step.target}" is a pool, and each of its agents has its own properties'
        names.report((*path, "target"), why)
    elif verb is not None:
        _check_property(validator, step, path, verb)
    elif isinstance(step, Subscribe):
        _check_member(validator, step, "event", step.event, path)
    else:
        _check_action(validator, step, path, stream=isinstance(step, Stream))


def _check_member(validator: ValueValidator, step: Any, kind: str, word: str, path: DataPath) -> bool:
    """Check the name of an affordance, unless the step expects that it does not exist.

    Return whether the affordance exists.
    """
    contract = validator.names.contract(step.target)
    if contract is None:
        return False
    if allows(step, NotFound):
        return word in tables_of(contract)[kind]
    return validator.member(step.target, kind, word, (*path, kind))


def _check_property(validator: ValueValidator, step: Any, path: DataPath, verb: str) -> None:
    """Check a property that is read, written or observed."""
    if not _check_member(validator, step, "property", step.property, path):
        return
    contract = validator.names.contract(step.target)
    made = contract.properties[step.property]
    if verb == "write":
        refused = "read-only" if made.read_only else None
    else:
        refused = "write-only" if made.write_only else None
        if verb == "observe" and refused is None and not made.observable:
            refused = "not observable"
    if refused is not None and not allows(step, NotAllowed):
        hint = "say error: {is: NotAllowed} if that is the point"
        validator.report((*path, "property"), f'"{step.property}" is {refused}; {hint}')
    if verb == "write" and not allows(step, InvalidInput):
        validator.value(step.value, contract.table[f"={step.property}"].params[0].shape, (*path, "value"))


def _check_action(validator: ValueValidator, step: Any, path: DataPath, *, stream: bool) -> None:
    """Check an action that is invoked, streamed or sent one way, and its input."""
    if not _check_member(validator, step, "action", step.action, path):
        return
    contract = validator.names.contract(step.target)
    if is_stream(contract, step.action) != stream:
        hint = "one output: do: invoke" if stream else "many outputs: do: stream"
        validator.report((*path, "action"), f'"{step.action}" gives {hint}')
    if not allows(step, InvalidInput):
        validator.input(contract.table[step.action], step.input, path)
        validator.streams(contract.table[step.action], getattr(step, "streams", None), path)
    elif step.error.path is not None and path_problem(step.error.path) is None:
        # the place of an expected error has to be one that the input has, or should have
        problem = along(step.error.path, place_schema(contract.table[step.action]))[1]
        if problem and not select(step.error.path, None if step.input is UNSET else step.input):
            validator.report((*path, "error", "path"), problem)
