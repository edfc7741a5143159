"""Requests that survive the cancellation of their caller for a short time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def with_grace(
    ask: Callable[[], Awaitable[T]], patience: Callable[[], float], late: Callable[[T], object]
) -> T:
    """Return the answer of `ask()`; if cancelled before it arrives, wait `patience()` more seconds for it.

    An answer that comes in that time is passed to `late`. Raises the errors of `ask`; if cancelled, it raises
    only Cancelled.
    """
    answers: list[T] = []
    failures: list[Exception] = []
    last, ended = trio.CancelScope(shield=True), trio.Event()

    async def asked() -> None:
        try:
            with last:
                answers.append(await ask())
        except Exception as error:
            failures.append(error)
        ended.set()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked)
            try:
                await ended.wait()
            finally:
                last.deadline = trio.current_time() + patience()
    except BaseException:
        if answers:
            late(answers[0])
        raise
    if failures:
        raise failures[0]
    return answers[0]
