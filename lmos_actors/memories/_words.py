"""Words of a text, and how well texts fit a question: computed here, so that all stores give equal results.

A word is a run of letters and digits, without case, accents and other marks. In scripts without spaces
between words each character is a word, and so is each pictograph. Words are compared as they are: no endings
are cut and no words are left out, in any language. To find texts by their meaning there are embeddings.

Texts are ranked by BM25: a word counts more if few texts have it, and more in a short text.
"""

from __future__ import annotations

import re
from collections import Counter
from math import log
from typing import TYPE_CHECKING, Final
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST_WORD: Final = 64
"""Characters of a word; a longer word is cut."""

MOST_ASKED: Final = 64
"""How many different words of a question count: the first ones."""

SATURATION: Final = 1.2
"""The saturation of repeated words in a text: the `k1` of BM25."""

BY_LENGTH: Final = 0.75
"""The weight of the length of a text: the `b` of BM25."""

_SIGNS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han and kana; Hangul has spaces
    "\u2600-\u27bf\U0001f000-\U0001faff"  # pictures
)
_WORDS: Final = re.compile(rf"[{_SIGNS}]|[^\W_{_SIGNS}]+")
_ASCII_WORDS: Final = re.compile("[a-z0-9]+")
"""The same for texts of ASCII, several times as fast."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, in their order. The text may be any `str`, even with lone surrogates."""
    if text.isascii():
        words = _ASCII_WORDS.findall(text.lower())
    else:
        plain = normalize("NFKD", normalize("NFKD", text).casefold())
        words = _WORDS.findall("".join(each for each in plain if category(each)[0] != "M"))
    return [word if len(word) <= LONGEST_WORD else word[:LONGEST_WORD] for word in words]


def asked_of(query: str) -> list[str]:
    """Return the distinct words of a question, in their order, at most MOST_ASKED."""
    return list(dict.fromkeys(words_of(query)))[:MOST_ASKED]


class WordCounts:
    """The counts of a question's words in one text, and the number of all its words."""

    __slots__ = ("counts", "length")

    def __init__(self, asked: Sequence[str], words: Sequence[str]) -> None:
        wanted = set(asked)
        found = Counter([word for word in words if word in wanted])
        self.counts = [found[word] for word in asked]
        self.length = len(words)

    def __bool__(self) -> bool:
        return any(self.counts)


def scores(candidates: Sequence[WordCounts], *, texts: int, words: int) -> list[float]:
    """Return the score of each candidate; the candidates are all texts that have a word of the question.

    `texts` is the number of all texts, candidates included, and `words` the number of all their words.
    """
    texts = max(texts, len(candidates))
    mean = max(1.0, words / texts) if texts else 1.0
    weights = [
        log(1 + (texts - count + 0.5) / (count + 0.5))
        for count in map(_with_word, zip(*(each.counts for each in candidates), strict=True))
    ]
    return [_score(each, weights, mean) for each in candidates]


def _with_word(counts: Iterable[int]) -> int:
    return sum(count > 0 for count in counts)


def _score(candidate: WordCounts, weights: Sequence[float], mean: float) -> float:
    longer = SATURATION * (1 - BY_LENGTH + BY_LENGTH * candidate.length / mean)
    return sum(
        weight * count * (SATURATION + 1) / (count + longer)
        for weight, count in zip(weights, candidate.counts, strict=True)
        if count
    )
