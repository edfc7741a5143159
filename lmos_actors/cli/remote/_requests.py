"""Requests of `call`, `read` and `write` to a remote agent, and their answers."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import ConfigError, InvalidInput, LmosActorsError

from .._answers import OutputLine
from .._exit_codes import OK
from ._session import GRACE

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence

    from lmos_actors.protocol.td import Stream, Streams

    from .._answers import AnswerPrinter
    from .._inputs import Pairs, Written
    from ._session import RemoteSession
    from ._sources import FileSource

_ITEM: Final = re.compile(r"at \$\.((?:[^\s\[\]]+)\[(\d{1,9})\])")
"""The place of a stream's item, in the text of the error that refuses it."""


@attrs.frozen
class ActionCall:
    """The work of `call`: an action, its input, the source of its input stream, and the key of the request.

    `many`: expect many outputs even without a description.
    """

    action: str
    given: Written | Pairs | None
    many: bool = False
    source: FileSource | None = None
    key: str | None = None

    async def __call__(self, session: RemoteSession) -> int:
        """Invoke the action. Returns the exit code."""
        about = session.about("action", self.action)
        streams = session.streams(self.action)
        if self.key is not None:
            self._check_key(session, streams)
        sources = self._sources(session, (streams and streams.input) or {})
        args = () if self.given is None else (self.given.value(about.input if about is not None else None),)
        many = self.many or (streams is not None and streams.output is not None)
        invoke = (
            partial(self._call_by_key, session, args, self.key)
            if self.key is not None
            else partial(self._stream if many else self._call, session, args, sources)
        )
        try:
            await (invoke() if self.source is None else self._with_progress(session, self.source, invoke))
        except LmosActorsError as error:
            code = await session.fail({"action": self.action}, error)
            item = _ITEM.search(str(error)) if isinstance(error, InvalidInput) else None
            if item is not None and self.source is not None:
                session.answers.note(f"{item[1]} is at {self.source.place_of(int(item[2]))}")
            return code
        return OK

    def _check_key(self, session: RemoteSession, streams: Streams | None) -> None:
        if streams is not None:
            raise ConfigError(
                f"{self.action} has streams, which cannot be repeated from a kept answer", "--request-key"
            )
        if session.thing.description is None:  # a server that keeps none would carry out each request
            raise ConfigError(
                "needs a description of the agent, which says whether it keeps answers: give its http:// URL",
                "--request-key",
            )

    def _sources(self, session: RemoteSession, inputs: Mapping[str, Stream]) -> dict[str, AsyncIterable[Any]]:
        """Return the sources of the input streams by name. Raises ConfigError if they do not fit."""
        if len(inputs) > 1:
            raise ConfigError(
                f"takes {len(inputs)} streams ({', '.join(inputs)}), and a command sends one: use Python",
                self.action,
            )
        if self.source is None:
            for name in inputs:
                raise ConfigError(
                    f"takes the stream {name}: give its items with --stream FILE, or --stream - for the "
                    f"standard input",
                    self.action,
                )
            return {}
        if session.thing.description is None:
            raise ConfigError("needs a description of the agent, to name the stream", "--stream")
        for name, stream in inputs.items():
            if self.source.is_terminal:
                session.answers.note("one item a line; Ctrl-D ends the stream")
            return {name: self.source.items(stream)}
        raise ConfigError(f"{self.action} takes no stream; its input is given as words, or as -", "--stream")

    async def _with_progress(
        self, session: RemoteSession, source: FileSource, invoke: Callable[[], Awaitable[None]]
    ) -> None:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.show_progress, session.answers, self.action)
            try:
                await invoke()
            except Exception as error:  # raised below, in no group of this nursery
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _stream(
        self, session: RemoteSession, args: tuple[Any, ...], sources: Mapping[str, AsyncIterable[Any]]
    ) -> None:
        async with session.thing.stream(self.action, *args, streams=sources) as items:
            async for item in items:
                await self._print(session.answers, item, whole=isinstance(item, str))

    async def _call(
        self, session: RemoteSession, args: tuple[Any, ...], sources: Mapping[str, AsyncIterable[Any]]
    ) -> None:
        async with session.thing.begin(self.action, *args, streams=sources) as call:
            await self._print(session.answers, await self._result(session, call))

    async def _call_by_key(self, session: RemoteSession, args: tuple[Any, ...], key: str) -> None:
        """Repeat the request with the same key until it is answered; see `Ref.retrying`."""
        asked = session.thing.retrying(key=key)
        await self._print(session.answers, await asked.invoke(self.action, *args))

    async def _result(self, session: RemoteSession, call: Any) -> Any:
        """Wait for the answer, and show the progress of the run."""
        error: Exception | None = None
        value: Any = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._show, session.answers, call)
            try:
                value = await call.result()
            except trio.Cancelled:
                await self._cancel(session, call)
                raise
            except LmosActorsError as failed:  # not through the nursery, which would make a group of it
                error = failed
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error
        return value

    async def _show(self, answers: AnswerPrinter, call: Any) -> None:
        async for value in call.progress:
            await answers.progress(self.action, value)

    async def _cancel(self, session: RemoteSession, call: Any) -> None:
        """Cancel the run, and wait a moment for the agent to confirm it."""
        reason = "interrupted" if session.interrupt.name else "time limit"
        outcome = "its outcome is unknown"
        with trio.move_on_after(GRACE, shield=True), suppress(LmosActorsError):
            status = await call.cancel(reason)
            outcome = "cancelled" if status.cancelled else status.status
        session.answers.note(f"{reason}: {self.action}: {outcome}")

    async def _print(self, answers: AnswerPrinter, value: Any, *, whole: bool = True) -> None:
        await answers.print(OutputLine({"action": self.action, "output": value}, value, whole=whole))


@attrs.frozen
class PropertyRead:
    """The work of `read`: some properties, or all."""

    names: Sequence[str]

    async def __call__(self, session: RemoteSession) -> int:
        """Read the properties. Returns the highest exit code."""
        for name in self.names:
            session.about("property", name)
        if not self.names:
            values = await session.thing.read_all()
            await session.answers.print(
                *(_property(name, value, head=True) for name, value in values.items())
            )
            return OK
        return max([await self._read(session, name) for name in self.names])

    async def _read(self, session: RemoteSession, name: str) -> int:
        try:
            value = await session.thing.read(name)
        except LmosActorsError as error:
            return await session.fail({"property": name}, error)
        await session.answers.print(_property(name, value, head=len(self.names) > 1))
        return OK


@attrs.frozen
class PropertyWrite:
    """The work of `write`: one property, one value."""

    name: str
    given: Written

    async def __call__(self, session: RemoteSession) -> int:
        """Write the property. Returns the exit code."""
        about = session.about("property", self.name)
        value = self.given.value(about.schema if about is not None else None)
        try:
            await session.thing.write(self.name, value)
        except LmosActorsError as error:
            return await session.fail({"property": self.name}, error)
        await session.answers.print(_property(self.name, value, head=True))
        return OK


def _property(name: str, value: Any, *, head: bool) -> OutputLine:
    return OutputLine({"property": name, "value": value}, value, (name,) if head else (), whole=not head)
