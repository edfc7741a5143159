"""The operations on a deployment that its page offers: the work of commands, requested in a browser.

    restart  groups/weather      all processes of a group at once, as `restart weather`
    restart  groups/weather/1    one process
    roll     groups/weather      one after another, as `restart --rolling weather`
    stop     groups/weather      as `drain weather`; a restart starts them again
    stop     groups/weather/1    one process
    approve  groups/weather/1/ID what an agent of that process asks people; so does refuse

`approve` and `refuse` are passed on at once, if the page allows this machine to decide. The other operations
queue with the requests of commands, one at a time, and each step is finished once begun. They replace the
operations on agents: here an agent is a process of a group, and if it were stopped without its launcher, the
launcher would treat the whole group as stopped.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from lmos_actors.errors import ActionFailed, NotFound
from lmos_actors.live import OwnOperations, Refused

from ._launcher import GROUPS, Launcher

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors.live import Do

    from ._group import Group

    Say = Callable[[str], None]
    Begin = Callable[[Launcher, Group, int | None], AsyncGenerator[str]]


def operations_of(launcher: Launcher) -> OwnOperations:
    """Return the operations on the groups of a launcher."""

    async def restart(path: str, say: Say) -> str:
        return await _carried_out(launcher, "restart", path, _restart, say)

    async def roll(path: str, say: Say) -> str:
        _, number = _place(launcher, path)
        if number is not None:
            raise Refused("INVALID", f"{path} is one process: restart it, or roll its group")
        return await _carried_out(launcher, "restart --rolling", path, _roll, say)

    async def stop(path: str, say: Say) -> str:
        return await _carried_out(launcher, "drain", path, Launcher.drain, say)

    def fitting(path: str) -> list[str]:
        try:
            group, number = _place(launcher, path)
        except (Refused, NotFound):
            return []
        members = group.members
        there = members.values() if number is None else [members[number]]
        is_stopped = all(member.state in ("stopped", "failed") for member in there)
        return ["restart"] if is_stopped else ["restart", *(["roll"] if number is None else []), "stop"]

    async def decide(do: Do) -> str:
        assert launcher.approvals is not None  # else there is no such operation
        place, _, id = do.path.rpartition("/")
        group, number = _place(launcher, place)
        if number is None:
            raise Refused("INVALID", f"name a question of a process: {GROUPS}/NAME/NUMBER/ID")
        name, member = f"{group.plan.name}/{number}", group.members[number]
        return await launcher.approvals.decide(do, name, member, id)

    decisions = {} if launcher.approvals is None else {"approve": decide, "refuse": decide}
    return OwnOperations({"restart": restart, "roll": roll, "stop": stop}, fitting, decisions)


def _place(launcher: Launcher, path: str) -> tuple[Group, int | None]:
    """Return the group at a path, and the process number if the path has one. Raises Refused, NotFound."""
    top, *names = path.split("/")
    if top != GROUPS or not 1 <= len(names) <= 2:
        text = f"name a group or a process of one: {GROUPS}/NAME, or {GROUPS}/NAME/NUMBER"
        raise Refused("INVALID", text)
    group = launcher.groups.get(names[0])
    if group is None:
        raise NotFound("group", names[0])
    if len(names) == 1:
        return group, None
    number = int(names[1]) if names[1].isdecimal() and len(names[1]) <= 9 else 0
    if str(number) != names[1] or number not in group.members:
        raise NotFound("process", f"{names[0]}/{names[1]}")
    return group, number


def _restart(launcher: Launcher, group: Group, number: int | None) -> AsyncGenerator[str]:
    return launcher.restart(group) if number is None else launcher.restart_one(group, number)


def _roll(launcher: Launcher, group: Group, _number: int | None) -> AsyncGenerator[str]:
    return launcher.restart_rolling(group)


async def _carried_out(launcher: Launcher, verb: str, path: str, begin: Begin, say: Say) -> str:
    """Carry out an operation after all earlier requests, and return a text on what was done.

    The path is looked up again at that time, since another group may have replaced this one. Raises Refused,
    NotFound.
    """
    _place(launcher, path)
    # not for what: that may be about a group that the viewer is not to know of; the others see it in `doing`
    say("waits for what was asked before" if launcher.doing else "has begun")
    done: list[str] = []
    try:
        working = launcher.at_work(f"{verb} {path.removeprefix(f'{GROUPS}/')}")
        async with working, aclosing(begin(launcher, *_place(launcher, path))) as texts:
            async for text in texts:
                done.append(text)
                say(text)
    except ActionFailed as error:
        raise Refused("FAILED", "; ".join([*done, str(error.output)])) from None
    return "; ".join(done) or "there was no process to be replaced"
