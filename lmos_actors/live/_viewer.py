"""One viewer: a WebSocket connection, its open views, and the changes in them.

Events are not sent one by one. At intervals the views are computed anew, and the differences from the
viewer's copy are sent; then nothing more until the viewer has confirmed them. So a viewer that never reads
costs one message, and a storm of crashes costs no more than a calm. The more the views cost, the longer the
interval. All viewers of a node take turns at a `Pace`, so that even many viewers leave most of the processor
to the node.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from math import inf
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs
import msgspec
import trio

from lmos_actors.bindings import principal_of

from ._merge_patch import patch_between
from ._messages import Changes, Do, FromNode, FromViewer, Leave, Look, Refused, Taken, Wrong, unknown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from lmos_actors.security import Admission
    from lmos_actors.transport import Connection

    from ._merge_patch import State
    from ._options import PageOptions

SOON: Final = 0.03
"""Seconds until a view that a viewer has just asked for is sent, and between the steps of a search."""

SHARE: Final = 0.02
"""The share of one processor that making the views of one viewer takes."""

REST: Final = 4
"""The rest after making a view, for all viewers, in multiples of its cost: so all together take a fifth."""

BEHIND: Final = 64 << 10
"""Bytes waiting to be sent to a viewer, from which on nothing more is read from it."""

CHECK: Final = 10.0
"""Seconds after which the credentials of a viewer to which nothing is sent are checked again."""

_READ: Final = msgspec.json.Decoder(FromViewer)
_WRITE: Final = msgspec.json.Encoder()


class Pace:
    """The pace of computing views for all viewers of a node: one at a time, in the order of requests.

    The rest after a turn applies to the whole node, as a viewer could escape a rest of its own by
    reconnecting. The cost of a view is measured in processor time, so that waiting for other processes does
    not count.
    """

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._rested = -inf

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a turn, and measure the processor time of the block, which must not wait."""
        async with self._turn:
            await trio.sleep_until(self._rested)
            began = thread_time()
            try:
                yield
            finally:
                self._rested = trio.current_time() + REST * (thread_time() - began)


class View(Protocol):
    """A view with its arguments."""

    @property
    def is_busy(self) -> bool:
        """Whether the view will have more to show soon."""
        ...

    def content(self) -> State:
        """Return the state of the view now. Never blocks; takes milliseconds at most."""
        ...


class WithArguments(Protocol):
    """A kind of view, of which only the arguments matter here."""

    @property
    def arguments(self) -> type[Any]:
        """The type of the arguments."""
        ...


KindT = TypeVar("KindT", bound=WithArguments)
ArgumentsT = TypeVar("ArgumentsT")


def kind_and_arguments(kinds: Mapping[str, KindT], name: str, arguments: dict[str, Any]) -> tuple[KindT, Any]:
    """Return the kind of the view that a viewer names, and its arguments. Raises Refused."""
    kind = kinds.get(name)
    if kind is None:
        raise unknown("view", name, kinds)
    return kind, arguments_of(name, arguments, kind.arguments)


def arguments_of(name: str, arguments: dict[str, Any], cls: type[ArgumentsT]) -> ArgumentsT:
    """Return a view's arguments, converted to the type that the view takes. Raises Refused."""
    try:
        return msgspec.convert(arguments, cls)
    except msgspec.ValidationError as error:
        raise Refused("INVALID", f"the arguments of {name!r}: {error}") from None


@attrs.define
class _Open:
    """A view that a viewer has open, and the state of the view that was sent last."""

    view: View
    sent: State = attrs.field(factory=dict[str, Any])


class Viewer:
    """The handler of one connection.

    `open` opens a view by name and arguments, and raises Refused. `do` carries out an operation, and calls
    the given function with each answer. `pace` is shared by all viewers of the node. `failed` is called with
    any error that a view raises.
    """

    def __init__(
        self,
        connection: Connection,
        hello: FromNode,
        open: Callable[[str, dict[str, Any]], View],
        admission: Admission | None,
        do: Callable[[Do, Callable[[FromNode], None]], None],
        pace: Pace,
        failed: Callable[[BaseException], object],
        options: PageOptions,
    ) -> None:
        self._options = options
        self._connection = connection
        self._failed = failed
        self._pace = pace
        self._open = open
        self._admission = admission
        self._do = do
        self.principal = principal_of(admission)
        self._looks: dict[str, _Open] = {}
        self._out: list[bytes] = []
        self._waiting = 0
        self._number = self._taken = 0
        self._asked = trio.Event()
        """Set once a view has been opened, or changed, since the last changes."""
        self._free = trio.Event()
        """Set once the viewer may have taken the last changes."""
        self._send(hello)

    async def run(self) -> None:
        """Serve the connection until it has ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._update)
            await self._connection.run(self)
            nursery.cancel_scope.cancel()

    # ---- frames; see `Handler`

    def text(self, text: str) -> None:
        """Handle a message from the viewer."""
        message: FromViewer
        try:
            message = _READ.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            self._send(Wrong("INVALID", f"the message cannot be read: {error}"))
            return
        match message:
            case Look():
                self._look(message)
            case Leave():
                self._looks.pop(message.id, None)
            case Taken():
                self._taken = max(self._taken, min(message.number, self._number))
                self._free.set()
            case Do():
                self._do(message, self._send)

    def binary(self, data: bytes) -> None:
        """Refuse a binary message."""
        self._send(Wrong("INVALID", "messages are text frames with JSON"))

    def frames(self, room: int) -> list[bytes]:
        """Return the messages that wait to be sent."""
        found, self._out, self._waiting = self._out, [], 0
        return found

    def is_behind(self) -> bool:
        """Return whether so much unsent data waits that no more is to be read from the viewer."""
        return self._waiting >= BEHIND

    def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        self._connection.close(code, reason)

    def _send(self, message: FromNode) -> None:
        data = _WRITE.encode(message)
        self._out.append(data)
        self._waiting += len(data)
        self._connection.wake()

    # ---- looks

    def _look(self, message: Look) -> None:
        known = self._looks.get(message.id)
        if known is None and len(self._looks) >= self._options.views:
            text = f"at most {self._options.views} views are open at once"
            self._send(Wrong("TOO_MANY", text, message.id))
            return
        try:
            view = self._open(message.view, message.arguments)
        except Refused as refused:
            self._looks.pop(message.id, None)
            self._send(Wrong(refused.code, refused.message, message.id))
            return
        if known is None:
            self._looks[message.id] = _Open(view)
        else:
            known.view = view
        self._asked.set()

    # ---- changes

    async def _update(self) -> None:
        """Send changes repeatedly until the viewer's credentials are no longer valid."""
        while True:
            waits = await self._wait_for_viewer()
            if not self._is_admitted():
                self.close(1008, "the credentials are not valid any more")
                return
            if waits:
                continue
            self._asked = trio.Event()
            patches, cost = await self._patches()
            if patches and self._is_admitted():
                self._number += 1
                self._send(Changes(self._number, trio.current_time(), patches))
            await trio.sleep(SOON)
            if not any(look.view.is_busy for look in self._looks.values()):
                with trio.move_on_after(max(self._options.interval_seconds, cost / SHARE)):
                    await self._asked.wait()

    async def _wait_for_viewer(self) -> bool:
        """Wait until changes may be sent, at most CHECK seconds; return True if they may not be sent yet."""
        with trio.move_on_after(CHECK):
            while not self._looks:
                await self._asked.wait()
                self._asked = trio.Event()
            while self._taken < self._number:
                await self._free.wait()
                self._free = trio.Event()
        return not self._looks or self._taken < self._number

    def _is_admitted(self) -> bool:
        return self._admission is None or self._admission.valid(trio.current_time())

    async def _patches(self) -> tuple[dict[str, State], float]:
        """Compute the views anew; return the changes in each, and the processor time in seconds."""
        patches: dict[str, tuple[_Open, State]] = {}
        cost = 0.0
        for id, look in tuple(self._looks.items()):
            async with self._pace.turn():
                began = thread_time()
                if self._looks.get(id) is look:
                    patch = self._patch(id, look)
                    patches |= {id: (look, patch)} if patch else {}
                cost += thread_time() - began
        # views that were closed meanwhile are not sent, and one that was opened anew begins from nothing
        return {id: patch for id, (look, patch) in patches.items() if self._looks.get(id) is look}, cost

    def _patch(self, id: str, look: _Open) -> State:
        """Compute one view anew, and return its changes; close the view if it fails or is too large."""
        try:
            state = look.view.content()
            patch = patch_between(look.sent, state)
            if not patch:
                return {}
            patch, size = _sendable(patch)
        except Exception as error:
            del self._looks[id]
            text = f"the node has failed to make the view: {type(error).__name__}"
            self._send(Wrong("FAILED", text, id))
            self._failed(error)
            return {}
        most = self._options.view_bytes
        if size > most:
            del self._looks[id]
            self._send(Wrong("TOO_LARGE", f"the view has more than {most} bytes", id))
            return {}
        look.sent = state
        return patch


def _sendable(patch: State) -> tuple[State, int]:
    """Return a patch without lone surrogates, which JSON in UTF-8 cannot contain, and its size in bytes."""
    try:
        return patch, len(_WRITE.encode(patch))
    except UnicodeEncodeError:
        text = json.dumps(patch, ensure_ascii=False)
        clean = text.encode("utf-8", "replace")
        return msgspec.json.decode(clean), len(clean)
