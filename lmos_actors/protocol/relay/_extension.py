"""The hooks through which extensions add features to a hub. No socket, no clock.

An extension is one object of one hub. The hub calls its extensions about each frame, in the order in which
they were named. They answer through methods of the hub: `answer` to one agent, `announce` to all. An
extension must not block. It stores data through its `ExtensionStore`, and receives it in `start` after a
restart.

Messages are passed on before anything about them is stored, so no delivery waits for a disk. Therefore an
extension shows data only once it is stored, and uses `HubFrame.when_kept` to inform the sender.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import attrs

from ._frames import EVERYBODY, value_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ._frames import Members

Records: TypeAlias = Sequence[tuple[str, bytes]]
"""The records that an extension has kept: keys and values, in the order of the keys."""


Outcome: TypeAlias = Literal["passed", "command", "refused"]


@attrs.frozen
class Fate:
    """The outcome of a frame. `delivered` counts recipients; `code` is the error code of a refusal.

    `unknown` lists targets that are not connected.
    """

    outcome: Outcome
    id: str = ""
    delivered: int = 0
    unknown: tuple[str, ...] = ()
    code: str = ""


class HubRefusal(Exception):
    """The refusal of a frame, with an error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.define
class HubFrame:
    """A frame of an agent that the hub has accepted.

    The hub sets `id` and `ts` (Unix time in milliseconds). `data` is the frame as it is passed on, or empty
    for a command. `type` and `ref` are "" if they are not texts.
    """

    id: str
    sender: str
    to: Sequence[str]
    type: str
    ref: str
    ts: int
    members: Members = attrs.field(repr=False)
    data: bytes = b""
    _values: dict[str, Any] = attrs.field(factory=dict[str, Any], repr=False, init=False)
    _open: int = attrs.field(default=0, init=False)
    _is_lost: bool = attrs.field(default=False, init=False)
    _waits: list[tuple[Callable[[], object], Callable[[], object]]] = attrs.field(
        factory=list["tuple[Callable[[], object], Callable[[], object]]"], repr=False, init=False
    )

    @property
    def is_broadcast(self) -> bool:
        """Whether the frame goes to everybody."""
        return EVERYBODY in self.to

    def value(self, member: str) -> Any:
        """Return the value of a member, None if it is absent. Raise HubRefusal if it is not JSON."""
        if member in self._values:
            return self._values[member]
        try:
            found = self._values[member] = value_of(self.members, member)
        except ValueError as error:
            raise HubRefusal("invalid_message", f"`{member}` cannot be read: {error}") from None
        return found

    # ---- what extensions keep of it

    def when_kept(self, kept: Callable[[], object], lost: Callable[[], object]) -> bool:
        """Call `kept` once everything that extensions have written about the frame is stored.

        Call `lost` instead if some of it could not be stored. Return whether one of them was called at once.
        """
        self._waits.append((kept, lost))
        self._tell()
        return not self._waits

    def keeping(self) -> None:
        """Record that something about the frame is being written."""
        self._open += 1

    def settled(self, *, is_kept: bool) -> None:
        """Record that a write has ended."""
        self._open -= 1
        self._is_lost = self._is_lost or not is_kept
        self._tell()

    def _tell(self) -> None:
        while self._waits and not self._open:
            kept, lost = self._waits.pop(0)
            (lost if self._is_lost else kept)()


class HubControl(Protocol):
    """Operations of a hub for its extensions."""

    @property
    def extensions(self) -> Sequence[HubExtension]:
        """All extensions of the hub, in the order in which they were named."""
        ...

    @property
    def now(self) -> Callable[[], int]:
        """Function that returns Unix time in milliseconds."""
        ...

    @property
    def handled(self) -> HubFrame | None:
        """The frame whose hooks are being called, or None outside of hooks."""
        ...

    def has(self, agent: str) -> bool:
        """Return whether an agent is connected."""
        ...

    @property
    def connected(self) -> Collection[str]:
        """The agents that are connected."""
        ...

    def follows(self, agent: str) -> Collection[str]:
        """Return the agents that an agent follows."""
        ...

    def answer(self, agent: str, type: str, payload: Any, ref: str | None = None) -> None:
        """Send a frame of the relay to an agent, if it is connected."""
        ...

    def announce(self, type: str, payload: Any, ref: str | None = None, *, id: str | None = None) -> None:
        """Send a frame of the relay to all agents; it may be dropped for agents that do not read."""
        ...


class ExtensionStore(Protocol):
    """The storage of an extension for data that must survive a restart."""

    @property
    def is_lasting(self) -> bool:
        """Whether the stored records outlive the process of the hub."""
        ...

    def write(
        self,
        changes: Mapping[str, bytes | None],
        then: Callable[[], object] | None = None,
        failed: Callable[[], object] | None = None,
    ) -> None:
        """Store values by their keys, either all or none; None removes a key. `then` is called once they are
        stored.

        If the store fails, nothing is stored, and `failed` is called instead. A call without changes waits
        for everything that all extensions of the hub have written before.
        """
        ...


class _NotedStore:
    """A store of an extension that records each write in the frame that caused it.

    `writing` counts the open writes.
    """

    def __init__(self, hub: HubControl, store: ExtensionStore) -> None:
        self.writing = 0
        self._hub = hub
        self._store = store

    @property
    def is_lasting(self) -> bool:
        return self._store.is_lasting

    def write(
        self,
        changes: Mapping[str, bytes | None],
        then: Callable[[], object] | None = None,
        failed: Callable[[], object] | None = None,
    ) -> None:
        frame = self._hub.handled if changes else None
        self.writing += 1
        if frame is not None:
            frame.keeping()

        def settled(call: Callable[[], object] | None, *, is_kept: bool) -> None:
            self.writing -= 1
            if call is not None:
                call()
            if frame is not None:
                frame.settled(is_kept=is_kept)

        self._store.write(
            changes, partial(settled, then, is_kept=True), partial(settled, failed, is_kept=False)
        )


class HubExtension:
    """An extension of a hub. Subclass it, and override the hooks that you need.

    `command` and `check` may raise HubRefusal: the frame is refused with an error. The hub's welcome contains
    `name` and `version`. The members that `echoed` names are repeated in errors about a frame.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    echoed: ClassVar[tuple[str, ...]] = ()

    hub: HubControl
    store: ExtensionStore

    def start(self, hub: HubControl, store: ExtensionStore, records: Records) -> None:
        """Start the extension with the records that were stored before."""
        self.hub = hub
        self.store = self._noted = _NotedStore(hub, store)

    def when_settled(self, call: Callable[[], object]) -> None:
        """Call a function once all writes of this extension are stored or lost, or now if none is open."""
        if self._noted.writing:
            self.store.write({}, call, call)
        else:
            call()

    def joined(self, agent: str) -> None:
        """Handle the connection of an agent that was not connected before."""

    def left(self, agent: str) -> None:
        """Handle the end of an agent's connection."""

    def command(self, frame: HubFrame) -> bool:
        """Carry out a command; return False if it does not belong to this extension."""
        return False

    def check(self, frame: HubFrame) -> None:
        """Raise HubRefusal to refuse a message before it is passed on."""

    def hears(self, frame: HubFrame, agent: str) -> bool:
        """Return whether a broadcast may go to an agent."""
        return True

    def done(self, frame: HubFrame, fate: Fate) -> None:
        """Handle a message that was passed on, or a command that was carried out.

        The frame can no longer be refused: a HubRefusal, for example about an unreadable member, ends only
        this hook.
        """

    def acknowledge(self, frame: HubFrame, fate: Fate) -> None:
        """Answer the sender after the `done` of all extensions. The frame can no longer be refused."""

    def due_at(self) -> int | None:
        """Return the Unix time in milliseconds at which `due` must be called, None for never."""
        return None

    def due(self) -> None:
        """Do the work that is due now. The hub's `now` is not before `due_at`."""
