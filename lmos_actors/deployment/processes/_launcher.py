"""The launcher: a supervisor tree whose agents are processes.

    root
      control/launcher      the agent by which it is controlled (`_launcher_agent.py`)
      groups                the strategy and limits of the file
        registry            a supervisor for each group, in the order in which they need each other
          1                 an agent for each process (`_group.py`)
        weather
          1
          2

Requests of commands are carried out one at a time. Each step is finished once begun, so that an interrupted
command leaves no group half replaced. When the launcher ends, it drains the groups in reverse order, all
processes of a group at once.

If the supervisor of a group fails too often, the supervisor above restarts it with the processes that the
file lists. Then the launcher restores the count to which the group had been scaled (`keep_counts`).
"""

from __future__ import annotations

import os
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.errors import (
    ActionFailed,
    ConfigError,
    NotFound,
    StopFailed,
    SupervisionError,
    hint_at,
)
from lmos_actors.supervision import SupervisorSpec

from ._group import Group
from ._known_stores import KnownStores
from ._plan import changes_between, in_order
from ._status import LauncherStatus, ReplicaStatus, RolloutStatus, Step

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from lmos_actors.node import Node
    from lmos_actors.supervision import Supervisor

    from ._group_approvals import GroupApprovals
    from ._log_files import LogFiles
    from ._place import Place
    from ._plan import Changes, GroupPlan, LaunchPlan

GROUPS: Final = "groups"


class Launcher:
    """The groups of one deployment, and the operations on them.

    `notice` is called at each state of a process and each step of a rolling restart. `say` is called with a
    text when the launcher does something by itself, or fails to do so. With a `token`, the launcher's
    processes can authenticate each other, and no other client can change their entries in their directories.
    A process whose store is among `stores` refuses another store at that address.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        place: Place,
        logs: LogFiles,
        notice: Callable[[str, ReplicaStatus | RolloutStatus], None] = lambda group, change: None,
        read: Callable[[Mapping[str, str]], LaunchPlan] | None = None,
        token: str | None = None,
        stores: KnownStores | None = None,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.plan = plan
        self.logs = logs
        self.groups: dict[str, Group] = {}
        self.ending = trio.Event()
        """Set once somebody has asked it to end, by `end`."""
        self.doing = ""
        self.page = ""
        """The address of its page for browsers, if it has one."""
        self.approvals: GroupApprovals | None = None
        """The questions of its groups to people, if its page lets this machine decide."""
        self._place = place
        self._notice = notice
        self._read = read
        self._token = token
        self._say = say
        self._stores = KnownStores() if stores is None else stores
        self._since = _now()
        self._lock = trio.Lock()
        self._node: Node | None = None
        self._news = trio.Event()
        self._lives: dict[str, int] = {}
        self._followed: dict[str, tuple[str, ...]] = {}
        for each in in_order(plan.groups):
            self._add(each)

    def _add(self, plan: GroupPlan) -> Group:
        group = Group(
            plan, self._place, self.logs, self.groups, self._changed, _now, self._token, self._stores
        )
        self.groups[plan.name] = group
        return group

    def _changed(self, group: Group, number: int) -> None:
        self._news.set()
        member = group.members.get(number)
        if member is not None:
            self._notice(group.plan.name, group.replica_status(number))

    def _enters(self, group: Group, step: Step, processes: Sequence[int]) -> None:
        """Record a step of a rolling restart, and report it to `notice`."""
        group.rollout = RolloutStatus(step=step, processes=tuple(processes))
        self._notice(group.plan.name, group.rollout)

    def spec(self) -> SupervisorSpec:
        """Return the spec of the supervisor of the groups."""
        plan = self.plan
        return SupervisorSpec(
            GROUPS,
            tuple(group.spec() for group in self.groups.values()),
            strategy=plan.strategy,
            max_restarts=plan.max_restarts,
            max_seconds=plan.max_seconds,
        )

    @property
    def running(self) -> LaunchPlan:
        """The current plan, with the changes made by `scale`."""
        return attrs.evolve(self.plan, groups=tuple(group.running for group in self.groups.values()))

    def opened(self, node: Node) -> None:
        """Remember the node on which the launcher runs."""
        self._node = node

    def status(self) -> LauncherStatus:
        """Return the state of the launcher and all groups as plain data."""
        return LauncherStatus(
            name=self.plan.name,
            file=self.plan.file,
            launcher_pid=os.getpid(),
            since=self._since,
            doing=self.doing,
            groups=tuple(group.status() for group in self.groups.values()),
            lines_lost=self.logs.lost,
            why_lost=self.logs.why_lost,
            page=self.page,
        )

    async def wait_ready(self) -> None:
        """Wait until all groups are ready or one cannot start. Raises ActionFailed if the launcher ends."""
        for group in tuple(self.groups.values()):
            await group.wait_until(partial(self._is_ready_or_never, group))
        self._check_goes_on()

    def _is_ready_or_never(self, group: Group) -> bool:
        return self.ending.is_set() or group.is_ready() or self.has_failed()

    def has_failed(self) -> bool:
        """Return whether a group cannot start."""
        return any(group.has_failed() for group in self.groups.values())

    def end(self) -> None:
        """Ask the launcher to end. The current request is cut short after its current step."""
        self.ending.set()
        for group in self.groups.values():
            group.wake()

    def _check_goes_on(self) -> None:
        if self.ending.is_set():
            raise ActionFailed("the launcher is ending")

    # ---- what commands ask for

    def group(self, name: str) -> Group:
        """Return a group. Raises ActionFailed, which suggests a group with a similar name."""
        found = self.groups.get(name)
        if found is None:
            hint = hint_at(name, self.groups, '"') or f" (there are: {', '.join(self.groups)})"
            raise ActionFailed(f'no group "{name}"{hint}')
        return found

    @asynccontextmanager
    async def at_work(self, doing: str) -> AsyncGenerator[None]:
        """Return a context manager for one request, which is entered once all earlier requests are done.

        Raises ActionFailed if the launcher ends, or if the supervisor of the group has given up.
        """
        async with self._lock:
            self._check_goes_on()
            self.doing = doing
            try:
                yield
            except (SupervisionError, NotFound) as error:
                raise ActionFailed(f"{doing} was cut off: {error}") from error
            finally:
                self.doing = ""

    def _supervisor(self, group: Group) -> Supervisor:
        assert self._node is not None
        return self._node.root.supervisor(GROUPS).supervisor(group.plan.name)

    def _numbers(self, group: Group) -> list[int]:
        return sorted(int(child.name) for child in self._supervisor(group).which_children())

    async def stop_all(self, group: Group, numbers: Sequence[int] | None = None) -> None:
        """Drain processes of a group, all at once, and wait for their end."""
        chosen = self._numbers(group) if numbers is None else numbers
        with group.stopping(chosen), trio.CancelScope(shield=True):
            for number in chosen:
                with suppress(StopFailed):  # it has stopped all the same
                    await self._supervisor(group).terminate_child(str(number))
                group.has_stopped(number)

    async def start_all(self, group: Group) -> None:
        """Start the processes of a group that are stopped, or failed to start."""
        failed = [number for number, member in group.members.items() if member.state == "failed"]
        await self.stop_all(group, failed)  # the agent of one may be about to end
        with trio.CancelScope(shield=True):
            for info in self._supervisor(group).which_children():
                if info.status == "stopped":
                    await self._supervisor(group).restart_child(info.name)

    async def restart(self, group: Group) -> AsyncGenerator[str]:
        """Stop all processes of a group and start new ones. Yields what has been done."""
        with trio.CancelScope(shield=True):
            await self.stop_all(group)
            self._check_goes_on()
            await self.start_all(group)
        yield f"{group.plan.name}: stopped, and started again"
        await self._wait_ready(group, self._numbers(group))
        group.is_whole = True
        yield f"{group.plan.name}: ready"

    async def restart_one(self, group: Group, number: int) -> AsyncGenerator[str]:
        """Stop one process of a group and start a new one. Yields what has been done."""
        name = f"{group.plan.name}/{number}"
        with trio.CancelScope(shield=True):
            await self.stop_all(group, [number])
            self._check_goes_on()
            await self._supervisor(group).restart_child(str(number))
        yield f"{name}: stopped, and started again"
        await self._wait_ready(group, [number])
        yield f"{name}: ready"

    async def drain(self, group: Group, number: int | None = None) -> AsyncGenerator[str]:
        """Stop one process of a group or all of them, and yield what was done.

        `restart` or `up` starts them again.
        """
        await self.stop_all(group, None if number is None else [number])
        yield f"{group.plan.name}{'' if number is None else f'/{number}'}: stopped"

    async def start(self, group: Group) -> AsyncGenerator[str]:
        """Start the stopped processes of a group. Yields what has been done."""
        await self.start_all(group)
        await self._wait_ready(group, self._numbers(group))
        yield f"{group.plan.name}: ready"

    async def restart_rolling(self, group: Group) -> AsyncGenerator[str]:
        """Replace the processes of a group, batch after batch. Yields what was done. Raises ActionFailed."""
        plan, numbers = group.plan, self._numbers(group)
        replace = self._start_first if plan.order == "start_first" else self._stop_first
        try:
            for begin in range(0, len(numbers), plan.batch):
                batch = numbers[begin : begin + plan.batch]
                if begin and plan.pause:
                    self._enters(group, "pausing", batch)
                    with trio.move_on_after(plan.pause):
                        await self.ending.wait()
                self._check_goes_on()
                news: Sequence[int] = ()
                with trio.CancelScope(shield=True):
                    news = await replace(group, batch)
                    self._enters(group, "replaced", news)
                yield f"{plan.name}: {', '.join(map(str, batch))} replaced by {', '.join(map(str, news))}"
            group.is_whole = True
        finally:
            group.rollout = None

    async def _stop_first(self, group: Group, batch: Sequence[int]) -> Sequence[int]:
        self._enters(group, "stopping", batch)
        await self.stop_all(group, batch)
        self._check_goes_on()
        self._enters(group, "starting", batch)
        for number in batch:  # by a new spec: what the plan says of a child may have changed
            await self._supervisor(group).delete_child(str(number))
            await self._supervisor(group).start_child(group.child_spec(number))
        try:
            await self._wait_ready(group, batch)
        except ActionFailed:
            await self._give_up(group, batch)
            raise
        return batch

    async def _give_up(self, group: Group, numbers: Sequence[int]) -> None:
        """Stop the processes that are not ready, and keep the reasons.

        Their restarts would end the other processes of the group.
        """
        group.is_whole = False
        self._enters(group, "giving_up", numbers)
        members = {number: group.members[number] for number in numbers if number in group.members}
        reasons = {number: member.why for number, member in members.items() if member.state != "ready"}
        await self.stop_all(group, list(reasons))
        for number, why in reasons.items():
            members[number].why = why

    async def _start_first(self, group: Group, batch: Sequence[int]) -> Sequence[int]:
        there = self._numbers(group)
        free = [number for number in range(1, 2 * len(there) + 1) if number not in there]
        news = free[: len(batch)]
        self._enters(group, "starting", news)
        for number in news:
            await self._supervisor(group).start_child(group.child_spec(number))
        try:
            await self._wait_ready(group, news)
        except ActionFailed:
            self._enters(group, "giving_up", news)
            await self.remove(group, news)
            raise
        self._enters(group, "stopping", batch)
        await self.remove(group, batch)
        return news

    async def remove(self, group: Group, numbers: Sequence[int]) -> None:
        """Stop processes of a group, and remove them from the group."""
        await self.stop_all(group, numbers)
        with trio.CancelScope(shield=True):
            for number in numbers:
                await self._supervisor(group).delete_child(str(number))
                group.forget(number)

    async def _wait_ready(self, group: Group, numbers: Sequence[int]) -> None:
        """Wait until new processes are ready.

        Raises ActionFailed if one of them ends or is late, or if the launcher ends.
        """
        restarts = {number: group.members[number].restarts for number in numbers if number in group.members}

        def settled() -> bool:
            there = [(number, group.members.get(number)) for number in numbers]
            return self.ending.is_set() or all(
                member is not None
                and (member.state in ("ready", "failed") or member.restarts > restarts.get(number, 0))
                for number, member in there
            )

        with trio.move_on_after(group.plan.ready + 2.0):  # they have to be started, too
            await group.wait_until(settled)
        self._check_goes_on()
        for number in numbers:
            member = group.members.get(number)
            if member is None or member.state != "ready":
                why = f": it {member.why}" if member is not None and member.why else ""
                if member is not None and member.state == "waiting":
                    why = f": it waits for {', '.join(group.missing_needs())}"
                raise ActionFailed(f"{group.plan.name}/{number} did not become ready{why}")

    async def scale(self, group: Group, count: int) -> AsyncGenerator[str]:
        """Change the number of processes of a group. Yields what has been done. Raises ActionFailed."""
        name, most = group.plan.name, group.plan.most
        if not 0 <= count <= most:
            why = "they would have one port or one file" if most == 1 else "that is the most"
            raise ActionFailed(f'"{name}" can have 0 to {most} processes, not {count}: {why}')
        group.plan = attrs.evolve(group.plan, replicas=count)
        surplus, news = await self._bring_to_count(group)
        if surplus:
            yield f"{name}: {', '.join(map(str, surplus))} stopped"
        if news:
            await self._wait_ready(group, news)
            yield f"{name}: {', '.join(map(str, news))} ready"

    async def _bring_to_count(self, group: Group) -> tuple[Sequence[int], Sequence[int]]:
        """Stop surplus processes of a group, and start missing ones. Return the numbers of both."""
        count, there = group.plan.replicas, self._numbers(group)
        surplus = there[count:]
        free = [number for number in range(1, count + len(there) + 1) if number not in there]
        news = free[: max(count - len(there), 0)]
        with trio.CancelScope(shield=True):
            if surplus:
                await self.remove(group, surplus)
            for number in news:
                await self._supervisor(group).start_child(group.child_spec(number))
        return surplus, news

    async def keep_counts(self) -> None:
        """Keep groups at the requested numbers of processes, until cancelled.

        A supervisor that is restarted has the processes of the file, without the changes made by `scale`. A
        group that uses a directory which has moved to another machine is restarted, process by process.
        """
        while True:
            await self._news.wait()
            self._news = trio.Event()
            for name, group in tuple(self.groups.items()) if self._node is not None else ():
                with suppress(ActionFailed, NotFound):  # it ends, or begins anew once more
                    life, before = self._supervisor(group).incarnation, self._lives.get(name)
                    self._lives[name] = life
                    if before is None or life == before:
                        continue
                    async with self.at_work(f"scale {name}={group.plan.replicas}"):
                        for number in [
                            number for number in group.members if number not in self._numbers(group)
                        ]:
                            group.forget(number)
                        await self._bring_to_count(group)
            for group in tuple(self.groups.values()):
                await self._follow(group)

    async def _follow(self, group: Group) -> None:
        """Restart a group whose processes have old addresses of its directories, once for each move."""
        name, where = group.plan.name, group.whereabouts()
        if not group.is_behind() or self._followed.get(name) == where:
            return
        doing = f"restart --rolling {name}, as a directory has moved"
        try:
            async with self.at_work(doing):
                if group.is_behind():  # what was done before may have replaced its processes
                    self._followed[name] = where
                    self._say(doing)
                    async for line in self.restart_rolling(group):
                        self._say(line)
        except ActionFailed as error:
            if not self.ending.is_set():
                self._say(f"{doing}: {error.output}; `restart {name}` tries it again")

    # ---- another plan

    async def read(self, settings: Mapping[str, str]) -> LaunchPlan:
        """Read the file again and return its plan. Raises ActionFailed."""
        if self._read is None:
            raise ActionFailed("this launcher has no file")
        try:
            return await trio.to_thread.run_sync(self._read, settings)
        except (ConfigError, OSError) as error:
            raise ActionFailed(str(error)) from None

    def changes_to(self, plan: LaunchPlan) -> Changes:
        """Return the changes that lead from the running plan to another."""
        stopped = [name for name, group in self.groups.items() if group.is_stopped()]
        return changes_between(self.running, plan, stopped)

    async def apply(self, plan: LaunchPlan) -> AsyncGenerator[str]:
        """Run another plan in place of this one. Yields what has been done.

        Raises ActionFailed if a changed group does not become ready. That group is then rolled back, and the
        groups after it are not changed.
        """
        changes = self.changes_to(plan)
        self._set_limits(plan)
        kept = {each.name for each in (*changes.replaced, *changes.scaled)}
        for each in plan.groups:
            if each.name in self.groups and each.name not in kept:
                self.groups[each.name].plan = each
        for each in changes.added:
            with trio.CancelScope(shield=True):
                await self._add_group(each)
            yield f"{each.name}: ready"
        for each in changes.replaced:
            async with aclosing(self._replace(self.groups[each.name], each)) as texts:
                async for text in texts:
                    yield text  # noqa: ASYNC119 -- the runtime closes the streams it runs
        for each in changes.scaled:
            group = self.groups[each.name]
            group.plan = attrs.evolve(each, replicas=group.plan.replicas)
            async with aclosing(self.scale(group, each.replicas)) as texts:
                async for text in texts:
                    yield text  # noqa: ASYNC119
        for name in changes.started:
            async with aclosing(self.start(self.groups[name])) as texts:
                async for text in texts:
                    yield text  # noqa: ASYNC119
        for name in changes.removed:
            with trio.CancelScope(shield=True):
                await self._remove_group(name)
            yield f"{name}: stopped"
        self.plan = attrs.evolve(plan, strategy=self.plan.strategy, page=self.plan.page)  # as they run

    def _set_limits(self, plan: LaunchPlan) -> None:
        """Set the limits of supervisors from a plan. Raises NotFound if a supervisor is being restarted."""
        assert self._node is not None
        self._node.root.supervisor(GROUPS).set_limits(plan.max_restarts, plan.max_seconds)
        self.plan = attrs.evolve(self.plan, max_restarts=plan.max_restarts, max_seconds=plan.max_seconds)
        for each in plan.groups:
            group = self.groups.get(each.name)
            if group is not None:
                most, seconds = each.max_restarts, each.max_seconds
                self._supervisor(group).set_limits(most, seconds)
                group.plan = attrs.evolve(group.plan, max_restarts=most, max_seconds=seconds)

    async def _add_group(self, plan: GroupPlan) -> None:
        assert self._node is not None
        group = self._add(plan)
        await self._node.root.supervisor(GROUPS).start_supervisor(group.spec())
        await group.wait_until(lambda: len(group.members) >= plan.replicas)
        try:
            await self._wait_ready(group, list(group.members))
        except ActionFailed:
            await self._remove_group(plan.name)
            raise

    async def _remove_group(self, name: str) -> None:
        assert self._node is not None
        await self.stop_all(self.groups[name])
        groups = self._node.root.supervisor(GROUPS)
        await groups.terminate_child(name)
        await groups.delete_child(name)
        del self.groups[name]

    async def _replace(self, group: Group, plan: GroupPlan) -> AsyncGenerator[str]:
        """Replace a group's processes according to another plan; if that fails, restore the previous plan.

        If the new plan has fewer processes, the surplus processes are stopped first.
        """
        if plan.replicas < group.plan.replicas:
            async with aclosing(self.scale(group, plan.replicas)) as texts:
                async for text in texts:
                    yield text  # noqa: ASYNC119
        before, group.is_whole = group.plan, False
        group.plan = attrs.evolve(plan, replicas=before.replicas)
        try:
            async with aclosing(self.restart_rolling(group)) as texts:
                async for text in texts:
                    yield text  # noqa: ASYNC119
        except ActionFailed as error:
            self._check_goes_on()
            group.plan = before
            self._enters(group, "rolling_back", self._numbers(group))
            done: list[str] = []
            try:
                with trio.CancelScope(shield=True):  # to the end, whether or not somebody still waits for it
                    async with aclosing(self.restart_rolling(group)) as texts:
                        done += [text async for text in texts]
            except ActionFailed as again:
                self._check_goes_on()
                why = f"{error.output}; {plan.name} could not be rolled back, the next `up` replaces it"
                raise ActionFailed(f"{why}: {again.output}") from again
            for text in done:
                yield text
            raise ActionFailed(f"{error.output}; {plan.name} was rolled back") from error

    async def stop(self) -> None:
        """Drain all groups in reverse order, once the current step of a request is done."""
        self.end()
        async with self._lock:
            self.doing = "down"
            for group in reversed(tuple(self.groups.values())):
                with suppress(SupervisionError):  # all ends at once: its supervisor has ended
                    await self.stop_all(group)
        self.logs.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
