"""Lines between nodes: when what is sent arrives. Pure, so without a clock."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.links import LinkFault, LinkRules, Links, between_sides
from tests.matrix import examples
from tests.seeded import stream

if TYPE_CHECKING:
    from collections.abc import Callable


def links(rules: LinkRules, seed: int = 1) -> Links:
    return Links(lambda *_: rules, lambda name: stream(crc32(f"{seed} {name}".encode())))


def seconds(value: float) -> Callable[[Any], float]:
    return lambda _: value


def spread(low: float, high: float) -> Callable[[Any], float]:
    return lambda random: random.uniform(low, high)


shares = st.sampled_from([0.0, 0.1, 0.5, 0.9])
any_rules = st.builds(
    LinkRules,
    latency=st.sampled_from([None, seconds(0.01), spread(0.0, 0.5)]),
    jitter=st.sampled_from([None, spread(0.0, 0.1)]),
    loss=shares,
    duplicate=shares,
    reorder=shares,
    bandwidth=st.sampled_from([None, 1_000.0, 1e6]),
)
sends = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5_000)), max_size=30)


@given(any_rules, sends)
@settings(max_examples=examples(200))
def test_in_order_everything_arrives_once_and_in_order(
    rules: LinkRules, messages: list[tuple[float, int]]
) -> None:
    made, now = links(rules), 0.0
    line, arrivals = made.line("a", "b"), list[float]()
    for pause, size in messages:
        now += pause
        arrivals.append(made.send_in_order(line, size, now, after=arrivals[-1] if arrivals else 0.0))
        assert arrivals[-1] >= now
    assert all(first <= second for first, second in pairwise(arrivals))


@given(any_rules, sends)
@settings(max_examples=examples(200))
def test_alone_a_message_arrives_twice_at_most_and_never_before_it_is_sent(
    rules: LinkRules, messages: list[tuple[float, int]]
) -> None:
    made, now = links(rules), 0.0
    line = made.line("a", "b")
    for pause, size in messages:
        now += pause
        arrivals = made.send_alone(line, size, now)
        assert len(arrivals) <= 2
        assert all(each >= now for each in arrivals)
        assert rules.duplicate or len(arrivals) < 2
        assert rules.loss or line.rules.bandwidth or arrivals


@given(any_rules, sends, st.integers(0, 5))
@settings(max_examples=examples(100))
def test_other_lines_and_faults_elsewhere_change_nothing(
    rules: LinkRules, messages: list[tuple[float, int]], others: int
) -> None:
    def arrivals(*, beside: bool) -> list[tuple[float, ...]]:
        made, now, found = links(rules), 0.0, list[tuple[float, ...]]()
        for number in range(others if beside else 0):
            made.begin(LinkFault(selects=lambda source, _: source == "other", loss=0.5, cuts=True), 0.0)
            made.send_alone(made.line("other", f"{number}"), 10, 0.0)
        for pause, size in messages:
            now += pause
            found.append(made.send_alone(made.line("a", "b"), size, now))
            if beside:
                made.send_in_order(made.line("b", "a"), size, now)
        return found

    assert arrivals(beside=True) == arrivals(beside=False)


def test_a_loss_is_a_delay_where_order_is_kept_and_a_loss_where_not() -> None:
    rules = LinkRules(latency=seconds(0.01), loss=0.3)
    made = links(rules)
    line = made.line("a", "b")
    late = [made.send_in_order(line, 100, 100.0 * n) - 100.0 * n for n in range(1_000)]
    assert {round(each, 6) for each in late} >= {0.01, 0.21, 0.61, 1.41}
    assert 250 < sum(each > 0.1 for each in late) < 350
    arrived = sum(len(made.send_alone(line, 100, 1e6)) for _ in range(1_000))
    assert 650 < arrived < 750


def test_a_slow_line_sends_one_after_the_other_and_drops_what_finds_no_room() -> None:
    made = links(LinkRules(bandwidth=1_000, queue=2_500))
    line = made.line("a", "b")
    assert [made.send_in_order(line, 500, 10.0) for _ in range(3)] == [10.5, 11.0, 11.5]
    assert [made.send_alone(line, 500, 10.0) for _ in range(3)] == [(12.0,), (12.5,), ()]
    assert line.waiting_bytes(12.0) == 500


@pytest.mark.parametrize(
    ("lasted", "arrives"), [(0.1, 0.2), (0.19, 0.2), (0.3, 0.6), (5.0, 6.2), (100.0, 102.2)]
)
def test_what_a_cut_has_held_arrives_with_the_next_retransmission(lasted: float, arrives: float) -> None:
    made = links(LinkRules())
    line = made.line("a", "b")
    assert made.send_again(line, 100, 50.0, 50.0 + lasted) == pytest.approx(50.0 + arrives)


def test_what_is_overtaken_arrives_after_what_was_sent_behind_it() -> None:
    made = links(LinkRules(latency=seconds(0.1), reorder=0.5))
    line = made.line("a", "b")
    first = [made.send_alone(line, 10, 0.001 * n)[0] for n in range(100)]
    assert first != sorted(first)
    assert {round(each - 0.001 * n, 6) for n, each in enumerate(first)} == {0.1, 0.2}


def test_faults_add_up_and_end_in_any_order() -> None:
    made = links(LinkRules(latency=seconds(0.1), loss=0.5))
    everything: Callable[[str, str], bool] = lambda *_: True  # noqa: E731
    cut = made.begin(LinkFault(selects=between_sides([["a"], ["b"]]), cuts=True), 0.0)
    other = made.begin(LinkFault(selects=between_sides([["b"], ["a"]], one_way=True), cuts=True), 0.0)
    late = made.begin(LinkFault(selects=everything, latency=seconds(1.0), loss=0.5), 0.0)
    assert (made.line("a", "b").is_cut, made.line("b", "a").is_cut) == (True, True)
    assert made.line("a", "b").loss == 0.75
    made.heal(cut)
    assert (made.line("a", "b").is_cut, made.line("b", "a").is_cut) == (False, True)
    made.heal(late)
    made.heal(late)
    made.heal(other)
    line = made.line("b", "a")
    assert (line.is_cut, line.loss, line.faults) == (False, 0.5, ())


def test_sides() -> None:
    cuts = between_sides([["a", "b"], ["c"]])
    assert [cuts(*ends) for ends in ("ab", "ac", "ca", "ax", "xa")] == [False, True, True, False, False]
    one_way = between_sides([["a", "b"], ["c"], ["d"]], one_way=True)
    assert [one_way(*ends) for ends in ("ac", "ca", "cd", "bd")] == [True, False, False, True]
