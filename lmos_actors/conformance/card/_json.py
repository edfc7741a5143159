"""A report card as plain data, for programs; docs/reference/conformance.md describes each member."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import attrs

from ._text import group_of
from ._verdicts import Verdict

if TYPE_CHECKING:
    from ._verdicts import (
        Card,
        Departure,
        Result,
        Section,
    )

SCHEMA: Final = "lmos-actors/conformance/v1"
"""Changes when a member changes its meaning or goes; new members may come at any time."""


def card_data(card: Card, *, exit_code: int | None = None) -> dict[str, Any]:
    """Return a card as plain data with every member. Without `exit_code`, the verdicts determine it."""
    return {
        "schema": SCHEMA,
        "subject": card.subject,
        "role": card.role,
        "title": card.title,
        "thing": card.thing,
        "level": card.level.value,
        "spoken": card.spoken,
        "seed": card.seed,
        "seconds": card.seconds,
        "command": card.command,
        "versions": dict(card.versions),
        "cut": card.cut or None,
        "counts": {verdict.value: card.count(verdict) for verdict in Verdict},
        "results": [_result(result) for result in card.results],
        "exit_code": (0 if card.passed else 1) if exit_code is None else exit_code,
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "id": result.id,
        "group": group_of(result.id),
        "title": result.title,
        "section": _section(result.section),
        "expected": result.expected,
        "verdict": result.verdict.value,
        "seen": result.seen,
        "departures": [_departure(each) for each in result.departures],
        "traffic": [attrs.asdict(each) for each in result.traffic],
        "left_out": result.left_out,
        "seconds": result.seconds,
    }


def _departure(each: Departure) -> dict[str, Any]:
    return {"key": each.key, "title": each.title, "seen": each.seen, "section": _section(each.section)}


def _section(section: Section) -> dict[str, str]:
    return {"document": section.document, "place": section.place}


def card_json(card: Card, *, exit_code: int | None = None) -> str:
    """Return a card as one JSON object. Without `exit_code`, the verdicts determine it."""
    data = card_data(card, exit_code=exit_code)
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    # halves of surrogate pairs are escaped, so that the text can be encoded
    return text.encode("utf-8", "backslashreplace").decode() + "\n"
