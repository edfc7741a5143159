"""The state of a deployment as plain data, as `status --json` prints it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["waiting", "starting", "ready", "draining", "restarting", "stopped", "failed"]
"""State of a process: `waiting` for groups that it needs, `restarting` between two lives, `stopped` by
request, `failed` if it cannot start until somebody corrects something: it is not tried again by itself."""

Step: TypeAlias = Literal["stopping", "starting", "replaced", "pausing", "giving_up", "rolling_back"]
"""Step of a rolling restart: `stopping` the processes of a batch and `starting` theirs, in the order of the
group, then `replaced`; `giving_up` those that do not become ready, and `rolling_back` to the plan before."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a group. `generation` counts its starts; `since` is when its state began."""

    number: int
    state: State
    pid: int | None
    generation: int
    urls: tuple[str, ...]
    restarts: int
    since: str
    why: str = ""
    """Why the process before it ended, if it ended by itself; while it is waiting: what it waits for."""
    page: str = ""
    """The address of its page for browsers, if it has one."""
    version: str = ""
    """The `version` of its group when this process was started."""
    degraded: tuple[str, ...] = ()
    """The first of its agents that are being restarted, or wait for it."""


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a rolling restart: its step, and the numbers of the processes concerned."""

    step: Step
    processes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.step.replace('_', ' ')} {', '.join(map(str, self.processes))}"


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group: the wanted number of processes, the existing ones, and the state of its rolling restart."""

    name: str
    wanted: int
    replicas: tuple[ReplicaStatus, ...]
    rollout: RolloutStatus | None = None
    version: str = ""
    """A digest of all that determines its processes, by the file as it is applied now."""


class LauncherStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A running deployment."""

    name: str
    file: str
    launcher_pid: int
    since: str
    doing: str
    """The request that is being carried out, such as "restart --rolling weather"; "" if there is none."""
    groups: tuple[GroupStatus, ...]
    lines_lost: int = 0
    """The number of lines of processes that could not be written to files; `why_lost` is the last reason."""
    why_lost: str = ""
    page: str = ""
    """The address of the page of the deployment, if it has one."""
