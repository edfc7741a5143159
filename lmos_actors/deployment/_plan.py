"""What a launcher is to run, as values: groups, their order, and what one needs of another. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.supervision import Backoff

HARD_END = 6.0
"""Seconds that a process has beyond its time to drain, before it is killed."""


@attrs.frozen(kw_only=True)
class GroupPlan:
    """A group: how many processes it has, what starts them, and how they are watched. Times are in seconds.

    `arguments` are those of the command that runs one process, without its number. `needs` are groups that
    have to be ready, or started, before. With `exclusive` two processes of one number cannot be there at a
    time, as they would have one port or one file.
    """

    name: str
    replicas: int
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = attrs.Factory(dict[str, str])
    needs: Mapping[str, Literal["ready", "started"]] = attrs.Factory(dict[str, Literal["ready", "started"]])
    hosts: tuple[str, ...] = ()
    """The groups whose directories it uses; their addresses are given to its processes."""
    hosts_directory: bool = False
    ready: float = 30.0
    drain: float = 10.0
    order: Literal["start_first", "stop_first"] = "stop_first"
    batch: int = 1
    pause: float = 0.0
    max_restarts: int = 3
    max_seconds: float = 5.0
    backoff: Backoff | None = None
    most: int = 1_000
    """Most processes it can have: one, where all would have one port or one file."""
    content: str = ""
    """A digest of all that a process of it is made of: if it changes, its processes are replaced."""

    @property
    def shutdown(self) -> float:
        """Seconds from the request to end until a process is killed."""
        return self.drain + HARD_END


@attrs.frozen(kw_only=True)
class LaunchPlan:
    """All groups in the order of the file, and how often they may fail together."""

    name: str
    file: str
    groups: tuple[GroupPlan, ...]
    strategy: Literal["one_for_one", "one_for_all", "rest_for_one"] = "one_for_one"
    max_restarts: int = 3
    max_seconds: float = 5.0

    def group(self, name: str) -> GroupPlan:
        """Return a group. Raises KeyError."""
        return {group.name: group for group in self.groups}[name]


def in_order(groups: Sequence[GroupPlan]) -> tuple[GroupPlan, ...]:
    """Return groups so that each comes after those that it needs, else as given. Circles are a mistake."""
    left, done = {group.name: group for group in groups}, dict[str, GroupPlan]()
    while left:
        free = next(
            (group for group in left.values() if not any(need in left for need in group.needs)),
            next(iter(left.values())),
        )
        done[free.name] = left.pop(free.name)
    return tuple(done.values())


def circle_of(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return names each of which needs the next, the first again at the end; empty if there is no circle."""
    done: set[str] = set()
    for first in needs:
        above: list[str] = []
        todo = [(first, iter(needs[first]))] if first not in done else []
        while todo:
            name, rest = todo[-1]
            if name not in above:
                above.append(name)
            need = next(rest, None)
            if need is None:
                todo.pop()
                done.add(above.pop())
            elif need in above:
                return (*above[above.index(need) :], need)
            elif need in needs and need not in done:
                todo.append((need, iter(needs[need])))
    return ()
