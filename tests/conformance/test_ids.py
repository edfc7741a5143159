"""Ids of cases are for ever: reports of last year are compared with those of today by them."""

from __future__ import annotations

import re
from pathlib import Path

from lmos_actors.conformance import (
    CLIENT_CASES,
    RELAY_CLIENT_CASES,
    all_cases,
    all_chat_cases,
    all_relay_cases,
)

KNOWN = (Path(__file__).parent / "ids.txt").read_text().split()
"""Every id that there has ever been. A new case adds a line; no line is ever taken out or changed."""

GIVEN_UP: tuple[str, ...] = ()
"""Those of cases that there are no more: not to be used again."""


def test_ids_are_those_that_they_have_always_been() -> None:
    servers = (*all_cases(), *all_chat_cases(), *all_relay_cases())
    now = {case.id for case in (*servers, *CLIENT_CASES, *RELAY_CLIENT_CASES)}
    assert set(KNOWN) - now == set(GIVEN_UP), "a case has lost its id"
    assert now - set(KNOWN) == set(), "add the new ids to ids.txt"
    assert len(set(KNOWN)) == len(KNOWN)
    assert sorted(KNOWN) == KNOWN


def test_ids_are_a_chapter_and_a_word_or_two() -> None:
    for id in KNOWN:
        assert re.fullmatch(r"[a-z0-9]+\.[a-z0-9]+(-[a-z0-9]+)*", id), id
