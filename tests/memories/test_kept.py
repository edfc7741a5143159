"""Random programs, hostile texts and questions: every store has the same results in the same order."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import pytest
import trio
from hypothesis import example, given, settings, strategies as st

from lmos_actors.memories import Memories
from tests.matrix import examples
from tests.memories.keepers import STORES, keeper_on, with_options
from tests.redis_server import PROGRAM

if TYPE_CHECKING:
    from lmos_actors.memories import Memory

WORDS = [
    "tea", "TEA", "te\u0301a", "Zürich", "zurich", "茶", "喜欢", "\U0001f375", "\ufb01ne", "AND", "OR", "NOT",
    "NEAR(", '"', "*", "tea*", "-tea", "words:tea", "'", "\0", "\0tea", "a\0b", "\u0301", "\u200d", "%", "_",
    "\ufdfa", "x" * 70, "İ", "ß", "हिन्दी", "한국어", "ไทย", "e" + "\u0301" * 300, ";DROP TABLE terms;",
]  # fmt: skip
pieces = st.one_of(st.sampled_from(WORDS), st.text(max_size=12))
sentences = st.lists(pieces, max_size=8).map(" ".join)
kept = sentences.filter(lambda text: text.strip() != "")
questions = st.one_of(sentences, st.sampled_from(["", "tea", "\ud800", "tea \udfff", "\U0001f375" * 900]))
tags = st.lists(st.sampled_from(["food", "Food", "\0", "%"]), max_size=2)
people = st.sampled_from(["alice", "Alice", "alice\0", "al%69ce"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), people, kept, tags),
        st.tuples(st.just("recall"), people, questions, st.integers(1, 7), tags),
        st.tuples(st.just("forget"), people, st.integers(0, 9)),
        st.tuples(st.just("forget_all"), people),
    ),
    max_size=25,
)


def shown(found: list[Memory]) -> list[tuple[Any, ...]]:
    """What is compared of memories: all but their times."""
    return [(each.id, each.text, each.tags, each.score) for each in found]


async def results_of(store: Any, program: list[Any]) -> list[Any]:
    results: list[Any] = []
    async with keeper_on(store, kind=with_options(texts=6)) as keeper:
        for verb, who, *more in program:
            memories = Memories(keeper, who)
            if verb == "remember":
                results.append(await memories.remember(*more))
            elif verb == "recall":
                results.append(shown(await memories.recall(*more)))
            elif verb == "forget":
                found = await memories.recall()
                if found:
                    results.append(await memories.forget(found[more[0] % len(found)].id))
            else:
                results.append(await memories.forget_all())
    return results


@pytest.mark.slow  # its lines: test_memories.py
@pytest.mark.timeout(600)
@settings(max_examples=examples(120))
@example([("remember", "alice", "tea tea \0", []), ("recall", "alice", "tea* OR \0", 5, [])])
@given(steps)
def test_all_stores_have_the_same_results(program: list[Any]) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            kinds = [kind for kind in STORES if kind != "redis" or PROGRAM is not None]
            results = {kind: await results_of(STORES[kind](folder), program) for kind in kinds}
            for kind in kinds:
                assert results[kind] == results["none"], kind

    trio.run(main)


@pytest.mark.timeout(600)
@settings(max_examples=examples(200))
@given(kept, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_a_text_is_found_by_itself_however_it_is_composed(text: str, form: Any) -> None:
    async def main() -> None:
        async with keeper_on(None) as keeper:
            memories = Memories(keeper, "alice")
            await memories.remember(text)
            (found,) = await memories.recall(normalize(form, text))
            assert found.text == text

    trio.run(main)


@pytest.mark.timeout(600)
@settings(max_examples=examples(120))
@given(st.lists(kept, max_size=12), questions)
def test_scores_fall_and_are_of_words(known: list[str], question: str) -> None:
    async def main() -> None:
        async with keeper_on(None) as keeper:
            memories = Memories(keeper, "alice")
            for text in known:
                await memories.remember(text)
            found = await memories.recall(question, 50)
            ranks = [each.score for each in found]
            assert ranks == sorted(ranks, reverse=True)
            assert all(rank > 0 for rank in ranks) or not any(ranks)
            assert shown(await memories.recall(question, 3)) == shown(found)[:3]

    trio.run(main)
