"""Restarts of groups whose code has changed, during development."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from lmos_actors.errors import ActionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ._group import Group
    from ._launcher import Launcher


async def reload_changed(launcher: Launcher, say: Callable[[str], None]) -> None:
    """Restart each group when a project file that it imports has changed. Runs until cancelled."""
    before = _times(launcher.groups.values())
    while True:
        await trio.sleep(0.5)
        now = _times(launcher.groups.values())
        changed = {file for file, time in now.items() if before.get(file, time) != time}
        before = now
        for group in tuple(launcher.groups.values()):
            files = changed.intersection(group.files)
            if files:
                say(f"{group.plan.name}: {min(files)} has changed")
                with suppress(ActionFailed):  # it ends, or begins anew
                    async with launcher.at_work(f"reload {group.plan.name}"):
                        await launcher.stop_all(group)
                        await launcher.start_all(group)


def _times(groups: Iterable[Group]) -> dict[str, int]:
    """Return the modification times of the files that groups have imported. Blocks on the disk briefly."""
    found: dict[str, int] = {}
    for group in groups:
        for file in group.files:
            with suppress(OSError):
                found[file] = os.stat(file).st_mtime_ns
    return found
