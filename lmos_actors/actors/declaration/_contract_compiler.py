"""The contract of an agent class: its operations, checked and compiled once, when the class is made.

`Agent.__init_subclass__` calls `compile_contract`, which raises TypeError for: names that shadow the agent's
own, property types that can be changed in place, mutable defaults, types without a schema, handlers whose
signature cannot be described to a consumer. A type whose name
means nothing yet is not checked at first, and the contract is an outline: see `_contract.py`. An accepted
class has a table of operations by key:

    forecast    invoke an action          ?units   read a property      =units   write it
    +?units     observe it                +!asked  subscribe to an event
    ?           read all                  =        write many           +!       subscribe to all events
"""

from __future__ import annotations

import inspect
import sys
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from trio.lowlevel import disable_ki_protection

from lmos_actors._core import Unknown, signature_of, types_of_class, unknown_in
from lmos_actors.errors import InvalidInput, NotAllowed, NotFound
from lmos_actors.protocol.td import type_name

from ..messages._mailbox import MailboxOptions
from ..messages._observers import ALL_EVENTS, event_key, property_key
from ..messages._operation import ANYTHING, GATED, MISSING, RUN, RUNS, STREAM, TURN, Operation, Parameter
from ..values import UNREAD, check_property_type, hidden_fields, shape_of
from ._affordances import Action, Event, Property, StreamAction, Turn
from ._contract import Contract, outline_of
from ._fields import MUTABLE
from ._history import keep_history
from ._options import ClassOptions, behaviours_of, check_durable
from ._type_hints import (
    is_progress,
    note_unread,
    output_of,
    streamed_item,
    type_of_affordance,
    types_of_method,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..values import Shape

_HANDLES: Final = (Property, Event, Turn, Action, StreamAction)
_KINDS: Final = ((Turn, TURN), (Action, RUN), (StreamAction, STREAM))
_RENAMES: Final = (None, "camel")


def compile_contract(
    cls: type,
    bases: Mapping[str, Any],
    reserved: frozenset[str],
    *,
    rename: str | None,
    options: ClassOptions,
    is_last: bool,
) -> Contract:
    """Compile an agent class. Raises TypeError with the reason when it cannot be accepted.

    `bases` are the members of `Agent`, to see which methods the class overrides; `reserved` the names that no
    affordance may have. A type that is unknown now is an error if `is_last`, else the contract is `unread`.
    """
    if rename not in _RENAMES:
        raise TypeError(f"{cls.__name__}: rename must be 'camel', not {rename!r}")
    mailbox = options.mailbox
    if mailbox is not None and not isinstance(mailbox, MailboxOptions):
        raise TypeError(f"{cls.__name__}: mailbox must be a MailboxOptions, not {mailbox!r}")
    contract = Contract(cls.__name__, vars(cls).get("__doc__"))
    contract.rename = rename
    contract.options = options
    contract.serial = bool(options.serial)
    contract.mailbox = mailbox
    compiler = _Compiler(cls, contract, rename, reserved, is_last=is_last)
    declarers: dict[str, type] = {}  # the nearest of each name
    for part in reversed(cls.__mro__):
        declarers.update(dict.fromkeys(vars(part), part))
    for name, declarer in declarers.items():
        value = vars(declarer)[name]
        if declarer is cls or isinstance(value, _HANDLES) or hasattr(value, "__lmos_every__"):
            compiler.member(name, value, declarer)
    compiler.whole_object()
    contract.answers = _answering(cls.__name__, contract)
    # which fields are secret, or may be as their types are unknown
    types = types_of_class(cls, without=reserved)
    contract.unread |= any(unknown_in(hint) is not None for hint in types.values())
    contract.hidden = hidden_fields(cls, types, reserved)
    contract.guarded = any(secrecy != UNREAD for secrecy in contract.hidden.values()) or any(
        op.secrecies is not None for op in contract.table.values()
    )
    keep_history(cls.__name__, contract.table.values(), options.history)
    contract.behaviours = behaviours_of(cls.__name__, contract.table, options.behaviours)
    _check_durable(cls.__name__, contract)
    contract.has_started = _overrides(cls, "started", bases)
    contract.has_lifespan = _overrides(cls, "lifespan", bases)
    contract.has_children = _overrides(cls, "supervises", bases)
    if contract.has_started and inspect.iscoroutinefunction(inspect.getattr_static(cls, "started")):
        raise TypeError(
            f"{cls.__name__}.started must be a def, as it is the first turn; "
            f"what has to wait goes into lifespan()"
        )
    return contract


def _answering(title: str, contract: Contract) -> str | None:
    """Return the name of the action that answers questions, or None. Raises TypeError."""
    found = {name: handle for name, handle in contract.actions.items() if handle.options.answers is not None}
    if len(found) > 1:
        raise TypeError(f"{title}: one action answers questions, not {' and '.join(found)}")
    for name, handle in found.items():
        op, given = contract.table[name], handle.options.answers or {}
        for each in given:
            if each not in [one.name for one in op.params]:
                raise TypeError(f"{title}.{name} has no parameter {each!r} for answers=")
        needed = [one for one in op.params if one.default is MISSING and one.name not in given]
        if op.streams or len(needed) > 1:
            raise TypeError(
                f"{title}.{name} answers questions in plain words, so it needs one argument: give the others "
                "with answers={...}"
            )
    return next(iter(found), None)


def _check_durable(title: str, contract: Contract) -> None:
    """Raise TypeError for a durable class with runs that may await while its state is half changed."""
    check_durable(title, contract.options)
    if contract.durable_periodic and not contract.options.durable:
        raise TypeError(
            f"{title}.{contract.durable_periodic[0][1]}: @every(durable=True) goes with "
            f"class {title}(Agent, durable=True)"
        )
    if contract.options.durable is not True:  # facts of a journal are whole wherever they are recorded
        return
    for name, handle in contract.actions.items():
        op = contract.table[name]
        if op.kind in RUNS and not contract.serial and not handle.options.snapshot_safe:
            raise TypeError(
                f"{title}.{name} is async def, and {title} is durable: say @action(snapshot_safe=True) if "
                f"the state is whole at each await of it, or class {title}(Agent, durable=True, serial=True)"
            )


def _overrides(cls: type, name: str, bases: Mapping[str, Any]) -> bool:
    return inspect.getattr_static(cls, name, None) is not bases.get(name)


class _Compiler:
    def __init__(
        self,
        cls: type,
        contract: Contract,
        rename: str | None,
        reserved: frozenset[str],
        *,
        is_last: bool,
    ) -> None:
        self.cls = cls
        self.contract = contract
        self.is_last = is_last
        self.rename = self.own_rename = rename
        self.reserved = reserved

    def member(self, name: str, value: Any, declarer: type) -> None:
        """Compile one member of the class, if it is an affordance or a periodic turn."""
        # an inherited one keeps the name it has: the base's handle is the same object
        contract = outline_of(declarer) if declarer is not self.cls else None
        self.rename = self.own_rename if contract is None else contract.rename
        if isinstance(value, _HANDLES):
            if name in self.reserved:
                raise TypeError(f"{self.cls.__name__}.{name}: the name is the agent's own, choose another")
            self._affordance(name, value)  # pyright: ignore[reportUnknownArgumentType]
            return
        if declarer is self.cls and inspect.isfunction(value) and name != "lifespan":
            disable_ki_protection(value)  # Ctrl-C may interrupt user code, except in lifespan
        period = getattr(value, "__lmos_every__", None)
        if period is not None:
            if inspect.iscoroutinefunction(value):
                raise TypeError(f"{self.cls.__name__}.{name}: @every goes on a def, as a firing is a turn")
            if vars(value)["__lmos_durable__"]:
                self.contract.durable_periodic += ((period, name),)
            else:
                self.contract.periodic += ((period, name),)

    def _affordance(self, name: str, value: Any) -> None:
        if isinstance(value, Property):
            self._property(name, value)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, Event):
            self._event(name, value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            self._action(name, value)

    def wire(self, name: str, given: str | None) -> str:
        """Return the name of an affordance or parameter for consumers."""
        if given is not None:
            return given
        if self.rename == "camel":
            head, *rest = name.split("_")
            return head + "".join(part.capitalize() for part in rest)
        return name

    def _claim(self, kind: Mapping[str, Any], wire: str, name: str) -> None:
        known = (*self.contract.properties, *self.contract.actions, *self.contract.events)
        if wire in known and wire not in kind:
            raise TypeError(f"{self.cls.__name__}.{name}: another affordance is named {wire!r} too")

    def _shape(self, hint: Any, name: str) -> Shape[Any]:
        """Compile the type of the member `name`. While the type is unknown, the shape accepts any value."""
        unknown = unknown_in(hint)
        if unknown is None:
            try:
                return shape_of(hint)
            except TypeError as exc:
                missing = isinstance(exc.__cause__, NameError) and _may_grow(hint, self.cls.__module__)
                if not missing:
                    raise TypeError(f"{self.cls.__name__}.{name}: {exc}") from None
                unknown = Unknown(type_name(hint), str(exc.__cause__))  # of a part of a struct
        note_unread(self.cls, name, unknown, self.contract, is_last=self.is_last)
        return _unread_shape()

    # ---- properties

    def _property(self, name: str, made: Property[Any]) -> None:
        hint = type_of_affordance(self.cls, name, Property)
        where = f"{self.cls.__name__}.{name}"
        shape = self._shape(hint, name)
        if shape.type is not Unknown:
            check_property_type(hint, where)
        wire = made.handle.name = self.wire(name, made.wire_name)
        self._claim(self.contract.properties, wire, name)
        made.handle.read_key = property_key(wire)
        made.handle.write_key = f"={wire}"
        made.take = _assigned(shape, where) if shape.type is not Unknown else _read_first(self.cls, made)
        self.contract.properties[wire] = made
        self._property_operations(wire, made, shape)

    def _property_operations(self, wire: str, made: Property[Any], shape: Shape[Any]) -> None:
        attribute, hidden = made.attribute, made.hidden

        def read(agent: Any) -> Any:
            return getattr(agent, hidden)

        def write(agent: Any, value: Any) -> None:
            setattr(agent, attribute, value)

        def refuse_read(agent: Any) -> Any:
            raise NotAllowed(f"property {wire!r} of {self.cls.__name__} is write-only")

        def refuse_write(agent: Any, value: Any) -> None:
            raise NotAllowed(f"property {wire!r} of {self.cls.__name__} is read-only")

        def observe(agent: Any, feed: Any) -> Any:
            if made.write_only or not made.observable:
                raise NotAllowed(f"property {wire!r} of {self.cls.__name__} cannot be observed")
            agent._slot.sinks().add(property_key(wire), feed)
            value = read(agent)
            agent._slot.show_first(feed, value)
            return value  # for the instrument, which records answers

        self._add(property_key(wire), "read", wire, refuse_read if made.write_only else read)
        self.contract.table[property_key(wire)].result_secrecy = shape.secrecy
        value = Parameter("value", "value", shape, MISSING, keyword_only=False)
        self._add(f"={wire}", "write", wire, refuse_write if made.read_only else write, (value,), whole=True)
        if made.read_only:
            self.contract.table[f"={wire}"].take_anything()
        self._add(f"+{property_key(wire)}", "observe", wire, observe, (ANYTHING,))
        self.contract.table[f"+{property_key(wire)}"].result_secrecy = shape.secrecy

    # ---- events

    def _event(self, name: str, made: Event[Any]) -> None:
        shape = self._shape(type_of_affordance(self.cls, name, Event), name)
        wire = made.handle.name = self.wire(name, made.wire_name)
        self._claim(self.contract.events, wire, name)
        made.handle.key = f"+{event_key(wire)}"
        made.take, made.shape = shape.take, shape
        made.immutable = shape.immutable
        made.secrecy = made.handle.secrecy = shape.secrecy
        self.contract.events[wire] = made

        def subscribe(agent: Any, feed: Any) -> None:
            agent._slot.sinks().add(event_key(wire), feed)

        self._add(made.handle.key, "subscribe", wire, subscribe, (ANYTHING,))

    # ---- actions

    def _action(self, name: str, handle: Any) -> None:
        fn = handle.__wrapped__
        wire = handle.name = self.wire(name, handle.options.name)
        self._claim(self.contract.actions, wire, name)
        kind = next(number for made, number in _KINDS if isinstance(handle, made))
        hints = types_of_method(self.cls, name, fn)
        params, progress, whole = self._parameters(fn, hints, name)
        if progress is not None and kind == TURN:
            raise TypeError(f"{self.cls.__name__}.{name}: Progress is for an async def, a def is one step")
        streamed = next((p.name for p in params if p.is_stream), None)
        if streamed is not None and kind == TURN:
            raise TypeError(
                f"{self.cls.__name__}.{name}: the input stream {streamed!r} is for an async def, "
                f"a def is one step"
            )
        handle.wire_names = {p.name: p.wire_name for p in params if p.name != p.wire_name}
        self.contract.actions[wire] = handle
        disable_ki_protection(fn)
        made = self.contract.table[wire] = Operation(
            verb="invoke",
            name=wire,
            owner=self.cls.__name__,
            kind=GATED if kind == TURN and handle.options.when is not None else kind,
            fn=_by_position(fn, params, with_progress=progress is not None),
            params=params,
            result=self._shape(output_of(hints.get("return", Any), kind), name),
            progress=progress,
            concurrency=handle.options.concurrency,
            whole=whole,
            on_disconnect=handle.options.on_disconnect,
            when=handle.options.when,
            postpone=handle.options.postpone,
            repeatable=handle.options.safe or handle.options.idempotent,
        )
        made.fill = getattr(fn, "completed_by", None)  # from the decorator of that name

    def _parameters(
        self, fn: Any, hints: dict[str, Any], name: str
    ) -> tuple[tuple[Parameter, ...], Shape[Any] | None, bool]:
        where = f"{self.cls.__name__}.{name}"
        me, *given = signature_of(fn).parameters.values() or (None,)
        if me is None or me.name in hints:
            raise TypeError(f"{where}: self is missing, it goes before the parameters")
        progress: Shape[Any] | None = None
        if given and is_progress(hints.get(given[0].name)):
            progress = self._shape((get_args(hints[given[0].name]) or (Any,))[0], name)
            given = given[1:]
        if any(is_progress(hints.get(p.name)) for p in given):
            raise TypeError(f"{where}: Progress goes first, right after self")
        whole = len(given) == 1 and given[0].kind is inspect.Parameter.POSITIONAL_ONLY
        return tuple(self._parameter(p, hints, name, whole=whole) for p in given), progress, whole

    def _parameter(self, p: inspect.Parameter, hints: dict[str, Any], name: str, *, whole: bool) -> Parameter:
        where = f"{self.cls.__name__}.{name}"
        if p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise TypeError(f"{where}: *{p.name} cannot be described to a consumer; name the parameters")
        if p.kind is inspect.Parameter.POSITIONAL_ONLY and not whole:
            raise TypeError(
                f"{where}: only a single positional-only parameter is the whole input; take the / away"
            )
        if p.name not in hints:
            raise TypeError(f"{where}: parameter {p.name!r} needs a type, as its consumers need a schema")
        keyword_only = p.kind is inspect.Parameter.KEYWORD_ONLY
        item = streamed_item(hints[p.name])
        if item is not None:
            shape = self._shape(item, name)
            if whole:
                raise TypeError(f"{where}: the input stream {p.name!r} needs its name; take the / away")
            if p.default is not inspect.Parameter.empty:
                raise TypeError(
                    f"{where}: the input stream {p.name!r} has no default: its caller gives a source"
                )
            wire = self.wire(p.name, None)
            return Parameter(p.name, wire, shape, MISSING, keyword_only=keyword_only, is_stream=True)
        default: object = MISSING
        shape = self._shape(hints[p.name], name)
        if p.default is not inspect.Parameter.empty:
            default = self._default(shape, p, where)
        return Parameter(p.name, self.wire(p.name, None), shape, default, keyword_only=keyword_only)

    def _default(self, shape: Shape[Any], p: inspect.Parameter, where: str) -> object:
        if isinstance(p.default, MUTABLE):
            raise TypeError(
                f"{where}: the default of {p.name!r} can be changed and would be shared; use None or a tuple"
            )
        try:
            return shape.take(p.default)
        except InvalidInput as exc:
            raise TypeError(f"{where}: the default of {p.name!r} is not of its type: {exc}") from None

    # ---- the object as a whole

    def whole_object(self) -> None:
        """Add the operations on all properties or all events at once."""
        properties = self.contract.properties
        table = self.contract.table

        def read_all(agent: Any) -> dict[str, Any]:
            return {wire: getattr(agent, p.hidden) for wire, p in properties.items() if not p.write_only}

        def write_many(agent: Any, values: dict[str, Any]) -> None:
            checked = [(self._writable(wire), value) for wire, value in values.items()]
            taken = [
                (p, table[f"={p.handle.name}"].params[0].shape.take(v, f"$.{p.handle.name}"))
                for p, v in checked
            ]
            for made, value in taken:
                setattr(agent, made.attribute, value)

        def subscribe_all(agent: Any, feed: Any) -> None:
            agent._slot.sinks().add(ALL_EVENTS, feed)

        self._add("?", "read all", "*", read_all)
        self._add("=", "write many", "*", write_many, (ANYTHING,))
        read = {wire: table[property_key(wire)].result_secrecy for wire in properties}
        hidden: dict[str, Any] = {wire: secrecy for wire, secrecy in read.items() if secrecy}
        if hidden:
            table["?"].result_secrecy = hidden
            table["="].secrecies = (hidden,)
        self._add(f"+{ALL_EVENTS}", "subscribe to all", "*", subscribe_all, (ANYTHING,))

    def _writable(self, wire: str) -> Property[Any]:
        made = self.contract.properties.get(wire)
        if made is None:
            raise NotFound("property", wire, where=self.cls.__name__, known=self.contract.properties)
        if made.read_only:
            raise NotAllowed(f"property {wire!r} of {self.cls.__name__} is read-only")
        return made

    # ---- shared

    def _add(
        self,
        key: str,
        verb: str,
        name: str,
        fn: Callable[..., Any],
        params: tuple[Any, ...] = (),
        *,
        whole: bool = False,
    ) -> None:
        self.contract.table[key] = Operation(
            verb=verb,
            name=name,
            owner=self.cls.__name__,
            kind=TURN,
            fn=fn,
            params=params,
            whole=whole,
            internal=True,
        )


def _may_grow(hint: Any, module: str) -> bool:
    """Return whether a class in a type belongs to a module that still runs, so that it may change.

    `module` is the one in which the agent's class is made.
    """
    if any(_may_grow(part, module) for part in get_args(hint)):
        return True
    home = getattr(hint, "__module__", None)
    spec: Any = getattr(sys.modules.get(home or ""), "__spec__", None)
    return home == module or bool(getattr(spec, "_initializing", False))  # set while it is imported


def _unread_shape() -> Shape[Any]:
    """Return a shape that accepts any value unchanged, for a type that is not known yet."""

    def take(value: Any, path: str = "$", /) -> Any:
        return value

    shape = copy(shape_of(Any))
    shape.type, shape.take = Unknown, take
    return shape


def _read_first(cls: Any, made: Property[Any]) -> Callable[[Any], Any]:
    """Return a function that reads a property's unknown type when it checks the first value."""

    def take(value: Any) -> Any:
        getattr(cls, "__contract__")  # noqa: B009 -- to read it puts a check in the place of this one
        return cast("Callable[[Any], Any]", made.take)(value)

    return take


def _assigned(shape: Shape[Any], where: str) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        try:
            return shape.take(value)
        except InvalidInput as exc:
            raise TypeError(f"{where} was given a value that is not of its type: {exc}") from None

    return take


def _by_position(fn: Any, params: tuple[Parameter, ...], *, with_progress: bool) -> Callable[..., Any]:
    """Return a function that takes all parameters by position, even keyword-only ones."""
    first = next((place for place, p in enumerate(params) if p.keyword_only), None)
    if first is None:
        return fn  # type: ignore[no-any-return]
    names = [p.name for p in params[first:]]
    split = first + 1 + with_progress

    def call(*args: Any) -> Any:
        return fn(*args[:split], **dict(zip(names, args[split:], strict=True)))

    return call
