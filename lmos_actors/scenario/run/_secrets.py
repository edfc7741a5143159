"""The secrets of a run: values that must not appear in an answer, a request to a model, or a recording.

Secrets are values declared as secret: fields of agents, and inputs of actions in steps. So are the values to
which arguments in the file refer as `env:NAME` or `file:PATH`: above all keys of models.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors._core import HIDDEN, plain
from lmos_actors.actors import conceal, conceal_all
from lmos_actors.errors import ConfigError, LmosActorsError
from lmos_actors.files import inside, is_list, is_mapping

from ..model import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ..format import Cell

SHORTEST: Final = 4
"""Minimum length of a secret that is searched for: shorter texts appear anywhere by chance."""


def secrets_of(cell: Cell, folder: Path, slots: Iterable[Any], values: Sequence[str]) -> dict[str, str]:
    """Return the secrets of a run by the names of their sources. Blocks on the disk.

    `slots` has the slots of its agents; `values` has further references. All references are relative to
    `folder`.
    """
    found: dict[str, str] = {}

    def add(name: str, texts: Iterable[str]) -> None:
        for text in texts:
            if len(text) >= SHORTEST and text not in found.values():
                found[name if name not in found else f"{name} ({len(found)})"] = text

    entries: dict[str, Any] = dict(cell.scenario.agents)
    entries |= {entry.id: entry for entry in getattr(cell.scenario, "population", ())}
    for name, entry in entries.items():
        given = {**getattr(entry, "args", {}), **getattr(entry, "state", {})}
        for reference in _references(given):
            add(reference, _read(reference, folder))
        contract: Any = cell.system.contract(name)
        for key, value in given.items():
            secrecy = 0 if contract is None else contract.hidden.get(key, 0)
            add(f"{key} of {name}", _hidden(value, conceal(value, secrecy)))
    for reference in values:
        add(reference, _read(reference, folder))
    if isinstance(cell.scenario, Scenario):
        for step in _steps(cell.scenario.steps):
            add(f"an input of {step.target}", _of_input(cell, step))
    for slot in slots:
        if slot.agent is not None:
            for name, text in _of_agent(slot.agent):
                add(f"{name} of {slot.path}", [text])
    return found


def _references(value: Any) -> Iterator[str]:
    """Yield the texts in plain data that refer to secrets."""
    if isinstance(value, str) and value.startswith(("env:", "file:")):
        yield value
    for _, part in inside(value):
        yield from _references(part)


def _read(reference: str, folder: Path) -> Iterator[str]:
    try:
        from lmos_actors.security import Reference, SecretSource

        read = SecretSource(Reference.parse(reference, folder)).read()
    except ConfigError:
        return
    if read is not None:
        yield from (line.strip() for line in bytes(read).decode("utf-8", "replace").splitlines())


def _steps(steps: Iterable[Any]) -> Iterator[Any]:
    """Yield the steps that give an input to an action, including nested steps."""
    for step in steps:
        yield from _steps(getattr(step, "steps", ()))
        for branch in getattr(step, "branches", ()):
            yield from _steps(branch)
        if is_mapping(getattr(step, "input", None)):
            yield step


def _of_input(cell: Cell, step: Any) -> Iterator[str]:
    """Yield the texts in a step's input that the class of the target agent declares as secret."""
    contract: Any = cell.system.contract(step.target)
    op = None if contract is None else contract.table.get(step.action)
    if op is None or op.secrecies is None:
        return
    try:
        args, kwargs = op.spread(step.input)
        bound = op.bind(args, kwargs)
    except (LmosActorsError, TypeError):  # the step expects the refusal
        return
    for value, shown in zip(bound, conceal_all(bound, op.secrecies), strict=True):
        yield from _hidden(plain(value), plain(shown))


def _of_agent(agent: Any) -> Iterator[tuple[str, str]]:
    """Yield the secret texts in the fields of an agent, with the names of the fields."""
    contract = agent.__contract__
    properties = {made.attribute: (wire, made.hidden) for wire, made in contract.properties.items()}
    for field in attrs.fields(agent.__class__):
        name, attribute = properties.get(field.name, (field.alias or field.name, field.name))
        secrecy = max(contract.hidden.get(each, 0) for each in (field.name, attribute, field.alias))
        value = agent.__dict__.get(attribute)
        for text in _hidden(plain(value), plain(conceal(value, secrecy))) if secrecy else ():
            yield name, text


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    """Yield the texts of a value that are hidden in its public form, `shown`."""
    if shown == HIDDEN:
        yield from _texts(value)
    elif is_mapping(value) and is_mapping(shown):
        for key in value.keys() & shown.keys():
            yield from _hidden(value[key], shown[key])
    elif is_list(value) and is_list(shown):
        for part, other in zip(value, shown, strict=False):
            yield from _hidden(part, other)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value != HIDDEN:
        yield value
    for _, part in inside(value):
        yield from _texts(part)


# --- logs without secrets

_SHOWING: Final = ("input", "value", "output", "error", "data", "progress", "reason", "report")
"""The members of records that hold data from agents."""


def without_secrets(lines: Sequence[str], secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of the log of a run with `***` in place of secrets, and with the digests updated."""
    forms = {form for text in secrets for form in _forms(text)}
    if not forms or not lines:
        return tuple(lines)
    longest_first = sorted(forms, key=len, reverse=True)
    cleaned = [_line_without(line, longest_first) for line in lines[:-1]]
    last = json.loads(lines[-1])
    if "sha256" in last and cleaned != list(lines[:-1]):
        last |= {"head": _sum_of(cleaned[:1]), "sha256": _sum_of(cleaned[1:])}
    return (*cleaned, msgspec.json.encode(last).decode())


def _sum_of(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _forms(text: str) -> Iterator[str]:
    """Yield the forms in which a text may occur in other texts: unchanged, and as JSON, once and twice."""
    yield text
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    yield once
    yield json.dumps(once, ensure_ascii=False)[1:-1]
    yield json.dumps(text)[1:-1]


def _line_without(line: str, forms: Sequence[str]) -> str:
    if not any(form in line for form in (*forms, *(json.dumps(form)[1:-1] for form in forms))):
        return line
    record = json.loads(line)
    for member in _SHOWING:
        if member in record:
            record[member] = _value_without(record[member], forms)
    return msgspec.json.encode(record).decode()


def _value_without(value: Any, forms: Sequence[str]) -> Any:
    if isinstance(value, str):
        for form in forms:
            value = value.replace(form, HIDDEN)
        return value
    if is_mapping(value):
        return {key: _value_without(part, forms) for key, part in value.items()}
    return [_value_without(part, forms) for part in value] if is_list(value) else value
