"""A report card as one HTML file, which loads nothing and is readable without its script."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import printable

from ._text import (
    LABELS,
    counts_text,
    grouped,
)
from ._verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._verdicts import Card, Result, Traffic

_WORDS: Final = LABELS | {Verdict.PASSED: "passed", Verdict.FAILED: "failed"}
_TRIED: Final = (Verdict.PASSED, Verdict.TOLERATED, Verdict.FAILED)


def card_html(card: Card) -> str:
    """Return one HTML page: verdicts, expectations, observations, traffic; filters by verdict and words.

    The page loads nothing from elsewhere, and only its own script may run in it. Without the script only the
    filters are missing. Whatever the other side has sent is shown as text, never as markup.
    """
    style, script = _part("card.css"), _part("card.js")
    page: str = _template().render(
        policy=policy(style, script),
        style=style,
        script=script,
        role=card.role,
        cut=printable(card.cut),
        title=printable(f"Conformance of {card.title or card.thing or card.subject}"),
        counts=[(_style(each), card.count(each), _WORDS[each]) for each in Verdict],
        facts=[(name, printable(text)) for name, text in _facts(card).items() if text],
        command=printable(card.command),
        groups=[_group(name, results) for name, results in grouped(card.results).items()],
        footer=printable(", ".join(f"{name} {version}" for name, version in card.versions.items())),
    )
    return page


def policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows this style and this script, and nothing else."""
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _facts(card: Card) -> dict[str, str]:
    return {
        card.role: card.subject,
        "thing": card.thing,
        "level": card.level.value,
        "spoken to": card.spoken,
        "seed": str(card.seed),
        "cases": str(len(card.results)),
        "took": f"{card.seconds:.1f} s",
    }


def _group(name: str, results: Sequence[Result]) -> dict[str, Any]:
    return {"name": name, "counts": counts_text(results), "cases": [_case(result) for result in results]}


def _case(result: Result) -> dict[str, Any]:
    # a passed case shows its last 40 lines of traffic
    most = 40 if result.verdict is Verdict.PASSED else len(result.traffic)
    left = max(0, len(result.traffic) - most)
    missing = result.left_out + left
    return {
        "id": result.id,
        "style": _style(result.verdict),
        "word": _WORDS[result.verdict],
        "open": result.verdict is Verdict.FAILED,
        "title": printable(result.title),
        "section": printable(str(result.section)),
        "expected": _lines(result.expected),
        "seen_word": "saw" if result.verdict in _TRIED else "why",
        "seen": _lines(result.seen),
        "departures": [
            _lines(f"{each.title} ({each.section}; {each.key}): {each.seen}") for each in result.departures
        ],
        "traffic": [_traffic(each) for each in result.traffic[left:]],
        "left_out": f", without {missing} before these" if missing else "",
    }


def _traffic(each: Traffic) -> tuple[Any, ...]:
    return f"{each.at:.3f}", each.connection or "", each.sent, each.kind, _lines(each.text), each.size


def _lines(text: str) -> str:
    """Return a text with escapes for invisible characters other than the ends of lines."""
    return "\n".join(map(printable, text.splitlines()))


def _style(verdict: Verdict) -> str:
    return verdict.value.replace(" ", "-")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _part(name: str) -> str:
    from importlib.resources import files  # late: only pages need it

    return files(__package__ or "").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    # jinja2 takes long to import, and most runs write no page
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(_part("card.html"))
