"""The targets of `serve`: agent classes, their names and their arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.errors import ConfigError, InvalidInput, hint_at
from lmos_actors.supervision import ChildSpec, name_of
from lmos_actors.system import fields_of_agent

from .._importing import agent_class, from_here, importing
from .._inputs import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.actors import Agent, Ref
    from lmos_actors.system import UsedTree


@attrs.frozen
class Target:
    """One word of the command line: `weather=agents/weather.py:WeatherAgent`, with or without a name."""

    text: str
    name: str
    cls: type[Agent]


@attrs.frozen
class Planned:
    """A child to start: its class, its arguments, and the target names or URLs of its refs."""

    name: str
    cls: type[Agent]
    given: dict[str, Any]
    refs: dict[str, tuple[type[Agent], str]]

    def spec(self, refs: Mapping[str, Ref[Any]]) -> ChildSpec[Any]:
        """Return the spec of the child, with the refs that it needs. Raises ConfigError."""
        given = {**self.given, **refs}
        return ChildSpec(self.name, partial(self.cls, **given) if given else self.cls)


def tree_at(target: str) -> UsedTree | int:
    """Import the tree that `--tree` names; a path is relative to the current folder.

    Returns the exit code if that fails. Raises ConfigError.
    """
    from lmos_actors.system import use_tree

    if ":" not in target:
        raise ConfigError(f'"{target}" is not path/file.py:tree, nor package.module:tree', "--tree")
    target, root = from_here(target)
    return importing(target, partial(use_tree, target, root))


def planned_of(
    words: Sequence[str], arguments: Sequence[str], tree: UsedTree | None = None
) -> list[Planned] | int:
    """Import the named agents, and return the plans of their children in the tree.

    If that fails, the reason is printed and the exit code returned. Refs may lead to the agents of `tree`,
    too. Raises ConfigError.
    """
    targets: list[Target] = []
    for word in words:
        target = _target(word)
        if isinstance(target, int):
            return target
        targets.append(target)
    _check_names(targets, tree)
    given = _given(targets, arguments, tree)
    known = {target.name: target.cls for target in targets}
    if tree is not None:
        known |= {path: cls for path in tree.agents if (cls := tree.class_of(path)) is not None}
    return [_planned(target, given[target.name], known) for target in targets]


def _target(word: str) -> Target | int:
    name, equals, place = word.rpartition("=")
    if equals and not name:
        raise ConfigError(f'"{word}" has no name before the "="')
    if ":" not in place:
        hint = f": the class is missing, as in {place}:Weather" if place.endswith(".py") else ""
        raise ConfigError(f'"{word}" is not path/file.py:Class, nor package.module:Class{hint}')
    cls = agent_class(place)
    if isinstance(cls, int):
        return cls
    found = Target(word, name or name_of(cls), cls)
    ChildSpec(found.name, cls)  # which checks the name
    return found


def _check_names(targets: Sequence[Target], tree: UsedTree | None) -> None:
    seen = {} if tree is None else {child.name: f"--tree {tree.target}" for child in tree.spec.children}
    for target in targets:
        other = seen.setdefault(target.name, target.text)
        if other is not target.text:
            raise ConfigError(
                f'"{other}" and "{target.text}" are both called {target.name}: '
                f"name one of them, as in other={target.text.rpartition('=')[2]}"
            )


def _given(
    targets: Sequence[Target], arguments: Sequence[str], tree: UsedTree | None
) -> dict[str, dict[str, Any]]:
    """Return the arguments for each target, by the name of the target. Raises ConfigError."""
    found: dict[str, dict[str, Any]] = {target.name: {} for target in targets}
    by_name = {target.name: target for target in targets}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key:
            raise ConfigError(f'"{argument}" is not NAME=VALUE', "--arg")
        agent, dot, field = key.rpartition(".")
        if tree is not None and (agent in tree.agents or not targets):
            raise ConfigError(f'"{key}": {tree.target} has the arguments of its agents itself', "--arg")
        if not dot and len(targets) > 1:
            raise ConfigError(
                f'"{key}" names no agent, which several targets need: as in {targets[0].name}.{key}', "--arg"
            )
        target = by_name.get(agent) if dot else targets[0]
        if target is None:
            hint = hint_at(agent, by_name, '"')
            raise ConfigError(f'no target is called "{agent}"{hint}', "--arg")
        found[target.name][field] = _value(target.cls, field, text)
    return found


def _value(cls: type[Agent], name: str, text: str) -> Any:
    """Parse a value by the type of its field: as JSON, or as the text itself if the field takes a text."""
    field = fields_of_agent(cls).get(name)
    if field is None:
        hint = hint_at(name, fields_of_agent(cls), '"')
        raise ConfigError(f'{cls.__name__} has no argument "{name}"{hint}', "--arg")
    if field.points_to is not None:
        return text
    if field.shape is None:
        raise ConfigError(f'"{name}" of {cls.__name__} is no plain data, and cannot be given here', "--arg")
    try:
        return field.shape.take(read_json(text))
    except (ValueError, InvalidInput) as error:
        try:
            return field.shape.take(text)
        except InvalidInput:
            why = error if isinstance(error, InvalidInput) else f"{text!r} is not JSON: {error}"
            raise ConfigError(f'"{name}" of {cls.__name__}: {why}', "--arg") from None


def _planned(target: Target, given: dict[str, Any], known: Mapping[str, type[Agent]]) -> Planned:
    """Check the arguments of a target, and return its plan. Raises ConfigError.

    A ref that is required but not given leads to the only other agent of its class. `known` are the classes
    of all served agents, by name or path.
    """
    fields = fields_of_agent(target.cls)
    refs: dict[str, tuple[type[Agent], str]] = {}
    for name, field in fields.items():
        cls: type[Agent] | None = field.points_to
        where: str | None = given.get(name) if cls is not None else None
        if cls is not None and where is None and field.required:
            found = [each for each, other in known.items() if each != target.name and issubclass(other, cls)]
            where = found[0] if len(found) == 1 else None
        if cls is not None and where is not None:
            if "://" not in where and where not in known:
                hint = hint_at(where, known, '"')
                why = f'no target is called "{where}"{hint}'
                raise ConfigError(f'"{name}" of {target.cls.__name__}: {why}', "--arg")
            refs[name] = (cls, where)
        elif field.required and name not in given:
            value = "VALUE" if cls is None else "TARGET or =URL"
            raise ConfigError(f'"{target.text}" needs {name}: add --arg {target.name}.{name}={value}')
    plain = {name: value for name, value in given.items() if name not in refs}
    return Planned(target.name, target.cls, plain, refs)
