"""The kit under test: a right server passes everything, a wrong one fails what is meant for it, and no more.

`caught_by` names the case that is meant for a broken server, `also` the few that cannot hold without it.
Every one is run against these and a share of all cases; with `--matrix`, against its chapter and a larger
share; with `--long`, against all cases.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from lmos_actors.conformance import Level, Verdict, all_cases
from tests.conformance.breaking import Broken, card_of, ids, told
from tests.conformance.broken import ALL
from tests.matrix import few_or_all

CHAPTER = few_or_all(60, 1)  # of the cases of its own chapter, one in so many
SHARE = few_or_all(600, 30)  # of the cases of other chapters
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


def some_of(broken: Broken) -> tuple[str, ...]:
    """Return the cases that catch a broken server, and a share of all others: which ones goes by its id."""
    group, turn = broken.caught_by.partition(".")[0], crc32(broken.id.encode())
    return tuple(
        case.id
        for number, case in enumerate(all_cases())
        if case.id in (broken.caught_by, *broken.also)
        or (number + turn) % (CHAPTER if case.group == group else SHARE) == 0
    )


@pytest.mark.parametrize("id", BY_ID)
def test_a_broken_server_is_caught_by_its_case_and_no_other(id: str) -> None:
    broken: Broken = BY_ID[id]
    card = card_of(broken.make, level=broken.level, cases=some_of(broken))
    assert ids(card, Verdict.FAILED) == {broken.caught_by, *broken.also}, f"{broken.what}\n{told(card)}"


@pytest.mark.long
@pytest.mark.parametrize("id", BY_ID)
def test_a_broken_server_is_caught_by_no_other_case_at_all(id: str) -> None:
    broken: Broken = BY_ID[id]
    card = card_of(broken.make, level=broken.level)
    assert ids(card, Verdict.FAILED) == {broken.caught_by, *broken.also}, f"{broken.what}\n{told(card)}"


def test_every_case_that_can_fail_has_a_server_that_it_catches() -> None:
    caught = {broken.caught_by for broken in ALL}
    assert {case.id for case in all_cases()} - caught == set()
