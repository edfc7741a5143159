"""Tests: the calls that one request makes inside the package (`tests/benchmarks/walks.py`)."""

from tests.benchmarks.walks import WALKS


def test_a_near_turn_takes_five_calls() -> None:
    walk = WALKS["near-def"]()
    assert (walk.calls, len(walk.files)) == (5, 3)


def test_a_walk_counts_both_ends_of_a_wire() -> None:
    walk = WALKS["far-def"]()
    assert {"bindings", "protocol", "transport", "actors"} <= {name.partition("/")[0] for name in walk.files}


def test_a_far_turn_takes_half_of_the_calls_that_it_took_at_first() -> None:
    assert WALKS["far-def"]().calls <= 239 // 2
