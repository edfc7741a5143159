"""Operations of an agent on another node: payloads of requests, and conversion of answers and events.

`ClassInterface` uses an agent class: values are checked and converted by its types in both directions,
exactly as for a near agent. `DescribedInterface` uses names alone, from a Thing Description if there is one:
values are plain data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from msgspec import UNSET

from lmos_actors.actors import (
    MISSING,
    STREAM,
    TURN,
    Occurrence,
    Operation,
    Parameter,
    not_in,
    shape_of,
    wrong_operation,
)
from lmos_actors.errors import AgentError, NotAllowed, NotFound, RemoteProtocolError
from lmos_actors.protocol import lmos
from lmos_actors.protocol.td import OCTETS

from ..exposure._values import PLAIN, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lmos_actors.actors import Contract, Shape
    from lmos_actors.protocol.td import Description, Streams

KINDS: Final = {"property": "properties", "action": "actions", "event": "events"}
"""The member of a description that holds the affordances of a kind."""

WRONG: Final = "urn:lmos-actors:errors#wrong-type"


def wrong_answer(path: str, name: str, what: str, error: Exception) -> RemoteProtocolError:
    """Make the error for an answer that is not of its declared type."""
    detail = f"{path} answered {name!r} with what is no {what}: {error}"
    problem = lmos.Problem(type=WRONG, title="Wrong Type", status=502, detail=detail)
    return RemoteProtocolError(problem)


def _take(shape: Shape[Any] | None, raw: Any, path: str, name: str) -> Any:
    value = None if raw is UNSET else raw
    if shape is None:
        return value
    try:
        return shape.take(value)
    except AgentError as error:
        raise wrong_answer(path, name, shape.name, error) from None


class ClassInterface:
    """The interface of an agent class: its types check and convert values, both ways, as for a near agent.

    The agent's `description`, if it is known, decides whether the agent keeps answers.
    """

    def __init__(self, contract: Contract, description: Description | None = None) -> None:
        self.contract: Contract = contract
        self.description: Description | None = None
        self._keeps_answers = (
            contract.state is not None if description is None else description.answers is not None
        )
        self.table: Mapping[str, Operation] = contract.table
        readable = (name for name, made in contract.properties.items() if not made.write_only)
        self._readable = tuple(readable)

    def operation(self, key: str, path: str) -> Operation:
        """Return the operation with a key. Raises NotFound with the same text as a near agent."""
        try:
            return self.table[key]
        except KeyError:
            raise not_in(self.table, key, path) from None

    def payload(self, op: Operation, args: tuple[Any, ...]) -> tuple[Any, tuple[str, ...] | None]:
        """Return the payload as plain data, and the names of the properties to read.

        Arguments that are equal to their default are left out, because the thing has the same defaults.
        """
        if op.verb == "read all":
            return UNSET, self._readable
        if op.verb == "write many":
            return self._writes(args[0]), None
        if op.whole:
            return plain(args[0]), None
        if op.verb != "invoke" or not op.params:
            return UNSET, None
        payload: dict[str, Any] = lmos.Checked()
        are_single = True
        for p, value in zip(op.params, args):  # noqa: B905 -- `strict` would take as long as the rest
            if value is not p.default and not p.is_stream:
                if type(value) in PLAIN:
                    payload[p.wire_name] = value
                else:  # defaults of its fields have not been checked
                    payload[p.wire_name], are_single = plain(value), False
        return payload if are_single else dict(payload), None

    def _writes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Check and convert the values, unless the thing will refuse the request for another reason."""
        properties = self.contract.properties
        if any(name not in properties or properties[name].read_only for name in values):
            return {name: plain(value) for name, value in values.items()}
        shapes = {name: self.table[f"={name}"].params[0].shape for name in values}
        return {name: plain(shapes[name].take(value, f"$.{name}")) for name, value in values.items()}

    def _value_shape(self, name: str) -> Shape[Any] | None:
        op = self.table.get(f"={name}")
        return None if op is None else op.params[0].shape

    def convert_answer(self, op: Operation, raw: Any, path: str) -> Any:
        """Convert an answer. Raises RemoteProtocolError for one of another type."""
        if op.verb == "invoke":
            shape = op.result_shape
            if shape is None or raw is UNSET:
                return _take(shape, raw, path, op.name)
            try:  # as `_take`, without the call
                return shape.take(raw)
            except AgentError as error:
                raise wrong_answer(path, op.name, shape.name, error) from None
        if op.verb == "read":
            return _take(self._value_shape(op.name), raw, path, op.name)
        if op.verb == "read all":
            values = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
            return {name: _take(self._value_shape(name), each, path, name) for name, each in values.items()}
        return None

    def converter(self, key: str, path: str) -> Callable[[Any], Any]:
        """Return the function that converts the values of a property or an event, by key."""
        if key == "!":
            return lambda raw: Occurrence(raw[0], self._event(raw[0], raw[1], path))
        name = key[1:]
        if key[0] == "?":
            shape = self._value_shape(name)
            return lambda raw: _take(shape, raw, path, name)
        return lambda raw: self._event(name, raw, path)

    def _event(self, name: str, raw: Any, path: str) -> Any:
        made = self.contract.events.get(name)
        return raw if made is None else _take(made.shape, raw, path, name)

    def convert_progress(self, op: Operation, raw: Any) -> Any:
        """Convert progress. Raises InvalidInput."""
        return raw if op.progress is None else op.progress.take(raw)

    def is_repeatable(self, op: Operation) -> bool:
        """Return whether a repeated request does no more than a single one; an action declares that."""
        if op.verb != "invoke":
            return True
        options = self.contract.actions[op.name].options
        return bool(options.safe or options.idempotent) and not op.streams

    def keeps_answers(self, op: Operation) -> bool:
        """Return whether the agent keeps answers, by its description, or else by its class."""
        return self._keeps_answers and wrong_operation(op) is None


def _nothing(*_: Any) -> None:
    """Do nothing: the function of an operation that is carried out elsewhere."""


_ANY: Final = shape_of(Any)
_BYTES: Final = shape_of(bytes)


class _PlainOrBytes:
    """A shape for the content of an HTTP body: plain data, or bytes, which pass unchanged."""

    exact = None
    name = "plain data or bytes"
    secrecy = 0

    @staticmethod
    def take(value: Any, path: str = "$") -> Any:
        """Return the checked value."""
        return value if isinstance(value, bytes | bytearray) else _ANY.take(value, path)


_WITH_BYTES: Final[Any] = _PlainOrBytes()


class DescribedInterface:
    """The interface of a Thing Description, or of bare names without one: values are plain data.

    With `binary`, values may also be bytes, which HTTP can carry.
    """

    table: Mapping[str, Operation] = {}
    contract: Contract | None = None

    def __init__(self, description: Description | None, owner: str, *, binary: bool = False) -> None:
        self.description = description
        self._owner = owner
        shape = _WITH_BYTES if binary else _ANY
        # passed by position: an input stream may have any name that can be written
        self._params = (Parameter("the input", "input", shape, UNSET, keyword_only=False),)

    def operation(self, key: str, path: str) -> Operation:
        """Return the operation with a key. Raises NotFound, NotAllowed.

        Without a description any name is accepted.
        """
        kind, verb, name = _parts(key)
        known = self._names(kind)
        if known is not None and name not in (*known, "*"):
            why = self.description.why_unusable(KINDS[kind], name) if self.description is not None else ""
            if why:
                raise NotAllowed(f"the {kind} {name!r} of {path!r} cannot be used: {why}")
            raise NotFound(kind, name, where=path, known=known)
        streams = self._streams(verb, name)
        return Operation(
            verb=verb,
            name=name,
            owner=self._owner,
            kind=STREAM if streams is not None and streams.output is not None else TURN,
            fn=_nothing,
            params=self._params if streams is None else (*self._params, *_inputs_of(streams)),
            whole=True,
            internal=verb != "invoke",
        )

    def _names(self, kind: str) -> Iterable[str] | None:
        described = self.description
        return None if described is None else getattr(described, KINDS[kind]) or {}

    def _streams(self, verb: str, name: str) -> Streams | None:
        described = self.description if verb == "invoke" else None
        return None if described is None else described.streams_of(name)

    def payload(self, op: Operation, args: tuple[Any, ...]) -> tuple[Any, tuple[str, ...] | None]:
        """Return the payload, and the names of the properties to read."""
        if op.verb != "read all":
            return (args[0] if args else UNSET), None
        properties = (self.description and self.description.properties) or {}
        names = tuple(name for name, each in properties.items() if not each.write_only)
        return UNSET, names or None

    def convert_answer(self, op: Operation, raw: Any, path: str) -> Any:
        """Return an answer unchanged."""
        return None if raw is UNSET or op.verb.startswith("write") else raw

    def converter(self, key: str, path: str) -> Callable[[Any], Any]:
        """Return a function that leaves the values of a property or an event unchanged."""
        if key == "!":
            return lambda raw: Occurrence(*raw)
        return lambda raw: raw

    def convert_progress(self, op: Operation, raw: Any) -> Any:
        """Return progress unchanged."""
        return raw

    def is_repeatable(self, op: Operation) -> bool:
        """Return whether a repeated request does no more than a single one, according to the description."""
        if op.verb != "invoke":
            return True
        actions = (self.description and self.description.actions) or {}
        action = actions.get(op.name)
        return action is not None and bool(action.safe or action.idempotent) and not op.streams

    def keeps_answers(self, op: Operation) -> bool:
        """Return whether the agent keeps answers, according to the description."""
        described = self.description
        return described is not None and described.answers is not None and wrong_operation(op) is None


RemoteInterface: TypeAlias = ClassInterface | DescribedInterface
"""The operations of a far agent as its link knows them."""


def _inputs_of(streams: Streams) -> Iterator[Parameter]:
    """Yield the parameters of input streams, which are given by their names; see `ConsumedThing.begin`."""
    for name, stream in (streams.input or {}).items():
        shape: Shape[Any] = _BYTES if stream.content_type == OCTETS else _ANY
        yield Parameter(name, name, shape, MISSING, keyword_only=True, is_stream=True)


def _parts(key: str) -> tuple[str, str, str]:
    """Split a key into the kind of affordance, the verb and the name."""
    name = key.lstrip("+")
    if key.startswith("+"):
        if name == "!":
            return "event", "subscribe to all", "*"
        return ("event", "subscribe", name[1:]) if name[0] == "!" else ("property", "observe", name[1:])
    if key in ("?", "="):
        return "property", "read all" if key == "?" else "write many", "*"
    if key[0] in "?=":
        return "property", "read" if key[0] == "?" else "write", key[1:]
    return "action", "invoke", key
