"""Faults of providers in one run: the answers of a model while its provider fails.

A fault acts between a model and its callers, whatever the model is: a client of a provider, a mock, a replay,
or a class of the project. Requests that fail at once do not reach the model. So a mock does not count a rule
as used, nor a replay a recorded answer, and the same request finds it once the provider works again. An
answer that is cut has begun; its rule or recording may be used once more.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from msgspec import UNSET

from lmos_actors.actors import altered, slot_of
from lmos_actors.errors import NotFound
from lmos_actors.files import Duration
from lmos_actors.system.values import draw

from ...doubles import USES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from lmos_actors._core import RandomStream
    from lmos_actors.actors import Operation, Ref

    from ...model import Provider

LATE: Final = Duration(5.0)
"""The default delay of a piece of an answer."""

GENERATE: Final = "generate"

SAYS: Final[Mapping[int | str, tuple[str, str]]] = {
    429: ("MODEL_BUSY", "the provider refuses more requests (429)"),
    500: ("MODEL_UNAVAILABLE", "the provider fails (500)"),
    "cut": ("MODEL_CUT", "the answer broke off"),
    "malformed": ("MODEL_MALFORMED", "what came is no answer"),
}
"""The failures of a model that its provider causes, by status: code and message."""


@attrs.frozen(eq=False)
class ProviderFault:
    """A fault of the provider of some models, in force until an instant."""

    fault: Provider
    until: float


class ProviderFaults:
    """The provider faults in force, by the paths of their models."""

    def __init__(
        self, find: Callable[[str], Sequence[Ref[Any]]], stream: Callable[[str], RandomStream]
    ) -> None:
        self._find = find
        self._stream = stream
        self._in_force: dict[str, list[ProviderFault]] = {}
        self._guarded: dict[str, str] = {}
        """The names in the file of models that a fault may strike, by path."""

    # ---- models

    def guard(self, names: list[str]) -> None:
        """Put a guard between the named models and their callers."""
        for name in names:
            for ref in self._find(name):
                self._guarded[ref.path] = name
                self._stand_before(ref)

    def started(self, path: str) -> None:
        """Put the guard before a model again after it has restarted; ignore all other agents."""
        for ref in self._find(self._guarded[path]) if path in self._guarded else ():
            if ref.path == path:
                self._stand_before(ref)

    def _stand_before(self, ref: Ref[Any]) -> None:
        try:
            slot = slot_of(ref)
        except NotFound:
            return
        op = slot.table.get(GENERATE)
        if op is not None and not isinstance(op.fn, _Guarded):
            slot.table = {**slot.table, GENERATE: altered(op, _Guarded(self, slot.path, op))}

    # ---- faults

    def begin(self, path: str, fault: ProviderFault) -> None:
        """Begin a fault of a model's provider."""
        self._in_force.setdefault(path, []).append(fault)

    def end(self, path: str, fault: ProviderFault) -> None:
        """End a fault of a model's provider."""
        self._in_force[path].remove(fault)

    def refusal(self, path: str) -> Exception | None:
        """Return the failure of a request that begins now; None if the request may go to the model."""
        for each in self._in_force.get(path, ()):
            if each.fault.status in (429, 500, "malformed"):
                return _failure(each)
        return None

    def cut(self, path: str) -> Exception | None:
        """Return the failure that cuts an answer off; None if the answer may go on."""
        cuts = (each for each in self._in_force.get(path, ()) if each.fault.status == "cut")
        return next(map(_failure, cuts), None)

    async def delay(self, path: str) -> None:
        """Wait as long as the faults in force delay the next piece of an answer."""
        for each in tuple(self._in_force.get(path, ())):
            if each.fault.status == "slow":
                delay = LATE if each.fault.delay is UNSET else each.fault.delay
                await trio.sleep(draw(delay, self._stream(f"provider {path}")))


class _Guarded:
    """The function of a model's action, changed by the faults of the model's provider."""

    def __init__(self, faults: ProviderFaults, path: str, op: Operation) -> None:
        self._faults = faults
        self._path = path
        self._op = op
        self.__qualname__ = getattr(op.fn, "__qualname__", GENERATE)

    async def __call__(self, agent: Any, *args: Any) -> AsyncGenerator[Any]:
        faults, path = self._faults, self._path
        refusal = faults.refusal(path)
        if refusal is not None:
            raise refusal
        uses: list[Callable[[], None]] = []
        USES.set(uses)
        try:
            async with aclosing(self._op.fn(agent, *args)) as items:
                async for item in items:
                    await faults.delay(path)
                    cut = faults.cut(path)
                    if cut is None:
                        yield item  # noqa: ASYNC119 -- the runtime closes what it runs
                        continue
                    for give_back in uses:
                        give_back()
                    begun = _begun(item)
                    if begun is not None:
                        yield begun  # noqa: ASYNC119 -- likewise
                    raise cut
        finally:
            USES.set(None)  # without a token, as another task may close it


def _begun(item: Any) -> Any:
    """Return the first half of a piece of text; None for a single character or any other item."""
    from lmos_actors.llm import TextDelta

    text = getattr(item, "text", "") if isinstance(item, TextDelta) else ""
    return TextDelta(text[: len(text) // 2]) if len(text) > 1 else None


def _failure(fault: ProviderFault) -> Exception:
    from lmos_actors.llm import MODEL_BUSY, model_failure

    code, message = SAYS[fault.fault.status]
    if code == MODEL_BUSY:
        left = max(0.0, round(fault.until - trio.current_time(), 6))
        return model_failure(code, message, retry_after=left)
    return model_failure(code, message)
