"""One group of a launcher: its processes by number, and the groups that wait for it.

Each process belongs to an agent, and starts and ends with the agent's incarnation. So supervisors of agents
also supervise processes: a process that ends by itself is a crash of its agent, a restart of the agent starts
a new process, and stopping the agent drains the process. The agent starts at once, and waits for the groups
that its group needs before it starts the process.

The outermost part of the lifespan reads the output until the process has ended, so output during a drain is
read, too. It also measures the time to drain: processes that drain together are killed together, though their
supervisor stops them one after another.
"""

from __future__ import annotations

import json
import re
import signal
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import attrs
import msgspec
import trio

from lmos_actors.actors import Agent
from lmos_actors.errors import LmosActorsError, StartFailed
from lmos_actors.security import TOKEN_VARIABLE
from lmos_actors.supervision import ChildSpec, SupervisorSpec

from ..model import filled_for
from ._known_stores import KnownStores
from ._log_files import LineSplitter
from ._place import Order
from ._plan import CANNOT_START, HARD_END
from ._recent_lines import plain
from ._status import GroupStatus, ReplicaStatus, RolloutStatus, State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence

    from ._log_files import LogFiles
    from ._place import Place, Process
    from ._plan import GroupPlan, Need

_EXCERPT: Final = re.compile(r"\s+[0-9]*\s*\|")

MOST_URL: Final = 300
"""Maximum characters of an address of a process, or of its page."""

MOST_URLS: Final = 8
"""Maximum addresses that are kept of a process."""


class ProcessEnded(LmosActorsError):
    """A process has ended by itself, or was not ready in time.

    `why` is the reason, with the last message that the process printed.
    """

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"{name} {why}")


class Replica(Agent, private=True):
    """The agent of one process of a group, which starts the process, reads its output, and ends it."""

    of: Group
    number: int
    process: Process | None = attrs.field(default=None, init=False)
    knows: tuple[str, ...] = attrs.field(default=(), init=False)
    """The arguments by which its process knows the directories of other groups."""
    version: str = attrs.field(default="", init=False)
    """The version of the plan with which its process was started."""
    asked: bool = attrs.field(default=False, init=False)
    """Whether it was asked to end: its supervisor is about to stop the agent."""
    why: str = attrs.field(default="", init=False)
    """Why the process ended by itself, or did not start."""
    reading: trio.Nursery | None = attrs.field(default=None, init=False)
    hard_end: trio.Nursery | None = attrs.field(default=None, init=False)
    last_words: str = attrs.field(default="", init=False)
    has_gone: bool = attrs.field(default=False, init=False)
    was_ready: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set once it has been ready: before that, it has nothing to drain."""
    cannot_start: bool = attrs.field(default=False, init=False)
    """Whether another process would end in the same way: then its supervisor starts none."""
    was_killed: bool = attrs.field(default=False, init=False)
    """Whether it was killed because it did not end in time."""

    @property
    def name(self) -> str:
        """The name of the process: `weather/1`."""
        return f"{self.of.plan.name}/{self.number}"

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Read the output until the process has ended, and end the process on exit."""
        async with trio.open_nursery() as hard_end, trio.open_nursery() as reading:
            self.reading, self.hard_end = reading, hard_end
            try:
                yield
            finally:
                try:
                    await self._end()
                finally:
                    if self.why and self.was_killed:
                        self.why += f", did not heed SIGTERM for {self.time_to_end:g} s, and was killed"
                    hard_end.cancel_scope.cancel("the process has ended")
                    # Its children may hold the pipe of its output.
                    reading.cancel_scope.deadline = trio.current_time() + 0.5
                    self.of.has_ended(self, self.why)

    def started(self) -> None:
        """Start a task that starts and watches the process, so that the agent itself starts at once."""
        self.of.enters(self, "waiting")
        self.nursery.start_soon(self._live)

    async def _live(self) -> None:
        group = self.of
        for name, what in group.plan.needs.items():
            await group.others[name].wait_needed(what)
        words, self.knows = group.arguments_of(self.number), group.whereabouts()
        self.version = group.plan.version
        order = Order(
            name=self.name,
            arguments=words,
            processors=group.plan.processors,
            environment=group.environment(),
        )
        try:
            with trio.CancelScope(shield=True):  # a process that is started is known, whatever comes
                self.process = await group.place.start(order)
        except StartFailed as error:
            self.why = str(error).removeprefix(f"{self.name} ")
            raise
        process = self.process
        assert process is not None  # it has been started
        group.enters(self, "starting", int(process.id) if process.id.isdecimal() else None)
        if self.asked:  # while its place was starting it
            self._stop(process)
        assert self.reading is not None  # the lifespan has been entered
        self.reading.start_soon(self._read_output, process.output())
        self.reading.start_soon(self._read_errors, process.errors())
        if self.asked:
            return
        self.nursery.start_soon(self._watch, process)
        with trio.move_on_after(group.plan.ready) as scope:
            await self.was_ready.wait()
        if scope.cancelled_caught:
            self._fail(f"was not ready within {group.plan.ready:g} s, `ready` of its group")

    async def _watch(self, process: Process) -> None:
        code = await process.wait()
        self.has_gone = True
        if self.asked:
            return
        await trio.sleep(0.05)  # its last words may be on their way
        if code == CANNOT_START and not (self.was_ready.is_set() or self.of.plan.is_patient):
            self.why, self.cannot_start = self._with_last_words("cannot start"), True
            self.stop()
        else:
            self._fail(how_ended(code))

    def _with_last_words(self, how: str) -> str:
        return f"{how}: {self.last_words}" if self.last_words else how

    def _fail(self, how: str) -> NoReturn:
        self.why = self._with_last_words(how)
        raise ProcessEnded(self.name, self.why)

    def ask_to_end(self) -> None:
        """Ask the process to drain. The agent runs until its supervisor stops it."""
        if not self.asked:
            self.asked = True
            if self.process is not None and not self.has_gone:
                self._stop(self.process)

    def _stop(self, process: Process) -> None:
        assert self.hard_end is not None  # the lifespan has been entered
        self.of.enters(self, "draining")
        process.stop()
        self.hard_end.start_soon(self._kill_late, process)

    async def _kill_late(self, process: Process) -> None:
        await trio.sleep(self.time_to_end)
        self.was_killed = True
        process.kill()

    @property
    def time_to_end(self) -> float:
        """The seconds from the request to end until the process is killed; few if it was never ready."""
        return self.of.plan.shutdown if self.was_ready.is_set() else HARD_END

    async def _end(self) -> None:
        """Drain the process if it is running, and kill it if that is cancelled."""
        process = self.process
        if not (self.why or self.has_gone or self.number in self.of.chosen):
            self.of.ask_to_end(self.of.members)  # its supervisor stops all, one after another
        if process is None or self.has_gone:
            return
        self.ask_to_end()
        try:
            await process.wait()
        except trio.Cancelled:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            raise

    # ---- its output

    async def _read_output(self, output: AsyncGenerator[bytes]) -> None:
        splitter = LineSplitter()
        async with aclosing(output) as pieces:
            async for piece in pieces:
                lines = list(splitter.lines(piece))
                for line in lines:
                    self._take(line)
                await self.of.logs.write(self.name, lines)
        await self.of.logs.write(self.name, list(splitter.rest()))

    async def _read_errors(self, errors: AsyncGenerator[bytes]) -> None:
        splitter = LineSplitter()
        async with aclosing(errors) as pieces:
            async for piece in pieces:
                lines = list(splitter.lines(piece))
                said = next(filter(_is_said, reversed(lines)), None)
                self.last_words = self.last_words if said is None else plain(said.strip(), 500)
                await self.of.logs.write(self.name, lines)
        await self.of.logs.write(self.name, list(splitter.rest()))

    def _take(self, line: str) -> None:
        """Handle a line with an event that `serve` has printed; ignore other lines, which are for people."""
        if not line.startswith('{"event"'):
            return
        with suppress(ValueError, RecursionError):
            event: Any = json.loads(line)
            if isinstance(event, dict):
                self._happened(cast("dict[str, Any]", event))

    def _happened(self, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "files" if isinstance(event.get("files"), list):
                self.of.files = tuple(map(str, event["files"]))
            case "bound" if isinstance(event.get("urls"), list):
                for url in map(str, event["urls"]):
                    self.of.listens(self, url.removesuffix("/ws"))
            case "listening" if isinstance(event.get("url"), str):
                self.of.listens(self, event["url"].removesuffix("/ws"))
            case "page" if isinstance(event.get("url"), str):
                self.of.shows(self, event["url"])
            case "store" if isinstance(event.get("id"), str):
                self.of.uses_store(self.number, event["id"])
            case "ready" if not self.asked:
                self.was_ready.set()
                self.of.enters(self, "ready")
            case "degraded" if isinstance(event.get("agents"), list):
                self.of.is_degraded(self, event["agents"])
            case "draining" if not self.asked:
                self.of.enters(self, "draining")
            case _:
                pass


def _at(host: Group) -> tuple[str, ...]:
    """Return the arguments that name the address of a group's directory; empty while it is not known."""
    known = host.plan.tells_address and host.address
    return ("--at", f"{host.plan.name}={host.address}") if known else ()


def _is_said(line: str) -> bool:
    """Return whether a line is a message, not an excerpt of a file or a hint at --help."""
    return bool(line.strip()) and not _EXCERPT.match(line) and not line.startswith("lmos-actors serve --help")


def how_ended(code: int | None) -> str:
    """Return a text on how a process ended; None means an unknown exit code."""
    if code is None:
        return "ended, with an exit code that is not known: what had started it is gone, too"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@attrs.define(eq=False)
class Member:
    """The state of the process with a given number, kept over all its restarts."""

    state: State = "waiting"
    since: str = ""
    pid: int | None = None
    urls: tuple[str, ...] = ()
    page: str = ""
    version: str = ""
    degraded: tuple[str, ...] = ()
    """The first of its agents that are down, as its process reports them."""
    generation: int = 0
    restarts: int = 0
    why: str = ""
    replica: Replica | None = None
    """The agent of its present life."""

    def status(self, number: int) -> ReplicaStatus:
        """Return the state of the process as plain data, including its `number`."""
        return ReplicaStatus(
            number=number,
            state=self.state,
            pid=self.pid,
            generation=self.generation,
            urls=self.urls,
            restarts=self.restarts,
            since=self.since,
            why=self.why,
            page=self.page,
            version=self.version,
            degraded=self.degraded if self.state == "ready" else (),
        )


@attrs.define(eq=False)
class Group:
    """One group of a launcher.

    `others` are all groups by name. `notice` is called with the group and the number of each process whose
    state changes.
    """

    plan: GroupPlan
    place: Place
    logs: LogFiles
    others: Mapping[str, Group]
    notice: Callable[[Group, int], None]
    now: Callable[[], str]
    token: str | None = attrs.field(default=None, repr=False)
    """The launcher's token, which its processes get."""
    stores: KnownStores = attrs.Factory(KnownStores)
    """The stores that the processes of all groups have used."""
    members: dict[int, Member] = attrs.Factory(dict[int, Member])
    files: tuple[str, ...] = ()
    """The project files that its processes have imported, if they report them."""
    address: str = ""
    """The address of its directory, once it had one: after a restart it has the same.

    At least its port is the same, as a place may put it on another machine."""
    chosen: set[int] = attrs.Factory(set[int])
    """The numbers of processes that are stopped by request, apart from the others."""
    rollout: RolloutStatus | None = None
    """The state of its rolling restart."""
    is_whole: bool = True
    """Whether the last replacement of its processes was completed: if not, the next plan completes it."""
    _changed: trio.Event = attrs.Factory(trio.Event)
    _needed: dict[Need, trio.Event] = attrs.Factory(dict["Need", trio.Event])
    """The states that other groups wait for."""

    @property
    def running(self) -> GroupPlan:
        """The plan of the running processes.

        After an incomplete replacement, the content of the processes is unknown, so it is "" in this plan.
        """
        return self.plan if self.is_whole else attrs.evolve(self.plan, content="")

    # ---- what its processes say

    def enters(self, replica: Replica, state: State, pid: int | None = None) -> None:
        """Record a new state of a process."""
        member = self.members.setdefault(replica.number, Member())
        if state == "waiting":
            member.generation += 1
            member.replica, member.pid, member.urls, member.page = replica, None, (), ""
            member.degraded = ()
        elif member.replica is not replica:
            return  # it has ended, and what it has said before is read now
        if state == "starting":
            member.pid, member.version = pid, replica.version
        self._set(replica.number, member, state)

    def has_ended(self, replica: Replica, why: str) -> None:
        """Record the end of a process; `why` is empty if the process had been asked to end."""
        member = self.members.get(replica.number)
        if member is None or member.replica is not replica:
            return
        member.pid, member.urls, member.page, member.replica, member.why = None, (), "", None, why
        if replica.cannot_start:
            self._set(replica.number, member, "failed")
            for each in self.others.values():  # who waits for all of them waits no longer
                each.wake()
            return
        if why:
            member.restarts += 1
        self._set(replica.number, member, "restarting" if why else "stopped")

    def listens(self, replica: Replica, url: str) -> None:
        """Record an address of a process; only a few are kept, even if the process prints many."""
        member = self.members.get(replica.number)
        if member is None or member.replica is not replica:
            return
        if len(url) > MOST_URL or not url.isprintable() or len(member.urls) >= MOST_URLS:
            return
        if self.plan.tells_address and not member.urls:
            self.address = url.replace("ws", "http", 1)
        if url not in member.urls:
            member.urls = (*member.urls, url)
            self.wake()

    def shows(self, replica: Replica, url: str) -> None:
        """Record the address of a process's page, if it is a valid address.

        The address is checked, since the process may have printed anything.
        """
        member = self.members.get(replica.number)
        is_page = url.startswith(("http://", "https://")) and len(url) <= MOST_URL and url.isprintable()
        if member is not None and member.replica is replica and is_page:
            member.page = url

    def is_degraded(self, replica: Replica, agents: Sequence[object]) -> None:
        """Record which agents of a process are down; only a few are kept, even if the process prints many."""
        member = self.members.get(replica.number)
        if member is not None and member.replica is replica:
            member.degraded = tuple(plain(str(each), MOST_URL) for each in agents[:MOST_URLS])

    def uses_store(self, number: int, id: str) -> None:
        """Record the identifier of the server store that a process has opened."""
        if self.plan.store is not None:
            self.stores.note(filled_for(self.plan.store, number), id)

    def has_stopped(self, number: int) -> None:
        """Record that a process will not be restarted; it may have been waiting for a restart."""
        member = self.members.get(number)
        if member is not None and member.state != "stopped":
            self._set(number, member, "stopped")

    def forget(self, number: int) -> None:
        """Forget a process that is no longer wanted."""
        self.members.pop(number, None)
        self.wake()

    @contextmanager
    def stopping(self, numbers: Iterable[int]) -> Generator[None]:
        """Ask processes to drain, all at once, for a block of code that then stops them."""
        self.chosen.update(numbers)
        self.ask_to_end(numbers)
        try:
            yield
        finally:
            self.chosen.difference_update(numbers)

    def ask_to_end(self, numbers: Iterable[int]) -> None:
        """Ask processes to drain, all at once."""
        for member in [self.members[number] for number in numbers if number in self.members]:
            if member.replica is not None:
                member.replica.ask_to_end()

    def _set(self, number: int, member: Member, state: State) -> None:
        if member.state != state or not member.since:
            member.state, member.since = state, self.now()
            self.notice(self, number)
        self.wake()

    def wake(self) -> None:
        """Wake the tasks that wait for a state of this group."""
        self._changed.set()
        self._changed = trio.Event()
        held: list[Need] = [what for what in self._needed if self.holds(what)]
        for what in held:
            self._needed.pop(what).set()

    # ---- what others wait for

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on this group holds."""
        while not holds():
            await self._changed.wait()

    def is_ready(self) -> bool:
        """Return whether the wanted number of processes is ready.

        More processes may be starting or draining.
        """
        ready = [member for member in self.members.values() if member.state == "ready"]
        return len(ready) >= self.plan.replicas

    def is_stopped(self) -> bool:
        """Return whether this group lacks processes that start again only by request."""
        return self.has_failed() or any(
            member.state == "stopped" and number not in self.chosen for number, member in self.members.items()
        )

    def has_failed(self) -> bool:
        """Return whether a process of this group cannot start."""
        return any(member.state == "failed" for member in self.members.values())

    async def wait_needed(self, what: Need) -> None:
        """Wait until this group meets a need.

        As many tasks may wait, they are woken only once the need is met.
        """
        while not self.holds(what):
            await self._needed.setdefault(what, trio.Event()).wait()

    def missing_needs(self) -> list[str]:
        """Return the unmet needs of this group as texts."""
        needs = self.plan.needs.items()
        missing = [(name, what) for name, what in needs if not self.others[name].holds(what)]
        return [f"{name} to be {what}" for name, what in missing]

    def holds(self, what: Need) -> bool:
        """Return whether this group meets a need of other groups."""
        if what == "listening":
            return sum(bool(member.urls) for member in self.members.values()) >= self.plan.replicas
        if what == "ready":
            return self.is_ready()
        begun = [
            member for member in self.members.values() if member.state in ("starting", "ready", "draining")
        ]
        return len(begun) >= self.plan.replicas

    def arguments_of(self, number: int) -> tuple[str, ...]:
        """Return the arguments of the command for the process with a number."""
        at = (*_at(self), *self.whereabouts())
        store = self.plan.store
        known = None if store is None else self.stores.id_of(filled_for(store, number))
        same = () if known is None else ("--store-id", known)
        return (*self.plan.arguments, "--replica", str(number), *at, *same, "--launched")

    def whereabouts(self) -> tuple[str, ...]:
        """Return the arguments with the addresses of the directories that this group uses in other groups."""
        return tuple(
            word for name in self.plan.hosts if name != self.plan.name for word in _at(self.others[name])
        )

    def is_behind(self) -> bool:
        """Return whether a process of this group uses a former address of a directory."""
        now = self.whereabouts()
        lives = [member.replica for member in self.members.values() if member.replica is not None]
        return any(life.knows and life.knows != now and not life.asked for life in lives)

    def environment(self) -> dict[str, str]:
        """Return the variables that the group's processes have in addition to the launcher's."""
        own = {} if self.token is None else {TOKEN_VARIABLE: self.token}
        return {**self.plan.environment, **own}

    # ---- its place in the tree

    def spec(self) -> SupervisorSpec:
        """Return the spec of the supervisor of the group's processes."""
        plan = self.plan
        return SupervisorSpec(
            plan.name,
            tuple(map(self.child_spec, range(1, plan.replicas + 1))),
            max_restarts=plan.max_restarts,
            max_seconds=plan.max_seconds,
        )

    def child_spec(self, number: int) -> ChildSpec[Any]:
        """Return the spec of the process with a number."""
        factory = partial(Replica, of=self, number=number)
        return ChildSpec(
            str(number),
            factory,
            restart="transient",  # one that cannot start ends its agent in order
            shutdown=self.plan.shutdown,
            backoff=self.plan.backoff,
        )

    def replica_status(self, number: int) -> ReplicaStatus:
        """Return the state of a process as plain data."""
        found, missing = self.members[number].status(number), self.missing_needs()
        if found.state != "waiting" or not missing:
            return found
        return msgspec.structs.replace(found, why=f"waits for {', '.join(missing)}")

    def status(self) -> GroupStatus:
        """Return the state of the group as plain data."""
        return GroupStatus(
            name=self.plan.name,
            wanted=self.plan.replicas,
            replicas=tuple(map(self.replica_status, sorted(self.members))),
            rollout=self.rollout,
            version=self.plan.version,
        )
