"""A support desk to chat with: rules and a language model answer what they can, people get the rest."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lmos_actors import ActionFailed, Agent, AgentError, Event, Property, Ref, action, event, prop
from lmos_actors.errors import ToolFailed
from lmos_actors.facades import ChatAgent, ChatTurn, tool_of

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


class Order(Struct, frozen=True):
    """What is known of an order."""

    number: int
    state: Literal["packed", "sent", "delivered"]


ORDERS: Final = {17: Order(17, "sent"), 18: Order(18, "packed"), 19: Order(19, "delivered")}


def look_up(number: int) -> Order:
    """Return an order by its number. These are invented."""
    if number not in ORDERS:
        raise ActionFailed({"code": "UNKNOWN_ORDER", "message": f"there is no order {number}"})
    return ORDERS[number]


class OrderBook(Agent):
    """Knows the orders."""

    @action(safe=True)
    def look_up(self, number: int) -> Order:
        """Return an order by its number."""
        return look_up(number)


ABOUT_AN_ORDER: Final = re.compile(r"\border\D{0,12}(\d{1,9})", re.IGNORECASE)
ABOUT_A_PERSON: Final = re.compile(r"\b(person|human|colleague|somebody|complain\w*)\b", re.IGNORECASE)
KNOWN_ANSWERS: Final = {
    "password": 'Click on "forgot password" where you log in; a link comes by mail.',
    "hello": "Hello! I know about orders and passwords. What can I do for you?",
    "thank": "You are welcome.",
}
"""What is answered without a language model."""


class SupportDesk(ChatAgent):
    """Answers questions. Where it cannot, or the model is unsure, too slow or broken, it opens a ticket.

    People chat with it (`reply`); programs use `ask`. Without a model it answers by rules, and without an
    order book it looks up orders by itself.
    """

    model: Ref[LanguageModel] | None = None
    orders: Ref[OrderBook] | None = None
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
        if self.model is None:
            return self.escalate(ticket, question, "there is no model")
        try:
            draft = await self.model.within(self.patience).invoke(LanguageModel.draft, question)
        except AgentError as error:
            return self.escalate(ticket, question, f"the model failed: {type(error).__name__}")
        if draft.confidence < self.sure_from:
            return self.escalate(ticket, question, f"the model is only {draft.confidence:.0%} sure")
        return Answer(draft.text, "model", ticket)

    async def reply(self, turn: ChatTurn) -> AsyncGenerator[str]:
        """Answer by the first that fits: an open ticket, an order, the wish for a person, model, rules."""
        self.asked += 1
        number = self.asked
        if "ticket" in turn.memory:
            yield f"I have added this to ticket {turn.memory['ticket']}."
        elif (order := ABOUT_AN_ORDER.search(turn.text)) is not None:
            yield await self.find_order(turn, int(order[1]))
        elif ABOUT_A_PERSON.search(turn.text):
            yield self.hand_over(turn, number, "the customer asked for a person")
        elif self.model is not None:
            try:
                async with self.model.within(self.patience).stream(LanguageModel.write, turn.text) as pieces:
                    async for piece in pieces:
                        yield piece  # noqa: ASYNC119 -- the runtime closes what it runs
            except AgentError as error:
                yield self.hand_over(turn, number, f"the model failed: {type(error).__name__}")
        else:
            known = (text for word, text in KNOWN_ANSWERS.items() if word in turn.text.lower())
            yield next(known, None) or self.hand_over(turn, number, "no rule fits")

    async def find_order(self, turn: ChatTurn, number: int) -> str:
        tool = tool_of(look_up) if self.orders is None else tool_of(self.orders, OrderBook.look_up)
        try:
            found = await turn.use(tool, number=number)
        except ToolFailed:
            return f"I find no order {number}. Is the number right?"
        return f"Order {number} is {found['state']}."

    def hand_over(self, turn: ChatTurn, number: int, why: str) -> str:
        """Leave a conversation to a person."""
        turn.memory["ticket"] = number
        return self.escalate(number, turn.text, why).text

    def escalate(self, number: int, question: str, why: str) -> Answer:
        self.escalated += 1
        self.opened.emit(Ticket(number, question, why))
        return Answer(f"A colleague will answer you under ticket {number}.", "person", number)


class FindingDesk(SupportDesk):
    """A desk that asks whichever language model there is, on its own node or in a directory."""

    def started(self) -> None:
        self.model = self.find(LanguageModel)
