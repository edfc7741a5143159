"""The cells of a scenario: computed from variables and matrix, with the references in them filled in."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec import Struct, structs

from lmos_actors.errors import ConfigError
from lmos_actors.files import (
    KEEP,
    REPLICA,
    UNKNOWN,
    BadReference,
    DataPath,
    Document,
    Duration,
    FileError,
    Later,
    Mistake,
    Reference,
    Size,
    decode,
    did_you_mean,
    fill,
    inside,
    is_list,
    is_mapping,
    listed,
    mapped,
    parse,
)

from ._measured import MeasuredValues
from ._parts import WORLDS, Choices, SweepRange, Variable, World

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_COMBINATIONS: Final = 1_000
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "duration": Duration,
    "size": Size,
}
_LATE_KEYS = frozenset(
    {"input", "streams", "value", "payload", "ref", "members", "of", "equals", "contains", "sequence"}
)
_LATE_CONDITIONS = frozenset({"eq", "ne", "contains"})
_FIXED = ("lmos", "vars", "matrix", "sweep", "seeds", "trials")  # the same for all cells
_WHERE: Final = {
    "saved": "a step's input, streams, value, payload, ref, members and what it expects",
    "agents": "an agent's args",
    "population": "a population's args",
}


@attrs.frozen
class LateReference:
    """A reference that can be filled in only during the run; `whole` if the text consists of nothing else."""

    path: DataPath
    reference: Reference
    whole: bool


@attrs.define
class CellData:
    """One combination of the matrix or sweep: its values, the data, and the references left to the run."""

    values: dict[str, Any]
    data: dict[str, Any]
    late: list[LateReference]


def split_step(path: DataPath) -> tuple[DataPath, DataPath]:
    """Split a path inside `steps` into the path of the innermost step and the rest."""
    cut = 0
    while len(path) > cut + 1:
        if path[cut] == "steps":
            cut += 2
        elif path[cut] == "branches" and cut and len(path) > cut + 2:
            cut += 3
        else:
            break
    return path[:cut], path[cut:]


def is_late(path: DataPath) -> tuple[str, ...]:
    """Return the namespaces of the references that are filled in at this place during the run."""
    if path[:1] == ("agents",) and len(path) > 3 and path[2] == "args":
        return ("agents",)
    if path[:1] == ("population",) and len(path) > 3 and path[2] == "args":
        return ("agents", "population")
    if path[:1] == ("groups",):
        return (REPLICA,)
    if path[:1] != ("steps",):
        return ()
    rest = split_step(path)[1]
    if rest and rest[0] in _LATE_KEYS:
        return ("saved",)
    if rest[:1] == ("match",) and (len(rest) == 2 or (len(rest) > 2 and rest[2] in _LATE_CONDITIONS)):
        return ("saved",)
    return ()


class Cells:
    """The computation of the cells of a file that should be a `struct`.

    `mistakes` grows; `used` has the names that references have used.
    """

    def __init__(self, document: Document, settings: Mapping[str, str], struct: type[Struct]) -> None:
        self.document = document
        self.settings = settings
        self.mistakes: list[Mistake] = []
        self.used: set[tuple[str, str]] = set()
        self._measured = MeasuredValues(document, self.mistakes)
        self.data: dict[str, Any] = mapped(document.data)
        self.axes = "sweep" if self.data.get("lmos") == "simulation/v1" else "matrix"
        self.unknown_keys = [key for key in self.data if key not in known_keys(struct)]
        self.vars = self._part("vars", Variable)
        self.matrix = self._matrix()

    def wrong(self, path: DataPath, message: str, *, key: bool = False) -> None:
        self.mistakes.append(self.document.mistake(path, message, "name", key=key))

    def _part(self, key: str, declared: Any) -> dict[str, Any]:
        """Decode one part of the head, entry by entry; its mistakes are reported for the whole file."""
        entries = mapped(self.data.get(key)).items()
        found = {name: decode(self.document, declared, raw, at=(key, name))[0] for name, raw in entries}
        return {name: value for name, value in found.items() if value is not None}

    def _matrix(self) -> dict[str, list[tuple[DataPath, Any]]]:
        raw = self._part(self.axes, Choices | SweepRange if self.axes == "sweep" else Choices)
        found = {key: self._axis(key, values) for key, values in raw.items()}
        known = [*self.vars, *mapped(self.data.get(self.axes)), "world"]
        for key, text in self.settings.items():
            if key not in known:
                near = did_you_mean(key, known)
                raise ConfigError(f'no variable or {self.axes} key "{key}"{near}', "--set")
            if key in found or key == "world":
                named = [place for place in found.get(key, []) if mapped(place[1]).get(LABEL) == text]
                found[key] = named or [((self.axes, key), self._setting(key, text))]
        for key, places in found.items():
            self._distinct(key, [value for _, value in places])
        return found

    def _axis(self, key: str, values: tuple[Any, ...] | SweepRange) -> list[tuple[DataPath, Any]]:
        if not isinstance(values, SweepRange):
            return [((self.axes, key, index), value) for index, value in enumerate(values)]
        if values.to < values.from_:
            self.wrong((self.axes, key, "to"), "the range ends before it begins")
            return []
        steps = round((values.to - values.from_) / values.step, 9)
        if steps >= MOST_COMBINATIONS:
            self.wrong((self.axes, key), f"more than {MOST_COMBINATIONS} values", key=True)
            return []
        raw = self.data[self.axes][key]
        whole = all(isinstance(raw[name], int) for name in ("from", "to", "step"))
        numbers = [round(values.from_ + index * values.step, 9) for index in range(int(steps) + 1)]
        return [((self.axes, key), int(number) if whole else number) for number in numbers]

    def _setting(self, key: str, text: str) -> Any:
        """Parse a value given outside the file: unchanged for a text variable, otherwise as in the file."""
        variable = self.vars.get(key)
        if key == "world" or (variable is not None and variable.type in ("string", "duration", "size")):
            value: Any = text
        else:
            value = parse(text, name=f"--set {key}").data
        declared: Any = World if key == "world" else _TYPES[variable.type] if variable else Any
        written = parse(json.dumps(text), name=f"--set {key}", format="json")
        _, mistakes = decode(written, declared, value)
        if mistakes:
            raise FileError(mistakes)
        return value

    def _distinct(self, key: str, values: list[Any]) -> None:
        """Report values with equal labels: labels distinguish runs, and group them for evaluation."""
        for index, value in enumerate(values):
            label = mapped(value).get(LABEL)
            if is_mapping(label) or is_list(label):
                self.wrong((self.axes, key, index, LABEL), f'"{LABEL}" is what the value is shown as: text')
        shown = [str(mapped(value).get(LABEL, value)) for value in values]
        for index, text in enumerate(shown):
            if text in shown[:index]:
                self.wrong((self.axes, key, index), f'"{text}" stands in the {self.axes} twice')

    @property
    def measured_files(self) -> tuple[Path, ...]:
        """The files from which the cells take measured values."""
        return self._measured.files

    def all(self) -> list[CellData]:
        """Return the cells in the order of the matrix; its last key varies fastest."""
        self._check_head()
        size = prod(len(places) for places in self.matrix.values())
        if size > MOST_COMBINATIONS:
            self.wrong((self.axes,), f"{size} combinations, more than {MOST_COMBINATIONS}", key=True)
            return []
        combinations = product(*self.matrix.values())
        cells = [self._cell(dict(zip(self.matrix, chosen, strict=True))) for chosen in combinations]
        if not self.unknown_keys:
            self._check_used()
        return cells

    def _check_head(self) -> None:
        if "world" in self.data and "world" in self.matrix and "world" not in self.settings:
            self.wrong(("world",), f"world stands in the {self.axes} too", key=True)
        for place, value in self.matrix.get("world", []):
            if place[2:]:
                self._typed(place, World, value)
        for name, variable in self.vars.items():
            declared = _TYPES[variable.type]
            if name in self.settings:
                continue
            for place, value in self.matrix.get(name, []):
                self._typed(place, declared, value)
            if "default" in self.data["vars"][name]:
                self._typed(("vars", name, "default"), declared, variable.default)
            elif name not in self.matrix:
                self.wrong(
                    ("vars", name),
                    f'variable "{name}" has no value: no default, not in the {self.axes}',
                    key=True,
                )
        for key in ("vars", self.axes):
            for inner, value in _leaves(self.data.get(key), (key,)):
                if isinstance(value, str) and "$(" in value:
                    self.wrong(inner, "values of variables and of the matrix are written out, without $(...)")
        seeds = listed(self.data.get("seeds"))
        for index, seed in enumerate(seeds):
            if seed in seeds[:index]:
                self.wrong(("seeds", index), f"seed {seed} is given twice")

    def _typed(self, path: DataPath, declared: Any, value: Any) -> None:
        self.mistakes.extend(decode(self.document, declared, value, at=path)[1])

    def _cell(self, chosen: dict[str, tuple[DataPath, Any]]) -> CellData:
        values = {key: value for key, (_, value) in chosen.items()}
        known: dict[tuple[str, str], Any] = {
            (self.axes, name): part for key, value in values.items() for name, part in _members(key, value)
        }
        for name, variable in self.vars.items():
            default = UNKNOWN if "default" not in self.data["vars"][name] else variable.default
            value = values.get(name, default)
            known["vars", name] = self._setting(name, self.settings[name]) if name in self.settings else value
        cell = CellData(values, {}, [])
        for key, part in self.data.items():
            if key not in _FIXED:
                part = self._filled(part, (key,), known, cell.late)
            cell.data[key] = part
        if "world" in values:
            # A wrong one has been reported at its place.
            cell.data["world"] = values["world"] if values["world"] in WORLDS else UNKNOWN
        return cell

    def _filled(
        self, data: Any, path: DataPath, known: dict[tuple[str, str], Any], late: list[LateReference]
    ) -> Any:
        if isinstance(data, str):  # most values are texts
            return self._text(data, path, known, late) if "$(" in data else data
        if is_mapping(data):
            found = {key: self._filled(value, (*path, key), known, late) for key, value in data.items()}
            return self._measured.filled(found, path) if found.get("dist") == "empirical" else found
        if is_list(data):
            values = enumerate(data)
            return [self._filled(value, (*path, index), known, late) for index, value in values]
        return data

    def _text(
        self, text: str, path: DataPath, known: dict[tuple[str, str], Any], late: list[LateReference]
    ) -> Any:
        namespaces = is_late(path)
        lost = False

        def look(reference: Reference) -> Any:
            nonlocal lost
            name = (reference.namespace, reference.name)
            if name in known:
                self.used.add(name)
                lost = lost or known[name] is UNKNOWN
                return "" if known[name] is UNKNOWN else known[name]
            if reference.namespace in namespaces:
                late.append(LateReference(path, reference, text == text[reference.start : reference.end]))
                return KEEP
            lost = True
            self._dangling(text, path, reference, known)
            return ""

        try:
            found = fill(text, look, again=bool(namespaces))
        except BadReference as error:
            part = text[error.start : error.end]
            self.mistakes.append(self.document.mistake_in(path, part, str(error), "name"))
            return UNKNOWN
        return UNKNOWN if lost else self._measured.filled(found, path)

    def _dangling(
        self, text: str, path: DataPath, reference: Reference, known: dict[tuple[str, str], Any]
    ) -> None:
        part = text[reference.start : reference.end]
        namespace, name = reference.namespace, reference.name
        spaces = ("vars", self.axes, "agents", "population" if self.axes == "sweep" else "saved")
        if name in mapped(self.data.get(namespace)) and namespace in ("vars", self.axes):
            return  # there, but wrong in itself
        if namespace in spaces and self.unknown_keys:
            return  # a misspelt key may hide its part of the file, or make it look like another
        if namespace in ("vars", self.axes):
            names = [inner for outer, inner in known if outer == namespace]
            what = "variable" if namespace == "vars" else f"{namespace} key"
            message = f'no {what} "{name}"{did_you_mean(name, names)}'
        elif namespace in spaces:
            message = f"$({namespace}.…) stands only in {_WHERE[namespace]}"
        elif namespace == REPLICA:
            message = f"$({REPLICA}) stands only in the groups of a deployment"
        else:
            message = f'unknown namespace "{namespace}"{did_you_mean(namespace, spaces)}'
        self.mistakes.append(self.document.mistake_in(path, part, message, "name"))

    def _check_used(self) -> None:
        for key in self.matrix:
            by_name = (self.axes, key) in self.used or key == "world"
            by_name = by_name or any(
                space == self.axes and name.startswith(f"{key}.") for space, name in self.used
            )
            if not by_name and not (key in self.vars and ("vars", key) in self.used):
                why = f"$({'vars' if key in self.vars else self.axes}.{key}) is not used"
                self.wrong((self.axes, key), f'{self.axes} key "{key}" does nothing: {why}', key=True)
                continue
            if (self.axes, key) not in self.used and key not in self.vars:
                self._check_members(key)

    def _check_members(self, key: str) -> None:
        for place, value in self.matrix[key]:
            for name in mapped(value):
                if name != LABEL and (self.axes, f"{key}.{name}") not in self.used:
                    self.wrong((*place, name), f"$({self.axes}.{key}.{name}) is not used", key=True)

    def unused_variables(self) -> list[str]:
        """Return the variables that nothing uses."""
        return [name for name in self.vars if ("vars", name) not in self.used and name not in self.matrix]


LABEL: Final = "name"
"""The member of a matrix value that is shown in its place."""


@cache
def known_keys(struct: type[Struct]) -> frozenset[str]:
    """Return the keys that a file may have, including planned keys, for which there is a separate error."""
    later: Later = vars(struct)["later"]
    return later.words.union(["lmos"], (field.encode_name for field in structs.fields(struct)))


@cache
def _needed_keys(struct: type[Struct]) -> tuple[str, ...]:
    """Return the keys that a file must have."""
    return tuple(field.encode_name for field in structs.fields(struct) if field.required)


def has_required_parts(struct: type[Struct], data: dict[str, Any]) -> bool:
    """Return whether the parts that define names are present and valid enough to check references.

    If they are not, every reference would be a mistake, so only a misspelt top-level key and mistakes in
    shape are reported.
    """
    known = known_keys(struct)
    if any(key not in known for key in data) or any(key not in data for key in _needed_keys(struct)):
        return False
    return is_mapping(data.get("agents", {})) and is_list(data.get("population", []))


def _members(key: str, value: Any) -> list[tuple[str, Any]]:
    """Return a matrix value and its members, each with its key, such as `policy` and `policy.size`."""
    return [(key, value), *((f"{key}.{name}", part) for name, part in mapped(value).items())]


def _leaves(data: Any, path: DataPath) -> list[tuple[DataPath, Any]]:
    if not (is_mapping(data) or is_list(data)):
        return [(path, data)]
    return [leaf for key, value in inside(data) for leaf in _leaves(value, (*path, key))]


def fill_late(value: Any, namespace: str, known: Mapping[str, Any]) -> Any:
    """Return new data with the references filled in that were left to the run.

    These are `saved` in steps and `agents` in args. The names were checked when the file was read; a saved
    value that does not exist (its step has not run) raises LookupError.
    """

    def look(reference: Reference) -> Any:
        if reference.namespace != namespace or reference.name not in known:
            raise LookupError(f"$({reference.namespace}.{reference.name}) has no value")
        return known[reference.name]

    if isinstance(value, str):
        return fill(value, look)
    if is_mapping(value):
        return {key: fill_late(inner, namespace, known) for key, inner in value.items()}
    if is_list(value):
        return [fill_late(inner, namespace, known) for inner in value]
    return value
