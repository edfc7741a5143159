"""Counts of requests to language models, by model: outcomes, durations, tokens by kind."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from ._exposition import Family, Sample
from ._request_counts import OTHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class ModelCount:
    """The requests to one model."""

    __slots__ = ("buckets", "outcomes", "seconds", "tokens")

    def __init__(self, buckets: int) -> None:
        self.buckets = [0] * buckets
        self.seconds = 0.0
        self.outcomes: dict[str, int] = {}
        self.tokens: dict[str, int] = {}


class ModelCounts:
    """Counts for at most `most` models; all others count as `other`.

    `bounds`: the upper bounds of the buckets, in seconds.
    """

    def __init__(self, bounds: Sequence[float], most: int) -> None:
        self._bounds = tuple(bounds)
        self._most = most
        self._by_model: dict[str, ModelCount] = {}

    def take(self, model: str, outcome: str, seconds: float, tokens: Mapping[str, int]) -> None:
        """Count one request, its duration in seconds, and its tokens by kind."""
        count = self._by_model.get(model)
        if count is None:
            name = model if len(self._by_model) < self._most else OTHER
            count = self._by_model.setdefault(name, ModelCount(len(self._bounds) + 1))
        count.buckets[bisect_left(self._bounds, seconds)] += 1
        count.seconds += seconds
        count.outcomes[outcome] = count.outcomes.get(outcome, 0) + 1
        for kind, number in tokens.items():
            count.tokens[kind] = count.tokens.get(kind, 0) + number

    def families(self, prefix: str) -> Iterator[Family]:
        """Yield the counts as counters and a histogram; nothing if no model was asked."""
        if not self._by_model:
            return
        counts = sorted(self._by_model.items())
        requests = [
            Sample((("model", model), ("outcome", outcome)), number)
            for model, count in counts
            for outcome, number in sorted(count.outcomes.items())
        ]
        yield Family(f"{prefix}requests", "counter", "Requests to language models, by outcome.", requests)
        tokens = [
            Sample((("model", model), ("kind", kind)), number)
            for model, count in counts
            for kind, number in sorted(count.tokens.items())
        ]
        text = "Tokens of requests to language models; those that are cached are in those of the input."
        yield Family(f"{prefix}tokens", "counter", text, tokens)
        text = "Seconds from asking a language model to the end of its answer, waits for its limits included."
        yield Family(f"{prefix}request_duration_seconds", "histogram", text, self._timed(counts))

    def _timed(self, counts: list[tuple[str, ModelCount]]) -> Iterator[Sample]:
        names = [repr(float(bound)) for bound in self._bounds] + ["+Inf"]
        for model, count in counts:
            reached = 0
            for name, fallen in zip(names, count.buckets, strict=True):
                reached += fallen  # buckets of a histogram are cumulative
                yield Sample((("model", model), ("le", name)), reached, "_bucket")
            yield Sample((("model", model),), reached, "_count")
            yield Sample((("model", model),), count.seconds, "_sum")
