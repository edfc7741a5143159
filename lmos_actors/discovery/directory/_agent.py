"""The directory as an agent: what is registered, by whom it is seen, and when it ends.

All is in memory, and on disk: a change is decided in one step, written together with those that wait beside
it, and answered when it is written. An agent that crashes, or a process that is killed, finds again what it
has answered for. Where time is virtual the disk is written in the turn itself: threads know no virtual time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import msgspec
import trio
from msgspec import Meta

from lmos_actors._core import time_jumps
from lmos_actors.actors import Agent, Event, MailboxOptions, Property, action, event, prop
from lmos_actors.errors import ActionFailed

from ._changes import KINDS, Change, EventLog, EventPage
from ._effort import Effort, TooMuch
from ._entries import Entry, Moment, Unfit, retrieved_at
from ._options import DirectoryOptions
from ._search import BadQuery, found_in
from ._shelf import Missing, Shelf
from ._store import Kept, Store, StoreFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors._core import Timer

WRITERS: Final = 1_024
"""Changes that may wait to be written at a time."""

LOT: Final = 256
"""Changes that are written together at most."""

PAGE_BYTES: Final = 8 << 20
"""Bytes of a page, but for its last description."""

RESUMING: Final = 5.0
"""Seconds after which a directory that could not write takes away again, by itself, what has ended."""

WAITING: Final = 4  # searches that may wait for each that runs
LIFE: Final = 8  # characters of the name of a database

Id = Annotated[str, Meta(description="The id of a description, a URI.")]
Description = Annotated[
    dict[str, Any] | str, Meta(description="A Thing Description, as an object or as JSON text.")
]


class Notice(msgspec.Struct, frozen=True):
    """Whose description was created, updated or deleted."""

    id: str


class ThingText(msgspec.Struct, frozen=True):
    """One description as JSON text, with a tag that changes with it."""

    text: str
    tag: str


class PageText(msgspec.Struct, frozen=True):
    """Some descriptions in the order of their ids: JSON texts with commas between them.

    `tag` changes when there are other ids; `last` is the id of the last in `members`.
    """

    members: str
    count: int
    total: int
    tag: str
    last: str = ""


class Page(msgspec.Struct):
    """Some descriptions in the order of their ids, and how many there are in all."""

    members: list[dict[str, Any]]
    total: int


@attrs.define(eq=False)
class _Waiting:
    """A change that waits to be written."""

    change: Change
    done: trio.Event = attrs.field(factory=trio.Event)
    failed: bool = False


def problem(status: int, detail: str, **more: Any) -> ActionFailed:
    """Make the failure that tells a problem as RFC 9457 has it."""
    title = HTTPStatus(status).phrase
    return ActionFailed({"type": "about:blank", "title": title, "status": status, "detail": detail, **more})


def _unfit(bad: Unfit) -> ActionFailed:
    faults = [{"field": fault.field, "description": fault.description} for fault in bad.faults]
    return problem(bad.status, bad.detail, **({"validationErrors": faults} if faults else {}))


def _missing(id: str) -> ActionFailed:
    return problem(404, f"nothing is registered here as {id[:200]!r}")


class ThingDirectory(Agent, rename="camel", mailbox=MailboxOptions(size=WRITERS)):
    """Keeps the descriptions of things and agents, and finds them: a W3C Thing Description Directory."""

    options: DirectoryOptions = attrs.field(factory=DirectoryOptions)
    store: Any = None

    total: Property[int] = prop(default=0, read_only=True, doc="How many descriptions are registered.")
    revision: Property[int] = prop(default=0, read_only=True, doc="The number of the last event.")
    thing_created: Event[Notice] = event(doc="A description was registered.")
    thing_updated: Event[Notice] = event(doc="A description was changed.")
    thing_deleted: Event[Notice] = event(doc="A description was taken away, or its time was over.")

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Have the database open."""
        self._inline = time_jumps()
        self._disk = trio.CapacityLimiter(1)
        self._search = trio.CapacityLimiter(self.options.max_searches)
        self._searching = 0
        self._waiting: list[_Waiting] = []
        self._writing = False
        self._timer: Timer | None = None
        self._wakes = 0.0
        self._resumes = 0.0  # when what has ended is tried again to be taken away
        store = self._store = self.store or Store(self.options)
        kept = await self._outside(partial(store.open, self.new_id()[:LIFE], self._moment()))
        self._take(kept)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._outside(store.close)

    def started(self) -> None:
        """Take away what has ended while nobody looked."""
        self._now()
        self._arm()

    def _take(self, kept: Kept) -> None:
        options = self.options
        self._shelf = Shelf(options, kept.entries, last=kept.last, order=kept.order)
        self._events = EventLog(kept.life, most=options.max_events, most_bytes=options.max_event_bytes)
        self._events.last = kept.last - len(kept.events)
        self._events.add(kept.events)
        self.revision = kept.last
        self.total = len(self._shelf.ids)

    # ---- reading

    @action(safe=True, idempotent=True)
    def retrieve_thing(self, id: Id) -> dict[str, Any]:
        """Return the description that is registered under an id."""
        found: dict[str, Any] = msgspec.json.decode(self._told(id)[1])
        return found

    @action(safe=True, idempotent=True)
    def thing_text(self, id: Id) -> ThingText:
        """Return the description that is registered under an id, as JSON text."""
        entry, text = self._told(id)
        return ThingText(text.decode(), entry.tag)

    def _told(self, id: str) -> tuple[Entry, bytes]:
        at = self._now()
        try:
            entry = self._shelf.get(id, at)
        except Missing:
            raise _missing(id) from None
        return entry, entry.told(retrieved_at(at.wall))

    @action(safe=True, idempotent=True)
    def list_things(
        self, offset: Annotated[int, Meta(ge=0)] = 0, limit: Annotated[int, Meta(ge=1)] = 100
    ) -> Page:
        """Return descriptions in the order of their ids, from a place in it on, up to a number of them."""
        page = self._page(offset, limit)
        return Page(msgspec.json.decode(f"[{page.members}]"), page.total)

    @action(safe=True, idempotent=True)
    def page_text(
        self,
        offset: Annotated[int, Meta(ge=0)] = 0,
        limit: Annotated[int, Meta(ge=1)] = 100,
        after: str | None = None,
    ) -> PageText:
        """Return descriptions in the order of their ids, from a place or after an id on, as JSON text."""
        return self._page(offset, limit, after)

    def _page(self, offset: int, limit: int, after: str | None = None) -> PageText:
        at = self._now()
        shelf = self._shelf
        entries = shelf.page(
            offset if after is None else shelf.place_after(after),
            min(limit, self.options.max_page),
            PAGE_BYTES,
        )
        retrieved = retrieved_at(at.wall)
        return PageText(
            b",".join([entry.told(retrieved) for entry in entries]).decode(),
            len(entries),
            len(shelf.ids),
            self._events.id_of(shelf.order),
            entries[-1].id if entries else "",
        )

    @action(safe=True, idempotent=True)
    def events_after(
        self, last: str = "", kind: str = "", diff: bool = False, most: Annotated[int, Meta(ge=1)] = 100
    ) -> EventPage:
        """Return the events after the one with an id, as Server-Sent Events; "" is the last there was."""
        if kind and kind not in KINDS:
            raise problem(404, f"there is no event {kind[:100]!r}, there are {', '.join(KINDS)}")
        return self._events.after(last, kind, diff=diff, most=most)

    # ---- searching

    @action(name="searchJSONPath", safe=True, idempotent=True, concurrency=WRITERS)
    async def search_jsonpath(self, query: str) -> list[Any]:
        """Return what a JSONPath expression (RFC 9535) selects of the array of all descriptions."""
        found: list[Any] = msgspec.json.decode(await self._found(query))
        return found

    @action(safe=True, idempotent=True, concurrency=WRITERS)
    async def search_text(self, query: str) -> str:
        """Return what a JSONPath expression selects of the array of all descriptions, as JSON text."""
        return (await self._found(query)).decode()

    async def _found(self, query: str) -> bytes:
        self._now()
        options = self.options
        if self._searching >= options.max_searches * (1 + WAITING):
            raise problem(503, "there are too many searches at a time")
        effort = Effort(options, seconds=None if self._inline else options.search_seconds)
        work = partial(found_in, query, self._shelf.page(0, None), options, effort)
        self._searching += 1
        try:
            return await self._apart(work)
        except BadQuery as error:
            raise problem(400, f"the query is no JSONPath: {error}") from None
        except TooMuch as error:
            raise problem(400, f"the query is too much work: {error}") from None
        finally:
            self._searching -= 1
            effort.stop()

    async def _apart(self, work: Callable[[], bytes]) -> bytes:
        if self._inline:
            return work()
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._search)

    # ---- changing

    @action(idempotent=True, concurrency=WRITERS)
    async def put_thing(self, id: Id, td: Description) -> bool:
        """Registers a description, or replaces the one there is; says whether there was none."""
        change = await self._made(lambda at: self._shelf.put(id, td, at), id)
        return change.event is not None and change.event.kind == "thing_created"

    @action(concurrency=WRITERS)
    async def create_anonymous_thing(self, td: Description) -> str:
        """Registers a description that has no id, and gives the one that it gets."""
        id = f"urn:uuid:{self.new_id()}"
        await self._made(lambda at: self._shelf.add(td, id, at), id)
        return id

    @action(idempotent=True, concurrency=WRITERS)
    async def partially_update_thing(self, id: Id, patch: Description) -> None:
        """Changes a description by a JSON merge patch (RFC 7396); an empty one renews its time to live."""
        await self._made(lambda at: self._shelf.patch(id, patch, at), id)

    @action(idempotent=True, concurrency=WRITERS)
    async def delete_thing(self, id: Id) -> None:
        """Takes a description away."""
        await self._made(lambda at: self._shelf.delete(id, at), id)

    async def _made(self, decide: Callable[[Moment], Change], id: str) -> Change:
        """Have a change decided and written. Raises ActionFailed."""
        at = self._now()
        try:
            change = decide(at)
        except Missing:
            raise _missing(id) from None
        except Unfit as bad:
            raise _unfit(bad) from None
        waiting = _Waiting(change)
        self._write([waiting])
        await waiting.done.wait()
        if waiting.failed:
            raise problem(503, "the directory could not write it down, and has forgotten it")
        return change

    # ---- writing

    def _write(self, waiting: list[_Waiting]) -> None:
        self._waiting += waiting
        if self._inline:
            self._write_inline()
        elif not self._writing:
            self._writing = True
            self.nursery.start_soon(self._write_all)

    def _write_inline(self) -> None:
        lot, self._waiting = self._waiting, []
        try:
            self._store.commit([each.change for each in lot], self._events.oldest)
        except StoreFailed as error:
            self._failed(lot, error)
        else:
            self._settled(lot)

    async def _write_all(self) -> None:
        """Write what waits, lot by lot, until nothing does."""
        while self._waiting:
            lot, self._waiting = self._waiting[:LOT], self._waiting[LOT:]
            changes = [each.change for each in lot]
            try:
                await self._outside(partial(self._store.commit, changes, self._events.oldest))
            except StoreFailed as error:
                self._failed(lot, error)
            else:
                self._settled(lot)
        self._writing = False

    def _failed(self, lot: list[_Waiting], error: StoreFailed) -> None:
        """Forget all that is not written: what came after was decided upon it."""
        self._shelf.forget()
        lot, self._waiting = [*lot, *self._waiting], []
        for waiting in lot:
            waiting.failed = True
            waiting.done.set()
        self.log.error("a directory could not write", changes=len(lot), why=str(error))
        self._resumes = trio.current_time() + RESUMING
        self._arm()

    def _settled(self, lot: list[_Waiting]) -> None:
        changes = [each.change for each in lot]
        self._shelf.settle(changes)
        events = [change.event for change in changes if change.event is not None]
        self._events.add(events)
        for waiting in lot:
            waiting.done.set()
        tells = (self.thing_created, self.thing_updated, self.thing_deleted)
        for each in events:
            tells[KINDS.index(each.kind)].emit(Notice(each.id))
        if events:
            self.revision = events[-1].number
            self.total = len(self._shelf.ids)
        self._arm()

    async def _outside(self, work: Callable[[], Any]) -> Any:
        """Do what the disk takes part in; never abandoned."""
        if self._inline:
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._disk)

    # ---- time

    def _moment(self) -> Moment:
        return Moment(wall=self.now().timestamp(), tick=trio.current_time())

    def _now(self) -> Moment:
        """Return the present moment, with what has ended by then gone, or on its way out."""
        at = self._moment()
        ended = self._shelf.purge(at)
        if ended:
            self._write([_Waiting(change) for change in ended])
        return at

    def _arm(self) -> None:
        """Have a turn when the next registration ends, at one that was set for no later."""
        seconds = self._shelf.next_end(self._moment())
        if seconds is None:
            return
        when = max(trio.current_time() + seconds, self._resumes)
        if self._timer is not None:
            if self._wakes <= when:
                return
            self._timer.cancel()
        self._wakes = when
        self._timer = self.after(when - trio.current_time(), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._now()
        self._arm()
