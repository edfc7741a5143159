"""What agents remember: one table of behaviours over every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.errors import StoreDamaged, StoreFailed
from lmos_actors.memories import Memories, MemoryOptions
from lmos_actors.persistence import MemoryStore, Put, SqliteStore
from tests.matrix import few_or_all, some
from tests.memories.keepers import KEEPERS, Keeper, every_store, keeper_on, texts, with_options
from tests.persistence.stores import StoreOfTest

if TYPE_CHECKING:
    from pathlib import Path


@every_store
async def test_what_is_remembered_is_recalled_and_forgotten(place: Any, tmp_path: Path) -> None:
    async with keeper_on(place(tmp_path)) as keeper:
        alice = Memories(keeper, "alice")
        assert await alice.recall("anything") == []
        tea = await alice.remember("likes tea, and Zürich", ["food", "travel", "food"])
        await alice.remember("hates coffee; tea is better than coffee", ["food"])
        await alice.remember("works at night")
        (first, second) = await alice.recall("ZURICH or tea?")
        assert (first.id, first.text, first.tags) == (tea, "likes tea, and Zürich", ("food", "travel"))
        assert first.score > second.score > 0
        assert await texts(alice) == [
            "works at night",
            "hates coffee; tea is better than coffee",
            "likes tea, and Zürich",
        ]
        assert await texts(alice, most=1) == ["works at night"]
        assert await texts(alice, "tea", tags=("food", "travel")) == ["likes tea, and Zürich"]
        assert await texts(alice, tags=("Food",)) == []
        assert await texts(alice, "?!") == await texts(alice)
        assert await alice.forget(tea)
        assert not await alice.forget(tea)
        assert await texts(alice, "tea") == ["hates coffee; tea is better than coffee"]
        assert await alice.forget_all() == 2
        assert await alice.forget_all() == 0
        assert await alice.recall() == []


@every_store
async def test_the_same_text_is_one_memory(place: Any, tmp_path: Path) -> None:
    async with keeper_on(place(tmp_path)) as keeper:
        alice = Memories(keeper, "alice")
        id = await alice.remember("likes tea", ["old"])
        await alice.remember("likes cake")
        assert await alice.remember("likes tea", ["new"]) == id
        assert [(each.text, each.tags) for each in await alice.recall()] == [
            ("likes tea", ("new",)),
            ("likes cake", ()),
        ]
        assert await alice.forget(id)
        assert await texts(alice, "likes") == ["likes cake"]


@every_store
async def test_the_oldest_goes(place: Any, tmp_path: Path) -> None:
    async with keeper_on(place(tmp_path), kind=with_options(texts=3)) as keeper:
        alice = Memories(keeper, "alice")
        for text in ("one", "two", "three"):
            await alice.remember(text)
        await alice.remember("one")  # it is the newest now
        await alice.remember("four")
        assert await texts(alice, most=3) == ["four", "one", "three"]
        assert await texts(alice, "two") == []
    if place(tmp_path) is not None:
        async with keeper_on(place(tmp_path), kind=with_options(texts=2)) as keeper:
            await Memories(keeper, "alice").remember("five")
            assert (await texts(Memories(keeper, "alice")))[0] == "five"
            assert len(await Memories(keeper, "alice").recall()) <= 2


@every_store
async def test_identities_are_bounded(place: Any, tmp_path: Path) -> None:
    async with keeper_on(place(tmp_path), kind=with_options(identities=2)) as keeper:
        await Memories(keeper, "a").remember("one")
        id = await Memories(keeper, "b").remember("one")
        with pytest.raises(ActionFailed, match="2 identities have memories at keeper") as refused:
            await Memories(keeper, "c").remember("one")
        assert refused.value.code == "MEMORY_FULL"
        await Memories(keeper, "a").remember("two")
        await Memories(keeper, "b").forget(id)
        await Memories(keeper, "c").remember("one")
        await Memories(keeper, "a").forget_all()
        await Memories(keeper, "d").remember("one")


NAMES = [
    "alice", "Alice", "ALICE", "alice ", " alice", "alice\0", "alice\0memories", "\0alice", "alice\x01", "a",
    "alice%00", "alice%", "%61lice", "al%69ce", "%", "*", "?", "alice*", "_lice", "'; DROP TABLE records; --",
    "alice/bob", "../alice", "keeper\0alice", "", "é", "e\u0301", "\uff41lice", "İ", "i\u0307",
    "alice\n", "\U0001f600", "\ufeffalice", "a" * 1_000, "@alice", "relay:a/alice",
]  # fmt: skip


@every_store
async def test_no_spelling_of_a_name_is_another_name(place: Any, tmp_path: Path) -> None:
    names: list[str | None] = [None, *dict.fromkeys(name for name in some(NAMES, of=2) if name)]
    share = few_or_all(9, 1)  # of the other names, one in so many

    def others(number: int) -> list[int]:
        return [each for each in range(number % share, len(names), share) if each != number]

    async with keeper_on(place(tmp_path)) as keeper, open_node() as node:
        await node.start(Keeper)
        for number, name in enumerate(names):
            await Memories(keeper, name).remember(f"secret of {number}", ["t"])
        for number, name in enumerate(names):
            memories = Memories(keeper, name)
            assert await texts(memories, "secret") == await texts(memories) == [f"secret of {number}"], name
            for other in {number, *others(number)}:
                found = await texts(memories, f"{other}", tags=("t",))
                assert found == ([f"secret of {number}"] if other == number else [])
        ids = [(await Memories(keeper, name).recall())[0].id for name in names]
        for number, name in enumerate(names):
            memories = Memories(keeper, name)
            assert [await memories.forget(ids[other]) for other in others(number)] == [False] * len(
                others(number)
            )
            assert [await memories.forget(ids[number]) for _ in range(2)] == [True, False], name


@every_store
async def test_agents_do_not_share_memories(place: Any, tmp_path: Path) -> None:
    async with keeper_on(place(tmp_path)) as keeper:
        other = await keeper.start(Keeper)
        assert other.path != keeper.path
        await Memories(keeper, "alice").remember("a secret")
        assert await Memories(KEEPERS[other.path], "alice").recall("secret") == []
        assert await Memories(KEEPERS[other.path], "alice").recall() == []


async def test_they_survive_a_restart_of_the_node_and_of_the_agent(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'kept.db'}"
    async with keeper_on(store) as keeper:
        await Memories(keeper, "alice").remember("likes tea")
    async with keeper_on(store) as keeper:
        assert await texts(Memories(keeper, "alice"), "tea") == ["likes tea"]
        assert await texts(Memories(keeper, "bob"), "tea") == []


async def test_without_a_store_they_outlive_the_incarnation() -> None:
    async with open_node() as node:
        ref = await node.start(Keeper)
        await Memories(KEEPERS["keeper"], "alice").remember("likes tea")
        await node.root.terminate_child("keeper")
        await node.root.restart_child("keeper")
        assert await texts(Memories(KEEPERS[ref.path], "alice")) == ["likes tea"]
    async with keeper_on(None) as keeper:
        assert await texts(Memories(keeper, "alice")) == []


async def test_nodes_that_share_a_store_share_the_memories_of_a_path() -> None:
    store = MemoryStore(shared=True)
    async with keeper_on(store) as one, open_node(store=store) as node:
        await node.start(Keeper)
        other = KEEPERS["keeper"]
        assert other is not one

        async def remember(keeper: Keeper, number: int) -> None:
            await Memories(keeper, "alice").remember(f"fact {number}")

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(remember, (one, other)[number % 2], number)
        for keeper in (one, other):
            found = await texts(Memories(keeper, "alice"), "fact", most=100)
            assert sorted(found) == sorted(f"fact {number}" for number in range(40))
        assert await Memories(one, "alice").forget_all() == 40


HOSTILE = {
    "fts": 'tea" OR NEAR(a b) * ^ - : {x y} AND NOT (',
    "sql": "tea'); DROP TABLE terms; --",
    "nul": "tea\0with\0nul",
    "marks": "t\u0301e\u0302a" + "\u0301" * 1_500,
    "emoji": "\U0001f375" * 1_024,
    "han": "我喜欢茶",
    "ligature": "\ufb01ne tea \ufdfa",
    "long": "x" * 4_096,
    "controls": "tea\x1b[31m\u202e\u2066\ufeff",
    "turkish": "İSTANBUL'da",
}


@every_store
@pytest.mark.parametrize("kind", some(HOSTILE, of=3))
async def test_hostile_texts(place: Any, kind: str, tmp_path: Path) -> None:
    text = HOSTILE[kind]
    async with keeper_on(place(tmp_path)) as keeper:
        alice = Memories(keeper, "alice")
        await alice.remember("nothing of it")
        await alice.remember(text, [text[:60]])
        assert await texts(alice, text, most=1) == [text]
        assert await texts(alice, tags=(text[:60],)) == [text]
        assert await texts(alice, "nothing") == ["nothing of it"]
        for query in HOSTILE.values():
            await alice.recall(query)
        assert await texts(alice, "\ud800") == [text, "nothing of it"], "half a character is no word"


@pytest.mark.parametrize(
    ("text", "tags", "kind", "why"),
    [
        ("", (), ValueError, "1 to 4096 characters"),
        (" \n\t", (), ValueError, "not blank"),
        ("é" * 2_049, (), ValueError, "at most 4096 bytes"),
        ("x" * 5_000, (), ValueError, "1 to 4096 characters, not 5000"),
        ("secret\ud800", (), ValueError, "half a character"),
        (7, (), TypeError, "not int"),
        ("a", "food", TypeError, 'such as \\["food"\\], not str'),
        ("a", ["x"] * 17, ValueError, "at most 16 tags"),
        ("a", ["x" * 65], ValueError, "a tag has 1 to 64"),
        ("a", [""], ValueError, "a tag has 1 to 64"),
        ("a", ["\ud800"], ValueError, "half a character"),
        ("a", [3], TypeError, "a tag is a text"),
        ("a", 3, TypeError, "tags are a list"),
    ],
)
async def test_what_cannot_be_remembered(text: Any, tags: Any, kind: type[Exception], why: str) -> None:
    async with keeper_on(None) as keeper:
        with pytest.raises(kind, match=why) as refused:
            await Memories(keeper, "alice").remember(text, tags)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "kind", "why"),
    [
        ((None,), TypeError, "a question is a text"),
        (("x", 0), ValueError, "above 0, not 0"),
        (("x", True), ValueError, "above 0, not True"),
        (("x", 1.5), ValueError, "not 1.5"),
        (("x", 1, "food"), TypeError, "tags are a list"),
    ],
)
async def test_what_cannot_be_asked(arguments: Any, kind: type[Exception], why: str) -> None:
    async with keeper_on(None) as keeper:
        with pytest.raises(kind, match=why):
            await Memories(keeper, "alice").recall(*arguments)


async def test_of_a_long_question_the_beginning_counts() -> None:
    """What users ask may have any length: an agent that passes it on must not crash by that."""
    async with keeper_on(None) as keeper:
        alice = Memories(keeper, "alice")
        await alice.remember("tea")
        await alice.remember("coffee")
        found = await alice.recall("tea " + "é" * 3_000 + " coffee")
        assert [each.text for each in found] == ["tea"]


@pytest.mark.parametrize(
    ("identity", "kind", "why"),
    [
        ("", ValueError, "1 to 1000 characters"),
        ("a" * 1_001, ValueError, "1 to 1000 characters"),
        ("\ud800", ValueError, "half a character"),
        (7, TypeError, "the identity of Memories is a text, not int"),
    ],
)
async def test_what_is_no_identity(identity: Any, kind: type[Exception], why: str) -> None:
    async with keeper_on(None) as keeper:
        with pytest.raises(kind, match=why):
            Memories(keeper, identity)


@pytest.mark.parametrize(
    "options", [{"texts": 0}, {"text_bytes": True}, {"identities": "1"}, {"durability": "x"}]
)
def test_options_that_are_wrong(options: Any) -> None:
    with pytest.raises(ValueError, match="of MemoryOptions is"):
        MemoryOptions(**options)


async def test_options_of_another_type() -> None:
    kind: Any = type("Wrong", (Keeper,), {"memory_options": 3})
    async with keeper_on(None, kind=kind) as keeper:
        with pytest.raises(TypeError, match="memory_options is a MemoryOptions, not 3"):
            Memories(keeper, "alice")


@pytest.mark.parametrize("id", ["", "x", "0" * 19, "0" * 20, "0" * 21, "A" * 20, "0" * 19 + "\0", "\ud800"])
async def test_ids_that_are_none(id: str) -> None:
    async with keeper_on(None) as keeper:
        await Memories(keeper, "alice").remember("a")
        assert not await Memories(keeper, "alice").forget(id)
        assert await Memories(keeper, "alice").forget_all() == 1


async def test_a_store_that_fails_is_an_error_and_loses_nothing() -> None:
    store = StoreOfTest()
    async with keeper_on(store) as keeper:
        alice = Memories(keeper, "alice")
        await alice.remember("likes tea")
        store.fails = True
        with pytest.raises(StoreFailed, match="the disk is full"):
            await alice.remember("likes cake")
        with pytest.raises(StoreFailed):
            await alice.forget_all()
        assert await texts(alice, "likes") == ["likes tea"]
        store.fails = False


@every_store
async def test_many_at_once_are_all_kept(place: Any, tmp_path: Path) -> None:
    each = few_or_all(4, 10)
    async with keeper_on(place(tmp_path), kind=with_options(identities=20)) as keeper:
        async with trio.open_nursery() as nursery:
            for who in range(20):
                for number in range(each):
                    nursery.start_soon(Memories(keeper, f"user {who}").remember, f"fact {number}")
        for who in range(20):
            found = await texts(Memories(keeper, f"user {who}"), "fact", most=100)
            assert sorted(found) == [f"fact {number}" for number in range(each)]
        with pytest.raises(ActionFailed, match="20 identities"):
            await Memories(keeper, "another").remember("fact")


async def test_records_that_cannot_be_read_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    async with keeper_on(f"sqlite:{path}") as keeper:
        id = await Memories(keeper, "alice").remember("likes tea")
    for space, key in (("memories", f"keeper\0alice\0{id}"), ("memory owners", "keeper\0alice")):
        store = SqliteStore(path)
        store.open()
        (kept,) = store.get(space, [key])
        assert kept is not None
        store.commit([[Put(space, key, b"7")]], "process")
        store.close()
        async with keeper_on(f"sqlite:{path}") as keeper:
            with pytest.raises(StoreDamaged, match="a record of memories is no"):
                await Memories(keeper, "alice").recall("tea")
            with pytest.raises(StoreDamaged):
                await Memories(keeper, "alice").remember("likes tea")
        store.open()
        store.commit([[Put(space, key, kept)]], "process")
        store.close()


@every_store
async def test_forgetting_while_others_recall(place: Any, tmp_path: Path) -> None:
    async with keeper_on(place(tmp_path)) as keeper:
        alice = Memories(keeper, "alice")
        ids = [await alice.remember(f"fact {number}") for number in range(few_or_all(20, 60))]

        async def recall() -> None:
            for _ in range(few_or_all(4, 10)):
                found = await alice.recall("fact", most=100)
                assert {each.id for each in found} <= set(ids)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(recall)
            nursery.start_soon(recall)
            for id in ids:
                assert await alice.forget(id)
        assert await alice.recall("fact") == []
        assert await alice.forget_all() == 0
