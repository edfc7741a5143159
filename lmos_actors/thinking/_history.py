"""The history that a model receives of a conversation: messages within a limit, files of the last one.

The tool calls of a turn and their results are stored as notes of its answer, and are kept as long as the
answer. The answer contains all text of the turn; in the history, text that was sent before a call is placed
before that call again.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from lmos_actors.errors import ActionFailed
from lmos_actors.facades.chat import INVALID_MESSAGE
from lmos_actors.llm import ModelFile, ModelMessage, ToolMessage, UserMessage, estimated_tokens

from ._steps import in_order
from ._tool_calls import UNKNOWN, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from lmos_actors.facades import ChatPart, ChatTurn, Recalled
    from lmos_actors.llm import Message

FILE_BYTES: Final = 20 << 20
"""Bytes of all files of a message."""


def messages_of(history: Sequence[Recalled]) -> list[Message]:
    """Convert the messages of a history to messages for a model; files are only named.

    Empty answers are left out, and so are answers before the first message of the user: providers refuse
    them.
    """
    roles = [said.role for said in history]
    begin = roles.index("user") if "user" in roles else len(roles)
    return [message for said in history[begin:] for message in _messages_of(said)]


def tokens_of(messages: Sequence[Message]) -> float:
    """Return an estimate of the tokens of messages."""
    return sum(map(estimated_tokens, messages))


def notes_of(messages: Sequence[Message], most: int) -> list[Any]:
    """Return the tool calls of a turn, with their results, as plain data of at most `most` bytes of JSON.

    First the largest results are cut; then the earliest answers of the model that contain calls are left out.
    """
    calls, share = list(_whole(messages)), most
    while True:
        notes: list[Any] = msgspec.to_builtins([[_noted(each, share) for each in round] for round in calls])
        if not calls or len(msgspec.json.encode(notes)) <= most:
            return [note for round in notes for note in round]
        if share > 256:  # results are not cut to fewer bytes: whole calls are left out
            share //= 2
        else:
            del calls[0]


async def files_of(turn: ChatTurn) -> list[ModelFile]:
    """Return the files of a message. Raises ActionFailed if one cannot be read, or they are too large."""
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


def first_kept(history: Sequence[Recalled], most: int) -> int:
    """Return the index of the first message to keep, so that the kept messages have at most `most` tokens.

    It is a message of the user, because a conversation begins with one; if none fits, nothing is kept.
    """
    place, tokens = len(history), 0.0
    for at in range(len(history) - 1, -1, -1):
        tokens += tokens_of(list(_messages_of(history[at])))
        if tokens > most:
            break
        if history[at].role == "user":
            place = at
    return place


def transcript_of(messages: Sequence[Message]) -> str:
    """Return messages as one text, for use in a summary."""
    lines: list[str] = []
    for each in messages:
        if isinstance(each, ToolMessage):
            lines.append(f"tool {each.name}: {each.error or msgspec.json.encode(each.result).decode()}")
            continue
        if each.text:
            lines.append(f"{'user' if isinstance(each, UserMessage) else 'you'}: {each.text}")
        for call in each.tools if isinstance(each, ModelMessage) else ():
            lines.append(f"you: {call.name}({msgspec.json.encode(call.arguments).decode()})")
    return "\n\n".join(lines)


def _messages_of(said: Recalled) -> Iterator[Message]:
    text = _text(said)
    if said.role == "user":
        yield UserMessage(text)
        return
    try:
        notes = msgspec.convert(said.notes, list[ModelMessage | ToolMessage])
    except msgspec.ValidationError:  # of another agent that was here before, or of a newer version
        notes = []
    for note in notes:
        if isinstance(note, ModelMessage) and note.text.strip():
            before, known, after = text.partition(note.text)
            if known:
                note, text = replace(note, text=before + known), after.lstrip()
        yield note
    if text:
        yield ModelMessage(text)


def _whole(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield each answer of the model, followed by the results of all its tool calls."""
    ordered = in_order(messages)
    for place, message in enumerate(ordered):
        if not isinstance(message, ModelMessage):
            continue
        behind = takewhile(lambda each: isinstance(each, ToolMessage), ordered[place + 1 :])
        results = {each.id: each for each in behind if isinstance(each, ToolMessage)}
        yield [
            message,
            *(results.get(call.id, ToolMessage(call.id, call.name, error=UNKNOWN)) for call in message.tools),
        ]


def _noted(message: Message, most: int) -> Message:
    """Return a message in the form of a note: no reasoning, and at most `most` bytes of a result."""
    if isinstance(message, ModelMessage):
        return replace(message, reasoning=[])
    if isinstance(message, ToolMessage):  # what is unknown bars no call of a later turn
        result, error = shortened(message.result, most), shortened(message.error, most)
        return replace(message, result=result, error=error, unknown=False)
    return message


def _text(said: Recalled) -> str:
    """Return the parts of a message that a model receives, as one text."""
    notes = [part.text or _name_of(part) for part in said.parts]
    if said.failed is not None:
        notes.append(f"[Not answered: {said.failed.message}]")
    return "\n".join([each for each in (said.text, *notes) if each])


def _name_of(part: ChatPart) -> str:
    return f"[{part.type}: {(part.media and part.media.filename) or 'without a name'}]"


def _invalid(why: str) -> ActionFailed:
    return ActionFailed({"code": INVALID_MESSAGE, "message": why})
