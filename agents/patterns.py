"""Patterns of agents that think, thirty lines each: no framework, but `think`, refs and nurseries.

Each asks the model of its node. The guide `docs/guides/patterns.md` says when to use which.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import trio
from msgspec import Struct

from lmos_actors import Agent, PoolRef, Ref, action
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.llm import Model
from lmos_actors.thinking import Account, Budget, ThinkingAgent, hand_over, think

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeVar

    Item = TypeVar("Item")
    Answer = TypeVar("Answer")


async def side_by_side(ask: Callable[[Item], Awaitable[Answer]], items: Sequence[Item]) -> list[Answer]:
    """Ask for all items at once; return the answers in the order of the items."""
    answers: dict[int, Answer] = {}

    async def one(place: int, item: Item) -> None:
        answers[place] = await ask(item)

    async with trio.open_nursery() as nursery:
        for place, item in enumerate(items):
            nursery.start_soon(one, place, item)
    return [answers[place] for place in range(len(items))]


# ---- router: one request decides who answers


class Route(Struct):
    """The desk that is to answer."""

    desk: Literal["billing", "technology", "other"]


class Router(ChatAgent):
    """Decides what a message is about, and answers it with the instructions for that."""

    async def reply(self, turn: ChatTurn) -> None:
        """Answer a message."""
        model = self.find(Model)
        route = await think(model, turn.text, instructions="Decide which desk is to answer.", answer=Route)
        instructions = {
            "billing": "You know bills. Ask for the number of the bill if it is missing.",
            "technology": "You repair things. Ask one question at a time.",
            "other": "Say kindly that you know bills and technology only.",
        }[route.answer.desk]
        await think(model, turn.text, instructions=instructions, say=turn.say)


# ---- planner with workers: one request makes a plan, workers carry it out, one request sums up


class Plan(Struct):
    """The steps of a task, each for one worker."""

    steps: list[str]


class Worker(Agent):
    """Carries out one step."""

    @action(concurrency=8)
    async def work(self, step: str) -> str:
        """Carry out a step; return what came of it."""
        return (await think(self.find(Model), step, instructions="Do this step. Be brief.")).answer


class Planner(Agent):
    """Parts a task into steps, has workers carry them out side by side, and sums up."""

    workers: Ref[Worker]

    @action(concurrency=8)
    async def solve(self, task: str) -> str:
        """Carry out a task."""
        model, account = self.find(Model), Account(Budget(calls=4))
        made = await think(model, task, instructions="Plan this.", answer=Plan, budget=account)
        steps = made.answer.steps[:10]
        found = await side_by_side(lambda step: self.workers.invoke(Worker.work, step), steps)
        results = "\n".join(f"{step}: {result}" for step, result in zip(steps, found, strict=True))
        summary = await think(model, f"{task}\n\n{results}", instructions="Sum up.", budget=account)
        return summary.answer


# ---- writer and critic: one writes, one finds fault, until it finds none


class Review(Struct):
    """What is wrong with a text."""

    is_good: bool
    remarks: str = ""


class Writer(Agent):
    """Writes a text, and writes it again with the remarks of a critic, three times at most."""

    @action(concurrency=8)
    async def write(self, subject: str) -> str:
        """Write about a subject."""
        model, account = self.find(Model), Account(Budget(calls=8, seconds=120))
        prompt = f"Write about {subject}."
        for _ in range(3):
            text = (await think(model, prompt, budget=account)).answer
            review = await think(
                model, text, instructions="You are a strict critic.", answer=Review, budget=account
            )
            if review.answer.is_good:
                break
            prompt = (
                f"Write about {subject}. A critic says of your last text:\n{review.answer.remarks}\n\n{text}"
            )
        return text


# ---- vote: the same question several times, and the answer that came most often


class Verdict(Struct):
    """An answer that can be counted."""

    answer: Literal["yes", "no", "unclear"]


class Jury(Agent):
    """Asks several times; without a majority the answer is unclear."""

    jurors: int = 5

    @action(concurrency=8)
    async def decide(self, question: str) -> str:
        """Answer yes, no or unclear."""
        model = self.find(Model)

        async def ask(_: int) -> str:
            return (await think(model, question, answer=Verdict, temperature=1.0)).answer.answer

        votes = Counter(await side_by_side(ask, range(self.jurors)))
        answer, count = votes.most_common(1)[0]
        return answer if count > self.jurors / 2 else "unclear"


# ---- map and reduce: a pool reads the parts of what is too long for one request


class Reader(Agent):
    """Reads one page at a time: as many are read at once as the pool has readers."""

    @action
    async def read(self, page: str, question: str) -> str:
        """Return what a page says about a question."""
        instructions = f"Note what this page says about: {question}"
        return (await think(self.find(Model), page, instructions=instructions)).answer


class Library(Agent):
    """Answers questions about texts of many pages."""

    readers: PoolRef[Reader] | Ref[Reader]

    @action(concurrency=8)
    async def answer(self, pages: list[str], question: str) -> str:
        """Answer a question by the notes of all pages."""
        notes = await side_by_side(lambda page: self.readers.invoke(Reader.read, page, question), pages)
        found = await think(self.find(Model), "\n".join(notes), instructions=f"By these notes: {question}")
        return found.answer


# ---- hand-over: another agent has the conversation from then on


class Refunds(ThinkingAgent):
    """You pay money back. Hand the conversation back when that is done, or when it is about other things."""


class Front(ThinkingAgent):
    """You welcome people, and find out what they want."""

    tools = (hand_over(Refunds, name="refunds", description="For everybody who wants money back."),)
