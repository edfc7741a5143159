"""Writes `docs/reference/conformance-cases.md` from the cases: `python -m tests.conformance_cases`.

A test compares the page with what this would write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.conformance import CLIENT_CASES, Level, all_cases, all_chat_cases
from lmos_actors.conformance.card import ROWS
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.conformance import Requirement

PAGE = ROOT / "docs" / "reference" / "conformance-cases.md"

HEAD = """# Conformance cases

All {count} cases of [`lmos-actors conform`](command-line.md#conform), in {groups} groups and in the order
in which they run, the cases for clients of [`--serve`](#client), and the {facades} cases of
[`--omnia`](#facades-of-omnias-protocol) for facades. An id never changes; the id of a
removed case is not used again. Each requirement follows from its section; a case judges its own subject
only, and reads everything else as widely as it can. [Conformance](conformance.md) explains verdicts and
levels. `python -m tests.conformance_cases` writes this page.
"""

CLIENTS = """
## client

The cases for clients that connect to `lmos-actors conform --serve`. Everything that a client sends is
judged; the last column is what a client does to run the other cases: most are challenges of the served
thing. See [Judge a client](../guides/test-conformance.md#judge-a-client).

| id | case | expected | section | how it is tried |
|---|---|---|---|---|
"""

FACADES = """
## Facades of Omnia's protocol

The cases of `lmos-actors conform URL --omnia`, in the order in which they run. Those of "Omnia's newest
facade, as recorded" are not in the protocol's text. See
[Judge a facade](../guides/test-conformance.md#judge-a-facade).
"""

DEVIATIONS = """
## Ways to differ

Each known deviation from the text has a name, which reports give as `key`, and a verdict by level. A case
with several deviations has the worst verdict of them.

| key | what it is | section | `spec` | `lenient` | `kotlin-wot` |
|---|---|---|---|---|---|
"""


def write_page() -> str:
    """Return the whole page."""
    cases = all_cases()
    groups, facades = _grouped(cases), _grouped(all_chat_cases())
    head = HEAD.format(count=len(cases), groups=len(groups), facades=len(all_chat_cases()))
    parts = [head, *("".join(_group(name, members)) for name, members in groups.items())]
    parts += [CLIENTS, *_clients(), FACADES]
    parts += ["".join(_group(name, members)) for name, members in facades.items()]
    return "".join([*parts, DEVIATIONS, *_deviations()])


def _grouped(cases: Sequence[Requirement]) -> dict[str, list[Requirement]]:
    groups: dict[str, list[Requirement]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return groups


def _group(name: str, cases: Sequence[Requirement]) -> Iterator[str]:
    yield f"\n## {name}\n\n| id | case | expected | section | needs |\n|---|---|---|---|---|\n"
    for case in cases:
        needs = ", ".join(filter(None, (case.needs, "`--allow-unsafe`" if case.unsafe else "")))
        cells = (f"`{case.id}`", case.title, case.expected, str(case.section), needs)
        yield f"| {' | '.join(map(_cell, cells))} |\n".replace("|  |", "| |")


def _clients() -> Iterator[str]:
    for case in CLIENT_CASES:
        cells = (f"`{case.id}`", case.title, case.expected, str(case.section), case.how)
        yield f"| {' | '.join(map(_cell, cells))} |\n".replace("|  |", "| |")


def _deviations() -> Iterator[str]:
    for row in ROWS:
        levels = [_verdict(row.fails(level), row.counts(level)) for level in Level]
        cells = (f"`{row.key}`", row.title, str(row.section), *levels)
        yield f"| {' | '.join(map(_cell, cells))} |\n"


def _verdict(fails: bool, counts: bool) -> str:
    return "failed" if fails else "tolerated" if counts else "passed"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
