"""An agent used by wire names and plain data, for files and protocols that do not have its class."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from lmos_actors.errors import AgentUnavailable, NotFound

from ..messages._invocation import CURRENT, OwnTask
from ..messages._observers import event_key, property_key
from ..messages._operation import STREAM
from ..refs._link import Invocation
from ..refs._retrying import found_link
from ._pool_link import PoolLink
from ._registry import slot_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from contextlib import AbstractAsyncContextManager

    from ..messages._observers import Feed
    from ..refs._link import Link
    from ..refs._ref import Ref
    from ..slot._calls import LocalCall, LocalStream
    from ..slot._slot import Slot


class Thing:
    """A near agent or pool by the names of its affordances. Raises NotFound while the ref leads nowhere.

    Input is plain data; outputs are the values that a typed consumer would get. It raises the errors of
    `Ref`. `through` is a ref to the same agent, over which requests go.
    """

    __slots__ = ("_near", "link")

    def __init__(self, ref: Ref[Any], through: Ref[Any] | None = None) -> None:
        found = found_link(ref._link)  # pyright: ignore[reportPrivateUsage] # what a ref is for those inside
        self._near: Slot | PoolLink = found if isinstance(found, PoolLink) else slot_of(ref)
        self.link: Link = self._near if through is None else through._link  # pyright: ignore[reportPrivateUsage]

    @property
    def slot(self) -> Slot:
        """The slot of the agent, or of one member of a pool, as all members have the same operations."""
        link = self._near
        if not isinstance(link, PoolLink):
            return link
        return next((member for member in link.members if member.table), link.members[0])

    # ---- verbs

    def reading(self, name: str) -> AbstractAsyncContextManager[LocalCall]:
        """Read a property: `async with thing.reading("units") as call`, then `await call.result()`."""
        return self.link.open(Invocation(self._key("property", property_key(name), name), (), {}))

    def writing(self, name: str, value: Any) -> AbstractAsyncContextManager[LocalCall]:
        """Set a property: `async with thing.writing(...)`, as with `reading`."""
        return self.link.open(Invocation(self._key("property", f"={name}", name), (value,), {}))

    def invoking(self, name: str, data: Any = UNSET) -> AbstractAsyncContextManager[LocalCall]:
        """Invoke an action with one object as its input; see `Ref.begin`."""
        args, kwargs = self._input(name, data)
        return self.link.open(Invocation(name, args, kwargs))

    def streaming(self, name: str, data: Any = UNSET) -> AbstractAsyncContextManager[LocalStream]:
        """Invoke an action with many outputs: `async with thing.streaming("count") as items`."""
        args, kwargs = self._input(name, data, stream=True)
        return self.link.open(Invocation(name, args, kwargs, stream=True))

    async def tell(self, name: str, data: Any = UNSET) -> None:
        """Send a one-way message; see `Ref.tell`."""
        args, kwargs = self._input(name, data)
        await self.link.tell(name, args, kwargs)

    def observe(self, name: str) -> AbstractAsyncContextManager[Feed[Any]]:
        """Observe a property: its present value, then every change."""
        key = self._key("property", f"+{property_key(name)}", name)
        return self.link.listen(key, conflate=True, gaps=False, size=64)

    def subscribe(self, name: str, *, size: int = 64) -> AbstractAsyncContextManager[Feed[Any]]:
        """Subscribe to an event from now on."""
        key = self._key("event", f"+{event_key(name)}", name)
        return self.link.listen(key, conflate=False, gaps=False, size=size)

    # ---- names

    def _key(self, kind: str, key: str, name: str) -> str:
        if key not in self.slot.table:
            prefix = key[: len(key) - len(name)]
            known = [k[len(prefix) :] for k in self.slot.table if k.startswith(prefix) and k != prefix]
            raise self._unknown(kind, name, known)
        return key

    def _unknown(self, kind: str, name: str, known: Iterable[str]) -> Exception:
        if not self.slot.table:
            return self.slot.closed_error()
        return NotFound(kind, name, where=self.link.path, known=known)

    def _input(self, name: str, data: Any, *, stream: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        op = self.slot.table.get(name)
        if op is None or op.internal or (op.kind == STREAM) is not stream:
            table = self.slot.table.values()
            known = [op.name for op in table if not op.internal and (op.kind == STREAM) is stream]
            raise self._unknown("stream action" if stream else "action", name, known)
        return self.slot.spread(op, None if data is UNSET else data)


@contextmanager
def acting_as(ref: Ref[Any]) -> Generator[None]:
    """Make the agent of `ref` the sender inside the block. Raises AgentUnavailable if it is down."""
    slot = slot_of(ref)
    if slot.agent is None:
        raise AgentUnavailable(slot.path, "it is not running, so code cannot act as it")
    token = CURRENT.set(OwnTask(slot))
    try:
        yield
    finally:
        CURRENT.reset(token)
