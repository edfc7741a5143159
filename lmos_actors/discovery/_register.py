"""Registering what a node exposes in a directory, for as long as it is there, without troubling the node.

An entry lasts for a time to live and is renewed at a third of it. What changes in the tree is told by the
tree itself; while the directory cannot be reached it is tried ever more rarely.
"""

from __future__ import annotations

import heapq
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import trio
from trio.lowlevel import checkpoint

from lmos_actors.errors import ConfigError, TransportError

from ._client import DirectoryRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lmos_actors.actors import Runtime

    from ._client import Directory

TTL: Final = 300.0
"""Seconds for which an entry lasts without being renewed."""

SHORTEST: Final = 3.0
LONGEST: Final = 366 * 86_400.0

MOST: Final = 10_000
"""Agents that one node registers, the first of them; a crowd is for who knows it."""

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 60.0
"""Seconds between two tries while a directory cannot be reached: ever longer, a random part of it.

Never longer than a sixth of the time to live, so that nothing ends for want of a renewal.
"""

FAILURES: Final = 8
"""Failures of a directory that is there before it is left alone for a while."""

STALE: Final = 64  # renewals of what is gone, beside as many as there are entries, that stay in line

_NONE_THERE: Final = (404, 405, 501)
"""Statuses with which what is no directory answers."""

LEAVING: Final = 5.0
"""Seconds that a node which ends has for taking its entries away; what is left ends by itself."""


def _urls(urls: Any) -> tuple[str, ...]:
    return (urls,) if isinstance(urls, str) else tuple(urls)


@attrs.frozen
class Registration:
    """Where and for how long a node registers its agents: `open_node(register=Registration(url, ttl=60))`.

    `directories` is the URL of a directory, or several; `ttl` how many seconds an entry lasts that is not
    renewed, which is how long others may find an agent that is gone without a word. Raises ConfigError.
    """

    directories: tuple[str, ...] = attrs.field(converter=_urls)
    ttl: float = attrs.field(default=TTL, kw_only=True)

    def __attrs_post_init__(self) -> None:
        texts: tuple[Any, ...] = self.directories
        if not texts or not all(isinstance(url, str) for url in texts):
            raise ConfigError(
                f"needs the URL of a directory, or several, not {self.directories!r}", "register"
            )
        if not SHORTEST <= self.ttl <= LONGEST:
            raise ConfigError(
                f"must be seconds from {SHORTEST:g} to {LONGEST:g}, not {self.ttl!r}", "Registration.ttl"
            )


@attrs.frozen
class Registered:
    """How a node's registration in one directory stands.

    `agents` counts the entries that are there; `refused` are those that the directory did not take, with the
    reason; `failure` says why it could not be reached when it was last tried, None if it could.
    """

    directory: str
    agents: int
    refused: dict[str, str]
    failure: str | None = None


@attrs.frozen
class Exhibit:
    """An agent as it is to be registered: its id, and its description as text."""

    thing_id: str
    text: bytes


class Exhibits(Protocol):
    """What a node exposes now."""

    def all(self) -> Iterable[tuple[str, Exhibit]]:
        """Return all of it, in start order, with its paths."""
        ...

    def at(self, path: str) -> Exhibit | None:
        """Return what is at that place in the tree, None if there is nothing."""
        ...


@attrs.define(eq=False)
class _Entry:
    exhibit: Exhibit
    number: int = 0
    """That of its turn in the line of renewals; earlier ones are out of date."""
    registered: bool = False
    told: bool = False
    """Whether the directory may have it, or what it was before: a put may be without an answer."""


class Registrar:
    """The entries of one node in one directory: `run` is a task of the node, `leave` begins its end."""

    def __init__(self, rt: Runtime, directory: Directory, exhibits: Exhibits, ttl: float) -> None:
        self._rt = rt
        self._directory = directory
        self._exhibits = exhibits
        self._ttl = ttl
        self._random = rt.entropy.stream(f"registration at {directory.url}")
        self._entries: dict[str, _Entry] = {}
        self._refused: dict[str, str] = {}
        self._changed: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._line: list[tuple[float, int, str]] = []
        self._number = 0
        self._failure: str | None = None
        self._away = False
        self._tries = 0
        self._pause = trio.CancelScope()
        self._until = trio.CancelScope()
        self._leaving = False
        self.left = trio.Event()
        """Set when it has ended."""

    @property
    def state(self) -> Registered:
        """How it stands."""
        there = sum(entry.registered for entry in self._entries.values())
        return Registered(self._directory.url, there, dict(self._refused), self._failure)

    # ---- what it is told; never waits

    def changed(self, path: str) -> None:
        """Something has started at that place of the tree, or has gone from it."""
        if not self._leaving:
            self._changed[path] = None
            if self._failure is None:
                self._wake()

    def leave(self) -> None:
        """Take all entries away, and end."""
        self._leaving = True
        self._until.deadline = trio.current_time() + LEAVING
        self._wake()

    def _wake(self) -> None:
        self._rt.timers.woke = True
        self._pause.cancel("there is something to do")

    # ---- the task

    async def run(self) -> None:
        """Register, renew, take away, until told to leave; to be run once."""
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
                if not self._away:
                    await self._take_away()
        finally:
            with trio.CancelScope(shield=True):
                await self._directory.aclose()
            self.left.set()

    @property
    def _has_work(self) -> bool:
        """Whether something came meanwhile that need not wait."""
        return self._leaving or (bool(self._changed) and self._failure is None)

    async def _round(self) -> float:
        """Do what is to be done; return how many seconds there is nothing more to do."""
        try:
            try:
                await self._work()
            finally:
                with trio.CancelScope(shield=True):
                    await self._directory.aclose()
        except TransportError as error:
            self._away = not isinstance(error, DirectoryRefused)
            self._tries += 1
            self._tell(str(error))
            most = min(LONGEST_WAIT, self._ttl / 6, FIRST_WAIT * 2.0 ** min(self._tries - 1, 32))
            return round(most * (0.5 + self._random.random() / 2), 6)
        self._away, self._tries = False, 0
        self._tell(None)
        return max(0.0, self._line[0][0] - trio.current_time()) if self._line else float("inf")

    def _tell(self, failure: str | None) -> None:
        """Take note of whether the directory is there; a program that runs is told when that changes."""
        before, self._failure = self._failure, failure
        if self._rt.real and not self._leaving and (before is None) != (failure is None):
            log = logging.getLogger("lmos_actors")
            if failure is None:
                log.warning("registered at %s", self._directory.url)
            else:
                log.warning("registering at %s: %s", self._directory.url, failure)

    async def _work(self) -> None:
        """Do all that is due: renewals first, whatever else comes and goes meanwhile.

        What a directory that is there fails with is put off, so that it hinders nothing else, and its error
        is raised at the end; so is that of a directory which does nothing else than fail.
        """
        put_off: list[Callable[[], None]] = []
        failures: list[DirectoryRefused] = []
        try:
            while not self._leaving and len(failures) < FAILURES and (step := self._step()) is not None:
                begun, again = step
                try:
                    await begun
                except DirectoryRefused as error:
                    put_off.append(again)
                    failures.append(error)
                except BaseException:
                    put_off.append(again)
                    raise
        finally:
            for each in put_off:
                each()
        if failures:
            raise failures[0]

    def _step(self) -> tuple[Awaitable[None], Callable[[], None]] | None:
        """Return what is to be done next, and what has it done again; None if nothing is."""
        due = self._due()
        if due is not None:
            path, entry = due
            return self._renew(path, entry), partial(self._line_up, path, entry, at_once=True)
        if self._changed:
            path = next(iter(self._changed))
            del self._changed[path]
            return self._bring_up_to_date(path), partial(self._changed.setdefault, path)
        if self._gone:
            thing_id = next(iter(self._gone))
            del self._gone[thing_id]
            return self._remove(thing_id), partial(self._remove_later, thing_id)
        return None

    def _due(self) -> tuple[str, _Entry] | None:
        """Take the next whose time for renewal has come from the line."""
        now = trio.current_time()
        while self._line and self._line[0][0] <= now:
            _, number, path = heapq.heappop(self._line)
            entry = self._entries.get(path)
            if entry is not None and entry.number == number:
                return path, entry
        return None

    async def _bring_up_to_date(self, path: str) -> None:
        exhibit, entry = self._exhibits.at(path), self._entries.get(path)
        if entry is not None and (exhibit is None or exhibit.thing_id != entry.exhibit.thing_id):
            self._forget(path, entry)
            entry = None
        if exhibit is None:
            self._refused.pop(path, None)
        elif entry is None and len(self._entries) >= MOST:
            self._note(path, f"a node registers {MOST} agents at most")
        elif entry is None or not entry.registered or entry.exhibit != exhibit:
            entry = self._entries[path] = _Entry(exhibit, told=entry is not None and entry.told)
            await self._put(path, entry)
            return
        await checkpoint()

    def _forget(self, path: str, entry: _Entry) -> None:
        del self._entries[path]
        self._refused.pop(path, None)
        if entry.told:
            self._gone[entry.exhibit.thing_id] = None

    async def _put(self, path: str, entry: _Entry) -> None:
        thing_id = entry.exhibit.thing_id
        self._gone.pop(thing_id, None)
        before, entry.told = entry.told, True
        try:
            await self._directory.put(thing_id, entry.exhibit.text, self._ttl)
        except DirectoryRefused as error:
            if _may_pass(error):
                raise
            entry.registered, entry.told = False, before
            self._note(path, f"{error}; is a directory there?" if error.status in _NONE_THERE else str(error))
        else:
            entry.registered = True
            self._refused.pop(path, None)
        self._line_up(path, entry)

    def _note(self, path: str, why: str) -> None:
        """Note that an agent is refused; of several a program that runs is told the first."""
        if self._rt.real and not self._refused:
            logging.getLogger("lmos_actors").warning(
                "registering %s at %s: %s", path, self._directory.url, why
            )
        self._refused[path] = why

    def _line_up(self, path: str, entry: _Entry, *, at_once: bool = False) -> None:
        """Have it renewed at about a third of its time: not all nodes at once."""
        self._number += 1
        entry.number = self._number
        third = 0.0 if at_once else self._ttl / 3 * (0.8 + 0.2 * self._random.random())
        heapq.heappush(self._line, (round(trio.current_time() + third, 6), entry.number, path))
        if len(self._line) > 2 * len(self._entries) + STALE:
            current = {each.number for each in self._entries.values()}
            self._line = [each for each in self._line if each[1] in current]
            heapq.heapify(self._line)

    async def _renew(self, path: str, entry: _Entry) -> None:
        if entry.registered and await self._is_renewed(entry.exhibit.thing_id):
            self._line_up(path, entry)
        else:  # it was refused, or the directory has forgotten it, or does not know how
            entry.registered = False
            await self._put(path, entry)

    async def _is_renewed(self, thing_id: str) -> bool:
        try:
            return await self._directory.renew(thing_id)
        except DirectoryRefused as error:
            if _may_pass(error):
                raise
            return False

    async def _remove(self, thing_id: str) -> None:
        try:
            await self._directory.remove(thing_id)
        except DirectoryRefused as error:
            if _may_pass(error):
                raise
        self._gone.pop(thing_id, None)

    def _remove_later(self, thing_id: str) -> None:
        if all(each.exhibit.thing_id != thing_id for each in self._entries.values()):  # it may be back
            self._gone[thing_id] = None

    async def _take_away(self) -> None:
        for entry in self._entries.values():
            if entry.told:
                self._gone[entry.exhibit.thing_id] = None
        self._entries.clear()
        failures = 0
        for thing_id in tuple(self._gone):
            try:
                await self._remove(thing_id)
            except TransportError as error:
                self._tell(str(error))
                failures += 1
                if failures == FAILURES or not isinstance(error, DirectoryRefused):
                    return


def _may_pass(error: DirectoryRefused) -> bool:
    """Return whether the same may be taken later."""
    return error.status in (408, 429) or (error.status >= 500 and error.status != 501)


def paths_of(registrars: Iterable[Registrar]) -> Callable[[str], None]:
    """Return what tells all of them of a change in the tree."""
    told = tuple(registrars)

    def tell(path: str) -> None:
        for each in told:
            each.changed(path)

    return tell
