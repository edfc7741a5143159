"""Selection and packing of the log records on the page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import TYPE_CHECKING

import attrs

from lmos_actors.files import mapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._results import RunResult

MOST_CHARACTERS = 60_000_000
"""Most characters of logs on a page, before compression."""

SOME = 2_000
"""Fewest records that a log gets if it is on the page and has as many."""

LONG_LINE = 20_000
"""A line longer than this loses its long members."""

LONG_MEMBER = 1_000

_NUMBER = re.compile(r'\{"n":(\d+),')
_MESSAGE = re.compile(r'\{"n":\d+,"t":[^,]+,"kind":"(?:sent|delivered|answered|event|refused|cancelled)"')


@attrs.frozen
class Kept:
    """The part of a run's log that is on the page; `whole` is the full log's size in records, if known."""

    lines: tuple[str, ...]
    records: int
    whole: int


def packed(text: str) -> str:
    """Return text as base64 of its zlib stream, which is safe within any markup."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 6)).decode("ascii")


def keep_logs(runs: Sequence[RunResult], most: int) -> dict[int, Kept]:
    """Return the part of each run's log that goes on the page, by the run's index; at most `most` records in
    all.

    Passed runs get a quarter of the records, plus any that the other runs do not need.
    """
    lengths = [len(run.log) for run in runs]
    passed = {index: lengths[index] for index, run in enumerate(runs) if run.ok}
    others = {index: lengths[index] for index, run in enumerate(runs) if not run.ok}
    shared = shares(others, most - min(most // 4, sum(passed.values())))
    shared |= shares(passed, most - sum(shared.values()))
    kept: dict[int, Kept] = {}
    characters = MOST_CHARACTERS
    for index, share in shared.items():
        part = keep(runs[index].log, share, characters)
        if part.records:
            characters -= sum(map(len, part.lines))
            kept[index] = part
    return kept


def shares(lengths: Mapping[int, int], room: int) -> dict[int, int]:
    """Return the number of records for each log: as many logs as possible get a share, short logs all."""
    served: list[int] = []
    used = 0
    for index, length in lengths.items():
        if length and used + min(length, SOME) <= room:
            used += min(length, SOME)
            served.append(index)
    given: dict[int, int] = {}
    for done, index in enumerate(sorted(served, key=lambda index: lengths[index])):
        given[index] = min(lengths[index], room // (len(served) - done))
        room -= given[index]
    return given


def keep(log: Sequence[str], most: int, characters: int) -> Kept:
    """Return a log cut to the limits: its first and last messages, and what happened to agents in between."""
    others = [line for line in log if not _NUMBER.match(line)]
    records = [short(line) for line in log if _NUMBER.match(line)]
    whole = max([len(records), *(int(found[1]) for line in records[-1:] if (found := _NUMBER.match(line)))])
    average = sum(map(len, records)) / max(len(records), 1)
    most = min(most, int(characters / max(average, 1)))
    if len(records) > most:
        records = [records[n] for n in sorted(chosen(records, most))]
    return Kept((*others[:1], *records), len(records), whole)


def chosen(records: Sequence[str], most: int) -> list[int]:
    """Return the indexes of the records to keep; messages get at least half, if they need that much."""
    messages = [n for n, line in enumerate(records) if _MESSAGE.match(line)]
    known = frozenset(messages)
    fates = [n for n in range(len(records)) if n not in known]
    room = most - min(len(fates), max(most // 2, most - len(messages)))
    tail = room // 2
    return [*fates[: most - room], *messages[: room - tail], *messages[len(messages) - tail :]]


def short(line: str) -> str:
    """Return a line of a log; if it is very long, the long members of its record are left out."""
    if len(line) <= LONG_LINE:
        return line
    try:
        members = mapped(json.loads(line)).items()
    except (ValueError, RecursionError):
        return "{}"
    texts = {name: json.dumps(value) for name, value in members}
    return "{" + ",".join(f"{json.dumps(name)}:{_member(text)}" for name, text in texts.items()) + "}"


def _member(text: str) -> str:
    return text if len(text) <= LONG_MEMBER else json.dumps(f"left out of this page: {len(text)} characters")
