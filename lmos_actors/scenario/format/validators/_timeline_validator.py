"""Validation of the timeline, the end and the starts of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.errors import InvalidInput, NotAllowed, NotFound
from lmos_actors.files import DataPath, did_you_mean, listed, mapped
from lmos_actors.system import is_stream, place_schema, tables_of
from lmos_actors.system.values import along, path_problem, select

from ...model import DecidingAt, FaultAt, HealAt, InvokeAt, SayAt, TellAt, TimedAsking, WriteAt

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.system import CellNames, ValueValidator
    from lmos_actors.system.model import ExpectedError

    from ._fault_validator import FaultValidator


def check_error(names: CellNames, error: ExpectedError | None, path: DataPath) -> None:
    """Check the error that a step expects."""
    if error is None:
        return
    from lmos_actors.system.values import NOT_YET, error_names

    here, name, known = (*path, "error", "is"), error.is_, error_names()
    if name in NOT_YET:
        names.report(here, f'the error "{name}" is not available yet', "later")
    elif name not in known:
        names.report(here, f'no error "{name}"{did_you_mean(name, known)}')
    if error.path is not None and (problem := path_problem(error.path)):
        names.report((*path, "error", "path"), problem, "shape")


def allows(step: Any, error: type[Exception]) -> bool:
    """Return whether a step expects this error."""
    return step.error is not None and step.error.is_ in [above.__name__ for above in error.__mro__]


class TimelineValidator:
    """Validates a timeline; mistakes go to `names`. `ids` has the entries by their ids.

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
        end = stop.at if stop is not None else None
        if end is not None and end <= 0:
            self.names.report(("stop", "at"), "a simulation of no time has nothing in it", "shape")
        for name, entry in self.names.populations.items():
            if entry.start is not None and end is not None and entry.start.over > end:
                self._late((*self.names.places[name], "start", "over"), end)
        for index, raw in enumerate(listed(self.names.cell.data.get("timeline"))):
            self._entry(raw, ("timeline", index), end)

    def _late(self, path: DataPath, end: Any) -> None:
        self.names.report(path, f"the simulation is over before that, at {end}", "shape")

    def _entry(self, raw: Any, path: DataPath, end: Any) -> None:
        entry = self.names.made.get(path)
        name, is_fault = mapped(raw).get("id"), mapped(raw).get("do") == "fault"
        if isinstance(name, str):
            self.names.define(name, "fault" if is_fault else "step", (*path, "id"))
            self.ids[name] = entry
        self.faults.any = self.faults.any or is_fault
        if entry is None:
            return
        if end is not None and entry.at >= end:
            self._late((*path, "at"), end)
        if isinstance(entry, FaultAt):
            self.faults.fault(entry, path)
        elif isinstance(entry, HealAt):
            self.faults.links.heal(entry, path)
        elif isinstance(entry, SayAt):
            self._say(entry, path)
        elif isinstance(entry, DecidingAt):
            self.names.agent(entry.target, (*path, "target"))
        elif isinstance(entry, TimedAsking):
            self._asking(entry, path)

    def _asking(self, entry: TimedAsking, path: DataPath) -> None:
        check_error(self.names, entry.error, path)
        if not self.names.agent(entry.target, (*path, "target"), far=True, asked=True):
            return
        if entry.target in self.names.pools and isinstance(entry, WriteAt):
            why = f'"{entry.target}" is a pool, and each of its agents has its own properties'
            self.names.report((*path, "target"), why)
            return
        if isinstance(entry, (TellAt, InvokeAt)):
            check_action(self.validator, entry, path, stream=False)
        elif isinstance(entry, WriteAt):
            check_property(self.validator, entry, path, "write")


def check_member(validator: ValueValidator, step: Any, kind: str, word: str, path: DataPath) -> bool:
    """Check the name of an affordance, unless the step expects that it does not exist."""
    contract = validator.names.contract(step.target)
    if contract is None:
        return False
    if allows(step, NotFound):
        return word in tables_of(contract)[kind]
    return validator.member(step.target, kind, word, (*path, kind))


def check_property(validator: ValueValidator, step: Any, path: DataPath, verb: str) -> None:
    """Check a property that is read, written or observed."""
    if not check_member(validator, step, "property", step.property, path):
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


def check_action(validator: ValueValidator, step: Any, path: DataPath, *, stream: bool) -> None:
    """Check an action that is invoked, streamed or sent one way, and its input."""
    if not check_member(validator, step, "action", step.action, path):
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
