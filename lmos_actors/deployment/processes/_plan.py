"""The plan of a launcher as values: groups, their order, and their needs. No side effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lmos_actors.supervision import Backoff

Need: TypeAlias = Literal["ready", "started", "listening"]
"""The state that a group waits for; `listening`: of a directory, while its agents may be starting."""

CANNOT_START = 2
"""Exit code of a process that cannot start until somebody corrects a file, a class or an option."""

HARD_END = 6.0
"""Seconds beyond its time to drain before a process is killed."""


@attrs.frozen(kw_only=True)
class GroupPlan:
    """A group: how many processes it has, what starts them, and how they are watched.

    Times are in seconds. `arguments` are the arguments of the command for one process, without its number.
    `needs` are groups that must be ready or started first. If `most` is 1, two processes cannot exist at the
    same time, as they would share a port or a file.
    """

    name: str
    replicas: int
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = attrs.Factory(dict[str, str])
    needs: Mapping[str, Need] = attrs.Factory(dict[str, "Need"])
    hosts: tuple[str, ...] = ()
    """The groups whose directories it uses; their addresses are given to its processes."""
    tells_address: bool = False
    """Whether it hosts a directory at a free port, or at all addresses of a machine that its place chooses.

    Others are told the address, which it has again after a restart."""
    ready: float = 30.0
    drain: float = 10.0
    order: Literal["start_first", "stop_first"] = "stop_first"
    batch: int = 1
    pause: float = 0.0
    max_restarts: int = 3
    max_seconds: float = 60.0
    backoff: Backoff | None = None
    is_patient: bool = False
    """Whether it is tried again even if it cannot start: its code is being written."""
    most: int = 1_000
    """Maximum processes that it can have: one, if all would have one port or one file."""
    processors: int | None = None
    """Processors of each process; None means whatever there is."""
    store: str | None = None
    """Its store in a server, with `$(replica)` for the number of a process; None if it has none."""
    only_here: tuple[str, ...] = ()
    """The reason why it is bound to one machine, in words that follow its name."""
    content: str = ""
    """A digest of all that determines its processes: if it changes, they are replaced."""

    @property
    def version(self) -> str:
        """The first characters of the digest, for display."""
        return self.content[:8]

    @property
    def shutdown(self) -> float:
        """The seconds from the request to end until a process is killed."""
        return self.drain + HARD_END


@attrs.frozen(kw_only=True)
class LaunchPlan:
    """All groups in the order of the file, and the limit on restarts of all groups together."""

    name: str
    file: str
    groups: tuple[GroupPlan, ...]
    strategy: Literal["one_for_one", "one_for_all", "rest_for_one"] = "one_for_one"
    max_restarts: int = 3
    max_seconds: float = 600.0
    page: str = ""
    """All settings of its page, as one text that shows whether they have changed."""

    def group(self, name: str) -> GroupPlan:
        """Return the plan of a group. Raises KeyError."""
        return {group.name: group for group in self.groups}[name]


@attrs.frozen(kw_only=True)
class Changes:
    """The steps to another plan: groups that are added, replaced, scaled, started again, or removed."""

    added: tuple[GroupPlan, ...] = ()
    replaced: tuple[GroupPlan, ...] = ()
    smaller: tuple[GroupPlan, ...] = ()
    """Replaced groups that will have fewer processes: the surplus ones are stopped first."""
    scaled: tuple[GroupPlan, ...] = ()
    """Groups that will have another number of processes, without `smaller`."""
    started: tuple[str, ...] = ()
    """Groups with processes that were stopped by a request, such as `drain`."""
    removed: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    """The limits of supervisors that change."""
    at_next_start: tuple[str, ...] = ()
    """Changes of supervisors that a running launcher does not adopt."""

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.scaled or self.started or self.removed)

    def lines(self) -> list[str]:
        """Return what will be done, one line for each step, in order."""
        replaced: list[str] = []
        for each in self.replaced:
            replaced += [_count_of(each)] if each in self.smaller else []
            replaced.append(f"{each.name}: changed, its processes are replaced in turn")
        return [
            *(f"{each.name}: new, {each.replicas} to be started" for each in self.added),
            *replaced,
            *map(_count_of, self.scaled),
            *(f"{name}: stopped, to be started again" for name in self.started),
            *(f"{name}: gone from the file, to be stopped" for name in self.removed),
            *(f"{what}: changed, which counts from now on" for what in self.limits),
            *(f"{what}: changed, which counts once the launcher begins anew" for what in self.at_next_start),
        ]


def _count_of(group: GroupPlan) -> str:
    return f"{group.name}: {group.replicas} process{'es' if group.replicas != 1 else ''} from now on"


def changes_between(old: LaunchPlan, new: LaunchPlan, stopped: Collection[str] = ()) -> Changes:
    """Return the changes from one plan to another; `stopped` are groups with stopped processes."""
    before = {group.name: group for group in old.groups}
    both = [(before[group.name], group) for group in new.groups if group.name in before]
    changed = [group.name for was, group in both if was.content != group.content]
    resized = [(was, group) for was, group in both if was.replicas != group.replicas]
    smaller = [group for was, group in resized if group.name in changed and group.replicas < was.replicas]
    supervisors = [("launcher", old, new), *((was.name, was, group) for was, group in both)]
    limits = [
        f"{name}.{key}"
        for name, was, now in supervisors
        for key in ("max_restarts", "max_seconds")
        if getattr(was, key) != getattr(now, key)
    ]
    return Changes(
        added=tuple(group for group in in_order(new.groups) if group.name not in before),
        replaced=tuple(group for group in in_order(new.groups) if group.name in changed),
        smaller=tuple(smaller),
        scaled=tuple(group for _, group in resized if group not in smaller),
        started=tuple(
            group.name
            for group in in_order(new.groups)
            if group.name in stopped and group.replicas and group.name not in changed
        ),
        removed=tuple(name for name in before if name not in {group.name for group in new.groups}),
        limits=tuple(limits),
        at_next_start=tuple(
            f"launcher.{key}" for key in ("strategy", "page") if getattr(old, key) != getattr(new, key)
        ),
    )


def in_order(groups: Sequence[GroupPlan]) -> tuple[GroupPlan, ...]:
    """Return groups so that each follows the groups that it needs, and otherwise in the given order.

    The needs must not form a circle.
    """
    left, done = {group.name: group for group in groups}, dict[str, GroupPlan]()
    while left:
        free = next(
            (group for group in left.values() if not any(need in left for need in group.needs)),
            next(iter(left.values())),
        )
        done[free.name] = left.pop(free.name)
    return tuple(done.values())
