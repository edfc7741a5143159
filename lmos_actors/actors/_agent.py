"""The base class of every agent: its state, the methods that it may override, and the verbs of `self`.

A subclass becomes an attrs class whose annotated fields are the state, set by keyword in the
constructor. `units: Property[str] = prop(...)` is state and a property, `asked: Event[str] = event()` is
neither, `questions: int = 0` is private state. A subclass cannot reuse the names of `Agent`, except the
four methods that are there to be overridden.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    dataclass_transform,
    overload,
)

import attrs

from lmos_actors.errors import AgentUnavailable, NotFound

from ._blocking_work import outside_of
from ._class_contract import contract_of_class
from ._population import AgentQuery
from ._request_clients import answer_of_client, log_of
from .declaration._contract import Contract, outline_of
from .declaration._declarations import event, prop
from .declaration._fields import check_defaults, check_members, collect_fields, import_log
from .declaration._options import About, ClassOptions, check_behaviour, check_said
from .durable._durable_timers import DurableTimer, timers_of_agent, turn_after_durably
from .durable._kept_state import ephemeral
from .finding._registry import link_to, neighbour_of
from .listening._follow import Following, follow
from .listening._groups import Group, group_for, join, leave
from .listening._topics import Topic, topic_for
from .messages._mailbox import MailboxOptions, Stashed
from .messages._monitor import NORMAL, check_reason
from .refs._ref import Ref
from .slot._lifespan_task import AgentNursery
from .slot._links import Monitor, check_on_exit, link_agents, monitor_agent, unlink_agents
from .slot._skewed_clock import date_of
from .slot._slot_start import child_supervisor
from .slot._slot_timers import send_after, turn_after
from .slot._stash import behaviour_changed, check_stash, state_timeout, unstash

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
    from datetime import datetime
    from types import UnionType

    from lmos_actors._core import RandomStream, Timer

    from ._population import Spread
    from ._runtime import Startable
    from .declaration._affordances import Action, EventHandle, Turn
    from .messages._monitor import Down, ExitReason
    from .messages._observers import Gap
    from .slot._slot import Slot

Durability: TypeAlias = Literal["process", "power"]

A = TypeVar("A")
S = TypeVar("S", bound="Agent")
V = TypeVar("V")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


_OPTIONS: Final = frozenset(field.name for field in attrs.fields(ClassOptions))


@dataclass_transform(kw_only_default=True, field_specifiers=(prop, event, attrs.field, ephemeral))
class Agent:
    """The base class of agents; fields are state, and `prop`, `event`, `@action` mark the public interface.

    `class X(Agent, serial=True)`: one run at a time over all actions, and turns wait too (OTP's gen_server).
    `rename="camel"`: wire names in camel case. `mailbox=MailboxOptions(...)`: the bound and policy of its
    mailbox. `behaviours=("new", "paid")`: the names for `@action(when=...)` and `become`; agents begin with
    the first. `trap_exits=True`: exit signals of linked agents become turns of `on_exit`. `history=16`: its
    crash reports show the last 16 messages, and the state before the one that failed. `about=About(...)`:
    vendor, model and the like, for the description. `tool=True`: it is described as a tool. `private=True`:
    no peer finds or reaches it. A subclass inherits the options that it does not set, except `rename`.

    `durable=True`: its fields and properties are kept in the node's store after each turn and given back to
    the next incarnation; its output leaves once they are kept. Fields declared by `ephemeral` are not kept.
    `durability="process"` (the default) survives the end of the process, `"power"` a power failure too.
    `state_version = 2` in the body is the version of its fields, `state_migrations` a dict of functions from
    the state of one version to the next, `formerly=("shop:Ledger",)` the former names of the class.
    `durable="journal"`: the facts of `self.record(...)` are kept instead, with a snapshot of the fields after
    every `snapshot_every` facts (100); `fact_migrations` migrate facts as `state_migrations` do state.
    """

    __contract__: ClassVar[Contract]
    _slot: Slot | None = None
    _behaviour: str = ""
    _history: Any = None  # its last messages, see `_history.py`

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
        durable: bool | Literal["journal"] | None = None,
        durability: Durability | None = None,
        formerly: tuple[str, ...] | None = None,
        snapshot_every: int | None = None,
        private: bool | None = None,
    ) -> None:
        options = ClassOptions(**{name: each for name, each in locals().items() if name in _OPTIONS})
        super().__init_subclass__()
        check_said(cls.__name__, about, tool, private, vars(cls))
        check_members(cls, _VERBS)
        fields = collect_fields(cls, _RESERVED)
        attrs.define(cls, these=fields, slots=False, kw_only=True, eq=False, repr=False)
        check_defaults(cls)
        above = outline_of(cls)  # the nearest base's, as the class's own is made below
        options = options.over(above.options if above is not None else None)
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] # documented by CPython
        contract = contract_of_class(cls, vars(Agent), _RESERVED, rename, options, frame)
        if options.durable:
            check_members(cls, _OF_JOURNALS)
        check_on_exit(cls, options.trap_exits, vars(Agent)["on_exit"])
        import_log(cls)
        cls._behaviour = next(iter(contract.behaviours), "")

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name}>" if self._slot is None else f"<{name} {self._slot.path}>"

    # ---- to override

    def started(self) -> None:
        """Run as an incarnation's first turn, before its mailbox opens; if this raises, the start fails."""

    def on_exit(self, down: Down) -> None:
        """Handle the end of a linked agent or task, in a class with `trap_exits=True`.

        This turn has a seat of its own. `down.agent` is the path of the agent; for a task it is `task ...` or
        `run ... of ...`, and `down.incarnation` is 0.
        """

    def supervises(self) -> Any:
        """Return a SupervisorSpec: the children the agent always has, and how its children are restarted.

        Called once for each incarnation, when the lifespan has been entered. The children start before
        `started()`; if one cannot, the start of the agent fails. Only `children`,
        `strategy`, `max_restarts`, `max_seconds` and `auto_shutdown` of the spec are used.
        """

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Hold resources for the agent's life: entered before it takes messages, left after it has ended."""
        yield

    # ---- identity and place

    def _place(self) -> Slot:
        slot = self._slot
        if slot is None:
            raise AgentUnavailable(type(self).__name__, "this incarnation has not started or has ended")
        return slot

    @property
    def ref(self: S) -> Ref[S]:
        """A ref to this agent."""
        return Ref(self._place())

    @property
    def path(self) -> str:
        """The agent's path in the tree."""
        return self._place().path

    def record(self, fact: object, /) -> None:
        """Apply a fact and keep it: later output leaves once the fact is kept.

        For classes with `durable="journal"`, whose method `apply(self, fact)` names the types of facts and
        changes the fields by a fact. `apply` runs again for each kept fact when an incarnation starts, before
        `started()`, so it must do nothing else. Raises TypeError for a fact that `apply` does not take.
        """
        form = type(self).__contract__.state
        if form is None or form.facts is None:
            raise TypeError(f"{type(self).__name__} keeps no journal: class X(Agent, durable='journal')")
        form.facts.check(fact)
        gate = self._place().output_gate
        apply: Callable[[object], None] = getattr(self, "apply")  # noqa: B009 -- only these classes have it
        apply(fact)
        if gate is not None:
            gate.note(fact)

    @property
    def restored(self) -> bool:
        """Whether this incarnation of a durable agent began with state from the store."""
        gate = self._place().output_gate
        return gate is not None and gate.restored

    def find(
        self,
        cls: type[A],
        name: str | None = None,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
        spread: Spread | None = None,
        key: str | None = None,
        id: str | None = None,
    ) -> Ref[A]:
        """Return a ref to an agent of a class, by name or else the first started; see `node.find`."""
        place = self._place()
        node = place.rt.node_of(place)
        wanted = AgentQuery(cls, name, title, type, capability, affordance, node=node, id=id)
        return Ref(link_to(place.rt, wanted, spread, key))

    # ---- doing

    def send(
        self,
        ref: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Send one way, from a turn. Messages without a seat wait in order; until then no further turn runs.

        Raises MailboxFull past 1,024 such messages (64 to itself), if the other side rejects, or if waiting
        would be a deadlock; InvalidInput, NotFound. A message that reaches no running agent is a dead letter.
        """
        try:
            link = ref._link  # pyright: ignore[reportPrivateUsage] # every send passes here: no call between
            key = handle.name
        except AttributeError:
            raise TypeError(f"send takes a ref and an action's handle, not {ref!r}, {handle!r}") from None
        slot = self._slot or self._place()
        if slot.output_gate is None:
            link.send_from(slot, key, args, kwargs)
        else:
            slot.output_gate.hold_message(link, key, args, kwargs)

    def send_after(
        self,
        seconds: float,
        ref: Ref[A],
        handle: Turn[A, P, Any] | Action[A, P, Any, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Timer:
        """Send one way, as `send` does, `seconds` from now; `cancel()` or this incarnation's end prevents it.

        Arguments are checked at once if the receiver runs in this node: InvalidInput, NotFound. A message
        that then reaches no running agent, or is refused by its mailbox, is a dead letter. Raises ValueError
        for a time below 0.
        """
        try:
            link: Any = ref._link  # pyright: ignore[reportPrivateUsage] # as in `send`
            key = handle.name
        except AttributeError:
            raise TypeError(
                f"send_after takes a ref and an action's handle, not {ref!r}, {handle!r}"
            ) from None
        if not seconds >= 0:
            raise ValueError(f"send_after() needs a number of seconds of at least 0, not {seconds!r}")
        return send_after(self._slot or self._place(), seconds, link, key, args, kwargs)

    # ---- topics and groups

    @overload
    def follow(
        self,
        ref: Ref[A],
        handle: EventHandle[A, V],
        turn: Callable[[V], None],
        /,
        *,
        size: int = 64,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> Following: ...
    @overload
    def follow(
        self,
        topic: Topic[V],
        turn: Callable[[V], None],
        /,
        *,
        size: int = 64,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> Following: ...
    def follow(self, source: Any, /, *rest: Any, size: int = 64, on_gap: Any = None) -> Following:
        """Receive another agent's events, or a topic's values, as turns of this incarnation.

        This needs no task. If more than `size` values wait, the oldest is dropped and counted in `missed`;
        `on_gap` is a turn that is called where values are missing. An agent that `find` does not know yet is
        followed from its start on. The following continues when that agent is restarted.
        """
        return follow(self._place(), source, rest, size, on_gap)

    @overload
    def topic(self, name: str, tp: type[V], /) -> Topic[V]: ...
    @overload
    def topic(self, name: str, tp: UnionType, /) -> Topic[Any]: ...
    def topic(self, name: str, tp: Any, /) -> Topic[Any]:
        """Return the node's topic with a name and type. Raises TypeError if the topic has another type."""
        return topic_for(self._place(), name, tp)

    def group(self, name: str, cls: type[A], /) -> Group[A]:
        """Return the members of a group that are of class `cls`."""
        return group_for(self._place(), name, cls)

    def join_group(self, name: str, /) -> None:
        """Join a group, until this incarnation is stopped or ends.

        An agent that joins twice has to leave twice, and is a member once.
        """
        join(self._place(), name)

    def leave_group(self, name: str, /) -> bool:
        """Undo one `join_group`; return False if this agent was no member."""
        return leave(self._place(), name)

    @overload
    def after(  # type: ignore[overload-overlap] # a turn that has a keyword `durable` cannot be given it
        self, seconds: float, turn: Callable[..., None], /, *args: Any, durable: Literal[True], **kwargs: Any
    ) -> DurableTimer: ...
    @overload
    def after(
        self, seconds: float, turn: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs
    ) -> Timer: ...
    def after(self, seconds: float, turn: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
        """Run a turn `seconds` from now; the timer's `cancel()`, or this incarnation's end, prevents it.

        At 0 it comes before all messages not taken yet. With `durable=True`, in a durable class, the timer is
        kept, and so is its `cancel()`: the turn runs in this or a later incarnation, once, late rather than
        never. It must be a method of self with arguments that can be kept (TypeError). RuntimeError past 256.
        """
        if not callable(turn):
            raise TypeError(f"after() takes a turn and its arguments, not {turn!r}")
        if not seconds >= 0:
            raise ValueError(f"after() needs a number of seconds of at least 0, not {seconds!r}")
        if args or kwargs:
            if kwargs and kwargs.pop("durable", False):
                return turn_after_durably(self, seconds, turn, args, kwargs)
            turn = partial(turn, *args, **kwargs)
        return turn_after(self._slot or self._place(), seconds, turn, ())

    @property
    def durable_timers(self) -> tuple[DurableTimer, ...]:
        """The durable timers of this agent that have neither fired nor been cancelled, the next one first.

        They include those that an earlier incarnation set. Raises TypeError if its class is not durable.
        """
        return timers_of_agent(self).pending

    def stop(self, reason: ExitReason = NORMAL) -> None:
        """End with that reason, `normal` if none is given, once what waits and runs has been handled.

        Supervisor, monitors and linked agents see the reason. TypeError for anything but an ExitReason.
        """
        check_reason(reason)
        slot = self._place()
        shutdown = slot.spec.shutdown
        slot.drain(reason, float(shutdown) if isinstance(shutdown, (int, float)) else None)

    # ---- ending together

    def link(self, ref: Ref[Any]) -> None:
        """Link this incarnation to another agent, so that they end together.

        If one ends for a reason other than `normal`, the other ends at once with the same reason, unless its
        class has `trap_exits=True`. A second link to an agent, or a link to itself, does nothing. Raises
        AgentUnavailable or NotFound if that agent does not run, NotAllowed if it is no agent of this process.
        """
        place = self._place()
        link_agents(place, neighbour_of(place, ref))

    def unlink(self, ref: Ref[Any]) -> None:
        """Remove a link; do nothing if there is none, or if the agent is gone.

        A turn of `on_exit` may be on its way already. Raises NotAllowed for what cannot be linked.
        """
        place = self._place()
        try:
            other = neighbour_of(place, ref)
        except (NotFound, AgentUnavailable):  # the agent is gone
            return
        unlink_agents(place, other)

    def monitor(self, ref: Ref[Any], turn: Callable[[Down], None], /) -> Monitor:
        """Run a turn with a `Down` for every incarnation of another agent that ends.

        The monitor lasts for this incarnation's life, needs no task and affects neither side. If the other
        agent does not run now, a `Down` comes at once, with the reason `shutdown` and the detail `not
        running`. The monitor ends when that agent has ended permanently, or by its own `cancel()`. Raises
        NotFound for a name that was never found.
        """
        if iscoroutinefunction(turn):
            raise TypeError(f"monitor() takes a def, as it becomes a turn, not {turn!r}")
        place = self._place()
        return monitor_agent(place, neighbour_of(place, ref), turn)

    # ---- having behaviours

    @property
    def behaviour(self) -> str:
        """The present behaviour: set by the last `become`, else the first that the class declares."""
        return self._behaviour

    def become(self, behaviour: str, /) -> None:
        """Change the behaviour, which decides which actions with `when` are taken.

        Postponed and stashed messages come next, in order; the timer of `state_timeout` ends. Nothing happens
        if this is the present behaviour. Raises ValueError for a behaviour that the class does not have.
        """
        slot = self._place()
        contract = slot.agent.__contract__
        check_behaviour(behaviour, type(self).__name__, contract.behaviours)
        if behaviour != self._behaviour:
            self._behaviour = behaviour
            behaviour_changed(slot)

    def state_timeout(
        self, seconds: float, turn: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs
    ) -> Timer:
        """Run a turn as `after` does, unless the behaviour changes first; a new timer replaces the last."""
        if not seconds >= 0:
            raise ValueError(f"state_timeout() needs a number of seconds of at least 0, not {seconds!r}")
        return state_timeout(self._place(), seconds, partial(turn, *args, **kwargs))

    def stash(self) -> NoReturn:
        """Put aside the message in hand and end this turn here; the message keeps its seat, its asker waits.

        The message comes again after `unstash_all` or the next change of behaviour. An `async def` action may
        call it only before its first wait. Raises RuntimeError where there is no message to put aside.
        """
        check_stash(self._place())
        raise Stashed

    def unstash_all(self) -> None:
        """Take all stashed and postponed messages next, in order, before all later ones."""
        unstash(self._place())

    @property
    def nursery(self) -> AgentNursery:
        """Tasks that live as long as this incarnation; an exception in one is a crash."""
        return AgentNursery(self._place())

    # ---- the outside world

    def to_thread(
        self, fn: Callable[[*Ts], V], /, *args: *Ts, abandon: bool = False
    ) -> Coroutine[Any, Any, V]:
        """Call a blocking function in a thread; return its result, or raise its exception.

        At most 16 calls run at a time in a node (`open_node(threads=...)`). A run that is cancelled waits for
        the thread; with `abandon` the run ends, and the result of the thread is discarded. The function sees
        the caller's context variables. Raises RuntimeError in a `def` turn, ForbiddenCall on virtual time.
        """
        return outside_of(self._place(), "to_thread").to_thread(fn, args, abandon)

    def to_process(self, fn: Callable[[*Ts], V], /, *args: *Ts) -> Coroutine[Any, Any, V]:
        """Call a compute-bound function in a worker process; return its result, or raise its exception.

        As many calls run at a time as there are processors (`open_node(processes=...)`). The function has to
        be at the top level of a module, and arguments and result must be picklable, else TypeError. A cancel
        kills the worker. Raises WorkerDied if the worker ends by itself, RuntimeError in a `def` turn, and
        ForbiddenCall on virtual time.
        """
        return outside_of(self._place(), "to_process").to_process(fn, args)

    # ---- people

    def approve(
        self,
        text: str,
        data: Any = None,
        /,
        *,
        key: str,
        expires: float = 86_400.0,
        reuse: bool = False,
        reworded: Literal["fail", "new"] = "fail",
    ) -> Coroutine[Any, Any, bool]:
        """Wait until a person has approved or refused something; return whether it is approved.

        `text` is the question, `data` plain data shown with it. `key` names the question within this agent:
        if it is asked again, as after a crash, the same question goes on waiting. The question is kept in the
        store, or else in memory, and is refused `expires` seconds after it was first asked. A cancel leaves
        it waiting. The answer is for one run, and is kept before this method returns. That run gets the same
        answer again, and so does the next life of a request with a key. Other runs wait until that run has
        ended, and then ask anew. With `reuse` the answer is for all runs, unless the question expired.

        Raises ActionFailed: `QUESTION_INVALID`, `TOO_MANY`, or `QUESTION_CHANGED` for other words under a key
        that waits or whose run goes on. With `reworded="new"` the new words replace a question that waits.
        Raises ValueError, TypeError, ConfigError; RuntimeError in a `def` turn, and in the lifespan.
        """
        place = self._place_to_wait("approve")
        return place.rt.approver().ask(place, text, data, key, expires, reuse=reuse, reworded=reworded)

    def ask_client(
        self, name: str, arguments: Mapping[str, Any] | None = None, /
    ) -> Coroutine[Any, Any, Any]:
        """Ask the client that waits for this request to carry out something itself; return the result.

        Clients of MCP offer `elicitation/create`, a form, and `sampling/createMessage`, a model, as in the
        protocol. Raises ActionFailed (CLIENT_FAILED) if that fails; RuntimeError in a `def` turn.
        """
        self._place_to_wait("ask_client")
        return answer_of_client(name, arguments or {})

    def _place_to_wait(self, verb: str) -> Slot:
        slot = self._place()
        if slot.turns.slot is not None:
            raise slot.turns.misuse(verb, of="self.")
        return slot

    # ---- children

    def start(
        self, factory: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Ref[A]]:
        """Start a permanent child named after its class: `worker`, then `worker-2`.

        The child ends with this agent. A cancel undoes the start. Raises StartFailed; WrongState when this
        agent is ending; RuntimeError, at once, in a `def` turn.
        """
        made = partial(factory, *args, **kwargs) if args or kwargs else factory
        return child_supervisor(self._place_to_wait("start")).start_class(made)

    def start_child(self, spec: Startable[A], /) -> Coroutine[Any, Any, Ref[A]]:
        """Start a child from a ChildSpec. Raises NameTaken, ConfigError, and the same errors as `start`."""
        own = child_supervisor(self._place_to_wait("start_child"))
        return own.supervisor.start_child(spec)  # type: ignore[no-any-return]

    def start_supervisor(self, spec: Any, /) -> Coroutine[Any, Any, Any]:
        """Start the Supervisor of a SupervisorSpec and return it. Raises the same errors as `start_child`."""
        own = child_supervisor(self._place_to_wait("start_supervisor"))
        return own.supervisor.start_supervisor(spec)  # type: ignore[no-any-return]

    def start_pool(self, spec: Any, /) -> Coroutine[Any, Any, Any]:
        """Start a Pool of children, and return its PoolRef. Raises the same errors as `start_child`."""
        own = child_supervisor(self._place_to_wait("start_pool"))
        return own.supervisor.start_pool(spec)  # type: ignore[no-any-return]

    @property
    def children(self) -> Any:
        """The Supervisor of this agent's children. Raises WrongState when the agent is ending."""
        return child_supervisor(self._place()).supervisor

    # ---- time, chance, ids, log: the only sources an agent needs, so that a simulation can replay them

    @property
    def random(self) -> RandomStream:
        """This agent's own stream of random numbers; a node with the same seed makes the same stream."""
        slot = self._slot or self._place()
        more = slot.extra or slot.ensure_extra()
        if more.random is None:
            more.random = slot.rt.entropy.stream(f"agent {slot.path} {slot.incarnation}{slot.owner.lives}")
        return more.random

    def now(self) -> datetime:
        """Return the wall-clock time of this world, in UTC."""
        return date_of(self._slot or self._place())

    def new_id(self) -> str:
        """Return a new UUID of version 4, as text."""
        return (self._slot or self._place()).rt.entropy.new_id()

    @property
    def log(self) -> Any:
        """A structlog logger bound to this agent's path."""
        more = self._place().ensure_extra()
        if more.log is None:
            more.log = log_of(self._place())
        return more.log


_OVERRIDDEN: Final = frozenset({"started", "on_exit", "supervises", "lifespan"})
_OF_JOURNALS: Final = frozenset({"record"})  # other classes may use the name
_RESERVED: Final = frozenset(name for name in vars(Agent) if not name.startswith("__")) - _OF_JOURNALS
_VERBS: Final = _RESERVED - _OVERRIDDEN
