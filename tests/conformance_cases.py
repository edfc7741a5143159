"""Writes `docs/reference/conformance-cases.md` from the cases: `python -m tests.conformance_cases`.

A test compares the page with what this would write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors.conformance import (
    CLIENT_CASES,
    RELAY_CLIENT_CASES,
    all_cases,
    all_chat_cases,
    all_relay_cases,
)
from lmos_actors.conformance.card import LMOS_LEVELS, RELAY_LEVELS, ROWS
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lmos_actors.conformance import ClientCase, Level, Requirement
    from lmos_actors.conformance.card import Deviation

PAGE = ROOT / "docs" / "reference" / "conformance-cases.md"

HEAD = """# Conformance cases

All {count} cases of [`lmos-actors conform`](command-line.md#conform), in {groups} groups and in the order
in which they run, the cases for clients of [`--serve`](#client), the {facades} cases of
[`--omnia`](#facades-of-omnias-protocol) for facades, and the {relays} cases for
[hubs of AgentRelay](#relays), with those for [their clients](#relayclient). An id never changes; the id of
a removed case is not used again. Each requirement follows from its section; a case judges its own subject
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

RELAYS = """
## Relays

The cases for hubs of AgentRelay, in the order in which they run. "AgentRelay message types" is the
protocol's text, "AgentRelay's pages" what its other documents promise; where they are silent, the recorded
relays decide. Cases of extensions are tried where the relay's welcome names the extension. See
[Judge a relay](../guides/test-conformance.md#judge-a-relay).
"""

RELAY_CLIENTS = """
## relayclient

The cases for clients that connect to `lmos-actors conform --serve --relay`; the last column is what a client
does to run them. See [Judge a client of a relay](../guides/test-conformance.md#judge-a-client-of-a-relay).

| id | case | expected | section | how it is tried |
|---|---|---|---|---|
"""

DEVIATIONS = """
## Ways to differ

Each known deviation from the text has a name, which reports give as `key`, and a verdict by level. A case
with several deviations has the worst verdict of them.

| key | what it is | section | `spec` | `lenient` | `kotlin-wot` |
|---|---|---|---|---|---|
"""

RELAY_DEVIATIONS = """
## Ways of relays to differ

Those of relays alone; the levels `reference` and `rawk` are those of two relays that were recorded. Of the
deviations above, cases for relays have `close-code` and `stream-left-open`, which both levels tolerate.

| key | what it is | section | `spec` | `lenient` | `reference` | `rawk` |
|---|---|---|---|---|---|---|
"""


def write_page() -> str:
    """Return the whole page."""
    cases = all_cases()
    groups, facades, relays = map(_grouped, (cases, all_chat_cases(), all_relay_cases()))
    numbers = {"facades": len(all_chat_cases()), "relays": len(all_relay_cases())}
    head = HEAD.format(count=len(cases), groups=len(groups), **numbers)
    parts = [head, *("".join(_group(name, members)) for name, members in groups.items())]
    parts += [CLIENTS, *_clients(CLIENT_CASES), FACADES]
    parts += ["".join(_group(name, members)) for name, members in facades.items()]
    parts += [RELAYS, *("".join(_group(name, members)) for name, members in relays.items())]
    parts += [RELAY_CLIENTS, *_clients(RELAY_CLIENT_CASES)]
    of_relays = [row for row in ROWS if row.key.startswith("relay-")]
    others = [row for row in ROWS if row not in of_relays]
    parts += [DEVIATIONS, *_deviations(others, LMOS_LEVELS)]
    return "".join([*parts, RELAY_DEVIATIONS, *_deviations(of_relays, RELAY_LEVELS)])


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


def _clients(cases: Iterable[ClientCase]) -> Iterator[str]:
    for case in cases:
        cells = (f"`{case.id}`", case.title, case.expected, str(case.section), case.how)
        yield f"| {' | '.join(map(_cell, cells))} |\n".replace("|  |", "| |")


def _deviations(rows: Iterable[Deviation], levels: Iterable[Level]) -> Iterator[str]:
    for row in rows:
        verdicts = [_verdict(row.fails(level), row.counts(level)) for level in levels]
        cells = (f"`{row.key}`", row.title, str(row.section), *verdicts)
        yield f"| {' | '.join(map(_cell, cells))} |\n"


def _verdict(fails: bool, counts: bool) -> str:
    return "failed" if fails else "tolerated" if counts else "passed"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
