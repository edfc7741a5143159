"""The interface between a ref and the carrier of its requests: the slot of a near agent, or a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from .._runtime import Runtime, Turns
    from ..messages._mailbox import AgentStatistics, Envelope, MailboxStatistics
    from ..messages._monitor import Down
    from ..messages._observers import Feed


@attrs.define
class Attempt:
    """One of several attempts of a request: its number, and the first attempt's message id, once known.

    With a `key`, the answer is one that the agent keeps.
    """

    number: int = 1
    message_id: str | None = None
    key: str | None = None
    begun_by: str | None = None
    """The one of several agents that may have carried the request out: no other one is asked again."""


@attrs.frozen
class Invocation:
    """A call or a stream to be opened: the key, the arguments, and a limit in seconds.

    `principal` is the client on whose behalf a server of this node asks, and `allows` tells what the client
    may do, as in `current_request()`. `posting` is called with the message, right before it is posted.
    """

    key: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    seconds: float | None = None
    stream: bool = False
    principal: str | None = None
    posting: Callable[[Envelope], object] | None = None
    allows: Callable[[str, Any], bool] | None = None


class Link(Protocol):
    """The path of a ref's requests. Keys are as in `_contract_compiler.py`; values are checked on the way.

    `ask` has positional arguments and no `Invocation`, so that no object is made for a request that a near
    agent answers at once. `seconds` limits the wait for an answer. The attempts of one request share one
    `attempt`, by which a far agent recognises a repeat. `unready` returns why the agent takes no messages
    now, for tasks in `wait_running`, or "" if it is known to take some. It never raises.
    """

    @property
    def rt(self) -> Runtime: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def path(self) -> str: ...
    @property
    def identity(self) -> tuple[object, int]: ...
    def ask(
        self,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seconds: float | None = None,
        attempt: Attempt | None = None,
    ) -> Coroutine[Any, Any, Any]: ...
    def tell(
        self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Coroutine[Any, Any, None]: ...
    def tell_nowait(self, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None: ...
    def send_from(self, sender: Any, key: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None: ...
    def open(self, invocation: Invocation) -> AbstractAsyncContextManager[Any]: ...
    def listen(
        self, key: str, *, conflate: bool, gaps: bool, size: int
    ) -> AbstractAsyncContextManager[Feed[Any]]: ...
    def watch(self) -> AbstractAsyncContextManager[Feed[Down]]: ...
    def link(self) -> AbstractAsyncContextManager[None]: ...
    async def wait_running(self) -> None: ...
    def unready(self) -> str: ...
    def statistics(self) -> AgentStatistics: ...
    def mailbox_statistics(self) -> MailboxStatistics: ...
