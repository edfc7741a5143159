"""Hand-over: another chat agent answers the rest of a conversation, until it hands it back.

The agent that hands over stays in between: it passes the user's messages to the other agent, and passes the
answers on as they are made. So the user has one session, whose history is complete, and neither agent needs
to know where the other one runs. The other agent finds in `turn.metadata` that the conversation was handed
over; it hands the conversation back by `await turn.use(hand_back)`.

A message is passed on only once, even if the agent in between ends meanwhile. It records the session that it
has chosen before it passes the message on (`PassingStep`). When it is resumed, it takes the answer from that
session (`take_over`); without an answer there, the outcome is unknown.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import msgspec
from msgspec import Meta

from lmos_actors.actors import Agent, Ref, outline_of
from lmos_actors.errors import ActionFailed, AgentDied, AgentError, AgentUnavailable
from lmos_actors.facades import (
    ChatAgent,
    ChatPart,
    MediaPiece,
    TextChunk,
    Tool,
    ToolCalled,
    ToolReturned,
    TurnBegan,
    TurnDone,
    tool_of,
)
from lmos_actors.facades.chat import INVALID_MESSAGE, SESSION_EXPIRED

from ._failures import OUTCOME_UNKNOWN, thinking_failure
from ._tools import REPEATS, is_back, proper_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lmos_actors.facades import ChatTurn, Said

    from ._steps import PassingStep

HANDED_OVER: Final = "handed_over"
"""The member of a message's metadata that says that the conversation was handed over."""

MOST_IN_A_ROW: Final = 4
"""The most hand-overs of a message: two agents that hand over to each other would go on for ever."""


@attrs.frozen
class HandOver:
    """A tool of a thinking agent that hands the conversation over; made by `hand_over`."""

    agent: Ref[Any] | type[ChatAgent]
    name: str
    description: str

    @property
    def tool(self) -> Tool:
        """The description for the model; this tool is not called as others are."""
        return attrs.evolve(_offered, name=self.name, description=self.description)


def hand_over(
    agent: Ref[Any] | type[ChatAgent], *, name: str | None = None, description: str | None = None
) -> HandOver:
    """Return the tool that hands a conversation over to a chat agent, given as a ref or a class.

    The model sees the tool under its `name`, by default `hand_over_to_` and the name of the agent or class,
    with a `description` of when to use it. Raise TypeError if `agent` is no agent.
    """
    given: Any = agent
    if isinstance(agent, Ref):
        called = str(agent.path).rpartition("/")[2]
    elif isinstance(given, type) and issubclass(given, Agent):
        called, outline = agent.__name__, outline_of(agent)
        doc = outline.doc if outline is not None else ""
        description = description or f"Hand the conversation over to {called}: {doc}"
    else:
        raise TypeError(f"hand_over takes a ref or the class of a chat agent, not {agent!r}")
    text = description or f"Hand the conversation over to {called}, who answers from now on."
    return HandOver(agent, proper_name(name or f"hand_over_to_{called}"), text)


_Reason = Annotated[
    str,
    Meta(description="What the other agent has to know: it gets the last message only."),
]


def _hand_over(reason: _Reason = "") -> str:
    return reason


def hand_back(reason: str = "") -> str:
    """Give the conversation back to the one who handed it over, when you are done or cannot help."""
    return f"handed back: {reason}"


_offered: Final = tool_of(_hand_over, name="hand_over")
BACK: Final = tool_of(hand_back)
"""The tool by which an agent gives a conversation back."""


def hand_overs(sources: Sequence[Any]) -> dict[str, HandOver]:
    """Return the agents to which a conversation may be handed over, by name. Raises ValueError."""
    found: dict[str, HandOver] = {}
    for each in sources:
        if isinstance(each, HandOver):
            if each.name in found:
                raise ValueError(f"two tools are named {each.name!r}: use hand_over(..., name=...) for one")
            found[each.name] = each
    return found


@attrs.define
class PassedOn:
    """The outcome of a message that was passed on to another agent."""

    session: str | None
    said: bool = False
    back: str | None = None
    """Why the other agent has handed the conversation back; None: it has not."""


async def pass_on(turn: ChatTurn, ref: Ref[Any], session: str | None, reason: str) -> PassedOn:
    """Pass a message on to another chat agent, and pass its answer to the user.

    An agent that is not available, or fails before its answer begins, counts as handing the conversation
    back. Raise ActionFailed if its answer breaks off.
    """
    passed = PassedOn(session)
    metadata = {**turn.metadata, HANDED_OVER: {"reason": reason, "depth": depth_of(turn) + 1}}
    parts = [await _embedded(turn, part) for part in turn.parts] or None
    for left in range(REPEATS, -1, -1):
        try:
            async with ref.stream(
                ChatAgent.chat, turn.text, passed.session, parts, metadata, new=True
            ) as items:
                await _listen(turn, items, passed)
        except AgentError as error:
            if passed.said:
                text = "the agent that answers has broken off"
                broken_off = ActionFailed({"code": "TOOL_ERROR", "message": text})
                raise error if isinstance(error, ActionFailed) else broken_off from None
            if isinstance(error, AgentUnavailable) and left and await is_back(ref):
                continue
            passed.back = f"it cannot answer now ({type(error).__name__})"
        return passed
    raise AssertionError("the last repeat returns or raises")


async def last_said(ref: Ref[Any], session: str) -> tuple[float | None, int]:
    """Return the time of the last message in a session of another agent, and the number of messages.

    The time is 0 for a session that has expired or is empty, and None if it cannot be determined.
    """
    try:
        said: list[Said] = await ref.invoke(ChatAgent.history, session)
    except AgentError as error:
        return 0.0 if isinstance(error, ActionFailed) and error.code == SESSION_EXPIRED else None, 0
    return (said[-1].at if said else 0.0), len(said)


async def take_over(turn: ChatTurn, ref: Ref[Any], step: PassingStep) -> PassedOn:
    """Wait for the answer to a message that an earlier incarnation has passed on, and send it to the user.

    Raise the ActionFailed of the other agent's turn, or one with OUTCOME_UNKNOWN if there is no answer.
    """
    passed = PassedOn(step.session)
    said: list[Said] = []
    for left in range(REPEATS, -1, -1):
        try:
            said = await ref.invoke(ChatAgent.history, step.session, settled=True)
            break
        except AgentError as error:
            if not isinstance(error, AgentUnavailable | AgentDied) or not left or not await is_back(ref):
                break
    answer = said[-1] if said and step.last is not None else None
    # two messages may have one time; and a history that is full does not grow
    is_new = answer is not None and (answer.at > (step.last or 0.0) or len(said) > step.count)
    if answer is None or answer.role != "agent" or not is_new:
        raise thinking_failure(
            OUTCOME_UNKNOWN,
            "the agent that the message was handed over to has not answered: it broke off, and may have done "
            "its work or not",
        )
    await turn.say(answer.text)
    for part in answer.parts:
        await turn.say(part)
    if answer.failed is not None:
        raise thinking_failure(answer.failed.code, answer.failed.message)
    passed.said = bool(answer.text or answer.parts)
    if not passed.said:  # it has said nothing but that it hands back, which is not in the history
        passed.back = "it is done"
    return passed


def depth_of(turn: ChatTurn) -> int:
    """Return how often a message has been handed over; 0 if its (untrusted) metadata is not valid."""
    said: Any = turn.metadata.get(HANDED_OVER)
    depth = said.get("depth") if isinstance(said, dict) else 0  # pyright: ignore
    return max(0, depth) if isinstance(depth, int) else 0


def note_of(turn: ChatTurn) -> str:
    """Return the note for the model from the agent that handed the conversation over, "" if there is none."""
    said: Any = turn.metadata.get(HANDED_OVER)
    reason: Any = said.get("reason") if isinstance(said, dict) else None  # pyright: ignore
    return f"[Handed over to you: {reason}]" if reason and isinstance(reason, str) else ""


async def _listen(turn: ChatTurn, items: AsyncIterator[Any], passed: PassedOn) -> None:
    """Pass on the items of an answer, except the tool call that hands the conversation back."""
    hidden: str | None = None
    async for item in items:
        if isinstance(item, TurnBegan):
            passed.session = item.session
        elif isinstance(item, ToolCalled) and item.name == BACK.name:
            hidden, passed.back = item.id, str(item.arguments.get("reason") or "it is done")
        elif isinstance(item, TextChunk):
            passed.said = True
            await turn.say(item.text)
            for piece in item.parts:
                await turn.say(piece)
        elif isinstance(item, ToolCalled | ToolReturned | MediaPiece) and _call_of(item) != hidden:
            await turn.show(item)
        elif isinstance(item, TurnDone):
            turn.is_cut = item.is_cut


def _call_of(item: ToolCalled | ToolReturned | MediaPiece) -> str:
    """Return the id of the call that an item belongs to, or "" if it belongs to none."""
    return "" if isinstance(item, MediaPiece) else item.id


async def _embedded(turn: ChatTurn, part: ChatPart) -> ChatPart:
    """Return a part with its file embedded if the file is in this session, where others cannot read it."""
    media = part.media
    if media is None or media.storage_ref is None:
        return part
    try:
        data = b64encode(await turn.read(part)).decode()
    except LookupError:
        return part
    except ValueError as error:
        raise ActionFailed({"code": INVALID_MESSAGE, "message": str(error)}) from None
    return msgspec.structs.replace(part, media=msgspec.structs.replace(media, data=data, storage_ref=None))
