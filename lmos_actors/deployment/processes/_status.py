"""The state of a deployment as plain data, as `status --json` prints it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["waiting", "starting", "ready", "draining", "restarting", "stopped", "failed"]
"""State of a process: `waiting` for groups that it needs, `restarting` between two, `stopped` by request,
`failed` where it cannot start until somebody corrects something: it is not tried again by itself."""

Step: TypeAlias = Literal["stopping", "starting", "replaced", "pausing", "giving_up", "rolling_back"]
"""Step of a rolling restart: `stopping` the processes of a batch and `starting` theirs, in the order of the
group, then `replaced`; `giving_up` those that do not become ready, and `rolling_back` to the plan before."""


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
    """Why the one before it ended, if it ended by itself; while it is waiting: what it waits for."""
    page: str = ""
    """The address of its page for browsers, where it has one."""
    version: str = ""
    """`version` of its group as it was when this process was started."""
    degraded: tuple[str, ...] = ()
    """The first of its agents that are being restarted, or wait for it."""


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rolling restart is: its step, and the numbers of the processes that it is about."""

    step: Step
    processes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.step.replace('_', ' ')} {', '.join(map(str, self.processes))}"


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group: how many processes it is to have, those there are, and how far its rolling restart is."""

    name: str
    wanted: int
    replicas: tuple[ReplicaStatus, ...]
    rollout: RolloutStatus | None = None
    version: str = ""
    """A digest of all that a process of it is made of, by the file as it is applied now."""


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
    page: str = ""
    """The address of the page of the deployment, where it has one."""
