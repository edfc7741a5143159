"""A far agent, used by the names of its affordances and plain data, with or without a description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.actors import (
    AfterKept,
    Invocation,
    Ref,
    entered_within,
    event_key,
    found_link,
    property_key,
    tell_within,
)
from lmos_actors.errors import NotAllowed

from ..http_client._forms import in_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import TypeAlias

    from lmos_actors.actors import Call, Down, Feed, Link, Occurrence
    from lmos_actors.protocol.td import Description

    from ..lmos._peer_requests import RemoteThing
    from ..lmos._remote_calls import RemoteCall, RemoteStream

    Sources: TypeAlias = Mapping[str, AsyncIterable[Any]]


class ConsumedThing:
    """A far agent, used by the names of its affordances; values are plain data, as JSON has it.

    It has the same verbs as a `Ref`, and they raise the same exceptions. With a description, a name that is
    not in it raises NotFound at once; values are checked only by the agent. Two such things are equal if they
    lead to the same agent.
    """

    __slots__ = ("_described", "_far", "_ref")

    def __init__(self, far: RemoteThing, ref: Ref[Any], description: Description | None = None) -> None:
        self._far = far
        self._ref = ref
        self._described = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumedThing) and self._ref == other._ref

    def __hash__(self) -> int:
        return hash(self._ref)

    def __repr__(self) -> str:
        return f"<ConsumedThing {self.id} at {self._far.peer.place}>"

    # ---- identity

    @property
    def description(self) -> Description | None:
        """The description of the thing, None if it was consumed without one."""
        return self._described or self._far.description

    @property
    def url(self) -> str:
        """The address of the thing's WebSocket; without one, the address of its first form."""
        return self._far.peer.url

    @property
    def id(self) -> str:
        """The `thingID` of the thing."""
        return self._far.thing_id

    @property
    def path(self) -> str:
        """The name of the thing in errors: its path on its node if the address contains it, else its id."""
        return self._far.path

    # ---- properties

    def read(self, name: str) -> Coroutine[Any, Any, Any]:
        """Return the value of a property."""
        return self._ask("read", property_key(name), ())

    def write(self, name: str, value: Any) -> Coroutine[Any, Any, None]:
        """Set a property."""
        return self._ask("write", f"={name}", (value,))

    def write_many(self, values: Mapping[str, Any]) -> Coroutine[Any, Any, None]:
        """Set several properties; all or none, if the agent runs on lmos_actors."""
        return self._ask("write_many", "=", (dict(values),))

    def read_all(self) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return the values of all readable properties by name."""
        return self._ask("read_all", "?", ())

    # ---- actions

    def invoke(
        self, name: str, input: Any = UNSET, *, streams: Sources | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Invoke an action and return its output, None if it has none; `input` is one value.

        The dict `streams` has the sources of the action's input streams, by their names in the description.
        """
        if streams:
            return self._result(self.begin(name, input, streams=streams))
        return self._ask("invoke", name, _given(input))

    async def _result(self, begun: AbstractAsyncContextManager[Call[Any, Any]]) -> Any:
        async with begun as call:
            return await call.result()

    def begin(
        self, name: str, input: Any = UNSET, *, streams: Sources | None = None
    ) -> AbstractAsyncContextManager[Call[Any, Any]]:
        """Invoke an action and return its call: `async with thing.begin("forecast", {...}) as call`.

        The argument `streams` is the same as for `invoke`.
        """
        sources = _named(streams)
        return AfterKept(self._entered("begin")).open(Invocation(name, _given(input), sources, self._seconds))

    def stream(
        self, name: str, input: Any = UNSET, *, streams: Sources | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        """Invoke an action with many outputs: `async with thing.stream("count", {...}) as items`.

        The argument `streams` is the same as for `invoke`.
        """
        link = AfterKept(self._entered("stream"))
        return link.open(Invocation(name, _given(input), _named(streams), self._seconds, stream=True))

    def tell(self, name: str, input: Any = UNSET) -> Coroutine[Any, Any, None]:
        """Send a one-way message: it arrives at most once, and is not answered."""
        link = self._link
        if link.turns.slot is not None:
            raise link.turns.misuse("tell", of="thing.")
        kept = AfterKept(link)
        if self._seconds is None:
            return kept.tell(name, _given(input), {})
        return tell_within(kept, name, _given(input), {}, self._seconds)

    # ---- listening

    def observe(self, name: str, *, gaps: bool = False) -> AbstractAsyncContextManager[Feed[Any]]:
        """Return a feed of a property: its value now, then every change. A slow observer sees the latest."""
        key = f"+{property_key(name)}"
        link = self._entered("observe")
        return entered_within(link, link.listen(key, conflate=True, gaps=gaps, size=64), self._seconds)

    def subscribe(
        self, name: str, *, gaps: bool = False, size: int = 64
    ) -> AbstractAsyncContextManager[Feed[Any]]:
        """Return a feed of every event with this name from now on."""
        key = f"+{event_key(name)}"
        link = self._entered("subscribe")
        return entered_within(link, link.listen(key, conflate=False, gaps=gaps, size=size), self._seconds)

    def subscribe_all(
        self, *, gaps: bool = False, size: int = 64
    ) -> AbstractAsyncContextManager[Feed[Occurrence]]:
        """Return a feed of all events, each with its name; `gaps` adds a `Gap` where some may be missing."""
        link = self._entered("subscribe_all")
        return entered_within(link, link.listen("+!", conflate=False, gaps=gaps, size=size), self._seconds)

    def monitor(self, *, gaps: bool = False) -> AbstractAsyncContextManager[Feed[Down]]:
        """Return a feed with a `Down` for every incarnation that ends from now on, if the agent reports it.

        With `gaps`, the feed also has a `Gap` where the connection was lost and some may be missing.
        """
        link = self._entered("monitor")
        watch: AbstractAsyncContextManager[Feed[Down]] = found_link(link).watch(gaps=gaps)
        return entered_within(link, watch, self._seconds)

    # ---- views

    def within(self, seconds: float, /) -> ConsumedThing:
        """Return a view whose calls raise `DeadlineExceeded` after `seconds` seconds."""
        return ConsumedThing(self._far, self._ref.within(seconds), self._described)

    def with_variables(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> ConsumedThing:
        """Return a view whose requests have values for the variables of their URLs (`uriVariables`).

        An example is `await thing.with_variables(unit="celsius").read("temperature")`; the view has all
        verbs. A value is a text, a number or a boolean. Variables of an action may also be given in its
        input. Requests raise InvalidInput for a name that is not in their URL. Raises NotAllowed for a thing
        that is not used over HTTP by its description, and for a view made by `retrying`: call `retrying`
        after this method.
        """
        with_variables = getattr(self._link, "with_variables", None)
        if with_variables is None:
            raise NotAllowed(
                f"{self.path!r} has no URLs with variables: a thing that is consumed over HTTP by its "
                "description has some, and with_variables goes before retrying"
            )
        given = {**dict(self._far.variables), **(values or {}), **more}
        link = with_variables(tuple((name, in_url(name, value)) for name, value in sorted(given.items())))
        return ConsumedThing(link.far, Ref(link, self._seconds), self._described)

    def retrying(
        self, *, attempts: int | None = 10, seconds: float | None = 45.0, key: str | None = None
    ) -> ConsumedThing:
        """Return a view that repeats requests where that is safe; see `Ref.retrying`."""
        ref = self._ref.retrying(attempts=attempts, seconds=seconds, key=key)
        return ConsumedThing(self._far, ref, self._described)

    def ready(self) -> Coroutine[Any, Any, None]:
        """Wait for the connection, and until the agent runs again if it is known not to run."""
        return self._ref.ready()

    # ---- the verbs of `actors.Thing`

    def reading(self, name: str) -> AbstractAsyncContextManager[RemoteCall]:
        """Read a property: `async with thing.reading("units") as call`, then `await call.result()`."""
        return AfterKept(self._link).open(Invocation(property_key(name), (), {}, self._seconds))

    def writing(self, name: str, value: Any) -> AbstractAsyncContextManager[RemoteCall]:
        """Set a property."""
        return AfterKept(self._link).open(Invocation(f"={name}", (value,), {}, self._seconds))

    def invoking(self, name: str, data: Any = UNSET) -> AbstractAsyncContextManager[RemoteCall]:
        """Invoke an action; see `begin`."""
        return AfterKept(self._link).open(Invocation(name, _given(data), {}, self._seconds))

    def streaming(self, name: str, data: Any = UNSET) -> AbstractAsyncContextManager[RemoteStream]:
        """Invoke an action with many outputs; see `stream`."""
        return AfterKept(self._link).open(Invocation(name, _given(data), {}, self._seconds, stream=True))

    # ---- inside

    @property
    def _link(self) -> Link:
        return self._ref._link  # pyright: ignore[reportPrivateUsage] # the link of a ref is for the package's own code

    @property
    def _seconds(self) -> float | None:
        return self._ref._seconds  # pyright: ignore[reportPrivateUsage]

    def _ask(self, verb: str, key: str, args: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        link = self._link
        if link.turns.slot is not None:
            raise link.turns.misuse(verb, of="thing.")
        return AfterKept(link).ask(key, args, {}, self._seconds)

    def _entered(self, verb: str) -> Link:
        link = self._link
        if link.turns.slot is not None:
            raise link.turns.misuse(verb, of="thing.", how="entered by async with")
        return link


def _named(streams: Sources | None) -> dict[str, AsyncIterable[Any]]:
    return dict(streams or {})


def _given(input: Any) -> tuple[Any, ...]:
    return () if input is UNSET else (input,)
