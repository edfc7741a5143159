"""The event loop of a command that talks to others, and signals as events in it."""

from __future__ import annotations

import math
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import trio

from lmos_actors.errors import group_of, is_interrupt

from ._signals import signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

T = TypeVar("T")


def run_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function, and return its result. KeyboardInterrupt is raised alone, never in a group."""
    try:
        with signals.in_order():
            return trio.run(main)
    except BaseException as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        raise


@contextmanager
def signals_received() -> Generator[AsyncIterator[int]]:
    """Receive SIGINT and SIGTERM inside this block, as they arrive, but only in the main thread."""
    if threading.current_thread() is threading.main_thread():
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            yield received
    else:
        yield _nothing()


async def _nothing() -> AsyncIterator[int]:
    await trio.sleep(math.inf)
    yield 0  # not reached


class Interrupt:
    """An interrupt handler: the first Ctrl-C or SIGTERM ends work in order; Python handles the second."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal, None if none has come."""

    @property
    def name(self) -> str:
        """The name of the signal, "" if none has come."""
        return "" if self.number is None else signal.Signals(self.number).name

    async def watch(
        self, end: Callable[[], object], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Wait for a signal, then call `end`. Only the main thread receives signals."""
        with signals_received() as received:
            task_status.started()
            self.number = await anext(received)
        end()


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, or the error itself if it is not a group."""
    group = group_of(error)
    return error if group is None else first_of(group.exceptions[0])
