"""Structs of a deployment: the groups of agents of a system, each of which runs as processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from lmos_actors.files import Duration, Later, Size, fill, mapped, read
from lmos_actors.system.model import (
    DEPLOYMENT,
    AgentEntry,
    Backoff,
    Circles,
    Closed,
    Count,
    Name,
    PoolEntry,
    Relay,
    Remote,
    Scalar,
    Strategy,
    Tree,
    Variable,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

DATABASE: Final = "sqlite:"
"""Beginning of a store for one process at a time: the path of a database follows."""

MOST_REPLICAS: Final = 1_000
"""Maximum processes of one group."""

DeployedAgent: TypeAlias = Annotated[AgentEntry | PoolEntry | Remote, Later("bridge", "process")]
Need: TypeAlias = Literal["ready", "started", "listening"]
"""The state of another group that a group waits for."""

Texts: TypeAlias = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
"""One text, or several."""

Numbers: TypeAlias = dict[str, int | float]
"""Limits by name: the fields of a record of options."""


class Drain(Closed, frozen=True, kw_only=True):
    """The orderly end of a process: runs may continue for `timeout`, and are then stopped by force.

    Connections are closed one after another over `spread`, so that not all clients reconnect at once.
    """

    timeout: Duration = Duration(10.0)
    spread: Duration = Duration(0.0)


class Limits(Closed, frozen=True, kw_only=True):
    """Limits of each process: open files and connections, bytes of memory, and number of processors.

    The other fields are limits of the process's node. Each sets fields of the record that `open_node` takes
    under the same name; `node` sets fields of `NodeLimits`.
    """

    descriptors: Annotated[int, Meta(ge=64, le=1 << 20)] | UnsetType = UNSET
    # Any process needs so much memory to start, whatever its agents: most of it is only reserved.
    memory: Annotated[Size, Meta(ge=160 << 20)] | UnsetType = UNSET
    processors: Annotated[int, Meta(ge=1, le=1024)] | UnsetType = UNSET
    node: Numbers = {}
    session: Numbers = {}
    connection: Numbers = {}
    door: Numbers = {}
    http: Numbers = {}
    omnia: Numbers = {}
    relay: Numbers = {}
    mcp: Numbers = {}
    directory: Numbers = {}
    metrics: Numbers = {}


class Update(Closed, frozen=True, kw_only=True):
    """How `restart --rolling` replaces the processes of a group: how many at a time, with pauses between.

    With `start_first` the new process is ready before the old one is drained.
    """

    order: Literal["start_first", "stop_first"] = "stop_first"
    batch: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] = 1
    pause: Duration = Duration(0.0)


class Omnia(Closed, frozen=True, kw_only=True):
    """Options for serving chat agents over Omnia's chat protocol; `uploads` is a folder.

    With `only`, the agents are served by no other protocol.
    """

    only: bool = False
    strict_sessions: bool = False
    uploads: Name | None = None


class Group(Closed, frozen=True, kw_only=True):
    """A group of agents that run in one process, or in several equal processes (`replicas`).

    Paths are relative to `cwd`, which is the folder of the file unless given. In texts `$(replica)` is the
    number of the process, counted from 1. `register` and `lookup` name directories: a group that hosts one,
    or a URL.
    """

    agents: tuple[Name, ...] = ()
    replicas: Annotated[int, Meta(ge=0, le=MOST_REPLICAS)] = 1
    needs: dict[str, Literal["ready", "started"]] = {}
    listen: Texts = "ws://127.0.0.1:0"
    public_url: Name | None = None
    cert: Name | None = None
    key: Name | None = None
    client_ca: Name | None = None
    security: Name | None = None
    origins: tuple[Name, ...] = ()
    insecure: bool = False
    allow_operations: bool = False
    register: Texts | None = None
    lookup: Texts | None = None
    directory: Name | bool = False
    store: Name | None = None
    circles: Circles = "warn"
    metrics: bool = False
    tracing: Name | None = None
    omnia: Omnia | bool = False
    mcp: bool = False
    relay: Relay | bool = False
    env: dict[str, str] = {}
    cwd: Name | None = None
    limits: Limits = Limits()
    ready: Annotated[Duration, Meta(gt=0)] = Duration(30.0)
    drain: Drain = Drain()
    update: Update = Update()
    max_restarts: Count = 3
    max_seconds: Duration = Duration(60.0)
    backoff: Backoff | UnsetType = UNSET


class LauncherPage(Closed, frozen=True, kw_only=True):
    """The page of a deployment for browsers: its address, and who may enter.

    Paths are relative to the folder of the file.
    """

    listen: Name = "ws://127.0.0.1:0"
    public_url: Name | None = None
    cert: Name | None = None
    key: Name | None = None
    client_ca: Name | None = None
    security: Name | None = None
    insecure: bool = False
    allow_operations: bool = False


class Launcher(Closed, frozen=True, kw_only=True):
    """The supervisor of the groups: the restart strategy, and how many restarts are allowed.

    `page` is the launcher's page for browsers.
    """

    strategy: Strategy = "one_for_one"
    max_restarts: Count = 3
    max_seconds: Duration = Duration(600.0)
    page: LauncherPage | bool = True


class Deployment(Closed, frozen=True, kw_only=True, tag_field="lmos", tag="deployment/v1"):
    """A system that runs as processes, group by group."""

    name: Name
    summary: str = ""
    labels: dict[str, Scalar] = {}
    vars: dict[str, Variable] = {}
    agents: dict[str, DeployedAgent] = {}
    tree: Tree | None = None
    groups: Annotated[dict[str, Group], Meta(min_length=1)]
    launcher: Launcher = Launcher()
    later: ClassVar[Later] = Later("autoscale")


def is_deployment(path: str | os.PathLike[str]) -> bool:
    """Return whether a file declares a deployment. Blocks on the disk. Raises FileError."""
    return mapped(read(path).data).get("lmos") == DEPLOYMENT


def texts_of(value: Texts | None) -> tuple[str, ...]:
    """Return the texts of a key with one text, several or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def needs_of(
    group: Group, groups: Mapping[str, Group]
) -> dict[str, Literal["ready", "started", "listening"]]:
    """Return the groups that a group waits for: its `needs`, and the groups whose directories it uses.

    If a group hosts a directory and also has agents, the others wait only until it listens. Its agents may in
    turn wait for agents of groups that use the directory.
    """
    used = [text for text in (*texts_of(group.register), *texts_of(group.lookup)) if "://" not in text]
    found: dict[str, Need] = {}
    for name in used:
        found[name] = "listening" if name in groups and groups[name].agents else "ready"
    return {**found, **group.needs}


def filled_for(text: str, replica: int) -> str:
    """Return a text of a group with the number of a process filled in."""
    return str(fill(text, lambda _: replica))
