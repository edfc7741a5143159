"""The event loop of a command that talks to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

from lmos_actors.errors import group_of, is_interrupt

from ._signals import signals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


def run_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function, and return what it returns. Raises KeyboardInterrupt alone, in no group."""
    try:
        with signals.in_order():
            return trio.run(main)
    except BaseException as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        raise


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, or the error itself where it is no group."""
    group = group_of(error)
    return error if group is None else first_of(group.exceptions[0])
