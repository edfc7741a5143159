"""The views of a deployment, on its launcher's node: groups, their processes, and the output of these.

A viewer who sees the tree of the node sees the states of all groups; a viewer with a right over some groups
sees those. The output of a process is shown to viewers with the right `inspect` for the process, by its place
in the tree, such as `groups.weather.1`. The same right is needed to see why the process has ended, as the
reason includes its last output.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from lmos_actors.actors import Slot
from lmos_actors.supervision import place_at

from ._node_views import ApprovalsArguments, approvals_state
from ._sight import Sight

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.security import Admission
    from lmos_actors.supervision import Supervisor

    from ._merge_patch import State
    from ._trouble_views import NoArguments

LAUNCHER: Final = "control/launcher"
"""The path of the agent that launches a deployment, on the node of `up`."""

GROUPS: Final = "groups"
"""The path of the supervisor of its groups."""

PROCESSES: Final = 300
LINES: Final = 300

HEAD: Final[tuple[str, ...]] = ("name", "launcher_pid", "since", "doing", "lines_lost")


class LogsArguments(Struct, forbid_unknown_fields=True):
    """The arguments of the view: a process, such as `weather/1`, a group, or all; and the number of lines."""

    process: Annotated[str, Meta(max_length=300)] = ""
    rows: Annotated[int, Meta(ge=1, le=LINES)] = 200


class GroupsView:
    """The groups of a deployment and their processes, as far as one viewer may see them.

    The viewer sees all groups if `sees_all` is true for its admission, otherwise those over which it has a
    right. `fitting` returns the operations that apply to a path.
    """

    is_busy = False

    def __init__(
        self,
        root: Supervisor,
        sees_all: Callable[[Admission], bool],
        fitting: Callable[[str], list[str]],
        admission: Admission,
        _arguments: NoArguments,
    ) -> None:
        self._root = root
        self._fitting = fitting
        self._sees_all = sees_all(admission)
        self._sees = Sight(admission, "inspect")
        self._operates = Sight(admission, "operate")

    def content(self) -> State:
        """Return groups and processes by name, each group before its processes; {} without a launcher."""
        launcher = _launcher(self._root)
        if launcher is None:
            return {}
        status: State = msgspec.to_builtins(launcher.status())
        rows: dict[str, State] = {}
        processes = 0
        for group in islice(status["groups"], PROCESSES):
            name, replicas = group["name"], group["replicas"]
            if not self._may_see(name):
                continue
            rows[name] = {**_group(group, replicas), **self._operations(name)}
            for replica in islice(replicas, max(PROCESSES - processes, 0)):
                label = f"{name}/{replica['number']}"
                row = _process(replica, sees=self._sees(f"{GROUPS}/{label}"))
                rows[label] = {**row, **self._operations(label)}
            processes += len(replicas)
        head = {key: status[key] for key in HEAD if key in status and (self._sees_all or key != "doing")}
        why_lost = {"why_lost": status["why_lost"]} if status.get("why_lost") and self._sees("") else {}
        return {**head, **why_lost, "order": list(rows), "rows": rows, "processes": processes}

    def _may_see(self, group: str) -> bool:
        path = f"{GROUPS}/{group}"
        return self._sees_all or self._sees(path) or self._operates(path)

    def _operations(self, label: str) -> State:
        path = f"{GROUPS}/{label}"
        return {"operations": self._fitting(path)} if self._operates(path) else {}


def _group(group: State, replicas: list[State]) -> State:
    rollout = group.get("rollout")
    return {
        "kind": "group",
        "wanted": group.get("wanted", len(replicas)),
        "processes": len(replicas),
        "ready": sum(each["state"] == "ready" for each in replicas),
        "restarts": sum(each.get("restarts", 0) for each in replicas),
        **({"version": group["version"]} if group.get("version") else {}),
        **({} if rollout is None else {"rollout": rollout}),
    }


def _process(replica: State, *, sees: bool) -> State:
    left_out = {"number"} if sees else {"number", "why", "degraded"}
    members = {name: value for name, value in replica.items() if name not in left_out}
    return {"kind": "process", **{name: value for name, value in members.items() if value not in (None, "")}}


def logs_state(root: Supervisor, sees: Sight, arguments: LogsArguments) -> State:
    """Return the last lines that processes have printed, by line number; later lines have higher numbers."""
    launcher = _launcher(root)
    if launcher is None:
        return {"rows": {}}

    def may_see(process: str) -> bool:
        return sees(f"{GROUPS}/{process}")

    lines = launcher.logs.recent.last(arguments.rows, arguments.process, may_see)
    rows = {
        str(line.number): {"time": line.time, "process": line.process, "text": line.text} for line in lines
    }
    return {"rows": rows}


def all_approvals_state(root: Supervisor, decides: Sight, arguments: ApprovalsArguments) -> State:
    """Return the questions that agents ask people: agents of this node, or of all groups of a launcher.

    A launcher has the questions of its groups, by process and id, if its page lets people at this machine
    decide them.
    """
    if not has_approvals(root):
        return approvals_state(root, decides, arguments)
    if not decides(GROUPS):
        return {"waiting": 0, "order": [], "rows": {}}
    content: State = _launcher(root).approvals.content(arguments.rows)
    return content


def has_approvals(root: Supervisor) -> bool:
    """Return whether the node belongs to a launcher whose page shows what its groups ask people."""
    return getattr(_launcher(root), "approvals", None) is not None


def has_groups(root: Supervisor) -> bool:
    """Return whether the node belongs to a launcher."""
    return _launcher(root) is not None


def _launcher(root: Supervisor) -> Any:
    place = place_at(root, LAUNCHER)
    agent: Any = place.agent if isinstance(place, Slot) else None
    # by its name, as its class stands above this file; an agent of a user may have that path, too
    return agent.launcher if type(agent).__name__ == "LauncherAgent" else None
