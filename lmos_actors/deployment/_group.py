"""The state of one group of a launcher: its processes by number, and who waits for what of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors.supervision import ChildSpec, SupervisorSpec

from ._replica import Replica
from ._status import GroupStatus, ReplicaStatus, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._log_files import LogFiles
    from ._place import Place
    from ._plan import GroupPlan


@attrs.define(eq=False)
class Member:
    """What is known of the process of one number, over all its lives."""

    state: State = "waiting"
    since: str = ""
    pid: int | None = None
    urls: tuple[str, ...] = ()
    generation: int = 0
    restarts: int = 0
    why: str = ""
    replica: Replica | None = None
    """The agent of its present life."""


@attrs.define(eq=False)
class Group:
    """One group. `others` are all groups by name, `notice` is called with the number of what has changed."""

    plan: GroupPlan
    place: Place
    logs: LogFiles
    others: Mapping[str, Group]
    notice: Callable[[Group, int], None]
    now: Callable[[], str]
    members: dict[int, Member] = attrs.Factory(dict[int, Member])
    address: str = ""
    """Where its directory is, once it has been somewhere: there it is again after a restart."""
    _changed: trio.Event = attrs.Factory(trio.Event)

    # ---- what its processes say

    def enters(self, replica: Replica, state: State, pid: int | None = None) -> None:
        """Note a new state of a process."""
        member = self.members.setdefault(replica.number, Member())
        if state == "waiting":
            member.generation += 1
            member.replica, member.pid, member.urls = replica, None, ()
        if state == "starting":
            member.pid = pid
        self._set(replica.number, member, state)

    def has_ended(self, replica: Replica, why: str) -> None:
        """Note the end of a process; `why` is empty where it had been asked to end."""
        member = self.members.get(replica.number)
        if member is None or member.replica is not replica:
            return
        member.pid, member.urls, member.replica, member.why = None, (), None, why
        if why:
            member.restarts += 1
        self._set(replica.number, member, "restarting" if why else "stopped")

    def listens(self, replica: Replica, url: str) -> None:
        """Note an address of a process."""
        member = self.members[replica.number]
        member.urls = (*member.urls, url)
        if self.plan.hosts_directory and not self.address:
            self.address = url.replace("ws", "http", 1)

    def forget(self, number: int) -> None:
        """Forget a process that is not wanted any more."""
        self.members.pop(number, None)
        self._wake()

    def _set(self, number: int, member: Member, state: State) -> None:
        if member.state != state or not member.since:
            member.state, member.since = state, self.now()
            self.notice(self, number)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # ---- what others wait for

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of this group."""
        while not holds():
            await self._changed.wait()

    def is_ready(self) -> bool:
        """Whether all its processes are ready."""
        return all(member.state == "ready" for member in self.members.values()) and self.is_begun()

    def is_begun(self) -> bool:
        """Whether all its processes have been started."""
        going = [
            member for member in self.members.values() if member.state in ("starting", "ready", "draining")
        ]
        return len(going) >= self.plan.replicas

    async def wait_ready(self, replica: Replica) -> None:
        """Wait until a process is ready."""
        member = self.members[replica.number]
        await self.wait_until(lambda: member.state == "ready")

    async def wait_needs(self) -> None:
        """Wait for the groups that this one needs."""
        for name, what in self.plan.needs.items():
            other = self.others[name]
            await other.wait_until(other.is_ready if what == "ready" else other.is_begun)

    def arguments_of(self, number: int) -> tuple[str, ...]:
        """Return the arguments of the command that runs the process of a number."""
        own = (self.plan.name,) if self.address else ()
        known = [(name, self.others[name].address) for name in (*own, *self.plan.hosts)]
        at = [word for name, url in known if url for word in ("--at", f"{name}={url}")]
        return (*self.plan.arguments, "--replica", str(number), *at, "--launched")

    # ---- its place in the tree

    def spec(self) -> SupervisorSpec:
        """Return the supervisor of its processes."""
        plan = self.plan
        return SupervisorSpec(
            plan.name,
            tuple(map(self.child_spec, range(1, plan.replicas + 1))),
            max_restarts=plan.max_restarts,
            max_seconds=plan.max_seconds,
        )

    def child_spec(self, number: int) -> ChildSpec[Any]:
        """Return the spec of the process of a number."""
        factory = partial(Replica, of=self, number=number)
        return ChildSpec(str(number), factory, shutdown=self.plan.shutdown, backoff=self.plan.backoff)

    def status(self) -> GroupStatus:
        """Return its state as plain data."""
        return GroupStatus(
            name=self.plan.name,
            wanted=self.plan.replicas,
            replicas=tuple(
                ReplicaStatus(
                    number=number,
                    state=member.state,
                    pid=member.pid,
                    generation=member.generation,
                    urls=member.urls,
                    restarts=member.restarts,
                    since=member.since,
                    why=member.why,
                )
                for number, member in sorted(self.members.items())
            ),
        )
