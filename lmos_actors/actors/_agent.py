"""The base class of every agent: its state, and what the runtime gives it.

A subclass becomes an attrs class whose annotated fields are the state, set by keyword in the
constructor. `units: Property[str] = prop(...)` is state and a property, `asked: Event[str] = event()` is
none, `questions: int = 0` is private state.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Protocol,
    TypeVar,
    dataclass_transform,
)

import attrs
from trio.lowlevel import current_task

from ._acting import Acting
from ._contract import Contract, compile_contract
from ._declare import event, prop
from ._fields import collect_fields
from ._invocation import CURRENT
from ._mailbox import Envelope, Firing, MailboxOptions, Request
from ._operation import Operation
from ._runtime import RUNTIME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ._calls import LocalLink
    from ._ref import Ref

A = TypeVar("A")


class Starter(Protocol):
    """What starts children of an agent, under a supervisor of its own; filled in by supervision."""

    async def start(self, parent: LocalLink, factory: Callable[[], A]) -> Ref[A]:
        """Start a child of `parent`, gone with it. Raises StartFailed."""
        ...


@dataclass_transform(kw_only_default=True, field_specifiers=(prop, event, attrs.field))
class Agent(Acting):
    """Subclass it, give it state as fields, and mark what consumers may use with `prop`, `event`, `@action`.

    `class X(Agent, serial=True)`: one run at a time over all actions, turns wait too (OTP's gen_server).
    `rename="camel"`: wire names in camel case. `mailbox=MailboxOptions(...)`: its own bound and policy.
    A subclass that says nothing has `serial` and `mailbox` of its base.
    """

    __contract__: ClassVar[Contract]

    def __init_subclass__(
        cls, *, serial: bool | None = None, rename: str | None = None, mailbox: MailboxOptions | None = None
    ) -> None:
        super().__init_subclass__()
        base = vars(Agent)
        fields = collect_fields(cls, _RESERVED)
        attrs.define(cls, these=fields, slots=False, kw_only=True, eq=False, repr=False)
        namespace = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage] # documented by CPython
        above: Contract | None = getattr(super(cls, cls), "__contract__", None)
        if above is not None:
            serial = above.serial if serial is None else serial
            mailbox = above.mailbox if mailbox is None else mailbox
        cls.__contract__ = compile_contract(
            cls, base, _RESERVED, namespace, serial=bool(serial), rename=rename, mailbox=mailbox
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._slot.path}>"
            if self._slot is not None
            else f"<{type(self).__name__}>"
        )

    # ---- to override

    def started(self) -> None:
        """The first turn of an incarnation, before its mailbox opens; what it raises is a failed start."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold resources for the agent's life: entered before it takes messages, left after it has ended."""
        yield


def _own_names() -> frozenset[str]:
    names = {name for part in (Agent, Acting) for name in vars(part) if not name.startswith("__")}
    return frozenset(names | {"start", "link", "become", "stash", "unstash_all", "to_thread", "on_exit"})


_RESERVED: Final = _own_names()


def current_request() -> Request:
    """Say what the code that runs now was asked for, and by whom.

    Raises LookupError outside an agent's turns and runs.
    """
    run = CURRENT.get()
    if run is not None:
        return run.envelope.request()
    rt = RUNTIME.get()
    if rt is None or rt.turns.slot is None:
        raise LookupError("no agent's turn or run is in progress here")
    item = rt.turns.current
    if isinstance(item, Firing):
        return Request(affordance="timer")
    if isinstance(item, Envelope):
        return item.request()
    op: Operation | None
    sender: Any
    if isinstance(item, Operation):
        asker = current_task().context.get(CURRENT)
        op, sender = item, asker.slot if asker is not None else None
    else:
        op, _, sender = item
    return Request(
        affordance=op.name if op is not None else "started",
        consumer=sender.path if sender is not None else None,
    )
