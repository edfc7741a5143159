"""Changes that clients are notified of: in the set of agents, in properties, and in events.

A notification reports that something has changed, not how: the client reads it if needed. So for a slow
client only the names of changes since its last notification are kept. Its rights are checked when it is
notified, and again when it reads.

One task watches each property or event that has subscribers, whatever their number. Meanwhile the last values
of an event are kept, as there is nothing else to read.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.actors import Ref
from lmos_actors.bindings import public_name, written_value
from lmos_actors.errors import LmosActorsError

from ._catalogue import sees
from ._names import PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Agent, Runtime
    from lmos_actors.security import Admission

    from ._catalogue import Catalogue, OfferedResource

RECENT: Final = 16
"""Number of values that are kept of an event."""

RECENT_BYTES: Final = 65_536
"""Maximum bytes of a kept value of an event; a longer one is not kept."""

SETTLES: Final = 0.1
"""Seconds within which several changes of agents count as one."""

AGAIN: Final = 1.0
"""Seconds after which a failed subscription to an agent is tried again."""

MOST_CHANGED: Final = 10_000
"""Maximum names of changed agents; beyond it, all agents are compared with the previous ones."""


class Subscriber:
    """A client that is notified: its subscriptions, and the changes that have not been sent to it yet."""

    def __init__(self, admission: Admission | None, *, tools: bool, resources: bool, prompts: bool) -> None:
        self.admission = admission
        self.wants_tools, self.wants_resources, self.wants_prompts = tools, resources, prompts
        self.uris: dict[str, Admission | None] = {}
        """Subscribed resources, each with the capabilities of the client that asked for it."""
        self._changed: dict[str, None] = {}
        self._agents_changed = False
        self._is_over = False
        self._wake = trio.Event()

    def changed(self, uri: str) -> None:
        """Note that a resource has changed."""
        self._changed[uri] = None
        self._wake.set()

    def agents_changed(self) -> None:
        """Note that the set of agents has changed."""
        self._agents_changed = True
        self._wake.set()

    def end(self) -> None:
        """Let `changes` return None once the recorded changes have been taken."""
        self._is_over = True
        self._wake.set()

    async def changes(self) -> tuple[bool, list[str]] | None:
        """Wait for changes; return whether the agents have changed, and the changed resources.

        Return None at the end.
        """
        while not (self._agents_changed or self._changed):
            if self._is_over:
                return None
            self._wake = trio.Event()
            await self._wake.wait()
        agents, found = self._agents_changed, list(self._changed)
        self._agents_changed, self._changed = False, {}
        return agents, found


class _Watched:
    """A property or an event with subscribers."""

    def __init__(self) -> None:
        self.subscribers: dict[Subscriber, None] = {}
        self.scope = trio.CancelScope()
        self.recent: deque[bytes] = deque(maxlen=RECENT)


class Watching:
    """The subscribers of one node, and the tasks that watch for them, which run inside `run`."""

    def __init__(
        self, rt: Runtime, catalogue: Catalogue, on_failure: Callable[[BaseException], object]
    ) -> None:
        self._rt = rt
        self._catalogue = catalogue
        self._on_failure = on_failure
        self._subscribers: dict[Subscriber, None] = {}
        self._watched: dict[str, _Watched] = {}
        self._changed: dict[str, None] = {}
        self._change = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch what clients subscribe to, until cancelled."""
        known = self._catalogue.classes()
        watchers = self._rt.population.watchers
        watchers.append(self._note)
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await self._announce(known)
        finally:
            watchers.remove(self._note)
            self._nursery = None

    def _note(self, path: str) -> None:
        if len(self._changed) < MOST_CHANGED:
            self._changed[path] = None
        self._change.set()

    async def _announce(self, known: dict[str, type[Agent]]) -> None:
        while True:
            await self._change.wait()
            await trio.sleep(SETTLES)
            self._change = trio.Event()
            paths, self._changed = self._changed, {}
            if len(paths) < MOST_CHANGED:
                names = [name for name in map(public_name, paths) if self._is_other(name, known)]
            else:
                before, known = known, self._catalogue.classes()
                names = [each for each in {**before, **known} if before.get(each) is not known.get(each)]
            for subscriber in tuple(self._subscribers):
                if any(sees(subscriber.admission, name) for name in names):
                    subscriber.agents_changed()

    def _is_other(self, name: str, known: dict[str, type[Agent]]) -> bool:
        """Return whether the class of the agent with a name has changed, and record it in `known`.

        A restart is not a change.
        """
        exposed = self._catalogue.agent(name)
        now = None if exposed is None else exposed.cls
        if known.get(name) is now:
            return False
        if now is None:
            del known[name]
        else:
            known[name] = now
        return True

    # ---- who is notified

    def add(self, subscriber: Subscriber) -> None:
        """Notify a client from now on."""
        self._subscribers[subscriber] = None

    def remove(self, subscriber: Subscriber) -> None:
        """Stop notifying a client."""
        self._subscribers.pop(subscriber, None)
        for uri in tuple(subscriber.uris):
            self.leave(uri, subscriber)
        subscriber.end()

    def join(self, resource: OfferedResource, subscriber: Subscriber, admission: Admission | None) -> None:
        """Notify a client when a resource changes."""
        subscriber.uris[resource.uri] = admission
        watched = self._watched.get(resource.uri)
        if watched is None and self._nursery is not None:
            watched = self._watched[resource.uri] = _Watched()
            self._nursery.start_soon(self._watch, resource.uri, watched, name=f"changes of {resource.uri}")
        if watched is not None:
            watched.subscribers[subscriber] = None

    def leave(self, uri: str, subscriber: Subscriber) -> None:
        """Stop notifying a client of a resource."""
        subscriber.uris.pop(uri, None)
        watched = self._watched.get(uri)
        if watched is not None:
            watched.subscribers.pop(subscriber, None)
            if not watched.subscribers:
                del self._watched[uri]
                watched.scope.cancel("nobody has subscribed any more")

    def may_hear(self, uri: str, subscriber: Subscriber) -> bool:
        """Return whether a client may still be notified of a resource; if not, unsubscribe it."""
        if uri not in subscriber.uris:
            return False
        admission = subscriber.uris[uri]
        is_valid = admission is None or admission.valid(trio.current_time())
        if is_valid and (self._catalogue.resource(uri, admission) is not None or self._is_away(uri)):
            return True
        self.leave(uri, subscriber)
        return False

    def _is_away(self, uri: str) -> bool:
        """Return whether a resource is missing for every client, as while its agent is away."""
        return self._catalogue.resource(uri, None) is None

    def recent(self, uri: str) -> bytes:
        """Return the last values of an event that has subscribers, as a JSON array."""
        watched = self._watched.get(uri)
        return b"[%s]" % b",".join(() if watched is None else watched.recent)

    # ---- watching

    async def _watch(self, uri: str, watched: _Watched) -> None:
        with watched.scope:
            while True:
                try:
                    resource = self._catalogue.resource(uri, None)
                    if resource is not None:
                        await self._follow(resource, watched)
                except LmosActorsError:
                    pass  # it is between two lives
                except Exception as error:
                    self._on_failure(error)
                with trio.move_on_after(AGAIN):
                    await self._change.wait()
                    await trio.sleep(SETTLES)

    async def _follow(self, resource: OfferedResource, watched: _Watched) -> None:
        """Record changes of a resource for its subscribers until its agent has ended permanently."""
        link: Any = resource.agent.link
        ref: Ref[Any] = Ref(link)
        contract = resource.agent.cls.__contract__
        kind, name = resource.source or (resource.kind, resource.name)
        if kind == PROPERTIES:
            async with ref.observe(contract.properties[name].handle) as feed:
                await feed.receive()  # the value that there is now
                async for _ in feed:
                    self._note_change(resource.uri, watched)
        else:
            async with ref.subscribe(contract.events[name].handle) as feed:
                async for value in feed:
                    written = written_value(value)
                    if len(written) <= RECENT_BYTES:
                        watched.recent.append(written)
                    self._note_change(resource.uri, watched)

    def _note_change(self, uri: str, watched: _Watched) -> None:
        for subscriber in watched.subscribers:
            subscriber.changed(uri)
