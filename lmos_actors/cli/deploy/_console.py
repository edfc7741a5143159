"""Output of `up`: states of processes and their output, as text on a terminal, else as JSON lines.

Everything is printed in a thread, so a stopped terminal never blocks the launcher. It blocks a process only
as long as the follower of the logs waits. The launcher's own lines are queued among the lines of the
processes.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors._core import printable
from lmos_actors.deployment.processes import ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.deployment.processes import Follower, LauncherStatus, RolloutStatus
    from lmos_actors.live import AuditEntry

COLOURS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
"""The colour codes of groups, used in turn."""

QUIET: Final = '{"event"'
"""The beginning of lines that `serve` prints for its launcher, which people need not see twice."""


class Console:
    """Output of one launcher; `quiet` leaves out the output of its processes."""

    def __init__(self, *, json: bool, quiet: bool = False) -> None:
        self._quiet = quiet
        self.json = json or not sys.stdout.isatty()
        self._coloured = not self.json and "NO_COLOR" not in os.environ
        self._colours: dict[str, int] = {}
        self._follower: Follower | None = None

    # ---- states

    def changed(self, group: str, change: ReplicaStatus | RolloutStatus) -> None:
        """Print a new state of a process, or a step of a rolling restart."""
        if isinstance(change, ReplicaStatus):
            self.replica(group, change)
            return
        self._say(
            f"{self._prefix(group, group)}rolling restart: {change}",
            "rollout",
            group=group,
            step=change.step,
            processes=list(change.processes),
        )

    def replica(self, group: str, replica: ReplicaStatus) -> None:
        """Print a new state of a process."""
        name = f"{group}/{replica.number}"
        is_told = replica.state in ("restarting", "failed")
        why = f": it {replica.why}" if is_told and replica.why else ""
        pid = f", process {replica.pid}" if replica.pid is not None and replica.state == "starting" else ""
        urls = f"  {' '.join(replica.urls)}" if replica.state == "ready" else ""
        self._say(
            f"{self._prefix(name, group)}{replica.state}{pid}{urls}{why}",
            "process",
            name=name,
            state=replica.state,
            pid=replica.pid,
            generation=replica.generation,
            urls=list(replica.urls),
            why=replica.why,
        )

    def waits_for(self, left: Sequence[int | str]) -> None:
        """Print that processes of an earlier launcher are still ending."""
        count = f"{len(left)} process" + ("es" if len(left) != 1 else "")
        self._say(f"waiting for {count} of an earlier launcher to end", "waiting", processes=list(left))

    def ready(self, status: LauncherStatus) -> None:
        """Print that all groups are ready."""
        processes = sum(len(group.replicas) for group in status.groups)
        counts = f"{len(status.groups)} groups, {processes} processes"
        text = f"ready: {counts}, launcher {status.launcher_pid}, Ctrl-C stops"
        self._say(text, "ready", launcher_pid=status.launcher_pid)

    def page(self, url: str) -> None:
        """Print the address for browsers."""
        self._say(f"page at {url}", "page", url=url)

    def operated(self, entry: AuditEntry) -> None:
        """Print an operation that somebody has carried out on the page."""
        text = f"{entry.who or 'somebody'} at the page: {entry.what} {entry.path}: {entry.outcome}"
        members = {name: getattr(entry, name) for name in ("who", "what", "path", "state", "outcome")}
        self._say(printable(text), "operation", **members)

    def said(self, text: str) -> None:
        """Print an action of the launcher itself."""
        self._say(text, "note", what=text)

    def draining(self) -> None:
        """Print that the launcher is draining its processes."""
        self._say("draining; again ends at once", "draining")

    def stopped(self) -> None:
        """Print that everything has stopped in order."""
        self._say("stopped", "stopped")

    def cut_short(self) -> None:
        """Print that the end was forced."""
        self._say("ended at once", "ended")

    def failed(self, why: str) -> None:
        """Print why the launcher has ended."""
        print(f"lmos-actors: {why}", file=sys.stderr, flush=True)

    def warned(self, what: str) -> None:
        """Print what is lost. Errors of the output are ignored, since its disk may be full, too."""
        with suppress(OSError):
            print(f"lmos-actors: {what}", file=sys.stderr, flush=True)

    # ---- output of processes

    async def show(self, follower: Follower) -> None:
        """Print the output of the processes, until the logs are closed."""
        self._follower = follower
        while lines := await follower.lines():
            texts = [text for line in lines for text in self._shown(line.process, line.text, line.left_out)]
            if texts:
                await trio.to_thread.run_sync(self._print, texts)
        self._follower = None

    def _shown(self, process: str, text: str, left_out: int) -> list[str]:
        if not process:
            return [text]
        if self._quiet:
            return []
        if self.json:
            return [json.dumps({"event": "log", "process": process, "text": text, "left_out": left_out})]
        prefix = self._prefix(process, process.partition("/")[0], "|")
        found = [f"{prefix}… {left_out} lines left out, `logs` has them"] if left_out else []
        return found if text.startswith(QUIET) else [*found, prefix + printable(text)]

    def _prefix(self, name: str, group: str, mark: str = " ") -> str:
        if not self._coloured:
            return f"{name:16} {mark} "
        colour = self._colours.setdefault(group, COLOURS[len(self._colours) % len(COLOURS)])
        return f"\x1b[{colour}m{name:16} {mark}\x1b[0m "

    def _say(self, text: str, event: str, **members: Any) -> None:
        line = json.dumps({"event": event, **members}) if self.json else text
        if self._follower is None:
            self._print([line])
        else:
            self._follower.take("", line)

    @staticmethod
    def _print(lines: Sequence[str]) -> None:
        try:
            print("\n".join(lines), flush=True)
        except OSError:  # the reader is gone: that is no reason to end
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - left with the process
