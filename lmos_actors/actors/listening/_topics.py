"""Topics: named channels of one type, to which every agent may publish and subscribe.

Publishing never waits: each subscriber has its own bounded buffer, and a slow one loses its oldest values,
which are counted. A topic lives as long as it has a holder, a subscriber or a follower; after that nothing of
it is left in memory.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import attrs
from trio.lowlevel import checkpoint, enable_ki_protection

from lmos_actors.errors import InvalidInput

from ..messages._invocation import CURRENT, running_gate
from ..messages._observers import Feed
from ..values import conceal, shape_of
from ._names import name_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from .._runtime import Runtime
    from ..messages._observers import Gap
    from ..slot._slot import Slot

V = TypeVar("V")


@attrs.frozen
class TopicStatistics:
    """Counts of one topic since it was made.

    `delivered` counts values times subscribers; `missed` counts the values that slow subscribers dropped.
    """

    published: int
    delivered: int
    missed: int
    subscribers: int


class Topic(Generic[V]):
    """A named channel of one node: `node.topic("orders", Order)`, or `self.topic(...)` in an agent.

    The same name and type refer to the same topic.
    """

    __slots__ = (
        "__weakref__", "_closed", "_delivered", "_missed", "_published", "_rt", "_shape", "_sinks", "name",
    )  # fmt: skip

    def __init__(self, rt: Runtime, name: str, tp: Any) -> None:
        self.name = name
        self._rt = rt
        self._shape = shape_of(tp)
        self._sinks: dict[Any, None] = {}
        self._published = self._delivered = self._missed = 0
        self._closed = rt.ended

    @property
    def type(self) -> Any:
        """The type of the topic's values."""
        return self._shape.type

    @property
    def secrecy(self) -> int:
        """The secrecy of the topic's values; for the runtime."""
        return self._shape.secrecy

    def __repr__(self) -> str:
        return f"<topic {self.name!r} of {self._shape.name}>"

    @enable_ki_protection
    def publish(self, value: V, /) -> None:
        """Push a value to every subscriber, without waiting for any; legal in turns.

        Immutable values are shared, and each subscriber gets a copy of others. Publishing takes a fraction of
        a microsecond per subscriber, in one step; after the node's end it does nothing. A value of a durable
        agent reaches the present subscribers once the agent's state is kept.

        Raises InvalidInput if the value is not of the topic's type.
        """
        shape = self._shape
        try:
            value = shape.take(value)
        except InvalidInput as exc:
            raise InvalidInput(f"topic {self.name!r}: {exc.message}", exc.path) from None
        if self._closed:
            return
        turns = self._rt.turns
        if self._rt.instrument is not None:
            self._record(value)
        if turns.durables and (gate := running_gate(turns)) is not None:
            gate.hold(_Publication(partial(self._push, value, tuple(self._sinks))))
        else:
            self._push(value, tuple(self._sinks))

    def _push(self, value: V, sinks: tuple[Any, ...]) -> None:
        """Push a value to these subscribers."""
        self._published += 1
        self._delivered += len(sinks)
        take = self._shape.take
        if self._shape.immutable:
            for sink in sinks:
                sink.push(value)
        else:
            for sink in sinks:
                sink.push(take(value))

    def _record(self, value: V) -> None:
        """Record a value for the instrument; the publisher is the agent, or `user` outside of agents."""
        rt, run = self._rt, CURRENT.get()
        slot = rt.turns.slot if run is None else run.slot
        if rt.instrument is not None:
            path = slot.path if slot is not None else "user"
            rt.instrument.record("event", path, {"topic": self.name, "data": conceal(value, self.secrecy)})

    @overload
    def subscribe(
        self, *, gaps: Literal[False] = False, size: int = 64
    ) -> AbstractAsyncContextManager[Feed[V]]: ...
    @overload
    def subscribe(
        self, *, gaps: Literal[True], size: int = 64
    ) -> AbstractAsyncContextManager[Feed[V | Gap]]: ...
    def subscribe(self, *, gaps: bool = False, size: int = 64) -> Any:
        """Subscribe to every value from now on; past `size` waiting values the oldest is dropped and counted.

        With `gaps`, a `Gap` comes where values are missing. The feed ends with the node. Entering raises
        ValueError for a size below 1.
        """
        return self._subscribed(gaps=gaps, size=size)

    @asynccontextmanager
    @enable_ki_protection
    async def _subscribed(self, *, gaps: bool, size: int) -> AsyncGenerator[Feed[Any]]:
        feed: Feed[Any] = Feed(self._rt.timers, size=size, gaps=gaps)
        await checkpoint()
        self.add(feed)
        try:
            yield feed
        finally:
            self.remove("", feed)
            feed.close()

    def statistics(self) -> TopicStatistics:
        """Return the counts of values and of subscribers, including followers."""
        return TopicStatistics(
            published=self._published,
            delivered=self._delivered,
            missed=self._missed + sum(sink.missed for sink in self._sinks),
            subscribers=len(self._sinks),
        )

    # ---- the runtime's side

    def add(self, sink: Any) -> None:
        """Add a sink for the values that are published from now on."""
        if self._closed:
            sink.close()
        else:
            self._sinks[sink] = None

    def remove(self, _key: str, sink: Any) -> None:
        """Remove a sink, if it has not been removed already."""
        if sink in self._sinks:
            del self._sinks[sink]
            self._missed += sink.missed

    def close(self) -> None:
        """Close the topic and all sinks, as the node has ended."""
        self._closed = True
        for sink in tuple(self._sinks):
            self.remove("", sink)
            sink.close()


class _Publication:
    """A value published by a durable agent, sent once the agent's state is kept."""

    __slots__ = ("release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release

    def drop(self, why: str) -> None:
        """Do nothing, as no subscriber gets the dropped value."""


def topic_for(slot: Slot, name: str, tp: Any) -> Topic[Any]:
    """Return the topic with a name on the node of an agent. Raises TypeError as `topic_of` does."""
    return topic_of(slot.rt, name, tp, slot.rt.node_of(slot))


def topic_of(rt: Runtime, name: str, tp: Any, node: str | None = None) -> Topic[Any]:
    """Return the topic with a name; `node` is the node of a simulated network to which it belongs.

    Raises TypeError if the topic has another type, or the type has no schema.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] # what users write
        raise TypeError(f"a topic's name is a str, not {name!r}")
    key = name_on(node, name)
    found: Topic[Any] | None = rt.topics.get(key)
    if found is None:
        made: Topic[Any] = Topic(rt, name, tp)
        rt.topics[key] = made
        return made
    if found.type != tp:
        wanted = shape_of(tp).name
        raise TypeError(f"{found!r} is there already, and cannot also be one of {wanted}")
    return found
