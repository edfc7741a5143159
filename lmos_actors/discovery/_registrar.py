"""Registration of a node's agents in a directory: added, renewed and removed by one background task.

Guarantees:

- **The entries of a dead node expire.** Entries have a time to live, renewed at about a third of it, with a
  random part, so that nodes started together do not renew together.
- **The directory never delays the node.** The tree only marks paths as changed. The task reads the current
  state when it handles a path, so many changes of one path cause one request.
- **An unreachable directory is tried with exponential, jittered pauses**, never longer than a sixth of the
  time to live, so that a directory that has recovered is noticed before its entries expire.
- **A refused agent does not hold up the others**: its failure is noted, and the task continues. Only repeated
  failures of an otherwise reachable directory end a round.
- **An entry that may exist is removed.** A put without an answer may have succeeded, so `_Entry.sent` is set
  before the request, and a removal follows when the agent ends.
- **The lease of an agent stays known while its node is replaced**: at the end of the node its entry is left
  for `LEFT_SECONDS`, so that callers wait for the next node. Of two entries, the one with the higher epoch is
  newer.
- **The end takes limited time** (`LEAVE_SECONDS`); what is not removed by then expires.
"""

from __future__ import annotations

import heapq
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import msgspec
import trio
from trio.lowlevel import checkpoint

from lmos_actors.actors import lease_of
from lmos_actors.bindings import public_name
from lmos_actors.errors import ConfigError, TransportError
from lmos_actors.supervision import is_member

from ._client import DirectoryRefused
from ._search_results import LEASE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from lmos_actors.actors import Runtime
    from lmos_actors.bindings import Descriptions
    from lmos_actors.security import SharedToken

    from ._client import Directory, Headers

TTL: Final = 300.0
"""Time to live of an entry in seconds, without renewal."""

MIN_TTL: Final = 3.0
MAX_TTL: Final = 366 * 86_400.0

MAX_AGENTS: Final = 10_000
"""Limit of agents that one node registers."""

MAX_FAILURES: Final = 8
"""Refusals of a reachable directory in one round after which it is left alone for a pause."""

_NO_DIRECTORY: Final = (404, 405, 501)
"""Statuses of servers that are not directories."""

LEFT_SECONDS: Final = 30.0
"""Seconds for which the entry of an agent with a key of its own stays after the end of its node."""

LEAVE_SECONDS: Final = 5.0
"""Limit in seconds for removing the entries of a node that ends; entries left over expire."""


def _urls(urls: Any) -> tuple[str, ...]:
    return (urls,) if isinstance(urls, str) else tuple(urls)


@attrs.frozen
class Registration:
    """Registration of a node's agents: `open_node(register=Registration(url, ttl=60))`.

    `directories` is the URL of a directory, or several URLs. `ttl` is the time to live of an entry in
    seconds; an agent whose process was killed may still be found for that time. `token` is presented to the
    directories that it is for, in place of the node's credentials. Raises ConfigError.
    """

    directories: tuple[str, ...] = attrs.field(converter=_urls)
    ttl: float = attrs.field(default=TTL, kw_only=True)
    token: SharedToken | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        texts: tuple[Any, ...] = self.directories
        if not texts or not all(isinstance(url, str) for url in texts):
            raise ConfigError(
                f"needs the URL of a directory, or several, not {self.directories!r}", "register"
            )
        if not MIN_TTL <= self.ttl <= MAX_TTL:
            raise ConfigError(
                f"must be seconds from {MIN_TTL:g} to {MAX_TTL:g}, not {self.ttl!r}", "Registration.ttl"
            )

    def headers_for(self, usual: Callable[[str], Headers]) -> Callable[[str], Headers]:
        """Return a function that returns the headers for a directory's URL.

        It returns the token's headers if there are any, or else those of `usual`.
        """
        token = self.token
        return usual if token is None else lambda url: token.headers_for(url) or usual(url)


@attrs.frozen
class Registered:
    """State of a node's registration in one directory.

    `agents` is the number of registered agents; `refused` maps the paths of refused ones to the reason;
    `failure` is the reason for which the last attempt failed, None if it succeeded.
    """

    directory: str
    agents: int
    refused: dict[str, str]
    failure: str | None = None


@attrs.frozen
class ExposedAgent:
    """Agent to be registered: its id, its description as JSON text, and whether it has a lease."""

    thing_id: str
    text: bytes
    has_lease: bool = False


class ExposedAgents(Protocol):
    """Agents that a node exposes now."""

    def all(self) -> Iterable[tuple[str, ExposedAgent]]:
        """Return all agents with their paths, in start order."""
        ...

    def at(self, path: str) -> ExposedAgent | None:
        """Return the agent at a path of the tree, None without one."""
        ...


class ServedAgents:
    """Agents that a node registers, a pool as one agent; `has` returns whether a path is registered."""

    def __init__(self, descriptions: Descriptions, has: Callable[[str], bool]) -> None:
        self._descriptions = descriptions
        self._has = has

    def all(self) -> Iterator[tuple[str, ExposedAgent]]:
        """See `ExposedAgents`."""
        catalogue: Any = self._descriptions.catalogue
        for exposed in tuple(catalogue):
            found = self._exhibit_of(exposed)
            if found is not None:
                yield exposed.link.path, found

    def at(self, path: str) -> ExposedAgent | None:
        """See `ExposedAgents`."""
        exposed: Any = self._descriptions.catalogue.named(public_name(path))
        return None if exposed is None or exposed.link.path != path else self._exhibit_of(exposed)

    def _exhibit_of(self, exposed: Any) -> ExposedAgent | None:
        if not self._has(exposed.link.path) or is_member(exposed.link) or not _has_started(exposed.link):
            return None
        text = self._descriptions.served(exposed).text
        has_lease = getattr(getattr(exposed.link, "spec", None), "key", None) is not None
        if has_lease:
            lease = lease_of(exposed.link)
            if lease is None:  # another node runs it
                return None
            text = msgspec.json.encode(
                {**msgspec.json.decode(text), LEASE: {"key": lease[0], "epoch": lease[1]}}
            )
        return ExposedAgent(exposed.thing_id, text, has_lease)


def _has_started(link: Any) -> bool:
    """Return whether an agent, or one member of a pool, has started at least once."""
    members = getattr(link, "members", None)
    return any(map(_has_started, members)) if members else getattr(link, "incarnation", 1) > 0


@attrs.define(eq=False)
class _Entry:
    exhibit: ExposedAgent
    number: int = 0
    """Number of the entry's latest renewal in the heap; earlier ones are outdated."""
    registered: bool = False
    sent: bool = False
    """Whether the directory may have the entry: a put without an answer may have succeeded."""


class Registrar:
    """Entries of one node in one directory. `run` is a task of the node; `leave` starts its end.

    `node` is the name of the node, if any: each node of a simulation uses a separate random stream.
    """

    def __init__(
        self, rt: Runtime, directory: Directory, exhibits: ExposedAgents, ttl: float, node: str = ""
    ) -> None:
        self._rt = rt
        self._directory = directory
        self._exhibits = exhibits
        self._ttl = ttl
        self._random = rt.entropy.stream(f"registration {f'of {node} ' if node else ''}at {directory.url}")
        self._entries: dict[str, _Entry] = {}
        self._refused: dict[str, str] = {}
        self._changed: dict[str, None] = {}
        self._to_remove: dict[str, None] = {}
        self._renewals: list[tuple[float, int, str]] = []
        self._number = 0
        self._failure: str | None = None
        self._unreachable = False
        self._tries = 0
        self._pause = trio.CancelScope()
        self._until = trio.CancelScope()
        self._leaving = False
        self.left = trio.Event()
        """Set when the task of the registrar has ended."""

    @property
    def state(self) -> Registered:
        """The current state of the registration."""
        there = sum(entry.registered for entry in self._entries.values())
        return Registered(self._directory.url, there, dict(self._refused), self._failure)

    # ---- called by the node; never waits

    def changed(self, path: str) -> None:
        """Note that an agent started or ended at a path of the tree."""
        if not self._leaving:
            self._changed[path] = None
            if self._failure is None:
                self._wake()

    def leave(self) -> None:
        """Start removing all entries; `left` is set at the end."""
        self._leaving = True
        self._until.deadline = trio.current_time() + LEAVE_SECONDS
        self._wake()

    def _wake(self) -> None:
        self._rt.timers.woke = True
        self._pause.cancel("there is something to do")

    # ---- the task

    async def run(self) -> None:
        """Register, renew and remove entries until `leave`. Run it once."""
        try:
            with self._until:
                for path, _ in self._exhibits.all():
                    self._changed[path] = None
                while not self._leaving:
                    wait = await self._round()
                    self._pause = trio.CancelScope(deadline=trio.current_time() + wait)
                    if self._has_work:
                        continue
                    with self._pause:
                        await trio.sleep_forever()
                if not self._unreachable:
                    await self._remove_all()
        finally:
            with trio.CancelScope(shield=True):
                await self._directory.aclose()
            self.left.set()

    @property
    def _has_work(self) -> bool:
        """Whether there is new work that need not wait for the end of a pause."""
        return self._leaving or (bool(self._changed) and self._failure is None)

    async def _round(self) -> float:
        """Do all due work, and return the seconds until the next work is due."""
        try:
            try:
                await self._do_due_work()
            finally:
                with trio.CancelScope(shield=True):
                    await self._directory.aclose()
        except TransportError as error:
            self._unreachable = not isinstance(error, DirectoryRefused)
            self._tries += 1
            self._note_failure(str(error))
            # the longest pause doubles with each try
            most = min(60.0, self._ttl / 6, 0.5 * 2.0 ** min(self._tries - 1, 32))
            return round(most * (0.5 + self._random.random() / 2), 6)
        self._unreachable, self._tries = False, 0
        self._note_failure(None)
        return max(0.0, self._renewals[0][0] - trio.current_time()) if self._renewals else float("inf")

    def _note_failure(self, failure: str | None) -> None:
        """Store why the last attempt failed, or None if it succeeded; on real time, log each change."""
        before, self._failure = self._failure, failure
        if self._rt.real and not self._leaving and (before is None) != (failure is None):
            log = logging.getLogger("lmos_actors")
            if failure is None:
                log.warning("registered at %s", self._directory.url)
            else:
                log.warning("registering at %s: %s", self._directory.url, failure)

    async def _do_due_work(self) -> None:
        """Do all due work, renewals first.

        Work that the directory refuses temporarily is postponed, so that it does not hold up other work, and
        the first such error is raised at the end. After `MAX_FAILURES` of these errors the round ends.
        """
        postponed: list[Callable[[], None]] = []
        failures: list[DirectoryRefused] = []
        try:
            while (
                not self._leaving and len(failures) < MAX_FAILURES and (step := self._next_step()) is not None
            ):
                work, repeat = step
                try:
                    await work
                except DirectoryRefused as error:
                    postponed.append(repeat)
                    failures.append(error)
                except BaseException:
                    postponed.append(repeat)
                    raise
        finally:
            for each in postponed:
                each()
        if failures:
            raise failures[0]

    def _next_step(self) -> tuple[Awaitable[None], Callable[[], None]] | None:
        """Return the next piece of work, and a function that schedules it again; None if nothing is due."""
        due = self._next_due()
        if due is not None:
            path, entry = due
            return self._renew(path, entry), partial(self._schedule_renewal, path, entry, at_once=True)
        if self._changed:
            path = next(iter(self._changed))
            del self._changed[path]
            return self._bring_up_to_date(path), partial(self._changed.setdefault, path)
        if self._to_remove:
            thing_id = next(iter(self._to_remove))
            del self._to_remove[thing_id]
            return self._remove(thing_id), partial(self._remove_again, thing_id)
        return None

    def _next_due(self) -> tuple[str, _Entry] | None:
        """Remove the next due renewal from the heap and return it, None if none is due."""
        now = trio.current_time()
        while self._renewals and self._renewals[0][0] <= now:
            _, number, path = heapq.heappop(self._renewals)
            entry = self._entries.get(path)
            if entry is not None and entry.number == number:
                return path, entry
        return None

    async def _bring_up_to_date(self, path: str) -> None:
        exhibit, entry = self._exhibits.at(path), self._entries.get(path)
        if entry is not None and (exhibit is None or exhibit.thing_id != entry.exhibit.thing_id):
            del self._entries[path]
            self._refused.pop(path, None)
            if entry.sent:
                self._to_remove[entry.exhibit.thing_id] = None
            entry = None
        if exhibit is None:
            self._refused.pop(path, None)
        elif entry is None and len(self._entries) >= MAX_AGENTS:
            self._note_refusal(path, f"a node registers {MAX_AGENTS} agents at most")
        elif entry is None or not entry.registered or entry.exhibit != exhibit:
            entry = self._entries[path] = _Entry(exhibit, sent=entry is not None and entry.sent)
            await self._put(path, entry)
            return
        await checkpoint()

    async def _put(self, path: str, entry: _Entry) -> None:
        thing_id = entry.exhibit.thing_id
        self._to_remove.pop(thing_id, None)
        before, entry.sent = entry.sent, True
        try:
            await self._directory.put(thing_id, entry.exhibit.text, self._ttl)
        except DirectoryRefused as error:
            if _is_temporary(error):
                raise
            entry.registered, entry.sent = False, before
            self._note_refusal(
                path, f"{error}; is a directory there?" if error.status in _NO_DIRECTORY else str(error)
            )
        else:
            entry.registered = True
            self._refused.pop(path, None)
        self._schedule_renewal(path, entry)

    def _note_refusal(self, path: str, why: str) -> None:
        """Note a refused agent; on real time, log only the first one."""
        if self._rt.real and not self._refused:
            logging.getLogger("lmos_actors").warning(
                "registering %s at %s: %s", path, self._directory.url, why
            )
        self._refused[path] = why

    def _schedule_renewal(self, path: str, entry: _Entry, *, at_once: bool = False) -> None:
        """Schedule a renewal at about a third of the time to live."""
        self._number += 1
        entry.number = self._number
        third = 0.0 if at_once else self._ttl / 3 * (0.8 + 0.2 * self._random.random())
        heapq.heappush(self._renewals, (round(trio.current_time() + third, 6), entry.number, path))
        if len(self._renewals) > 2 * len(self._entries) + 64:  # most are outdated
            current = {each.number for each in self._entries.values()}
            self._renewals = [each for each in self._renewals if each[1] in current]
            heapq.heapify(self._renewals)

    async def _renew(self, path: str, entry: _Entry) -> None:
        is_renewed = False
        if entry.registered:
            try:
                is_renewed = await self._directory.renew(entry.exhibit.thing_id)
            except DirectoryRefused as error:
                if _is_temporary(error):
                    raise
        if is_renewed:
            self._schedule_renewal(path, entry)
        else:  # refused before, forgotten by the directory, or it does not support renewal
            entry.registered = False
            await self._put(path, entry)

    async def _remove(self, thing_id: str) -> None:
        try:
            await self._directory.remove(thing_id)
        except DirectoryRefused as error:
            if _is_temporary(error):
                raise
        self._to_remove.pop(thing_id, None)

    def _remove_again(self, thing_id: str) -> None:
        if all(
            each.exhibit.thing_id != thing_id for each in self._entries.values()
        ):  # it may have started again
            self._to_remove[thing_id] = None

    async def _remove_all(self) -> None:
        work: list[Callable[[], Awaitable[None]]] = []
        for entry in self._entries.values():
            exhibit = entry.exhibit
            if entry.sent and exhibit.has_lease:
                ttl = min(self._ttl, LEFT_SECONDS)
                work.append(partial(self._directory.put, exhibit.thing_id, exhibit.text, ttl))
            elif entry.sent:
                self._to_remove[exhibit.thing_id] = None
        self._entries.clear()
        failures = 0
        work += [partial(self._remove, thing_id) for thing_id in self._to_remove]
        for each in work:
            try:
                await each()
            except TransportError as error:
                self._note_failure(str(error))
                failures += 1
                if failures == MAX_FAILURES or not isinstance(error, DirectoryRefused):
                    return


def _is_temporary(error: DirectoryRefused) -> bool:
    """Return whether the same request may succeed later."""
    return error.status in (408, 429) or (error.status >= 500 and error.status != 501)


def notifier_of(registrars: Iterable[Registrar]) -> Callable[[str], None]:
    """Return a function that notifies all registrars of a change at a path."""
    sent = tuple(registrars)

    def notify(path: str) -> None:
        for each in sent:
            each.changed(path)

    return notify
