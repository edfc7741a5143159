"""The kit under test: a right server passes everything, and each case has a wrong server that it catches.

The wrong servers and what catches them are in the files of `tests/conformance/cases`.
"""

from __future__ import annotations

import pytest

from lmos_actors.conformance import Level, Verdict, all_cases
from tests.conformance.breaking import card_of, ids, told
from tests.conformance.broken import ALL
from tests.matrix import few_or_all

BY_ID = {broken.id: broken for broken in ALL}


def test_a_right_server_passes_everything() -> None:
    card = card_of()
    assert ids(card, Verdict.PASSED) == {case.id for case in all_cases()}, told(card)


@pytest.mark.slow
def test_a_right_server_passes_whatever_the_seed() -> None:
    for seed in few_or_all((1,), (1, 2)):
        card = card_of(seed=seed)
        assert not ids(card, Verdict.FAILED, Verdict.TOLERATED), f"seed {seed}\n{told(card)}"


@pytest.mark.slow
@pytest.mark.parametrize("level", [Level.LENIENT, Level.KOTLIN_WOT], ids=lambda level: level.value)
def test_a_right_server_passes_at_the_other_levels(level: Level) -> None:
    card = card_of(level=level)
    assert not ids(card, Verdict.FAILED), told(card)


@pytest.mark.slow
def test_without_permission_only_what_changes_something_is_not_run() -> None:
    card = card_of(allow_unsafe=False)
    unsafe = {case.id for case in all_cases() if case.unsafe}
    assert unsafe
    assert ids(card, Verdict.NOT_RUN) == unsafe, told(card)
    assert not ids(card, Verdict.FAILED, Verdict.TOLERATED, Verdict.NOT_OFFERED), told(card)


def test_broken_servers_have_names_of_their_own() -> None:
    assert len(BY_ID) == len(ALL)
    assert len(ALL) >= 40


def test_every_case_that_can_fail_has_a_server_that_it_catches() -> None:
    caught = {broken.caught_by for broken in ALL}
    assert {case.id for case in all_cases()} - caught == set()
