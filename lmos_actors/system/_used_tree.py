"""A tree of the project that a file uses: its agents and supervisors by their paths."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.supervision import BulkSpec, ChildSpec, Pool, SupervisorSpec, agent_class

from ._targets import import_tree
from .model import Supervisor

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.supervision import Sibling

    from .model import Supervising


@attrs.frozen
class UsedTree:
    """A SupervisorSpec of the project that a file uses. `target` is its name in the file."""

    target: str
    module: str
    spec: SupervisorSpec
    agents: dict[str, ChildSpec[Any] | Pool[Any]]
    """Its agents and pools, by path, in start order."""
    supervisors: dict[str, SupervisorSpec]
    """The supervisors below its root, by path."""
    expected: dict[str, type[Any]]
    """The class that referring agents expect, by path."""
    bulks: dict[str, BulkSpec]
    """The supervisors of many agents of one spec, by path."""

    def class_of(self, path: str) -> type[Any] | None:
        """Return the class of the agents at a path, or None if the factory does not reveal it."""
        spec = self.agents[path]
        return agent_class(spec.member(1) if isinstance(spec, Pool) else spec)

    @property
    def pools(self) -> dict[str, int]:
        """The sizes of the tree's pools, by path."""
        return {path: spec.size for path, spec in self.agents.items() if isinstance(spec, Pool)}

    @property
    def supervisor_names(self) -> dict[str, str]:
        """The paths of the tree's supervisors, by path and by name; of equal names, the first counts."""
        found = {path: path for path in self.supervisors}
        for path, spec in self.supervisors.items():
            found.setdefault(spec.name, path)
        return found


def use_tree(target: str, root: Path) -> UsedTree:
    """Import a tree and list its agents and supervisors. Raises ConfigError as `import_tree`."""
    spec, module = import_tree(target, root)
    found = UsedTree(target, module, spec, {}, {}, {}, {})
    levels = [("", iter(spec.children))]
    while levels:
        prefix, children = levels[-1]
        child = next(children, None)
        if child is None:
            levels.pop()
        elif isinstance(child, SupervisorSpec):
            found.supervisors[prefix + child.name] = child
            levels.append((f"{prefix}{child.name}/", iter(child.children)))
        elif isinstance(child, BulkSpec):  # its agents have numbers, and no names that a file could use
            found.bulks[prefix + child.name] = child
        else:
            found.agents[prefix + child.name] = child
            for each in child.references:
                if each.expected is not None:
                    found.expected[absolute(prefix, each.sibling)] = each.expected
    return found


def unfolded(factory: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the innermost function of nested partials, with all positional and named arguments."""
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while isinstance(factory, partial):
        made: partial[Any] = factory  # pyright: ignore[reportUnknownVariableType]
        args, keywords = (*made.args, *args), {**made.keywords, **keywords}
        factory = made.func
    return factory, args, keywords


def keywords_of(factory: Any) -> dict[str, Any]:
    """Return the named arguments in a factory of a tree."""
    return unfolded(factory)[2]


def absolute(prefix: str, sibling: Sibling) -> str:
    """Return the path, from the root, of a sibling to which a child of the supervisor at `prefix` refers."""
    above = prefix.split("/")[:-1]
    return "/".join([*above[: len(above) - sibling.ups], *sibling.names])


def supervisor_paths(root: Supervising, used: UsedTree | None) -> dict[str, str]:
    """Return the tree paths of all supervisors below the root, by the names that a file uses for them."""
    found = {} if used is None else used.supervisor_names
    todo = [("", root)]
    for prefix, above in todo:
        inner = [child for child in above.children if isinstance(child, Supervisor)]
        found |= {child.name: prefix + child.name for child in inner}
        todo += [(f"{prefix}{child.name}/", child) for child in inner]
    return found
