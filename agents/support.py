"""A support desk: a language model answers what it can, people get the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from lmos_actors import ActionFailed, Agent, AgentError, Event, Property, Ref, action, event, prop

Confidence = Annotated[float, Meta(ge=0, le=1, description="How sure the model is of its answer.")]


class Draft(Struct, frozen=True):
    """What a language model makes of a question."""

    text: str
    confidence: Confidence


class Answer(Struct, frozen=True):
    """What a customer gets."""

    text: str
    by: Literal["model", "person"]
    ticket: int


class Ticket(Struct, frozen=True):
    """A question that a person has to answer."""

    number: int
    question: str
    why: str


class LanguageModel(Agent):
    """What a desk asks of a language model. There is none in here: scenarios put a mock in its place."""

    @action(concurrency=16)
    async def draft(self, question: str) -> Draft:
        """Draft an answer."""
        raise ActionFailed("no language model is configured")

    @action
    async def write(self, question: str) -> AsyncGenerator[str]:
        """Write an answer, piece by piece."""
        yield f"There is no language model here to answer {question!r}."


class SupportDesk(Agent):
    """Answers questions. Where the model is unsure, too slow or out of order, a ticket is opened."""

    model: Ref[LanguageModel]
    sure_from: float = 0.7
    patience: float = 5.0
    asked: Property[int] = prop(default=0, read_only=True)
    escalated: Property[int] = prop(default=0, read_only=True)
    opened: Event[Ticket] = event(doc="A person has to answer.")

    @action(concurrency=16)
    async def ask(self, question: str) -> Answer:
        """Answer a question, or say which ticket a person will answer it under."""
        self.asked += 1
        ticket = self.asked
        try:
            draft = await self.model.within(self.patience).invoke(LanguageModel.draft, question)
        except AgentError as error:
            return self.escalate(ticket, question, f"the model failed: {type(error).__name__}")
        if draft.confidence < self.sure_from:
            return self.escalate(ticket, question, f"the model is only {draft.confidence:.0%} sure")
        return Answer(draft.text, "model", ticket)

    @action
    async def chat(self, question: str) -> AsyncGenerator[str]:
        """Answer a question piece by piece, as the model writes."""
        self.asked += 1
        async with self.model.stream(LanguageModel.write, question) as pieces:
            async for piece in pieces:
                yield piece  # noqa: ASYNC119 -- the runtime closes the streams that it runs

    def escalate(self, number: int, question: str, why: str) -> Answer:
        self.escalated += 1
        self.opened.emit(Ticket(number, question, why))
        return Answer(f"A colleague will answer you under ticket {number}.", "person", number)
