"""The launcher of `kills.py`: it restarts groups as it is told to, and kills somebody at one state change.

It kills from within its own `notice`, so that nothing comes between the change and the kill. Commands are
lines of JSON at its standard input; it prints a line once it is ready, and one after each command.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import ActionFailed
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.processes import (
    GROUP_MODULES,
    Launcher,
    LocalPlace,
    LogFiles,
    ReplicaStatus,
    UnixNetwork,
    controls_of,
    open_launcher,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.deployment.processes import LaunchPlan, RolloutStatus


class Killer:
    """Takes commands, and kills."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self.launcher: Launcher
        self.killed = ""
        self._kill: dict[str, Any] = {}
        self._before: set[int] = set()

    def notice(self, name: str, change: ReplicaStatus | RolloutStatus) -> None:
        """Kill, if it is here."""
        is_step = not isinstance(change, ReplicaStatus)
        what = change.state if isinstance(change, ReplicaStatus) else change.step
        wanted = self._kill
        if not wanted or (name, what, is_step) != (wanted["group"], wanted["what"], wanted["is_step"]):
            return
        if wanted["victim"] == "launcher":
            os.kill(os.getpid(), signal.SIGKILL)
        group = "registry" if wanted["victim"] == "directory" else name
        for process, pid in self.running(group):
            if wanted["victim"] == ("directory" if group == "registry" else self._age(pid)):
                self._kill, self.killed = {}, f"{process} at {name} {what}"
                os.kill(pid, signal.SIGKILL)
                return

    def _age(self, pid: int) -> str:
        return "old" if pid in self._before else "new"

    def running(self, group: str) -> list[tuple[str, int]]:
        """Return the processes of a group, by name and number."""
        members = self.launcher.groups[group].members.items()
        return [(f"{group}/{number}", each.pid) for number, each in members if each.pid is not None]

    async def obey(self, command: dict[str, Any]) -> str:
        """Do a rolling restart, and then what a user does: `up` again. Returns why the first was not done."""
        launcher, refused = self.launcher, ""
        self._before = {pid for group in launcher.groups for _, pid in self.running(group)}
        self._kill, self.killed = command if command.get("victim") else {}, ""
        weather = launcher.groups["weather"]
        weather.plan = attrs.evolve(weather.plan, order=command["order"], pause=0.05)
        try:
            if command["breaks"]:
                environment = {**weather.plan.environment, "BREAK": "yes"}
                broken = attrs.evolve(weather.plan, environment=environment, content="broken")
                others = (each for each in self.plan.groups if each.name != "weather")
                plan = attrs.evolve(self.plan, groups=(*others, broken))
                await self._done("up", launcher.apply(plan))
            else:
                for name in ("weather", "counter"):
                    await self._done("restart", launcher.restart_rolling(launcher.groups[name]))
        except ActionFailed as error:
            refused = error.output
        self._kill = {}
        await self._done("up", launcher.apply(self.plan))
        with trio.fail_after(60):
            await launcher.wait_ready()
        return refused

    async def _done(self, doing: str, lines: AsyncGenerator[str]) -> None:
        async with self.launcher.at_work(doing), aclosing(lines) as texts:
            async for _ in texts:
                await trio.lowlevel.checkpoint()


async def main(file: str) -> None:
    """Be the launcher."""
    controls = controls_of(file)
    plan = launch_plan(load_deployment(file, classes=False).deployment, controls.file)
    place, killer = LocalPlace(controls.records, GROUP_MODULES), Killer(plan)
    killer.launcher = Launcher(plan, place, LogFiles(controls.logs), killer.notice)
    lock = controls.prepare()
    try:
        await place.wait_left(max(group.shutdown for group in plan.groups))
        async with open_launcher(killer.launcher, UnixNetwork(controls.socket)):
            await killer.launcher.wait_ready()
            print(json.dumps({"ready": True}), flush=True)
            while line := await trio.to_thread.run_sync(sys.stdin.readline):
                refused = await killer.obey(json.loads(line))
                print(json.dumps({"killed": killer.killed, "refused": refused}), flush=True)
    finally:
        await place.aclose()
        controls.remove()
        lock.release()


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1]))
