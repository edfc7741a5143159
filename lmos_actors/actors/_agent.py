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
    dataclass_transform,
)

import attrs
from trio.lowlevel import current_task

from ._agent_verbs import Acting, import_log
from ._contract import Contract, compile_contract
from ._declarations import event, prop
from ._fields import check_defaults, check_members, collect_fields
from ._invocation import CURRENT, OwnTask
from ._links import check_on_exit
from ._mailbox import Envelope, InternalTurn, MailboxOptions, Request, trace_text
from ._operation import Operation
from ._options import About, ClassOptions, check_said
from ._runtime import RUNTIME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ._mailbox import Mark
    from ._monitor import Down


@dataclass_transform(kw_only_default=True, field_specifiers=(prop, event, attrs.field))
class Agent(Acting):
    """Subclass it, give it state as fields, and mark what consumers may use with `prop`, `event`, `@action`.

    `class X(Agent, serial=True)`: one run at a time over all actions, turns wait too (OTP's gen_server).
    `rename="camel"`: wire names in camel case. `mailbox=MailboxOptions(...)`: its own bound and policy.
    `behaviours=("new", "paid")`: the names for `@action(when=...)` and `become`, the first one first.
    `trap_exits=True`: exit signals of linked agents become turns of `on_exit`.
    `history=16`: its crash reports tell the last 16 messages, and the state before the one that failed.
    `about=About(...)`: vendor, model and the like, told in its description. `tool=True`: that is a tool's.
    What a subclass does not say is as in its base, but for `rename`.
    """

    __contract__: ClassVar[Contract]

    def __init_subclass__(
        cls,
        *,
        serial: bool | None = None,
        rename: str | None = None,
        mailbox: MailboxOptions | None = None,
        behaviours: tuple[str, ...] | None = None,
        trap_exits: bool | None = None,
        history: int | None = None,
        about: About | None = None,
        tool: bool | None = None,
    ) -> None:
        super().__init_subclass__()
        check_said(cls.__name__, about, tool, vars(cls))
        check_members(cls, _VERBS)
        fields = collect_fields(cls, _RESERVED)
        attrs.define(cls, these=fields, slots=False, kw_only=True, eq=False, repr=False)
        check_defaults(cls)
        namespace = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage] # documented by CPython
        above: Contract | None = getattr(super(cls, cls), "__contract__", None)
        options = ClassOptions(
            serial=serial,
            mailbox=mailbox,
            behaviours=behaviours,
            trap_exits=trap_exits,
            history=history,
            about=about,
            tool=tool,
        )
        cls.__contract__ = compile_contract(
            cls,
            vars(Agent),
            _RESERVED,
            namespace,
            rename=rename,
            options=options.over(above.options if above is not None else None),
        )
        check_on_exit(cls, cls.__contract__.options.trap_exits, vars(Agent)["on_exit"])
        import_log(cls)
        cls._behaviour = next(iter(cls.__contract__.behaviours), "")

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self._slot.path}>"
            if self._slot is not None
            else f"<{type(self).__name__}>"
        )

    # ---- to override

    def started(self) -> None:
        """The first turn of an incarnation, before its mailbox opens; what it raises is a failed start."""

    def on_exit(self, down: Down) -> None:
        """The turn for the end of a linked agent or task; for classes with `trap_exits=True`.

        It has a seat of its own. `down.agent` is the path of the agent; of a task it is `task ...` or
        `run ... of ...`, and `down.incarnation` is 0.
        """

    def supervises(self) -> Any:
        """Return a SupervisorSpec: the children the agent always has, and how its children are restarted.

        Called once for each incarnation, when the lifespan has been entered. The children start before
        `started()`; one that cannot is a failed start of the agent. Of the spec only `children`,
        `strategy`, `max_restarts`, `max_seconds` and `auto_shutdown` count.
        """

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold resources for the agent's life: entered before it takes messages, left after it has ended."""
        yield


def _own_names() -> frozenset[str]:
    names = {name for part in (Agent, Acting) for name in vars(part) if not name.startswith("__")}
    return frozenset(names)


_RESERVED: Final = _own_names()
_VERBS: Final = _RESERVED - {name for name in vars(Agent) if name not in vars(Acting)}


def is_agents_code() -> bool:
    """Return whether the code that runs now is an agent's: a turn, a run, or a task of its own."""
    rt = RUNTIME.get()
    return CURRENT.get() is not None or (rt is not None and rt.turns.slot is not None)


def current_request() -> Request:
    """Return what the code that runs now was asked for, and by whom.

    Raises LookupError outside an agent's turns and runs.
    """
    run = CURRENT.get()
    if isinstance(run, OwnTask):
        if run.request is None:
            raise LookupError("this task of an agent was started by no run: nobody has asked for it")
        return run.request
    if run is not None:
        return run.envelope.request()
    rt = RUNTIME.get()
    if rt is None or rt.turns.slot is None:
        raise LookupError("no agent's turn or run is in progress here")
    item = rt.turns.current
    if isinstance(item, InternalTurn):
        return Request(affordance=item.affordance, trace=trace_text(item.trace))
    if isinstance(item, Envelope):
        return item.request()
    op: Operation | None
    sender: Any
    mark: Mark | None
    if isinstance(item, Operation):
        asker = current_task().context.get(CURRENT)
        op, sender = item, asker.slot if asker is not None else None
        mark = asker.envelope.trace if asker is not None else None
    else:
        op, _, sender = item
        mark = getattr(item, "trace", None)
    return Request(
        affordance=op.name if op is not None else "started",
        consumer=sender.path if sender is not None else None,
        trace=trace_text(mark),
    )
