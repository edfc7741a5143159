"""Requests of a run of a durable agent: each is sent once the state on which it depends is kept.

The messages of a turn wait in its agent's output gate (`slot/_output_gate.py`). A run awaits its requests, so
here the run itself waits before each request, whose deadline includes that wait. If a run will begin again in
the next life of its agent, each request may be checked, as it will be sent a second time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from lmos_actors.errors import DeadlineExceeded

from ..messages._invocation import CURRENT, check_repeat, running_gate
from ._forwarding import ForwardingLink

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from .._runtime import Turns
    from ._link import Attempt, Invocation, Link


async def wait_kept(turns: Turns) -> None:
    """Wait until the state of the agent that runs this code is kept.

    Code outside durable agents, and runs of serial ones, whose state is kept at their end, do not wait.
    """
    if turns.durables and (gate := running_gate(turns)) is not None and gate.waits_in_runs:
        await gate.wait_kept()


async def keep_whole() -> None:
    """Wait until the present changes of a serial durable agent's run are kept, before its end.

    The caller promises that the state is consistent, as at the run's end, though the run goes on. For other
    durable agents this does nothing: they wait before each output.
    """
    run = CURRENT.get()
    gate = None if run is None else run.slot.output_gate
    if gate is not None and not gate.waits_in_runs:
        await gate.keep_whole()


async def _wait_kept(link: Link, seconds: float | None) -> float | None:
    """Wait as `wait_kept` does; return the time left of `seconds`. Raises DeadlineExceeded."""
    gate = running_gate(link.turns)
    if gate is None or not gate.waits_in_runs:
        return seconds
    if seconds is None:
        await gate.wait_kept()
        return None
    begin = trio.current_time()
    with trio.move_on_after(seconds):
        await gate.wait_kept()
        return max(0.0, seconds - (trio.current_time() - begin))
    raise DeadlineExceeded(link.path, seconds)


class AfterKept(ForwardingLink):
    """The link of a ref, which waits until the state is kept, for the verbs that a run awaits."""

    __slots__ = ("_inner",)

    def __init__(self, link: Link) -> None:
        super().__init__(link.rt)
        self._inner = link

    def choose(self, *_request: object) -> Link:
        """Return the link to which requests are passed on."""
        return self._inner

    async def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Any:
        """See `Link`."""
        if CURRENT.get() is not None or self.turns.slot is not None:  # else it is no agent that asks
            check_repeat(self.turns, self._inner, key)
            seconds = await _wait_kept(self._inner, seconds)
        return await self._inner.ask(key, args, kwargs, seconds, attempt)

    async def tell(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See `Link`."""
        check_repeat(self.turns, self._inner, key)
        await _wait_kept(self._inner, None)
        await self._inner.tell(key, args, kwargs)

    @asynccontextmanager
    @enable_ki_protection
    async def open(self, invocation: Invocation) -> AsyncGenerator[Any]:
        """See `Link`."""
        check_repeat(self.turns, self._inner, invocation.key)
        seconds = await _wait_kept(self._inner, invocation.seconds)
        async with self._inner.open(attrs.evolve(invocation, seconds=seconds)) as opened:
            yield opened
