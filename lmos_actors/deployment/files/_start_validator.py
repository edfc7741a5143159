"""Validation of what agents need to start: a store for durable state, and arguments that fit.

`ValueValidator` compares the arguments in a file with the classes. This module checks the arguments in a tree
of the project.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.actors import class_made_by
from lmos_actors.errors import InvalidInput
from lmos_actors.persistence import SERVER, has_one_writer
from lmos_actors.system import USED, accepts, fields_of_agent, is_durable_class, key_of, unfolded

from ..model import DATABASE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.actors import Shape
    from lmos_actors.system import CellNames, NodeValidator

    from ..model import Group

PLAIN: Final = (bool, int, float, str)
"""Types of arguments in a tree that are compared with the fields they are for: others may be anything."""


class StartValidator:
    """Validates what agents of groups need to start; mistakes go to `names`."""

    def __init__(self, names: CellNames, nodes: NodeValidator, groups: Mapping[str, Group]) -> None:
        self._names = names
        self._nodes = nodes
        self._groups = groups

    def check(self) -> None:
        """Check all agents whose classes are known."""
        if not self._names.fitted:
            return
        names, tree = self._names, self._names.tree
        for name in names.names:
            self._check_store(name, names.classes.get(name), key_of(name, names.agents, tree))
        for path, spec in () if tree is None else tree.agents.items():
            if names.places.get(path) == USED:
                self._check_call(path, spec.factory)
        for path, bulk in () if tree is None else tree.bulks.items():
            if self._nodes.node_of(path) not in self._groups:
                fix = 'put it below a supervisor, and name that in "agents" of one'
                self._report(f'"{path}" is in no group, so nothing runs it: {fix}')
                continue
            self._check_store(path, class_made_by(bulk.member.factory), None)
            self._check_call(path, bulk.member.factory)

    def _report(self, why: str) -> None:
        self._names.report(USED, why, "shape")

    # ---- stores

    def _check_store(self, name: str, cls: type | None, key: str | None) -> None:
        group = self._groups.get(self._nodes.node_of(name))
        if group is None or not is_durable_class(cls):
            return
        who, where = f'"{name}" is durable', self._nodes.node_of(name)
        if group.store is None:
            why = (
                f'{who}, and its group "{where}" has no store: "store: {DATABASE}state/{where}.db" makes one'
            )
            self._names.report(("groups", where), why, "shape", key=True)
        elif key is None and group.store.startswith(SERVER) and not has_one_writer(group.store):
            fix = f'give it a key, as in "key: {name}", or "?writers=one" to the store'
            why = f"{who}, and others may write in this store, where a durable agent needs a key: {fix}"
            self._names.report(("groups", where, "store"), why, "shape")

    # ---- arguments of a tree

    def _check_call(self, path: str, factory: Any) -> None:
        fn, args, given = unfolded(factory)
        made = fn if isinstance(fn, type) else None
        reason = accepts(made) if made is not None else None
        if reason is not None:
            self._report(f'"{path}": {reason}')
            return
        try:
            inspect.signature(fn).bind(*args, **given)
        except TypeError as error:
            self._report(f'"{path}" cannot be made by {getattr(fn, "__name__", fn)}(...): {error}')
            return
        except ValueError:
            return  # it is not written in Python
        if made is None:
            return
        fields = fields_of_agent(made)
        for key in [key for key, value in given.items() if key in fields and type(value) in PLAIN]:
            field = fields[key]
            if field.pointer is not None:
                self._report(f'"{path}": "{key}" is a ref to an agent, which sibling("...") stands for')
            elif field.shape is not None and not _fits(given[key], field.shape):
                self._report(f'"{path}": "{key}" is to be {field.shape.name}')  # the value may be secret

    # ---- agents of which there are many


def _fits(value: Any, shape: Shape[Any]) -> bool:
    try:
        shape.take(value)
    except InvalidInput:
        return False
    return True
