"""Plain files: one cell of a file as a separate file, with one seed and with drawn faults.

The new file needs nothing but the project: variables, matrix and seeds have been filled in. In a simulation,
drawn faults are entries of the timeline. In a scenario, whose steps have no instants, the drawn faults are a
branch parallel to the steps, which waits and injects. Their ids begin with `drawn_`.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml

from lmos_actors.files import LayoutError, inside, is_list, is_mapping, lay_out_yaml, listed, mapped, parse
from lmos_actors.system.model import Cells, is_late

from ..format import orders_of
from ..model import struct_of
from ._space import text_of_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmos_actors.files import DataPath, Document

    from ._space import DrawnArgument, ScheduledFault

Data: TypeAlias = "dict[str, Any]"
"""The content of a file as plain data."""

DRAWN_ID: Final = "drawn_"
"""The prefix of the ids of drawn faults."""

_GONE: Final = ("vars", "matrix", "sweep", "trials", "seeds", "report", "labels", "summary")
_WIDTH: Final = 100


def plain_cells(document: Document, settings: Mapping[str, str]) -> list[Data]:
    """Return each combination of a valid file as a separate file without seeds."""
    cells = Cells(document, settings, struct_of(mapped(document.data)))
    return [_plain(cell.data) for cell in cells.all()]


def _plain(data: Data) -> Data:
    found = {key: _escaped(part, (key,)) for key, part in data.items() if key not in _GONE}
    checks = [check for check in listed(found.get("checks")) if mapped(check).get("check") != "compare"]
    return {**found, "checks": checks} if checks else {k: v for k, v in found.items() if k != "checks"}


def _escaped(data: Any, path: DataPath) -> Any:
    """Return data with texts escaped, so that only references that the run resolves are read as such."""
    if is_mapping(data):
        return {key: _escaped(value, (*path, key)) for key, value in data.items()}
    if is_list(data):
        return [_escaped(value, (*path, index)) for index, value in enumerate(data)]
    return data.replace("$(", "$$(") if isinstance(data, str) and not is_late(path) else data


def with_schedule(
    data: Data, seed: int, faults: Sequence[ScheduledFault], arguments: Sequence[DrawnArgument] = ()
) -> Data:
    """Return a copy of a file with one seed, drawn faults and drawn arguments."""
    found = {**(_with_arguments(data, arguments) if arguments else data), "seeds": [seed]}
    if not faults:
        return found
    if data.get("lmos") == "simulation/v1":
        entries = [
            {"at": text_of_time(fault.at), "do": "fault", "id": f"{DRAWN_ID}{number}", **fault.keys()}
            for number, fault in enumerate(faults, 1)
        ]
        found["timeline"] = [*listed(data.get("timeline")), *entries]
    else:
        found["steps"] = [{"do": "parallel", "branches": [listed(data.get("steps")), _branch(faults)]}]
    return found


def _with_arguments(data: Data, arguments: Sequence[DrawnArgument]) -> Data:
    found = deepcopy(data)
    for _, entry in each_entry(found):
        for id, name, value in arguments:
            if entry.get("id") == id:
                text = value.replace("$(", "$$(") if isinstance(value, str) else value
                entry["input"] = {**mapped(entry.get("input")), name: text}
    return found


def _branch(faults: Sequence[ScheduledFault]) -> list[Data]:
    steps: list[Data] = []
    before = 0
    for number, fault in enumerate(faults, 1):
        if fault.at > before:
            steps.append({"do": "wait", "for": text_of_time(fault.at - before)})
        before = max(fault.at, before)
        inject = {"do": "inject", "id": f"{DRAWN_ID}{number}", "fault": fault.keys(), "wait": False}
        steps.append(inject)
    return steps


# --- faults of a file


def is_fault(entry: Any) -> bool:
    """Return whether a step, or an entry of a timeline, is a fault."""
    return mapped(entry).get("do") in ("fault", "inject")


def is_drawn(entry: Any) -> bool:
    """Return whether a step or entry is a fault that was drawn."""
    return is_fault(entry) and str(mapped(entry).get("id", "")).startswith(DRAWN_ID)


def faults_of(data: Data) -> list[Data]:
    """Return the faults of a file (steps and entries), in the file's order."""
    return [entry for _, entry in places_of_faults(data)]


def places_of_faults(data: Data) -> list[tuple[DataPath, Data]]:
    """Return the faults of a file with their paths in the file."""
    return [(path, entry) for path, entry in each_entry(data) if is_fault(entry)]


def each_entry(data: Data) -> Iterator[tuple[DataPath, Data]]:
    """Yield the steps and entries of a file with their paths, each block before its contents."""
    for key in ("timeline", "steps"):
        yield from _entries(data.get(key), (key,))


def _entries(data: Any, path: DataPath) -> Iterator[tuple[DataPath, Data]]:
    for index, entry in enumerate(listed(data)):
        here = (*path, index)
        if is_mapping(entry):
            yield here, entry
            yield from _entries(entry.get("steps"), (*here, "steps"))
            for number, branch in enumerate(listed(entry.get("branches"))):
                yield from _entries(branch, (*here, "branches", number))


def without(data: Data, paths: Sequence[DataPath]) -> Data:
    """Return a copy of a file without some parts, and without the step blocks that become empty."""
    found = deepcopy(data)
    for path in sorted(paths, key=_last_first, reverse=True):
        inner: Any = at_path(found, path[:-1])
        del inner[path[-1]]
    return _tidy(found)


def _last_first(path: DataPath) -> list[tuple[bool, Any]]:
    return [(isinstance(part, int), part) for part in path]


def at_path(data: Any, path: DataPath) -> Any:
    """Return the part of plain data at a path."""
    for part in path:
        data = data[part]
    return data


def without_drawn(data: Data) -> Data:
    """Return a file without the faults that were drawn."""
    return without(data, [path for path, entry in each_entry(data) if is_drawn(entry)])


def _tidy(data: Data) -> Data:
    """Return a file without empty step blocks; a block with one branch or one round becomes its steps."""
    if data.get("timeline") == []:
        del data["timeline"]
    if "steps" in data:
        data["steps"] = _tidy_steps(listed(data["steps"]))
    return data


def _tidy_steps(steps: list[Any]) -> list[Any]:
    found: list[Any] = []
    for step in steps:
        block = mapped(step)
        if block.get("do") == "repeat":
            inner = _tidy_steps(listed(block.get("steps")))
            found += inner if block.get("times") == 1 else [{**block, "steps": inner}] if inner else []
        elif block.get("do") == "parallel":
            branches = [_tidy_steps(listed(branch)) for branch in listed(block.get("branches"))]
            branches = [branch for branch in branches if any(mapped(s).get("do") != "wait" for s in branch)]
            found += (
                branches[0] if len(branches) == 1 else [{**block, "branches": branches}] if branches else []
            )
        else:
            found.append(step)
    return found


def each_part(data: Any, path: DataPath = ()) -> Iterator[tuple[DataPath, Any]]:
    """Yield all parts of plain data with their paths, outer parts first."""
    yield path, data
    if is_mapping(data) or is_list(data):
        for key, value in inside(data):
            yield from each_part(value, (*path, key))


# --- text


def text_of(data: Data) -> str:
    """Return a file as JSON, the form in which a run gets it."""
    return json.dumps(data, ensure_ascii=False)


def yaml_of(data: Data, head: Sequence[str] = ()) -> str:
    """Return a file as YAML in the layout of `fmt`, below the comments in `head`."""
    text: Any = yaml.safe_dump(
        data, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    try:
        laid_out = lay_out_yaml(str(text), orders_of(data))
        if parse(laid_out, name="").data != data:
            laid_out = text_of(data) + "\n"
    except (LayoutError, ValueError):
        laid_out = text_of(data) + "\n"  # which is YAML too
    return "".join(f"# {line}\n" for line in head) + laid_out
