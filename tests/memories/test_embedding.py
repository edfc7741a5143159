"""Texts that are found by what they mean, and embeddings that do anything but their work."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import simulate
from lmos_actors.memories import Embedding, Memories, MemoryOptions
from lmos_actors.persistence import MemoryStore
from tests.memories.keepers import every_store, keeper_on, texts, with_options
from tests.persistence.stores import StoreOfTest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ABOUT = {"tea": 0, "coffee": 0, "drink": 0, "rain": 1, "weather": 1, "book": 2, "read": 2}


class Toy:
    """An embedding of three subjects, which counts what it is asked and can be made to fail."""

    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.asked: list[list[str]] = []
        self.fault: Callable[[list[str]], Any] | None = None

    async def __call__(self, given: list[str]) -> Any:
        self.asked.append(given)
        await trio.lowlevel.checkpoint()
        if self.fault is not None:
            found = self.fault(given)
            return await found if hasattr(found, "__await__") else found
        return [self.vector(text) for text in given]

    def vector(self, text: str) -> list[float]:
        vector = [0.0] * self.size
        for word, place in ABOUT.items():
            vector[place] += word in text.lower()
        return vector


def kind_with(toy: Toy, name: str = "toy", **more: Any) -> Any:
    return with_options(embedding=Embedding(name, toy, **more))


@every_store
async def test_texts_are_found_by_what_they_mean(place: Any, tmp_path: Path) -> None:
    toy = Toy()
    async with keeper_on(place(tmp_path), kind=kind_with(toy)) as keeper:
        alice = Memories(keeper, "alice")
        for text in ("likes tea", "hates rain", "has a book", "coffee and rain"):
            await alice.remember(text, ["x"] if "rain" in text else [])
        found = await alice.recall("something to drink", most=2)
        assert [each.text for each in found] == ["likes tea", "coffee and rain"]
        assert [each.score for each in found] == [pytest.approx(1), pytest.approx(2**-0.5)]
        assert await texts(alice, "what to read", 1) == ["has a book"]
        assert (await texts(alice, "drink", tags=("x",)))[0] == "coffee and rain"
        assert len(await alice.recall("drink", 10)) == 4, "all of them, the nearest first"
        assert await texts(alice, "", 1) == ["coffee and rain"], "the newest, which asks no embedding"
        toy.asked.clear()
        assert len(await Memories(keeper, "bob").recall("drink")) == 0
        assert toy.asked == [], "there is nothing to compare"
        await alice.forget_all()
        assert await alice.recall("drink") == []


async def test_a_vector_is_made_once_and_survives() -> None:
    store, toy = MemoryStore(), Toy()
    for _ in range(2):
        async with keeper_on(store, kind=kind_with(toy)) as keeper:
            await Memories(keeper, "alice").remember("likes tea")
            await Memories(keeper, "alice").recall("drink")
    assert toy.asked == [["likes tea"], ["drink"], ["likes tea"], ["drink"]]


@pytest.mark.parametrize(("name", "size"), [("other", 3), ("toy", 4)])
async def test_another_embedding_gives_all_texts_new_vectors(name: str, size: int) -> None:
    store, old, new = MemoryStore(), Toy(), Toy(size)
    async with keeper_on(store) as keeper:
        await Memories(keeper, "alice").remember("read a book")  # before there was one
    async with keeper_on(store, kind=kind_with(old)) as keeper:
        await Memories(keeper, "alice").remember("likes tea")
    async with keeper_on(store, kind=kind_with(new, name)) as keeper:
        alice = Memories(keeper, "alice")
        assert (await texts(alice, "drink"))[0] == "likes tea"
        assert sorted(new.asked[-1]) == ["likes tea", "read a book"]
        new.asked.clear()
        assert (await texts(alice, "book"))[0] == "read a book"
        assert new.asked == [["book"]]


async def hang() -> Any:
    await trio.sleep_forever()


class Own(BaseException):
    """What no library raises."""


def fail(given: list[str]) -> Any:
    raise OSError("the key sk-123 of likes tea is wrong")


FAULTS: dict[str, Callable[[list[str]], Any]] = {
    "raises": fail,
    "hangs": lambda _: hang(),
    "none": lambda _: None,
    "a number": lambda _: 7,
    "a text": lambda _: "abc",
    "too few": lambda _: [],
    "too many": lambda given: [[1.0]] * (len(given) + 1),
    "NaN": lambda given: [[float("nan"), 1.0]] * len(given),
    "infinity": lambda given: [[float("inf")]] * len(given),
    "empty": lambda given: [[]] * len(given),
    "long": lambda given: [[1.0] * 9_000] * len(given),
    "texts": lambda given: [["a"]] * len(given),
    "nested": lambda given: [[[1.0]]] * len(given),
    "huge": lambda given: [[10**400]] * len(given),
    "lengths": lambda given: [[1.0] * (3 + ("tea" in text)) for text in given],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_embedding_that_fails_costs_no_text(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        toy = Toy()
        async with keeper_on(MemoryStore(), kind=kind_with(toy)) as keeper:
            alice = Memories(keeper, "alice")
            await alice.remember("hates rain")
            toy.fault = FAULTS[fault]
            await alice.remember("likes tea")
            assert await texts(alice, "TEA?") == ["likes tea"], "by words"
            assert await alice.recall("something to drink") == []
            warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
            assert len(warnings) == 1, "once, until it works again"
            assert "the embedding 'toy' of keeper fails: " in warnings[0].getMessage()
            assert "sk-123" not in warnings[0].getMessage()
            assert "likes tea" not in warnings[0].getMessage()
            toy.fault = None
            assert (await texts(alice, "something to drink"))[0] == "likes tea"
            assert len(await alice.recall("something to drink")) == 2

    simulate(main)


def test_a_hang_takes_the_seconds_of_the_embedding() -> None:
    async def main() -> None:
        toy = Toy()
        toy.fault = FAULTS["hangs"]
        async with keeper_on(None, kind=kind_with(toy, seconds=2)) as keeper:
            began = trio.current_time()
            await Memories(keeper, "alice").remember("likes tea")
            assert trio.current_time() - began == pytest.approx(2)
            assert await texts(Memories(keeper, "alice"), "tea") == ["likes tea"]
            assert trio.current_time() - began == pytest.approx(4)

    simulate(main)


async def test_a_function_that_is_not_async_is_named() -> None:
    plain: Any = lambda given: [[1.0]] * len(given)  # noqa: E731
    async with keeper_on(None, kind=with_options(embedding=Embedding("plain", plain))) as keeper:
        with pytest.raises(TypeError, match="the function of the embedding 'plain' is not async"):
            await Memories(keeper, "alice").remember("likes tea")


async def test_what_is_no_exception_passes() -> None:
    toy = Toy()

    def end(_: list[str]) -> Any:
        raise Own

    async with keeper_on(None, kind=kind_with(toy)) as keeper:
        toy.fault = end
        with pytest.raises(Own):
            await Memories(keeper, "alice").remember("likes tea")


@pytest.mark.parametrize("zeros", [[0.0, 0.0], [-0.0, 0.0]])
async def test_vectors_without_a_direction_and_with_any_size(zeros: list[float]) -> None:
    toy = Toy()
    toy.fault = lambda given: [
        zeros if "nothing" in text else [1e308, 1e308] if "large" in text else [1e-300, 0.0] for text in given
    ]
    async with keeper_on(None, kind=kind_with(toy)) as keeper:
        alice = Memories(keeper, "alice")
        for text in ("nothing", "large", "small"):
            await alice.remember(text)
        found = await alice.recall("large?")
        assert [each.text for each in found] == ["large", "small", "nothing"]
        assert [each.score for each in found] == [pytest.approx(1), pytest.approx(2**-0.5), 0]


async def test_vectors_that_cannot_be_kept_are_of_use_all_the_same() -> None:
    store, toy = StoreOfTest(), Toy()
    async with keeper_on(store) as keeper:
        await Memories(keeper, "alice").remember("likes tea")
    async with keeper_on(store, kind=kind_with(toy)) as keeper:
        store.fails = True
        assert await texts(Memories(keeper, "alice"), "drink") == ["likes tea"]
        store.fails = False


async def test_many_texts_go_in_pieces() -> None:
    store, toy = MemoryStore(), Toy()
    async with keeper_on(store) as keeper:
        for number in range(150):
            await Memories(keeper, "alice").remember(f"tea {number}")
    async with keeper_on(store, kind=kind_with(toy)) as keeper:
        assert len(await Memories(keeper, "alice").recall("drink", 200)) == 150
    assert max(map(len, toy.asked)) <= 64
    assert sum(map(len, toy.asked)) == 151


@pytest.mark.parametrize(
    ("arguments", "kind", "why"),
    [
        (("", Toy()), ValueError, "a text of 1 to 200"),
        ((7, Toy()), ValueError, "not 7"),
        (("a", 7), TypeError, "an async function of texts, not 7"),
        (("a", Toy(), 0), ValueError, "a number above 0, not 0"),
        (("a", Toy(), float("inf")), ValueError, "a number above 0"),
        (("a", Toy(), "1"), ValueError, "a number above 0"),
    ],
)
def test_what_is_no_embedding(arguments: Any, kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        Embedding(*arguments)
    with pytest.raises(TypeError, match="embedding of MemoryOptions is"):
        MemoryOptions(embedding=Toy())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.slow  # its lines: the tests around it
def test_a_cancel_is_a_cancel_at_every_await() -> None:
    """Cut at each of its awaits, a change is there or not; nothing hangs, and the next call works."""

    async def main() -> None:
        for verb in ("remember", "recall", "forget", "forget_all"):
            steps = 0
            while True:
                toy = Toy()
                async with keeper_on(MemoryStore(), kind=kind_with(toy)) as keeper:
                    alice = Memories(keeper, "alice")
                    id = await alice.remember("likes tea")
                    given = {"remember": ("hates rain",), "recall": ("drink",), "forget": (id,)}
                    finished = await _cut(getattr(alice, verb), given.get(verb, ()), steps)
                    found = await texts(alice, "drink rain", 10)
                    assert set(found) <= {"likes tea", "hates rain"}
                    await alice.remember("has a book")
                    assert len(await alice.recall("book", 10)) == len(found) + 1
                    assert await alice.forget_all() == len(found) + 1
                steps += 1
                if finished:
                    break
            assert steps > 2, verb

    async def _cut(call: Any, given: tuple[Any, ...], steps: int) -> bool:
        """Make a call, and cancel it after so many steps of it; return whether it has ended before."""
        finished = False
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def work() -> None:
                    nonlocal finished
                    await call(*given)
                    finished = True
                    nursery.cancel_scope.cancel()

                nursery.start_soon(work)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        return finished

    trio.run(main)
