"""Directory agent: registrations in memory and on disk, searches, events, and expiry.

Guarantees:

- **What is answered is on disk.** A change is decided in memory in one step, written in a batch together with
  other waiting changes, and answered only then. After a crash of the agent or the process, every acknowledged
  change is restored.
- **Readers see only written changes.** `Registrations` keeps decided and written apart. If a write fails,
  all decisions since then are dropped, as later ones were based on the failed one.
- **The event loop never waits for the disk or a search.** Writes are submitted to the writer of the store;
  searches run in a few threads, bounded in number, work and time (`SearchBudget`). On virtual time, both run
  without a thread.
- **Expired registrations disappear at once**: every operation first removes expired ones (`_now`). A timer,
  set for the next end, does the same while there are no requests.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import msgspec
import trio
from msgspec import Meta

from lmos_actors._core import time_jumps
from lmos_actors.actors import (
    Agent,
    Event,
    MailboxOptions,
    Property,
    action,
    current_request,
    event,
    of_system,
    prop,
)
from lmos_actors.discovery import LEASE
from lmos_actors.errors import ActionFailed, StoreFailed, WriteConflict
from lmos_actors.persistence import (
    SERVER,
    MemoryStore,
    SqliteStore,
    check_only_writer,
    open_writer,
    store_of,
)

from ._changes import KINDS, Change, EventLog, EventPage
from ._entries import Entry, InvalidDescription, Moment, retrieved_at
from ._options import DirectoryOptions
from ._records import ABOUT, EVENTS, LIFE, THINGS, Records, StoredState, life_of, stored_state
from ._registrations import Missing, NoLease, NotOwner, Registrations
from ._search import BadQuery, found_in
from ._search_budget import BudgetExceeded, SearchBudget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from lmos_actors._core import Timer
    from lmos_actors.persistence import AsyncStore, Store, StoreWriter, Ticket

MAX_WRITES: Final = 1_024
"""Limit of changes that wait to be written."""

PAGE_BYTES: Final = 8 << 20
"""Bytes of a page, the last description not counted."""

QUEUED_PER_SEARCH: Final = 4  # queued searches for each running one
ID_LENGTH: Final = 8  # characters of the id of a database

Id = Annotated[str, Meta(description="The id of a description, a URI.")]
Description = Annotated[
    dict[str, Any] | str, Meta(description="A Thing Description, as an object or as JSON text.")
]
Principal = Annotated[
    str | None, Meta(description="For the directory's own HTTP API; of other callers it is not heeded.")
]


class Notice(msgspec.Struct, frozen=True):
    """Event of a created, updated or deleted description; `id` is its id."""

    id: str


class ThingText(msgspec.Struct, frozen=True):
    """Description as JSON text, with its entity tag."""

    text: str
    tag: str


class PageText(msgspec.Struct, frozen=True):
    """Page of descriptions in the order of their ids, as JSON texts joined by commas.

    `tag` changes with the set of ids; `last` is the id of the last description in `members`.
    """

    members: str
    count: int
    total: int
    tag: str
    last: str = ""


class Page(msgspec.Struct):
    """Page of descriptions in the order of their ids, and the total number."""

    members: list[dict[str, Any]]
    total: int


def problem(status: int, detail: str, **more: Any) -> ActionFailed:
    """Return a failure with problem details (RFC 9457)."""
    title = HTTPStatus(status).phrase
    return ActionFailed({"type": "about:blank", "title": title, "status": status, "detail": detail, **more})


def _invalid(bad: InvalidDescription) -> ActionFailed:
    faults = [{"field": fault.field, "description": fault.description} for fault in bad.faults]
    return problem(bad.status, bad.detail, **({"validationErrors": faults} if faults else {}))


def _missing(id: str) -> ActionFailed:
    return problem(404, f"no description is registered as {id[:200]!r}")


@of_system
class ThingDirectory(Agent, rename="camel", mailbox=MailboxOptions(size=MAX_WRITES)):
    """Directory of descriptions of things and agents: a W3C Thing Description Directory."""

    options: DirectoryOptions = attrs.field(factory=DirectoryOptions)
    store: Any = None

    total: Property[int] = prop(default=0, read_only=True, doc="Number of registered descriptions.")
    revision: Property[int] = prop(default=0, read_only=True, doc="Number of the last event.")
    thing_created: Event[Notice] = event(doc="A description was registered.")
    thing_updated: Event[Notice] = event(doc="A description was changed.")
    thing_deleted: Event[Notice] = event(doc="A description was removed, or has expired.")

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Open the store, restore the directory from it, and close it on exit."""
        self._inline = time_jumps()
        self._search = trio.CapacityLimiter(self.options.max_searches)
        self._searching = 0
        self._failing = False
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._retry_at = 0.0  # earliest time of the next timer after a failed write
        async with open_writer(self.store or store_for(self.options)) as writer:
            self._writer = writer
            if self.options.path is not None:
                check_only_writer(writer, "the entries of a directory")
            things, events = await writer.records(THINGS), await writer.records(EVENTS)
            life = await _life(writer, self.new_id()[:ID_LENGTH])
            self._restore(stored_state(things, events, self._moment()), life)
            yield

    def started(self) -> None:
        """Remove the registrations that expired while the agent was down."""
        self._now()
        self._arm()

    def _restore(self, state: StoredState, life: str) -> None:
        options = self.options
        self._records = Records(state.order)
        self._registrations = Registrations(options, state.entries, last=state.last, order=state.order)
        most_bytes = options.max_event_bytes // options.copies
        self._events = EventLog(life, most=options.max_events, most_bytes=most_bytes)
        self._events.last = state.last - len(state.events)
        self._events.add(state.events)
        self.revision = state.last
        self.total = len(self._registrations.ids)

    # ---- reading

    @action(safe=True, idempotent=True)
    def retrieve_thing(self, id: Id) -> dict[str, Any]:
        """Return the description that is registered under an id."""
        found: dict[str, Any] = msgspec.json.decode(self._entry_text(id)[1])
        return found

    @action(safe=True, idempotent=True)
    def thing_text(self, id: Id) -> ThingText:
        """Return the description that is registered under an id, as JSON text."""
        entry, text = self._entry_text(id)
        return ThingText(text.decode(), entry.tag)

    def _entry_text(self, id: str) -> tuple[Entry, bytes]:
        at = self._now()
        try:
            entry = self._registrations.get(id, at)
        except Missing:
            raise _missing(id) from None
        return entry, entry.encoded(retrieved_at(at.wall))

    @action(safe=True, idempotent=True)
    def list_things(
        self, offset: Annotated[int, Meta(ge=0)] = 0, limit: Annotated[int, Meta(ge=1)] = 100
    ) -> Page:
        """Return at most `limit` descriptions in the order of their ids, from an offset on."""
        page = self._page(offset, limit)
        return Page(msgspec.json.decode(f"[{page.members}]"), page.total)

    @action(safe=True, idempotent=True)
    def page_text(
        self,
        offset: Annotated[int, Meta(ge=0)] = 0,
        limit: Annotated[int, Meta(ge=1)] = 100,
        after: str | None = None,
    ) -> PageText:
        """Return descriptions in the order of their ids, from an offset or after an id, as JSON text."""
        return self._page(offset, limit, after)

    def _page(self, offset: int, limit: int, after: str | None = None) -> PageText:
        at = self._now()
        shelf = self._registrations
        entries = shelf.page(
            offset if after is None else shelf.place_after(after),
            min(limit, self.options.max_page),
            PAGE_BYTES,
        )
        retrieved = retrieved_at(at.wall)
        return PageText(
            b",".join([entry.encoded(retrieved) for entry in entries]).decode(),
            len(entries),
            len(shelf.ids),
            self._events.id_of(shelf.order),
            entries[-1].id if entries else "",
        )

    @action(safe=True, idempotent=True)
    def events_after(
        self, last: str = "", kind: str = "", diff: bool = False, most: Annotated[int, Meta(ge=1)] = 100
    ) -> EventPage:
        """Return the events after the one with an id, as Server-Sent Events; "" means the last one."""
        if kind and kind not in KINDS:
            raise problem(404, f"there is no event {kind[:100]!r}, there are {', '.join(KINDS)}")
        return self._events.after(last, kind, diff=diff, most=most)

    # ---- searching

    @action(name="searchJSONPath", safe=True, idempotent=True, concurrency=MAX_WRITES)
    async def search_jsonpath(self, query: str) -> list[Any]:
        """Return what a JSONPath expression (RFC 9535) selects in the array of all descriptions."""
        found: list[Any] = msgspec.json.decode(await self._found(query))
        return found

    @action(safe=True, idempotent=True, concurrency=MAX_WRITES)
    async def search_text(self, query: str) -> str:
        """Return what a JSONPath expression selects in the array of all descriptions, as JSON text."""
        return (await self._found(query)).decode()

    async def _found(self, query: str) -> bytes:
        self._now()
        options = self.options
        if self._searching >= options.max_searches * (1 + QUEUED_PER_SEARCH):
            raise problem(503, "too many searches are running: try again later")
        budget = SearchBudget(options, seconds=None if self._inline else options.search_seconds)
        work = partial(found_in, query, self._registrations.page(0, None), options, budget)
        self._searching += 1
        try:
            if self._inline:
                return work()
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._search)
        except BadQuery as error:
            raise problem(400, f"the query is not a JSONPath: {error}") from None
        except BudgetExceeded as error:
            raise problem(400, f"the query is too much work: {error}") from None
        finally:
            self._searching -= 1
            budget.stop()

    # ---- changing

    @action(idempotent=True, concurrency=MAX_WRITES)
    async def put_thing(self, id: Id, td: Description, principal: Principal = None) -> bool:
        """Register or replace a description. Return whether it is new."""
        who = _caller(principal)
        change = await self._change(lambda at: self._registrations.put(id, td, at, who), id)
        return change.event is not None and change.event.kind == "thing_created"

    @action(concurrency=MAX_WRITES)
    async def create_anonymous_thing(self, td: Description, principal: Principal = None) -> str:
        """Register a description without an id. Return the id that it gets."""
        id, who = f"urn:uuid:{self.new_id()}", _caller(principal)
        await self._change(lambda at: self._registrations.add(td, id, at, who), id)
        return id

    @action(idempotent=True, concurrency=MAX_WRITES)
    async def partially_update_thing(self, id: Id, patch: Description, principal: Principal = None) -> None:
        """Change a description by a JSON merge patch (RFC 7396); an empty patch renews its time to live."""
        who = _caller(principal)
        await self._change(lambda at: self._registrations.patch(id, patch, at, who), id)

    @action(idempotent=True, concurrency=MAX_WRITES)
    async def delete_thing(self, id: Id, principal: Principal = None) -> None:
        """Remove a description."""
        who = _caller(principal)
        await self._change(lambda at: self._registrations.delete(id, at, who), id)

    async def _change(self, decide: Callable[[Moment], Change], id: str) -> Change:
        """Decide a change, wait until it is written, and return it. Raises ActionFailed."""
        at = self._now()
        try:
            change = decide(at)
        except Missing:
            raise _missing(id) from None
        except InvalidDescription as bad:
            raise _invalid(bad) from None
        except NotOwner:
            detail = f"{id[:200]!r} was registered by another principal, which alone may change it"
            raise problem(403, detail) from None
        except NoLease:
            raise problem(
                403, f"who may register agents with a key of their own ({LEASE}) is said by takeover"
            ) from None
        try:
            await self._write([change]).wait()
        except StoreFailed:
            raise problem(503, "the directory could not store the change, and has dropped it") from None
        return change

    # ---- writing

    def _write(self, changes: list[Change]) -> Ticket:
        """Submit changes to the store as one batch. Raise StoreFailed if the store accepts no writes now."""
        writes = self._records.writes_of(changes, self._events.oldest)
        try:
            return self._writer.submit(writes, done=partial(self._settled, changes))
        except StoreFailed as error:
            self._failed(error)
            raise

    def _settled(self, changes: list[Change], error: StoreFailed | WriteConflict | None) -> None:
        if error is None:
            self._written(changes)
        else:
            self._failed(error)

    def _failed(self, error: StoreFailed | WriteConflict) -> None:
        """Drop all changes that are not written, as later ones were based on the failed ones."""
        self._registrations.forget()
        self._records.forget(self._registrations.order)
        if not self._failing:
            self.log.error("a directory could not write", why=str(error))
        self._failing = True
        self._retry_at = trio.current_time() + 5.0  # until then, only requests write
        self._arm()

    def _written(self, changes: list[Change]) -> None:
        self._failing = False
        self._registrations.settle(changes)
        events = [change.event for change in changes if change.event is not None]
        self._events.add(events)
        tells = (self.thing_created, self.thing_updated, self.thing_deleted)
        for each in events:
            tells[KINDS.index(each.kind)].emit(Notice(each.id))
        if events:
            self.revision = events[-1].number
            self.total = len(self._registrations.ids)
        self._arm()

    # ---- time

    def _moment(self) -> Moment:
        return Moment(wall=self.now().timestamp(), tick=trio.current_time())

    def _now(self) -> Moment:
        """Return the current moment, after removing the registrations that have expired by then."""
        at = self._moment()
        ended = self._registrations.purge(at)
        if ended:
            with suppress(StoreFailed):  # they have ended all the same, and are removed later
                self._write(ended)
        return at

    def _arm(self) -> None:
        """Set the timer for the next end of a registration, unless it is set for an earlier time."""
        seconds = self._registrations.next_end(self._moment())
        if seconds is None:
            return
        when = max(trio.current_time() + seconds, self._retry_at)
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.after(when - trio.current_time(), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._now()
        self._arm()


def _caller(principal: str | None) -> str:
    """Return the principal of the current request, "" if none is known.

    For the request of a peer, the node knows the principal. For a request to the directory's own HTTP API,
    the API passes the principal as an argument. Only the API sends requests from outside all agents, so no
    peer can use that argument.
    """
    request = current_request()
    if request.principal is None and request.consumer is None:
        return principal or ""
    return request.principal or ""


def store_for(options: DirectoryOptions) -> Store | AsyncStore:
    """Return the unopened store of a directory: in a file, in a server, or in memory."""
    if options.path is None:
        return MemoryStore()
    is_url = isinstance(options.path, str) and options.path.startswith(SERVER)
    return store_of(str(options.path)) if is_url else SqliteStore(options.path)


async def _life(writer: StoreWriter, new: str) -> str:
    """Return the id of the directory in a store; a new store gets the id `new`. Raise StoreFailed."""
    (life,) = await writer.get(ABOUT, [LIFE])
    if life is None:
        await writer.commit([life_of(new)])
        return new
    return life.decode()
