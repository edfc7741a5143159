"""Context managers that explain their usage in the error for a missing `async with`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class _Opened(AbstractAsyncContextManager[T_co]):
    def __init__(self, name: str, inner: AbstractAsyncContextManager[T_co]) -> None:
        self._name, self._inner = name, inner

    async def __aenter__(self) -> T_co:
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def _usage(self) -> str:
        return f"{self._name}() opens a block: async with {self._name}(...) as {self._name.split('_')[-1]}:"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(self._usage(), name=name, obj=self)

    def __await__(self) -> NoReturn:
        raise TypeError(self._usage())

    def __enter__(self) -> NoReturn:
        raise TypeError(self._usage())

    def __exit__(self, *_: object) -> None:
        """Do nothing; this method exists only so that `with` calls `__enter__`, which raises."""


def for_async_with(
    function: Callable[P, AbstractAsyncContextManager[T_co]],
) -> Callable[P, AbstractAsyncContextManager[T_co]]:
    """Wrap an `@asynccontextmanager`, so that use without `async with` raises an error with the usage."""

    @wraps(function)
    def open_block(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T_co]:
        return _Opened(function.__name__, function(*args, **kwargs))

    return open_block
