"""The memories of one identity at one agent, as they are kept.

| space | key | value |
|---|---|---|
| `memories` | agent, identity, id | `KeptText`; its terms are its words, each behind a digest of the owner |
| `memory order` | agent, identity, number | the id: which text was remembered when |
| `memory vectors` | agent, identity, id | `KeptVector`, with an embedding |
| `memory owners` | agent, identity | `Owner`: how many texts, and how many words they have |
| `memory agents` | agent | `Identities`: how many identities have memories |

What this module guarantees:

- **The id is a digest of the text.** Remembering a text again changes its time and its tags, and makes no
  second one: so a call whose outcome is not known can be repeated.
- **A change is one batch**, text and index, order and counts; each expects the counts that it has read. Tasks
  of one node take turns by a lock; where nodes share a store, the loser of a race reads and writes again.
- **An owner's words are its own in the index**, by the digest before each. So a search for a word that a
  million texts of other owners have takes no longer, and finds none of these texts.
- **The index changes no result.** It names candidates; where it is not complete, as in a store that was
  written without it, all texts are read, and the index is completed.
- **The event loop goes on.** Between two awaits, at most `PAGE` texts are read, and `AT_ONCE` characters of
  them split into words.
"""

from __future__ import annotations

from contextlib import aclosing, nullcontext, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import attrs
import msgspec
import trio

from lmos_actors.errors import StoreDamaged, StoreFailed, WriteConflict
from lmos_actors.persistence import (
    Check,
    Delete,
    DeleteRange,
    Expected,
    Put,
    after,
    key_of,
    parts_of,
    range_of,
)

from ._embedding import Embedding, EmbeddingFailed, embedded, likeness, read, written
from ._words import WordCounts, scores, words_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import AsyncGenerator, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from lmos_actors.persistence import Durability, Write

    from ._records import NodeMemories

TEXTS: Final = "memories"
ORDER: Final = "memory order"
VECTORS: Final = "memory vectors"
OWNERS: Final = "memory owners"
AGENTS: Final = "memory agents"

ID_DIGITS: Final = 20
"""Hexadecimal digits of an id."""

PAGE: Final = 32
"""Texts that are read at once."""

AT_ONCE: Final = 8_192
"""Characters that are split into words at once."""


T = TypeVar("T")


class KeptText(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kept text. `number` is its place in the order, `words` the number of its words."""

    text: str
    at: float
    number: int
    words: int
    tags: tuple[str, ...] = ()


class Owner(msgspec.Struct, frozen=True):
    """The counts of an identity's texts at an agent, and of their words, and the last number in the order."""

    texts: int = 0
    words: int = 0
    last: int = 0


class Identities(msgspec.Struct, frozen=True):
    """The number of identities that have memories at an agent."""

    identities: int = 0


class TooManyIdentities(Exception):
    """Raised if no further identity can have memories at this agent."""


@attrs.frozen
class Found:
    """A text that was found; the higher the score, the better."""

    id: str
    kept: KeptText
    value: bytes
    """The text as it is stored."""
    score: float = 0.0


class KeptMemories:
    """The memories of one identity at one agent. `identity` is "" for callers without a name."""

    def __init__(self, node: NodeMemories, agent: str, identity: str, durability: Durability) -> None:
        self._node = node
        self._records = node.records
        self._agent = agent
        self._durability: Durability = durability
        self._owner = owner_key(agent, identity)
        self._start, self._stop = range_of(self._owner)

    # ---- changing

    async def remember(
        self,
        text: str,
        tags: tuple[str, ...],
        at: float,
        vector: bytes | None,
        *,
        texts: int,
        identities: int,
    ) -> str:
        """Keep a text, and return its id once it is kept. Remove the oldest texts beyond `texts`.

        Raise TooManyIdentities for a new identity beyond `identities`, and StoreFailed.
        """
        id, words = sha256(text.encode()).hexdigest()[:ID_DIGITS], words_of(text)
        async with self._node.lock(self._owner):
            while True:
                known, old = await self._owner_now(), await self._text_now(id)
                owner = self._read_owner(known)
                number = max(owner.last + 1, int(at * 1e6))
                kept = KeptText(text, at, number, len(words), tags)
                gone = await self._oldest(owner.texts + (old is None) - texts, but=id)
                left = Owner(
                    owner.texts + (old is None) - len(gone),
                    owner.words + kept.words - sum(each.kept.words for each in (*gone, *_some(old))),
                    number,
                )
                async with self._counting(is_needed=known is None):
                    count = [await self._count(1, most=identities)] if known is None else []
                    removals = [write for each in gone for write in self._removal(each)]
                    puts = self._puts(id, kept, words, old, vector)
                    if await self._commit([*count, *removals, *puts, self._owner_write(known, left)]):
                        return id

    def _puts(
        self, id: str, kept: KeptText, words: Sequence[str], old: Found | None, vector: bytes | None
    ) -> Iterator[Write]:
        """Yield the writes that keep a text in place of its older version `old`."""
        key = self._key(id)
        if old is not None:
            yield Delete(ORDER, self._order_key(old.kept.number))
        expect = Expected.NOTHING if old is None else old.value
        yield Put(TEXTS, key, msgspec.json.encode(kept), expect, _terms(self._owner, words))
        yield Put(ORDER, self._order_key(kept.number), msgspec.json.encode(id))
        yield Delete(VECTORS, key) if vector is None else Put(VECTORS, key, vector)

    async def forget(self, id: str) -> bool:
        """Remove a text; return whether there was one. Raise StoreFailed."""
        async with self._node.lock(self._owner):
            while True:
                known, old = await self._owner_now(), await self._text_now(id)
                if known is None or old is None:
                    return False
                owner = self._read_owner(known)
                left = Owner(owner.texts - 1, owner.words - old.kept.words, owner.last)
                async with self._counting(is_needed=not left.texts):
                    count = [] if left.texts else [await self._count(-1)]
                    writes = [*self._removal(old), self._owner_write(known, left), *count]
                    if await self._commit(writes):
                        return True

    async def forget_all(self) -> int:
        """Remove all texts of the identity at this agent; return how many there were. Raise StoreFailed."""
        async with self._node.lock(self._owner):
            while True:
                known = await self._owner_now()
                async with self._counting(is_needed=known is not None):
                    writes: list[Write] = [
                        DeleteRange(space, self._start, self._stop) for space in (TEXTS, ORDER, VECTORS)
                    ]
                    if known is not None:
                        writes += [Delete(OWNERS, self._owner, known), await self._count(-1)]
                    if await self._commit(writes):
                        return self._read_owner(known).texts

    async def _commit(self, writes: Sequence[Write]) -> bool:
        """Write a batch; return False if a record does not have the expected value. Raise StoreFailed."""
        try:
            await self._records.commit(writes, self._durability)
        except WriteConflict:
            return False
        return True

    async def _oldest(self, over: int, *, but: str) -> list[Found]:
        """Return the `over` texts that were remembered first, leaving out the one with the id `but`."""
        if over <= 0:
            return []
        order = await self._records.scan(ORDER, start=self._start, stop=self._stop, limit=over + 1)
        ids = [decoded(self._records.name, str, value) for _, value in order]
        keys = [self._key(id) for id in ids if id != but][:over]
        values = await self._records.get(TEXTS, keys)
        return [self._found(key, value) for key, value in zip(keys, values, strict=True) if value is not None]

    def _removal(self, gone: Found) -> Iterator[Write]:
        key = self._key(gone.id)
        yield Delete(TEXTS, key, gone.value)
        yield Delete(ORDER, self._order_key(gone.kept.number))
        yield Delete(VECTORS, key)

    def _owner_write(self, known: bytes | None, owner: Owner) -> Write:
        expect = Expected.NOTHING if known is None else known
        if not owner.texts:
            return Delete(OWNERS, self._owner, expect)
        return Put(OWNERS, self._owner, msgspec.json.encode(owner), expect)

    def _counting(self, *, is_needed: bool) -> AbstractAsyncContextManager[Any]:
        """Return the lock for changes of the number of identities, or an empty context."""
        return self._node.lock(self._agent) if is_needed else nullcontext()

    async def _count(self, more: int, most: int | None = None) -> Write:
        (kept,) = await self._records.get(AGENTS, [self._agent])
        count = more if kept is None else decoded(self._records.name, Identities, kept).identities + more
        if most is not None and count > most:
            raise TooManyIdentities
        expect = Expected.NOTHING if kept is None else kept
        if count <= 0:
            return Delete(AGENTS, self._agent, expect)
        return Put(AGENTS, self._agent, msgspec.json.encode(Identities(count)), expect)

    # ---- finding

    async def newest(self) -> list[Found]:
        """Return all texts, the newest first. Raise StoreFailed."""
        texts: list[Found] = []
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                texts += page
        return sorted(texts, key=_newest)

    async def by_words(self, asked: Sequence[str]) -> list[Found]:
        """Return the texts that have any of the distinct words `asked`, the best first. Raise StoreFailed."""
        known = await self._owner_now()
        if known is None:
            return []
        owner = self._read_owner(known)
        found = await self._records.matching(
            TEXTS, _terms(self._owner, asked), start=self._start, stop=self._stop
        )
        is_whole = found is not None and found.indexed == owner.texts
        candidates: list[tuple[Found, WordCounts]] = []
        taken = 0
        texts: list[Found] = []
        read_in = self._pages_at(found.keys) if found is not None and is_whole else self._pages()
        async with aclosing(read_in) as pages:
            async for page in pages:
                texts += page
                for each in page:
                    counts = WordCounts(asked, words_of(each.kept.text))
                    if counts:
                        candidates.append((each, counts))
                    taken += len(each.kept.text)
                    if taken >= AT_ONCE:
                        taken = 0
                        await trio.lowlevel.checkpoint()
        ranks = scores([counts for _, counts in candidates], texts=owner.texts, words=owner.words)
        ranked = [attrs.evolve(each, score=rank) for (each, _), rank in zip(candidates, ranks, strict=True)]
        if found is not None and not is_whole and known == await self._owner_now():
            await self._index(texts)
        return sorted(ranked, key=_best)

    async def by_meaning(self, embedding: Embedding, query: str) -> list[Found]:
        """Return all texts, the nearest meaning first; texts without a vector get one.

        Raise EmbeddingFailed, StoreFailed.
        """
        if await self._owner_now() is None:
            return []
        (wanted,) = await embedded(embedding, [query])
        ranked: list[Found] = []
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                kept = await self._records.get(VECTORS, [self._key(each.id) for each in page])
                vectors = [read(embedding, each, len(wanted)) for each in kept]
                lacking = [each for each, vector in zip(page, vectors, strict=True) if vector is None]
                made = iter(await self._with_vectors(embedding, lacking, len(wanted)))
                for each, vector in zip(page, vectors, strict=True):
                    rank = likeness(wanted, next(made) if vector is None else vector)
                    ranked.append(attrs.evolve(each, score=rank))
        return sorted(ranked, key=_best)

    async def _with_vectors(
        self, embedding: Embedding, lacking: Sequence[Found], length: int
    ) -> list[array[float]]:
        """Make the vectors of texts, return them, and store them if possible. Raise EmbeddingFailed."""
        if not lacking:
            return []
        vectors = await embedded(embedding, [each.kept.text for each in lacking])
        if any(len(vector) != length for vector in vectors):
            raise EmbeddingFailed("its vectors have different lengths")
        writes: list[Write] = []
        for each, vector in zip(lacking, vectors, strict=True):
            key = self._key(each.id)
            writes += [Check(TEXTS, key, each.value), Put(VECTORS, key, written(embedding, vector))]
        with suppress(StoreFailed):  # or one was forgotten meanwhile: the next question makes them again
            await self._commit(writes)
        return vectors

    async def _index(self, texts: Sequence[Found]) -> None:
        """Put texts into the index again; if that fails, the next question tries again."""
        with suppress(StoreFailed):
            for start in range(0, len(texts), PAGE):
                writes: list[Write] = []
                for each in texts[start : start + PAGE]:
                    terms = _terms(self._owner, words_of(each.kept.text))
                    writes.append(Put(TEXTS, self._key(each.id), each.value, each.value, terms))
                await self._commit(writes)

    # ---- reading

    async def _owner_now(self) -> bytes | None:
        return (await self._records.get(OWNERS, [self._owner]))[0]

    def _read_owner(self, known: bytes | None) -> Owner:
        return Owner() if known is None else decoded(self._records.name, Owner, known)

    async def _text_now(self, id: str) -> Found | None:
        (value,) = await self._records.get(TEXTS, [self._key(id)])
        return None if value is None else self._found(self._key(id), value)

    async def _pages(self) -> AsyncGenerator[list[Found]]:
        start = self._start
        while page := await self._records.scan(TEXTS, start=start, stop=self._stop, limit=PAGE):
            start = after(page[-1][0])
            yield [self._found(key, value) for key, value in page]

    async def _pages_at(self, keys: Sequence[str]) -> AsyncGenerator[list[Found]]:
        for start in range(0, len(keys), PAGE):
            some = keys[start : start + PAGE]
            values = await self._records.get(TEXTS, some)
            pairs = zip(some, values, strict=True)
            yield [self._found(key, value) for key, value in pairs if value is not None]

    def _found(self, key: str, value: bytes) -> Found:
        return Found(key[len(self._start) :], decoded(self._records.name, KeptText, value), value)

    def _key(self, id: str) -> str:
        return f"{self._start}{id}"

    def _order_key(self, number: int) -> str:
        return f"{self._start}{number:016x}"


def owner_key(agent: str, identity: str) -> str:
    """Return the beginning of the keys of an identity at an agent; no other pair shares it."""
    return key_of(agent, quote(identity, safe=""))


def terms_of(space: str, key: str, value: bytes) -> tuple[str, ...]:
    """Return the index terms of a record, such as an exported one; () if it is not a memory."""
    if space != TEXTS:
        return ()
    try:
        text = decoded("", KeptText, value).text
    except StoreDamaged:
        return ()
    return _terms(key_of(*parts_of(key, 3)[:2]), words_of(text))


def decoded(store: str, kind: type[T], value: bytes) -> T:
    """Return the decoded value of a record. Raise StoreDamaged."""
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise StoreDamaged(store, f"a record of memories is no {kind.__name__}") from None


def _terms(owner: str, words: Sequence[str]) -> tuple[str, ...]:
    scope = sha256(owner.encode()).hexdigest()[:16]
    return tuple(f"{scope}{word}" for word in dict.fromkeys(words))


def _some(found: Found | None) -> tuple[Found, ...]:
    return () if found is None else (found,)


def _best(found: Found) -> tuple[float, int]:
    return -found.score, -found.kept.number


def _newest(found: Found) -> int:
    return -found.kept.number
