"""A report card as plain text, the same on a terminal and in a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lmos_actors._core import printable

from ._verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ._verdicts import Card, Result, Traffic

SOME_TRAFFIC: Final = 8
"""Lines of traffic that are shown of a failed case."""

LITTLE_TRAFFIC: Final = 3
"""Lines of traffic that are shown of a tolerated case."""

WIDTH: Final = 200
"""Characters of a frame that are shown; in a longer frame, ids are cut to their beginning."""

WHOLE: Final = 10_000
"""Characters that are shown of a frame in full."""

LONGEST: Final = 1_000
"""Characters of an expectation or observation that are shown."""

LABELS: Final = {
    Verdict.PASSED: "ok",
    Verdict.TOLERATED: "tolerated",
    Verdict.FAILED: "FAILED",
    Verdict.NOT_OFFERED: "not offered",
    Verdict.NOT_RUN: "not run",
}
"""The label of a verdict at the beginning of a line."""

COUNTED: Final = {
    verdict: "passed" if verdict is Verdict.PASSED else label for verdict, label in LABELS.items()
}
"""The word for a verdict behind a number."""

_UUID: Final = re.compile("([0-9a-fA-F]{8})(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_BARE: Final = frozenset({"text", "head", "http"})
_COLUMN: Final = max(map(len, LABELS.values()))


def group_of(case: str) -> str:
    """Return the group of a case: the beginning of its id."""
    return case.partition(".")[0]


def grouped(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return results by group, with groups and results in their original order."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(group_of(result.id), []).append(result)
    return groups


def cut(text: str, size: int) -> str:
    """Return a text as one printable line of at most `size` characters."""
    shown = printable(text[: size + 1])
    return shown if len(shown) <= size else f"{shown[: size - 1]}…"


def traffic_lines(
    traffic: Sequence[Traffic], left_out: int = 0, *, width: int = WIDTH, several: bool = False
) -> list[str]:
    """Return the lines of traffic: `> ` marks what the kit sent, `< ` what the other side sent.

    The number of the connection comes first if there were several, or if `several` is true.
    """
    several = several or len({each.connection for each in traffic}) > 1
    lines = [f"({left_out} more before)"] if left_out else []
    for each in traffic:
        mark = f"{each.connection or 'http'}" if several else ""
        kind = "" if each.kind in _BARE else f"{each.kind} "
        text = each.text if len(each.text) <= width else _UUID.sub(r"\1…", each.text)
        size = f"  ({each.size} bytes)" if each.size > len(each.text.encode("utf-8", "replace")) else ""
        lines.append(f"{mark}{'>' if each.sent else '<'} {kind}{cut(text, width)}{size}".rstrip())
    return lines


def last_traffic(result: Result, most: int, *, width: int = WIDTH) -> list[str]:
    """Return the newest traffic of a case, without the handshakes of connections."""
    traffic = _without_heads(result)
    left = max(0, len(traffic) - most)
    several = len({each.connection for each in result.traffic}) > 1
    return traffic_lines(traffic[left:], result.left_out + left, width=width, several=several)


def _without_heads(result: Result) -> Sequence[Traffic]:
    if group_of(result.id) == "handshake":
        return result.traffic
    begun = {
        each.connection
        for each in result.traffic
        if each.kind == "head" and not each.sent and each.text.startswith("101")
    }
    return [each for each in result.traffic if each.kind != "head" or each.connection not in begun]


def counts_text(results: Sequence[Result]) -> str:
    """Return the number of results with each verdict as text: `98 passed, 1 FAILED, 3 not run`."""
    return counted({verdict: sum(result.verdict is verdict for result in results) for verdict in Verdict})


def counted(numbers: Mapping[Verdict, int]) -> str:
    """Return numbers of verdicts as text; verdicts with the number 0 are left out."""
    return ", ".join(f"{number} {COUNTED[verdict]}" for verdict, number in numbers.items() if number)


def group_lines(results: Sequence[Result], *, width: int = 0, verbose: bool = False) -> list[str]:
    """Return the lines for one group: the numbers of verdicts, and each case that did not pass.

    With `verbose` each case has its lines. `width` is the length of the longest group name.
    """
    lines = [f" {group_of(results[0].id):{width}}  {counts_text(results)}"]
    for result in results:
        if verbose or result.verdict in (Verdict.FAILED, Verdict.TOLERATED):
            lines += case_lines(result, verbose=verbose)
    return lines if verbose else [*lines, *_left(results)]


def _left(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines for cases that were not tried; cases with the same reason share a line."""
    reasons: dict[tuple[Verdict, str], list[str]] = {}
    for result in results:
        if result.verdict in (Verdict.NOT_OFFERED, Verdict.NOT_RUN):
            reasons.setdefault((result.verdict, result.seen), []).append(result.id)
    for (verdict, seen), ids in reasons.items():
        them = f"all {len(ids)}" if len(ids) == len(results) > 1 else ", ".join(ids)
        yield f"   {LABELS[verdict]:{_COLUMN}}  {them}: {cut(seen, LONGEST)}"


def case_lines(result: Result, *, verbose: bool = False) -> list[str]:
    """Return the lines for one case: verdict, section, expectation, observation, and the traffic."""
    line_text = printable(f"{result.id}  {result.title} ({result.section})")
    head = f"   {LABELS[result.verdict]:{_COLUMN}}  {line_text}"
    if result.verdict is Verdict.PASSED:
        return [head]
    if result.verdict in (Verdict.NOT_OFFERED, Verdict.NOT_RUN):
        return [head, *_under("     ", result.seen)]
    most = SOME_TRAFFIC if result.verdict is Verdict.FAILED else LITTLE_TRAFFIC
    shown = (
        traffic_lines(result.traffic, result.left_out, width=WHOLE) if verbose else last_traffic(result, most)
    )
    return [
        head,
        *said_lines(result, "     "),
        *(f"     {line}" for line in shown),
    ]


def said_lines(result: Result, indent: str = "") -> list[str]:
    """Return the expectation, the observation, and the departures as lines."""
    lines = [
        *_under(f"{indent}expected ", result.expected),
        *(_under(f"{indent}saw      ", result.seen) if result.seen else ()),
    ]
    for each in result.departures:
        line_text = f"{each.title}: {each.seen}"
        more = "" if line_text in result.seen else f": {line_text}"
        lines += _under(f"{indent}differs  ", f"{each.key}, {each.section}{more}")
    return lines


def _under(head: str, text: str) -> list[str]:
    """Return the lines of a text, the first after a head and the others indented to the same column."""
    first, *rest = text[:LONGEST].splitlines() or [""]
    more = len(text) - LONGEST
    lines = [head + printable(first), *(" " * len(head) + printable(line) for line in rest)]
    return [*lines[:-1], f"{lines[-1]}… and {more} characters more"] if more > 0 else lines


def end_lines(card: Card) -> list[str]:
    """Return the end of the card: totals, dialect, level, and the command that repeats the run."""
    title = card.title or card.thing
    facts = {
        "judged": f"{'server ' * (card.role == 'server')}{card.subject}{f', {title}' if title else ''}",
        "spoken to": card.spoken,
        "level": f"{card.level.value}, seed {card.seed}",
        "again": card.command,
    }
    width = max(map(len, facts)) + 1
    number = len(card.results)
    counts = counts_text(card.results) or "none"
    return [
        *([card.cut] if card.cut else []),
        f"{number} case{'s' * (number != 1)} in {card.seconds:.1f} s: {counts}",
        *(f"{f'{name}:':{width}} {cut(text, LONGEST)}" for name, text in facts.items() if text),
    ]


def card_text(card: Card, *, verbose: bool = False) -> str:
    """Return a card as plain text: the cases that did not pass, by group, and the totals.

    With `verbose`, all cases are included.
    """
    groups = grouped(card.results)
    width = max(map(len, groups), default=0)
    lines = [line for each in groups.values() for line in group_lines(each, width=width, verbose=verbose)]
    return "".join(f"{line}\n" for line in (*lines, *end_lines(card)))
