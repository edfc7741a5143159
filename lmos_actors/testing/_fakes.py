"""Fakes: agents of a class whose answers the test has prepared."""

from __future__ import annotations

import inspect
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from lmos_actors._core import HIDDEN, signature_of
from lmos_actors.actors import (
    STREAM,
    TURN,
    Agent,
    DoubleRequest,
    Event,
    Operation,
    answered,
    answered_in_turn,
    double_of,
)
from lmos_actors.errors import InvalidInput, hint_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

A = TypeVar("A", bound=Agent)

NOTHING: Final = object()


class NotFaked(AssertionError):
    """Raised if a fake has no answer, or no further answer, for an invocation."""


class AnswerSequence:
    """One answer for each call, in order; made by `in_turn`."""

    def __init__(self, answers: tuple[object, ...]) -> None:
        self.answers = answers
        self._left = iter(answers)

    def take(self) -> object:
        """Return the next answer, or NOTHING after the last."""
        return next(self._left, NOTHING)


def in_turn(*answers: object) -> AnswerSequence:
    """Return several answers for a fake to give in turn: the first call gets the first, and so on.

    Calls are counted over all agents of the fake and all their incarnations. A call after the last answer is
    an error. Raises ValueError if there are no answers.
    """
    if not answers:
        raise ValueError("in_turn() needs at least one answer")
    return AnswerSequence(answers)


def fake(cls: type[A], /, **answers: object) -> Callable[..., A]:
    """Return a class with prepared answers that replaces an agent class.

    `forecast="sunny"`: a value, checked now against the type that the action declares. `forecast=KeyError` or
    `ActionFailed(...)`: raised, so an undeclared exception is a crash. A callable is called with the action's
    arguments, without self; `async def` if it needs time. `in_turn(...)`: one answer after another. For an
    action with many outputs: an iterable of them. `units="kelvin"`: the value of a property.

    No code of the original class runs: neither its constructor nor `started`, lifespan or periodic turns. If
    an action without an answer is invoked, the fake crashes with NotFaked, and the test fails.

    Raises TypeError for a name that is no action or property, an answer of another type, or a callable that
    cannot take the arguments.
    """
    by_key, values = _split_answers(cls, answers)

    def alter(key: str, op: Operation) -> Operation:
        return op if op.internal else _faked(cls, op, by_key.get(key, NOTHING))

    made: Callable[..., A] = double_of(cls, alter, values)
    made()  # refuses a value of another type
    return made


def _split_answers(
    cls: type[Agent], answers: dict[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the answers of actions by key, and the values of properties by attribute. Raises TypeError."""
    actions = {h.__wrapped__.__name__: key for key, h in cls.__contract__.actions.items()}
    properties = [p.attribute for p in cls.__contract__.properties.values()]
    by_key: dict[str, object] = {}
    values: dict[str, object] = {}
    for name, answer in answers.items():
        if name in actions:
            by_key[actions[name]] = answer
            check_answer(cls.__contract__.table[actions[name]], answer)
        elif name in properties:
            values[name] = answer
        else:
            raise _unknown(cls, name, [*actions, *properties])
    return by_key, values


def _unknown(cls: type[Agent], name: str, known: Iterable[str]) -> TypeError:
    static = inspect.getattr_static(cls, name, None)
    if isinstance(static, Event):
        return TypeError(f"{cls.__name__}.{name} is an event: a fake emits none")
    return TypeError(f"{cls.__name__} has no action or property {name!r} to fake{hint_at(name, known)}")


def check_answer(op: Operation, answer: object) -> None:
    """Check an answer as far as possible before any call. Raises TypeError."""
    if isinstance(answer, AnswerSequence):
        for one in answer.answers:
            check_answer(op, one)
    elif _raised(answer) is not None:
        return
    elif callable(answer):
        _check_signature(op, answer)
    elif op.kind == STREAM:
        items = items_of(op, answer)
        if iter(items) is items:
            raise TypeError(f"{op.label}: {answer!r} can be gone through once only, give a list")
        for item in items:
            checked(op, item)
    else:
        checked(op, answer)


def checked(op: Operation, value: object) -> Any:
    """Check a value against the operation's type and return it. Raises TypeError."""
    try:
        return op.give(value)
    except InvalidInput as exc:
        raise TypeError(
            f"{op.label}: the answer {_displayed(op, value)} is not of its declared type: {exc}"
        ) from None


def _displayed(op: Operation, answer: object) -> str:
    return HIDDEN if op.result_secrecy else repr(answer)


def items_of(op: Operation, answer: object) -> Iterable[Any]:
    """Return the outputs in an answer for an action with many outputs. Raises TypeError."""
    if isinstance(answer, (str, bytes)) or not hasattr(answer, "__iter__"):
        raise TypeError(
            f"{op.label} has many outputs: its answer is an iterable of them, not {_displayed(op, answer)}"
        )
    return cast("Iterable[Any]", answer)


def _check_signature(op: Operation, fn: Callable[..., object]) -> None:
    try:
        signature = signature_of(fn)
    except ValueError:  # a built-in without a signature
        return
    args, kwargs = _spread(op, tuple(op.params))
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        raise TypeError(f"{op.label}: {fn!r} cannot take the arguments of the action: {exc}") from None


def _spread(op: Operation, args: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    pairs = list(zip(op.params, args, strict=True))
    return [v for p, v in pairs if not p.keyword_only], {p.name: v for p, v in pairs if p.keyword_only}


def _raised(answer: object) -> BaseException | None:
    """Return the exception if an answer is an exception or an exception class, else None."""
    if isinstance(answer, BaseException):
        return answer.with_traceback(None)
    if isinstance(answer, type) and issubclass(answer, BaseException):
        return answer()
    return None


def respond(double: str, request: DoubleRequest, answer: object) -> Any:
    """Return the value of an answer, which may be awaitable, or raise its exception.

    Raises NotFaked if there is no answer; then the test fails, even if it ignores the crash.
    """
    of_sequence = isinstance(answer, AnswerSequence)
    if isinstance(answer, AnswerSequence):
        answer = answer.take()
    error = _raised(answer)
    if error is not None:
        raise error
    op, agent = request.op, request.agent
    if answer is NOTHING:
        which = "no more answers" if of_sequence else "no answer"
        text = f"the {double} was asked {op.name}{request.shown_args!r} and has {which} for it"
        staging = agent._slot.rt.staging if agent._slot is not None else None
        if staging is not None:
            staging.complain(text)
        raise NotFaked(text)
    if callable(answer):
        given, named = _spread(op, request.args)
        return answer(*given, **named)
    return answer


async def outputs(op: Operation, value: Any) -> Any:
    """Check a value against the operation's type and return it as the output of an action.

    An awaitable value is awaited. For an action with many outputs, return an asynchronous generator of them.
    Raises TypeError.
    """
    if inspect.isawaitable(value):
        value = await value
    return _each_output(op, value) if op.kind == STREAM else checked(op, value)


async def _each_output(op: Operation, value: Any) -> AsyncGenerator[Any]:
    if inspect.isasyncgen(value):
        async with aclosing(value) as items:
            async for item in items:
                yield checked(op, item)  # noqa: ASYNC119 -- the runtime closes the streams it runs
        return
    for item in items_of(op, value):
        yield checked(op, item)


def _needs_time(answer: object) -> bool:
    if isinstance(answer, AnswerSequence):
        return any(_needs_time(one) for one in answer.answers)
    call = getattr(type(answer), "__call__", None)  # noqa: B004 -- looked at, not called
    return inspect.iscoroutinefunction(answer) or inspect.iscoroutinefunction(call)


def _faked(cls: type[Agent], op: Operation, answer: object) -> Operation:
    """Return an operation that gives an answer instead of running the original."""

    def at_once(request: DoubleRequest) -> Any:
        return respond(f"fake of {cls.__name__}", request, answer)

    async def in_time(request: DoubleRequest) -> Any:
        return await outputs(op, at_once(request))

    in_turn = op.kind == TURN and not _needs_time(answer)
    return answered_in_turn(op, at_once) if in_turn else answered(op, in_time)
