"""The history that a model gets of a conversation: messages within a bound, files of the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.errors import ActionFailed
from lmos_actors.facades.chat import INVALID_MESSAGE
from lmos_actors.llm import ModelFile, ModelMessage, UserMessage, estimated_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.facades import ChatPart, ChatTurn, Said
    from lmos_actors.llm import Message

FILE_BYTES: Final = 20 << 20
"""Bytes of all files of a message."""


def messages_of(history: Sequence[Said]) -> list[Message]:
    """Return what was said as messages for a model; of files their names alone.

    Empty answers are left out, and so are those before the first message of the user: providers refuse them.
    """
    found: list[Message] = []
    for said in history:
        text = _text(said)
        if said.role == "user":
            found.append(UserMessage(text))
        elif text and found:
            found.append(ModelMessage(text))
    return found


def tokens_of(messages: Sequence[Message]) -> float:
    """Estimate the tokens of messages."""
    return sum(map(estimated_tokens, messages))


def prompt_of(turn: ChatTurn) -> str:
    """Return the text of a message, with its parts that are text."""
    return "\n\n".join([text for text in (turn.text, *(part.text for part in turn.parts)) if text])


async def files_of(turn: ChatTurn) -> list[ModelFile]:
    """Return the files of a message. Raises ActionFailed: one cannot be read, or they are too large."""
    files: list[ModelFile] = []
    size = 0
    for part in turn.parts:
        media = part.media
        if media is None:
            continue
        name = media.filename or ""
        if media.url is not None:
            if not media.url.startswith("https://"):
                raise _invalid(f"the provider of the model reads files by https alone, not {media.url!r}")
            files.append(ModelFile(media.mime_type, url=media.url, name=name))
            continue
        try:
            data = await turn.read(part)
        except LookupError:
            raise _invalid(f"the file {name or media.storage_ref!r} is not there any more") from None
        except ValueError as error:
            raise _invalid(str(error)) from None
        files.append(ModelFile(media.mime_type, data, name=name))
        size += len(data)
        if size > FILE_BYTES:
            raise _invalid(f"the files of a message have {FILE_BYTES >> 20} MiB at most")
    return files


def first_kept(history: Sequence[Said], most: int) -> int:
    """Return the place of the first message that is kept, if those from there on may have so many tokens.

    It is that of a message of the user, as a conversation begins with one.
    """
    place, tokens = len(history), 0.0
    for at in range(len(history) - 1, -1, -1):
        tokens += estimated_tokens(UserMessage(_text(history[at])))
        if tokens > most:
            break
        if history[at].role == "user":
            place = at
    return place


def transcript_of(messages: Sequence[Message]) -> str:
    """Return messages as one text, for a summary."""
    lines = [
        f"{'user' if isinstance(each, UserMessage) else 'you'}: {each.text}"
        for each in messages
        if isinstance(each, UserMessage | ModelMessage)
    ]
    return "\n\n".join(lines)


def _text(said: Said) -> str:
    """Return all of a message that a model gets, as text."""
    notes = [part.text or _name_of(part) for part in said.parts]
    if said.failed is not None:
        notes.append(f"[Not answered: {said.failed.message}]")
    return "\n".join([each for each in (said.text, *notes) if each])


def _name_of(part: ChatPart) -> str:
    return f"[{part.type}: {(part.media and part.media.filename) or 'without a name'}]"


def _invalid(why: str) -> ActionFailed:
    return ActionFailed({"code": INVALID_MESSAGE, "message": why})
