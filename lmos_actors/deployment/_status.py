"""The state of a deployment as plain data, as `status --json` prints it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["waiting", "starting", "ready", "draining", "restarting", "stopped"]
"""State of a process: `waiting` for groups that it needs, `restarting` between two, `stopped` by request."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a group. `generation` counts its starts, `since` is when its state began."""

    number: int
    state: State
    pid: int | None
    generation: int
    urls: tuple[str, ...]
    restarts: int
    since: str
    why: str = ""
    """Why the one before it ended, if it ended by itself."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group: how many processes it is to have, and those there are."""

    name: str
    wanted: int
    replicas: tuple[ReplicaStatus, ...]


class LauncherStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that runs."""

    name: str
    file: str
    launcher_pid: int
    since: str
    doing: str
    """The request that is being carried out: "", or such as "restart --rolling weather"."""
    groups: tuple[GroupStatus, ...]
    lines_lost: int = 0
    """How many lines of processes could not be written to their files: `why_lost` says why the last one."""
    why_lost: str = ""
