"""Memories: the texts that an agent remembers of one identity, over sessions and restarts.

Nothing is remembered unless the code of an agent says so. A recalled text is data that somebody has said or
written: for a language model it may be an attack, like any other text.
"""

from __future__ import annotations

import logging
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from lmos_actors.errors import ActionFailed

from ._embedding import Embedding, EmbeddingFailed, embedded, written
from ._kept import ID_DIGITS, KeptMemories, TooManyIdentities
from ._records import memories_of_node
from ._words import asked_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.actors import Agent, Slot
    from lmos_actors.persistence import Durability

    from ._kept import Found

NO_IDENTITY: Final = "NO_IDENTITY"
MEMORY_FULL: Final = "MEMORY_FULL"

LONGEST_IDENTITY: Final = 1_000
"""Characters of an identity."""

LONGEST_TAG: Final = 64
"""Characters of a tag."""

MOST_TAGS: Final = 16

_ID: Final = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")
_LOG: Final = logging.getLogger("lmos_actors")


class Memory(msgspec.Struct, frozen=True):
    """A remembered text. `at` is when, in Unix time; `score` is how well the text fits the question.

    The score is above 0 in a search by words, from -1 to 1 with an embedding, and 0 without a question.
    """

    id: str
    text: str
    tags: tuple[str, ...]
    at: float
    score: float = 0.0


def _check_bound(_: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{attribute.name} of MemoryOptions is a whole number above 0, not {value!r}")


def _check_embedding(_: Any, __: Any, value: Any) -> None:
    if value is not None and not isinstance(value, Embedding):
        raise TypeError(f'embedding of MemoryOptions is Embedding("name", function), not {value!r}')


@attrs.frozen(kw_only=True)
class MemoryOptions:
    """The bounds of an agent's memories; its class sets them as `memory_options`.

    An identity has at most `texts` texts; beyond that the oldest is removed. A text has at most `text_bytes`
    bytes. Once `identities` identities have memories, a new identity is refused.
    """

    texts: int = attrs.field(default=1_000, validator=_check_bound)
    text_bytes: int = attrs.field(default=4_096, validator=_check_bound)
    identities: int = attrs.field(default=10_000, validator=_check_bound)
    durability: Durability = "process"
    embedding: Embedding | None = attrs.field(default=None, validator=_check_embedding)

    def __attrs_post_init__(self) -> None:
        if self.durability not in ("process", "power"):
            raise ValueError(f'durability of MemoryOptions is "process" or "power", not {self.durability!r}')


class Memories:
    """The texts that an agent remembers of one identity. No other identity has them.

    `agent` is the agent itself, in its own code: memories belong to its path. `identity` is a name that the
    agent trusts, such as `turn.principal`; None is a caller without a name. On a node without security all
    callers count as one caller without a name. With security, a caller without a name has no memories, and
    each verb raises ActionFailed (NO_IDENTITY).

    Memories are kept in the node's store, or in memory without a store. The class of the agent may set
    `memory_options` to its `MemoryOptions`. Every verb raises StoreFailed while the store fails, and
    ValueError or TypeError for invalid arguments; no error contains a text.
    """

    __slots__ = ("_agent", "_identity", "_options")

    def __init__(self, agent: Agent, identity: str | None) -> None:
        """Raise ValueError or TypeError for an invalid identity."""
        if identity is not None:
            _check_text("the identity of Memories", identity, LONGEST_IDENTITY)
        self._agent = agent
        self._identity = identity
        self._options: MemoryOptions = getattr(type(agent), "memory_options", None) or MemoryOptions()
        if not isinstance(self._options, MemoryOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{type(agent).__name__}.memory_options is a MemoryOptions, not {self._options!r}"
            )

    async def remember(self, text: str, tags: Sequence[str] = ()) -> str:
        """Remember a text; return its id once it is kept. A known text becomes the newest, with the new tags.

        The oldest text is removed when there are too many. If the embedding fails, the text is kept
        nevertheless. After a cancel the text may or may not be remembered. Raise ActionFailed (NO_IDENTITY,
        MEMORY_FULL).
        """
        options = self._options
        _check_text("a text to remember", text, options.text_bytes)
        if len(text.encode()) > options.text_bytes:
            raise ValueError(f"a text to remember has at most {options.text_bytes} bytes: shorten it")
        if not text.strip():
            raise ValueError("a text to remember is not blank")
        given, kept = _checked_tags(tags), self._kept()
        vector = await self._vector(text)
        try:
            return await kept.remember(
                text,
                given,
                self._agent.now().timestamp(),
                vector,
                texts=options.texts,
                identities=options.identities,
            )
        except TooManyIdentities:
            text = f"{options.identities} identities have memories at {self._agent.path}, and no more can"
            raise ActionFailed({"code": MEMORY_FULL, "message": text}) from None

    async def recall(self, query: str = "", most: int = 5, tags: Sequence[str] = ()) -> list[Memory]:
        """Return up to `most` memories that have all of the tags, ordered by how well they fit a question.

        Without an embedding, a memory must have one of the first 64 words of the question. With an embedding
        all memories are ranked by meaning, or by words while the embedding fails. Without words in the
        question the newest come first. A question longer than a text may be (`text_bytes`) is cut.

        Raise ActionFailed (NO_IDENTITY).
        """
        options = self._options
        asked = _question(query, options.text_bytes)
        given: Any = most
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ValueError(f"most is a whole number above 0, not {given!r}")
        wanted, kept = set(_checked_tags(tags)), self._kept()
        found = await self._found(kept, asked)
        return [_shown(each) for each in found if wanted.issubset(each.kept.tags)][:most]

    async def forget(self, id: str) -> bool:
        """Forget a text; return whether there was a text with that id. Raise ActionFailed (NO_IDENTITY)."""
        kept = self._kept()
        return bool(_ID.fullmatch(id)) and await kept.forget(id)

    async def forget_all(self) -> int:
        """Forget all texts of the identity; return how many there were. Raise ActionFailed (NO_IDENTITY)."""
        return await self._kept().forget_all()

    # ---- finding

    async def _found(self, kept: KeptMemories, query: str) -> list[Found]:
        asked, embedding = asked_of(query), self._options.embedding
        if not asked:
            return await kept.newest()
        if embedding is not None:
            try:
                found = await kept.by_meaning(embedding, query)
            except EmbeddingFailed as error:
                self._note(embedding, error)
            else:
                self._note(embedding, None)
                return found
        return await kept.by_words(asked)

    async def _vector(self, text: str) -> bytes | None:
        embedding = self._options.embedding
        if embedding is None:
            return None
        try:
            (vector,) = await embedded(embedding, [text])
        except EmbeddingFailed as error:
            self._note(embedding, error)
            return None
        self._note(embedding, None)
        return written(embedding, vector)

    def _note(self, embedding: Embedding, error: EmbeddingFailed | None) -> None:
        """Log that an embedding fails: once, until it works again."""
        slot = self._slot()
        failing, name = memories_of_node(slot.rt).failing, (slot.path, embedding.name)
        if error is None:
            failing.discard(name)
        elif name not in failing:
            failing.add(name)
            _LOG.warning(
                "the embedding %r of %s fails: %s; until it works memories are found by words",
                embedding.name,
                slot.path,
                error,
            )

    # ---- place

    def _slot(self) -> Slot:
        return self._agent._place()  # pyright: ignore[reportPrivateUsage]

    def _kept(self) -> KeptMemories:
        slot = self._slot()
        if self._identity is None and slot.rt.is_guarded:
            text = "this caller has no name, so nothing is remembered of it"
            raise ActionFailed({"code": NO_IDENTITY, "message": text})
        node = memories_of_node(slot.rt)
        return KeptMemories(node, slot.path, self._identity or "", self._options.durability)


def _check_text(what: str, text: Any, most: int) -> None:
    """Raise TypeError or ValueError unless `text` is a `str` of 1 to `most` characters of Unicode."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a text, not {type(text).__name__}")
    if not 0 < len(text) <= most:
        raise ValueError(f"{what} has 1 to {most} characters, not {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is a text of Unicode, and this one has half a character in it") from None


def _question(query: Any, most: int) -> str:
    """Return the question, cut to `most` bytes, as users may ask at any length. Raise TypeError."""
    if not isinstance(query, str):
        raise TypeError(f"a question is a text, not {type(query).__name__}")
    return query.encode("utf-8", "replace")[:most].decode(errors="ignore")


def _checked_tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, list | tuple | set | frozenset):
        raise TypeError(f'tags are a list of texts, such as ["food"], not {type(tags).__name__}')
    given: list[Any] = sorted(tags) if isinstance(tags, set | frozenset) else list(tags)  # pyright: ignore
    if len(given) > MOST_TAGS:
        raise ValueError(f"there are at most {MOST_TAGS} tags, not {len(given)}")
    for tag in given:
        _check_text("a tag", tag, LONGEST_TAG)
    return tuple(dict.fromkeys(given))


def _shown(found: Found) -> Memory:
    score = found.score if isfinite(found.score) else 0.0
    return Memory(found.id, found.kept.text, found.kept.tags, found.kept.at, score)
