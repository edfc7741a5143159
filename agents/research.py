"""A research pair: one agent searches and writes, another one holds what it wrote against its sources.

Neither is a chat agent. Each has one action with one call of `think` in it, and a structured answer; what the
two do together is plain Python.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from msgspec import Meta, Struct

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentError,
    ChildSpec,
    Event,
    Ref,
    SupervisorSpec,
    action,
    event,
    sibling,
)
from lmos_actors.llm import Model, OpenAIModel
from lmos_actors.thinking import Budget, think

ROUNDS: Final = 3
"""How often a report is written, at most."""

BUDGET: Final = Budget(tokens=50_000, calls=6, tools=12, seconds=60)
"""The most that one report, or one review, may use."""

TEXTS: Final = {
    "bridges-1": "The bridge at Arta has four arches, and was built again in 1606.",
    "bridges-2": "The bridge at Plaka fell in a flood in 2015. It was built again by 2020.",
    "mills-1": "The mill at Plaka ground maize.",
}
"""What the library has. They are short."""


class Library(Agent):
    """Has texts."""

    @action(safe=True)
    def search(self, words: str) -> list[str]:
        """Return the names of the texts that have one of the words."""
        wanted = words.lower().split()
        return [name for name, text in TEXTS.items() if any(word in text.lower() for word in wanted)]

    @action(safe=True)
    def read(self, name: str) -> str:
        """Return a text by its name."""
        if name not in TEXTS:
            raise ActionFailed({"code": "UNKNOWN_TEXT", "message": f"there is no text {name!r}"})
        return TEXTS[name]


class Draft(Struct, frozen=True):
    """What a researcher writes."""

    text: str
    sources: Annotated[list[str], Meta(min_length=1, description="The names of the texts that were used.")]


class Review(Struct, frozen=True):
    """What a critic finds: claims that no source has."""

    unfounded: list[str]


class Report(Struct, frozen=True):
    """What comes of a question."""

    text: str
    sources: list[str]
    reviewed: bool
    rounds: int


class Critic(Agent):
    """Holds reports against their sources."""

    model: Ref[Model]
    library: Ref[Library]

    @action(concurrency=8)
    async def review(self, draft: Draft) -> Review:
        """Return the claims of a draft that its sources do not have."""
        thought = await think(
            self.model,
            f"The report: {draft.text}\n\nIts sources: {', '.join(draft.sources)}",
            instructions="Read each source. List the claims of the report that no source has; none is fine.",
            tools=[(self.library, Library.read)],
            answer=Review,
            budget=BUDGET,
        )
        return thought.answer


class Researcher(Agent):
    """Answers questions from the texts of a library, and has its answers reviewed."""

    model: Ref[Model]
    library: Ref[Library]
    critic: Ref[Critic]
    patience: float = 20.0
    drafted: Event[Draft] = event()

    @action(concurrency=8)
    async def research(self, question: str) -> Report:
        """Answer a question. Where nobody reviews the answer in time, it says so."""
        prompt = question
        for number in range(1, ROUNDS + 1):
            draft = await self._write(prompt)
            self.drafted.emit(draft)
            try:
                review = await self.critic.within(self.patience).invoke(Critic.review, draft)
            except AgentError:
                return Report(draft.text, draft.sources, reviewed=False, rounds=number)
            if not review.unfounded:
                return Report(draft.text, draft.sources, reviewed=True, rounds=number)
            prompt = (
                f"{question}\n\nYou wrote: {draft.text}\n\nNo source has this, so leave it out, or find one: "
                f"{'; '.join(review.unfounded)}"
            )
        raise ActionFailed({"code": "UNFOUNDED", "message": f"no report without errors in {ROUNDS} rounds"})

    async def _write(self, prompt: str) -> Draft:
        thought = await think(
            self.model,
            prompt,
            instructions="Search, read, and answer in two sentences. Use what the texts say, no more.",
            tools=[self.library],
            answer=Draft,
            budget=BUDGET,
        )
        unknown = [name for name in thought.answer.sources if name not in TEXTS]
        if unknown:
            raise ActionFailed({"code": "UNKNOWN_TEXT", "message": f"there is no text {unknown[0]!r}"})
        return thought.answer


tree = SupervisorSpec(
    "research",
    [
        ChildSpec("model", partial(OpenAIModel, model="gpt-5-mini")),
        ChildSpec("library", Library),
        ChildSpec("critic", partial(Critic, model=sibling("model"), library=sibling("library", Library))),
        ChildSpec(
            "researcher",
            partial(
                Researcher,
                model=sibling("model"),
                library=sibling("library", Library),
                critic=sibling("critic", Critic),
            ),
        ),
    ],
)
