"""The steps that a turn of a thinking agent records, and what a later incarnation reads from them.

The steps record finished and begun work: messages of the model that ask for tools, results of tools, the
summary of older messages, the passing of the message to another agent, and its return from there. Each step
also has the amounts that the turn had spent so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import msgspec
from msgspec import Struct

from lmos_actors.facades.chat import GIVEN_UP
from lmos_actors.llm import Message, ModelMessage, ToolMessage

from ._budget import Spent
from ._failures import thinking_failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from lmos_actors.llm import ToolRequest


class SaidStep(Struct, frozen=True, tag="said", forbid_unknown_fields=True, omit_defaults=True):
    """A message of the model with requests for tools, or the result of such a request."""

    message: Message
    spent: Spent = Spent()


class SummaryStep(Struct, frozen=True, tag="summary", forbid_unknown_fields=True, omit_defaults=True):
    """The summary of older messages; its fields are those of a session's memory."""

    summary: str
    until: float
    until_count: int
    spent: Spent = Spent()


class PassingStep(Struct, frozen=True, tag="passing", forbid_unknown_fields=True, omit_defaults=True):
    """The step recorded before the message is passed on to the agent of a `HandOver`, in a session there."""

    to: str
    session: str
    last: float | None = None
    """When the last message was said there before, 0 for a new session; None if that is not known."""
    count: int = 0
    """The number of messages that the session had before."""
    spent: Spent = Spent()


class BackStep(Struct, frozen=True, tag="back", forbid_unknown_fields=True, omit_defaults=True):
    """The step recorded when the agent that had the message has handed it back without an answer."""

    to: str
    why: str
    spent: Spent = Spent()


BACK_AGAIN: Final = "handed back: "
"""Stands before the reason why a hand-over came to nothing."""

Step: TypeAlias = SaidStep | SummaryStep | PassingStep | BackStep


@attrs.define
class Recorded:
    """The steps of a turn that earlier incarnations of an agent have taken."""

    messages: list[Message] = attrs.field(factory=list[Message])
    """The messages after that of the user; the last one may have requests for tools without a result."""
    spent: Spent = attrs.field(factory=Spent)
    summary: SummaryStep | None = None
    passing: PassingStep | None = None
    """The step to the agent that has the message and, as far as is known, has not given it back."""
    passed: list[PassingStep] = attrs.field(factory=list[PassingStep])
    """The steps to the agents that had the message and gave it back."""


def recorded_of(steps: Sequence[Any]) -> Recorded:
    """Return the contents of a turn's steps. Raise ActionFailed if this version cannot read a step."""
    found = Recorded()
    for number, plain in enumerate(steps, start=1):
        try:
            step: Step = msgspec.convert(plain, Step)
        except msgspec.ValidationError as error:
            text = f"the turn cannot be resumed: its step {number} cannot be read: {error}"
            raise thinking_failure(GIVEN_UP, text) from None
        found.spent = step.spent
        if isinstance(step, SaidStep):
            found.messages.append(step.message)
        elif isinstance(step, SummaryStep):
            found.summary = step
        elif isinstance(step, PassingStep):
            found.passing = step
        elif found.passing is not None:
            found.passed.append(found.passing)
            found.passing = None
            last = found.messages[-1] if found.messages else None
            if isinstance(last, ModelMessage):
                asked = next((each for each in last.tools if each.name == step.to), None)
                found.messages += results_of(last, asked, error=f"{BACK_AGAIN}{step.why}")
    found.messages = in_order(found.messages)
    last = found.messages[-1] if found.messages else None
    if isinstance(last, ModelMessage):  # they were admitted after it was recorded
        found.spent += Spent(tools=len(last.tools))
    return found


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Return messages with the results of each answer sorted into the order of its requests.

    Results are recorded in the order in which their tools end.
    """
    rounds: list[list[Message]] = [[]]
    ids: list[str] = []

    def place(result: Message) -> int:
        id = result.id if isinstance(result, ToolMessage) else ""
        return ids.index(id) if id in ids else len(ids)

    for message in messages:
        if isinstance(message, ModelMessage):
            rounds[-1].sort(key=place)
            ids = [each.id for each in message.tools]
            rounds.append([message])
            rounds.append([])
        else:
            rounds[-1].append(message)
    rounds[-1].sort(key=place)
    return [message for each in rounds for message in each]


def results_of(
    message: Message, asked: ToolRequest | None, result: str | None = None, *, error: str = ""
) -> list[Message]:
    """Return a result for each request: the given one for the hand-over `asked`, else "not called"."""
    requests = message.tools if isinstance(message, ModelMessage) else ()
    return [
        ToolMessage(each.id, each.name, result, error)
        if each is asked
        else ToolMessage(each.id, each.name, error="not called")
        for each in requests
    ]
