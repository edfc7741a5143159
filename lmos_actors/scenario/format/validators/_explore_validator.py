"""Validation of `explore`: the faults that may be drawn, their targets and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.files import Duration, Offset, did_you_mean, is_mapping, mapped
from lmos_actors.system import all_steps
from lmos_actors.system.model import WORLDS, is_real
from lmos_actors.system.values import texts_at

from ...doubles import is_model
from ...model import (
    INSTANT,
    OF_NETWORK,
    ClockSkew,
    Comeback,
    Crash,
    Disconnect,
    DrawnClockSkew,
    DrawnCrash,
    DrawnFault,
    DrawnProvider,
    DrawnRestart,
    DrawnSwizzle,
    DurationRange,
    Explore,
    LateLinks,
    LossyLinks,
    NumberRange,
    OffsetRange,
    Partition,
    Pause,
    Provider,
    Restart,
    Slow,
    Swizzle,
    drawn_fault,
)
from ._condition_validator import check_in_time
from ._link_fault_validator import OF_HANG

if TYPE_CHECKING:
    from lmos_actors.files import DataPath
    from lmos_actors.system import CellNames, ValueValidator

    from ._fault_validator import FaultValidator

_HERE: Final[DataPath] = ("explore",)
_SECOND: Final = Duration(1.0)
_LEAST: Final = {"factor": 1.0, "share": 0.0}
"""The exclusive lower bounds of numbers, by their keys."""
_LEAST_RATE: Final = 0.001
_MOST_RATE: Final = 1000.0


class ExploreValidator:
    """The validator of `explore`; mistakes go to `names`.

    A fault that may be drawn is checked like a fault in the file.
    """

    def __init__(self, names: CellNames, validator: ValueValidator, faults: FaultValidator) -> None:
        self.names = names
        self.validator = validator
        self.faults = faults

    def check(self) -> None:
        """Check `explore`, if the file has it."""
        made: Any = self.names.made.get(_HERE)
        if not isinstance(made, Explore):
            return
        self.faults.any = True  # the runs of the search have faults
        world = self.names.cell.data.get("world", "memory")
        if world in WORLDS and is_real(world):
            why = f"time is real in world: {world}, and no run is like another: explore memory or wire"
            self.names.report(_HERE, why, "shape", key=True)
        self._window(made)
        self._arguments(made)
        whom = self._whom(_HERE)
        for index, each in enumerate(made.faults):
            drawn, here = drawn_fault(each), (*_HERE, "faults", index)
            self._ranges(drawn, here)
            own = self._whom(here)
            self._fault(drawn, here, own if isinstance(drawn, DrawnRestart) else own or whom)

    def _window(self, explore: Explore) -> None:
        if explore.to is not UNSET and explore.to <= explore.from_:
            self.names.report((*_HERE, "to"), f"it ends before it begins, at {explore.from_}", "shape")
        for key, instant in (("from", explore.from_), ("to", explore.to)):
            if instant is not UNSET:
                check_in_time(self.names, instant, (*_HERE, key))

    def _arguments(self, explore: Explore) -> None:
        """Check that the arguments to draw belong to steps and entries with an action."""
        here: DataPath = (*_HERE, "arguments")
        if not explore.faults and not explore.arguments:
            self.names.report(_HERE, 'nothing may be drawn: "faults" or "arguments"', "shape")
        data = self.names.cell.data
        all_known = all_steps(data.get("steps"), data.get("timeline"))
        steps = {
            each["id"]: each for each in all_known if isinstance(each.get("id"), str) and "action" in each
        }
        for id, given in explore.arguments.items():
            if not self.names.is_known(id, steps, (*here, id), "step", " with an action"):
                continue
            contract: Any = self.names.contract(str(steps[id].get("target")))
            action = None if contract is None else contract.table.get(steps[id].get("action"))
            typed = None if action is None or action.untyped or action.whole else action
            params = {} if typed is None else {each.wire_name: each for each in typed.params}
            for name, choices in given.items():
                place = (*here, id, name)
                if typed is not None and name not in params:
                    why = f'{typed.label} has no parameter "{name}"{did_you_mean(name, list(params))}'
                    self.names.report(place, why, key=True)
                if isinstance(choices, NumberRange) and choices.max < choices.min:
                    why = f'"max" is less than "min": {choices.max} and {choices.min}'
                    self.names.report((*place, "max"), why, "shape")
                elif name in params and "error" not in steps[id]:  # else it may be meant to fail
                    self._choices(choices, params[name].shape, place)

    def _choices(self, choices: Any, shape: Any, path: DataPath) -> None:
        """Check that the values to draw for an argument have the argument's type."""
        if isinstance(choices, NumberRange):
            choices = dict(zip(("min", "max"), choices.ends, strict=True))
        for key, value in choices.items() if is_mapping(choices) else enumerate(choices):
            self.validator.value(value, shape, (*path, key))

    # ---- targets

    def _whom(self, path: DataPath) -> list[tuple[str, DataPath]]:
        """Check the names in the `of` at a path, and return the valid ones with their paths."""
        raw: Any = self.names.cell.data
        for part in path:
            raw = raw[part]
        of = mapped(raw).get("of", ())
        return [(name, place) for name, place in texts_at(of, (*path, "of")) if self._name(name, place)]

    def _name(self, name: str, place: DataPath) -> bool:
        base = self.names.base_of(name)
        if name in self._nodes:
            return True
        if base in self.names.places or name in self.names.remotes:
            return self.names.check_group(name, place)
        return self.names.is_known(name, [*self.names.names, *self._nodes], place, "agent or node")

    @property
    def _nodes(self) -> list[str]:
        return list(mapped(self.names.cell.data.get("nodes")))

    def _fault(self, drawn: DrawnFault, path: DataPath, whom: list[tuple[str, DataPath]]) -> None:
        kind = kind_of_drawn(drawn)
        if isinstance(drawn, DrawnRestart) and whom:
            names = tuple(name for name, _ in whom)
            self.faults.fault(_sample(drawn, names if isinstance(drawn.of, tuple) else names[0]), path)
        elif kind in OF_NETWORK or isinstance(drawn, DrawnRestart):
            self.faults.fault(_sample(drawn, ""), path)
            links = self.faults.links
            if isinstance(drawn, DrawnSwizzle) and whom and links.count_nodes(name for name, _ in whom) < 2:
                name, place = whom[0]
                alone = links.nodes.node_of(name)
                why = f'"kind: swizzle" cuts the links among nodes, and "{alone}" is one alone'
                self.names.report(place, why, "shape")
        else:
            self._of_agents(drawn, path, whom)

    def _of_agents(self, drawn: DrawnFault, path: DataPath, whom: list[tuple[str, DataPath]]) -> None:
        kind = kind_of_drawn(drawn)
        for name, place in whom or self._likely(kind, path):
            if name in self._nodes and name not in self.names.places:  # a group may have the name of an agent
                why = f'"{name}" is a node, and "kind: {kind}" is of agents'
                self.names.report(place, why, "shape")
            else:
                self.faults.fault(_sample(drawn, name), place)

    def _likely(self, kind: str, path: DataPath) -> list[tuple[str, DataPath]]:
        """Return a likely target for a kind of fault without a named target, and where to report it."""
        names = [name for name in self.names.names if name not in self.names.remotes]
        if kind == "provider":
            names = [name for name in names if is_model(self.names.class_of(name) or object)] or names
        if kind == "slow":
            timed = [name for name in names if getattr(self.names.entry(name), "service_time", 0.0)]
            names = timed or names
        return [(name, path) for name in names[:1]]

    # ---- ranges

    def _ranges(self, drawn: DrawnFault, path: DataPath) -> None:
        for name in drawn.__struct_fields__:
            value = getattr(drawn, name)
            if isinstance(value, DurationRange | OffsetRange | NumberRange):
                self._range(value, name, (*path, name))
            elif isinstance(value, Duration):
                if value <= 0 and name not in ("after", "skew"):
                    self.names.report((*path, name), f'"{name}" is more than 0s', "shape")
            elif isinstance(value, float | int) and not isinstance(value, bool) and name != "status":
                self._number(value, name, (*path, name))
        is_instant = kind_of_drawn(drawn) == "disconnect" and getattr(drawn, "how", UNSET) in INSTANT
        if is_instant and getattr(drawn, "duration", UNSET) is not UNSET:
            self.names.report((*path, "duration"), OF_HANG, "shape", key=True)

    def _range(self, value: DurationRange | OffsetRange | NumberRange, name: str, path: DataPath) -> None:
        if value.max < value.min:
            why = f'"max" is less than "min": {value.max} and {value.min}'
            self.names.report((*path, "max"), why, "shape")
        elif isinstance(value, DurationRange) and value.min <= 0:
            self.names.report((*path, "min"), f'"{name}" is more than 0s', "shape")
        elif isinstance(value, NumberRange):
            self._number(value.min, name, (*path, "min"))
            self._number(value.max, name, (*path, "max"))

    def _number(self, value: float, name: str, path: DataPath) -> None:
        if name == "rate":
            if not _LEAST_RATE <= value <= _MOST_RATE:
                self.names.report(path, f'"rate" is from {_LEAST_RATE:g} to {_MOST_RATE:g}', "shape")
        elif value <= _LEAST[name]:
            self.names.report(path, f'"{name}" is above {_LEAST[name]:g}', "shape")
        elif name == "share" and value >= 1:
            self.names.report(path, f'"{name}" is less than 1: a partition loses all', "shape")


def kind_of_drawn(drawn: DrawnFault) -> str:
    """Return the kind of a fault that may be drawn."""
    return str(drawn.__struct_config__.tag)


def _sample(drawn: DrawnFault, name: Any) -> Any:
    """Return an example of a fault that may be drawn, with `name` as its target.

    A network fault has no target. A restart strikes the nodes named, or the whole node if no name is given.
    """
    kind = kind_of_drawn(drawn)
    nobody: Any = UNSET
    if isinstance(drawn, DrawnRestart):
        return Restart(of=name or UNSET, writes=drawn.writes)
    if isinstance(drawn, DrawnCrash):
        state = "kept" if drawn.state == "any" else drawn.state
        comeback = None if state is UNSET else Comeback(state=state)
        return Crash(target=name, with_=drawn.with_, restart=comeback)
    if kind == "pause":
        return Pause(target=name, duration=_SECOND)
    if isinstance(drawn, DrawnClockSkew):
        return _skewed(drawn, name)
    if isinstance(drawn, DrawnProvider):
        return Provider(target=name, status=500, duration=_SECOND)
    if kind == "slow":
        return Slow(target=name, factor=2.0, duration=_SECOND)
    if kind == "partition":
        return Partition(sides=nobody)
    if kind == "latency":
        return LateLinks(delay=_SECOND)
    if kind == "swizzle":
        return Swizzle(of=nobody, every=nobody, duration=nobody)
    return LossyLinks(share=0.5) if kind == "loss" else Disconnect()


def _skewed(drawn: DrawnClockSkew, name: str) -> ClockSkew:
    """Return a clock fault with the largest error that may be drawn; that error may be zero."""
    skew, rate = drawn.skew, drawn.rate
    if skew is UNSET and rate is UNSET:
        skew = Offset(1.0)
    if isinstance(skew, OffsetRange):
        skew = skew.max or skew.min
    if isinstance(rate, NumberRange):
        rate = rate.max if rate.max != 1 else rate.min
    return ClockSkew(
        target=name,
        skew=Offset(0.0) if skew is UNSET else skew,
        rate=1.0 if rate is UNSET else rate,
        duration=_SECOND,
    )
