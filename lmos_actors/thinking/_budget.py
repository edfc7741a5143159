"""Budgets: the limits of a turn or a session, and the account of what has been used.

A step that would exceed the budget is refused before it is made. The cost of a request to a model is not
known in advance: its input is estimated, and its output is bounded by `max_tokens`. So a budget of tokens is
exceeded only to the extent that the provider counts differently. A request that fails or is cancelled also
costs tokens, unless it was refused.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from operator import add, sub
from typing import TYPE_CHECKING, Annotated, Final

import trio
from msgspec import Meta, Struct
from msgspec.structs import astuple

from lmos_actors.approvals import Clock

from ._failures import BUDGET_EXCEEDED, thinking_failure

if TYPE_CHECKING:
    from collections.abc import Generator

    from lmos_actors.errors import ActionFailed
    from lmos_actors.llm import Tally

LEAST_OUTPUT: Final = 16
"""The fewest tokens of output that are worth the input of a request, unless it wants fewer."""

Bound = Annotated[int, Meta(ge=1)] | None


class Budget(Struct, frozen=True, omit_defaults=True):
    """The maximum amounts that may be used; None means no limit.

    `tokens` limits the tokens of all requests to models, `calls` the number of these requests, `tools` the
    number of tool calls, and `seconds` the total time.
    """

    tokens: Bound = 200_000
    calls: Bound = 32
    tools: Bound = 128
    seconds: Annotated[float, Meta(gt=0)] | None = 300.0


class Spent(Struct, frozen=True, omit_defaults=True):
    """The amounts used, in the units of a `Budget`."""

    tokens: int = 0
    calls: int = 0
    tools: int = 0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Spent) -> Spent:
        return Spent(*map(sub, astuple(self), astuple(other)))


class Account:
    """A budget and its used amounts, for one or several calls of `think`; its time begins when it is made.

    The time stands still while a tool that `think` has called waits for a person's approval.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.clock = Clock()
        self.used = Spent()
        """The amounts used by now, except the seconds."""
        self._began = trio.current_time()

    @property
    def deadline(self) -> float:
        """The instant at which the budget's time is over, by `trio.current_time()`; infinite without a limit.

        Time for which the clock has stood still is added.
        """
        if self.budget.seconds is None:
            return inf
        return self._began + self.budget.seconds + self.clock.stood

    @property
    def is_late(self) -> bool:
        """Whether the budget's time is over, within the precision of the deadlines of refs."""
        return trio.current_time() + 0.02 >= self.deadline  # the deadline of a ref may be early by so much

    @property
    def spent(self) -> Spent:
        """The amounts used so far."""
        used, now = self.used, trio.current_time()
        return Spent(used.tokens, used.calls, used.tools, now - self._began - self.clock.stood)

    def count(self, *, tokens: int = 0, calls: int = 0, tools: int = 0) -> None:
        """Add amounts to the account; `think` does so for its requests and tools."""
        used = self.used
        self.used = Spent(used.tokens + tokens, used.calls + calls, used.tools + tools)


def admit_call(account: Account, expected: int, most: int | None) -> int | None:
    """Count a request that is about to be made; return the tokens left for its output, or None for no limit.

    `expected` is the number of its input tokens, `most` the number of output tokens that it wants. Raise
    ActionFailed if the budget does not allow the request.
    """
    check_call(account)
    budget, left = account.budget, None
    if budget.tokens is not None:
        left = budget.tokens - account.used.tokens - expected
        if left < min(LEAST_OUTPUT, most or LEAST_OUTPUT):
            raise exceeded(f"{budget.tokens} tokens")
    account.count(calls=1)
    return left


def check_call(account: Account) -> None:
    """Raise ActionFailed if no further request is allowed."""
    most = account.budget.calls
    if most is not None and account.used.calls >= most:
        raise exceeded(f"{most} requests to the model")


@contextmanager
def settled(account: Account, tally: Tally) -> Generator[None]:
    """Count the tokens of the request that is made in the block, even if the block raises."""
    failed: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failed = error
        raise
    finally:
        account.count(tokens=tally.spent(failed).tokens)


def is_last_call(account: Account) -> bool:
    """Return whether no further request is allowed after the next one."""
    return account.budget.calls is not None and account.used.calls + 1 >= account.budget.calls


def admit_tool(account: Account) -> bool:
    """Count a tool call that is about to be made. Return False, and count nothing, if none is left."""
    if account.budget.tools is not None and account.used.tools >= account.budget.tools:
        return False
    account.count(tools=1)
    return True


def exceeded(what: str) -> ActionFailed:
    """Return the error for a turn that has used up its budget of `what`."""
    return thinking_failure(BUDGET_EXCEEDED, f"the budget of {what} is used up")


def left_of(budget: Budget, whole: Budget | None, spent: Spent) -> Budget:
    """Return a turn's `budget`, bounded by what is left of the session's budget `whole` after `spent`.

    Raise ActionFailed if the session has used up its budget of anything but tools.
    """
    if whole is None:
        return budget
    found: dict[str, float | None] = {}
    for name in Budget.__struct_fields__:
        most, allowed = getattr(whole, name), getattr(budget, name)
        rest = inf if most is None else most - getattr(spent, name)
        if rest <= 0 and name != "tools":
            text = f"the budget of the session, {most:g} {name}, is used up; begin a new session"
            raise thinking_failure(BUDGET_EXCEEDED, text)
        least = min(rest, inf if allowed is None else allowed)
        found[name] = None if least == inf else least
    return Budget(**found)  # type: ignore[arg-type] # whole numbers but for the seconds
