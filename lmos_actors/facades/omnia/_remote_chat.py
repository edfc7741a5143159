"""A chat agent of another server, as an agent of this node."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from lmos_actors.errors import ActionFailed, DeadlineExceeded, OutcomeUnknown, TransportError

from ..chat import (
    INVALID_MESSAGE,
    SESSION_EXPIRED,
    ChatAgent,
    ChatPart,
    ChatTurn,
    ClientAnswer,
    Interrupted,
    MediaPiece,
    Sound,
    SoundFormat,
    TextChunk,
    ToolCalled,
    ToolReturned,
    TurnDone,
    VoiceCall,
)
from ._client import SILENCE, open_chat

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from ._client import Chat
    from ._outgoing_call import OutgoingCall

PROVIDER_ERROR: Final = "PROVIDER_ERROR"
UNSATISFIABLE_FORMAT: Final = "UNSATISFIABLE_FORMAT"

THERE: Final = "session there"
"""The key in `ChatTurn.memory` for a session's id at the other server."""


class RemoteChat(ChatAgent):
    """A chat agent behind a facade of Omnia's protocol, used like one of this node.

    `url` is as for `open_chat`; it connects for each turn, by `network`, with `credentials` and the trust of
    `tls`, each by default the node's own. Each session here has one there, whose id is kept with it. Tools
    that the other server shows are shown here too. If it asks for a tool of its client, the client of the
    turn here is asked, and its answer goes back. A turn there that fails, does not answer for `silence`
    seconds, or cannot be reached, ends the turn here: with its code, or with PROVIDER_ERROR.
    """

    url: str
    silence: float = SILENCE
    network: Any = None
    credentials: Any = None
    tls: Any = None

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        """Send the message to the other server, and pass its answer on."""
        try:
            if THERE in turn.memory:
                try:
                    async with aclosing(self._answer(turn)) as pieces:
                        async for piece in pieces:
                            yield piece  # noqa: ASYNC119 -- the runtime closes what it runs
                    return
                except ActionFailed as failure:
                    if failure.code != SESSION_EXPIRED or turn.answer or turn.answer_parts:
                        raise
                    del turn.memory[THERE]  # the other server has forgotten it: once more, in a new one
            async with aclosing(self._answer(turn)) as pieces:
                async for piece in pieces:
                    yield piece  # noqa: ASYNC119
        except (TransportError, OutcomeUnknown, DeadlineExceeded) as error:
            raise ActionFailed({"code": PROVIDER_ERROR, "message": str(error)}) from None

    async def talk(self, call: VoiceCall) -> None:
        """Hold a call with the other server, and pass sound and items on in both directions."""
        failure: Exception | None = None
        try:
            async with (
                self._chat(call.memory.get(THERE)) as chat,
                chat.call(call.format) as there,
                trio.open_nursery(strict_exception_groups=True) as nursery,
            ):
                nursery.start_soon(_speak, call, there)
                try:
                    await _relay(call, there)
                except Exception as error:  # raised below, and not in a group of the nursery
                    failure = error
                nursery.cancel_scope.cancel("the call is over")
            call.memory[THERE] = there.session
        except (TransportError, OutcomeUnknown, DeadlineExceeded) as error:
            failure = error
        if isinstance(failure, TransportError | OutcomeUnknown | DeadlineExceeded):
            raise ActionFailed({"code": PROVIDER_ERROR, "message": str(failure)}) from None
        if failure is not None:
            raise failure

    async def _answer(self, turn: ChatTurn) -> AsyncGenerator[str | ChatPart]:
        metadata = {name: value for name, value in turn.metadata.items() if isinstance(value, str)}
        async with self._chat(turn.memory.get(THERE)) as chat:
            if turn.has_client_tools:
                chat.hand_on = partial(_handed_on, turn)
            parts = [await self._passed_on(turn, chat, part) for part in turn.parts]
            async with chat.stream(turn.text, parts=parts, metadata=metadata) as items:
                async for item in items:
                    if isinstance(item, TextChunk):
                        yield item.text  # noqa: ASYNC119
                        for part in item.parts:
                            yield part  # noqa: ASYNC119
                    elif isinstance(item, ToolCalled | ToolReturned | MediaPiece):
                        if not (isinstance(item, ToolCalled) and item.by_client):  # else it is handed on
                            await turn.show(item)
                    elif not turn.answer and not turn.answer_parts:
                        yield item.text  # noqa: ASYNC119
                        for part in item.parts:
                            yield part  # noqa: ASYNC119
            turn.memory[THERE] = chat.session

    async def _passed_on(self, turn: ChatTurn, chat: Chat, part: ChatPart) -> ChatPart:
        """Return a part that the other server can read; an uploaded file is uploaded there again."""
        media = part.media
        if media is None or media.storage_ref is None:
            return part
        try:
            content = await turn.read(part)
        except LookupError:
            raise ActionFailed({"code": INVALID_MESSAGE, "message": "a file is not there any more"}) from None
        except ValueError as error:
            raise ActionFailed({"code": INVALID_MESSAGE, "message": str(error)}) from None
        return await chat.upload(content, media.mime_type, media.filename or "file")

    def _chat(self, session: str | None) -> AbstractAsyncContextManager[Chat]:
        wires: Any = self._place().rt.wires
        return open_chat(
            self.url,
            session=session,
            silence=self.silence,
            network=wires.network if self.network is None else self.network,
            tls=wires.client_tls if self.tls is None else self.tls,
            credentials=wires.credentials if self.credentials is None else self.credentials,
        )


async def _handed_on(turn: ChatTurn, call: ToolCalled, accept: Callable[[], object]) -> ClientAnswer:
    """Pass a call of the other server to the client of a turn, and return the client's answer."""
    try:
        more = call.consent_message, call.categories, accept
        return await turn.answer_of_client(call.name, call.arguments, *more)
    except (trio.BrokenResourceError, trio.ClosedResourceError, TypeError) as error:
        why = str(error) or "the turn is over"  # or what it asks is too deep
        return ClientAnswer(call.id, "refused", error=why)


async def _speak(call: VoiceCall, there: OutgoingCall) -> None:
    """Pass on the user's speech until it ends."""
    async for frame in call.sound:
        there.send(frame)
    there.hang_up()


async def _relay(call: VoiceCall, there: OutgoingCall) -> None:
    """Pass on the items from the other server. Raises ActionFailed."""
    async for item in there:
        if isinstance(item, Sound):
            await call.play(item.data)
        elif isinstance(item, Interrupted):
            await call.interrupt()
        elif isinstance(item, TextChunk):
            await (call.understood if item.role == "user" else call.say)(item.text)
        elif isinstance(item, TurnDone):
            await call.finish()
        elif isinstance(item, SoundFormat):
            needed = f"the agent there needs {item.codec} of {item.sample_rate} Hz"
            raise ActionFailed({"code": UNSATISFIABLE_FORMAT, "message": needed})
        else:
            await call.show(item)
