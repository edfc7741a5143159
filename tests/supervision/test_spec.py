from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.errors import ConfigError, NameTaken
from lmos_actors.supervision import Backoff, ChildSpec, Pool, SupervisorSpec
from tests.rows import each_row


class Nothing:
    pass


def child(name: str = "a", **options: Any) -> ChildSpec[Nothing]:
    return ChildSpec(name, Nothing, **options)


@each_row(
    ("make", "path", "words"),
    [
        (lambda: child(""), "ChildSpec.name", "non-empty"),
        (lambda: child("a/b"), "ChildSpec.name", "without '/'"),
        (
            lambda: child("cellar.bell"),
            "ChildSpec.name",
            "not 'cellar.bell'; use 'cellar-bell', for",
        ),
        (lambda: child(".."), "ChildSpec.name", "in URLs, not '..'"),
        (lambda: child("a\nb"), "ChildSpec.name", "no control characters"),
        (lambda: child("a\ud800"), "ChildSpec.name", "no surrogates"),
        (lambda: SupervisorSpec("v1.2"), "SupervisorSpec.name", "use 'v1-2'"),
        (lambda: Pool(Nothing, 2, name="v1.2"), "Pool.name", "use 'v1-2'"),  # type: ignore[type-var]
        (lambda: Pool(Nothing, 2, name="a/b"), "Pool.name", "without '/' and '.'"),  # type: ignore[type-var]
        (lambda: child(7), "ChildSpec.name", "not 7"),  # type: ignore[arg-type]
        (lambda: SupervisorSpec("a/b"), "SupervisorSpec.name", "without '/'"),
        (lambda: ChildSpec("a", Nothing()), "a.factory", "Agent class"),  # type: ignore[arg-type]
        (lambda: child(restart="permament"), "a.restart", "did you mean 'permanent'?"),
        (lambda: child(restart=None), "a.restart", "permanent, transient, temporary, not None"),
        (lambda: child(restart=[]), "a.restart", "not []"),
        (lambda: child(shutdown=-0.1), "a.shutdown", "at least 0"),
        (lambda: child(shutdown=float("inf")), "a.shutdown", "finite"),
        (lambda: child(shutdown=float("nan")), "a.shutdown", "finite"),
        (lambda: child(shutdown=True), "a.shutdown", "not True"),
        (lambda: child(shutdown=10**400), "a.shutdown", "finite"),
        (lambda: child(shutdown="infinite"), "a.shutdown", "did you mean 'infinity'?"),
        (lambda: child(shutdown=None), "a.shutdown", "not None"),
        (lambda: child(significant=1, restart="transient"), "a.significant", "must be bool, not 1"),
        (lambda: child(significant=True), "a.significant", "permanent"),
        (lambda: child(backoff=1.0), "a.backoff", "Backoff or None"),
        (lambda: SupervisorSpec("s", strategy="one_for_al"), "s.strategy", "'one_for_all'?"),  # type: ignore[arg-type]
        (lambda: SupervisorSpec("s", auto_shutdown="all"), "s.auto_shutdown", "any_significant"),  # type: ignore[arg-type]
        (lambda: SupervisorSpec("s", max_restarts=-1), "s.max_restarts", "at least 0"),
        (lambda: SupervisorSpec("s", max_restarts=1.5), "s.max_restarts", "int"),  # type: ignore[arg-type]
        (lambda: SupervisorSpec("s", max_restarts=True), "s.max_restarts", "not True"),
        (lambda: SupervisorSpec("s", max_seconds=0), "s.max_seconds", "above 0"),
        (lambda: SupervisorSpec("s", max_seconds="5s"), "s.max_seconds", "not '5s'"),  # type: ignore[arg-type]
        (lambda: SupervisorSpec("s", significant=True), "s.significant", "permanent"),
        (lambda: SupervisorSpec("s", [Nothing]), "s.children", "ChildSpec or SupervisorSpec"),  # type: ignore[list-item]
        (lambda: SupervisorSpec("s", child()), "SupervisorSpec.children", "sequence"),  # type: ignore[arg-type]
        (
            lambda: SupervisorSpec("s", [child("w", restart="transient", significant=True)]),
            "s.auto_shutdown",
            "'w' is significant",
        ),
        (lambda: Backoff(initial=0), "backoff.initial", "above 0"),
        (lambda: Backoff(initial=1, factor=0.5), "backoff.factor", "at least 1"),
        (lambda: Backoff(initial=1, max=0.5), "backoff.max", "at least 1"),
        (lambda: Backoff(initial=1, jitter=1.1), "backoff.jitter", "at most 1"),
    ],
)
def test_refusals_name_the_field(make: Any, path: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.path == path
    assert words in caught.value.message


def test_two_children_of_one_name() -> None:
    with pytest.raises(NameTaken, match="'s' already has a child named 'a'"):
        SupervisorSpec("s", [child("a"), SupervisorSpec("a")])


def test_defaults_are_those_of_otp() -> None:
    spec = SupervisorSpec("s", [child(), SupervisorSpec("t")])
    assert (spec.strategy, spec.max_restarts, spec.max_seconds) == ("one_for_one", 3, 5.0)
    assert [one.restart for one in spec.children] == ["permanent", "permanent"]
    assert [one.shutdown for one in spec.children] == [5.0, "infinity"]
    assert [one.backoff for one in spec.children] == [None, None]


def test_the_children_are_kept_as_they_were_given() -> None:
    children = [child("a")]
    spec = SupervisorSpec("s", children)
    children.clear()
    assert [one.name for one in spec.children] == ["a"]


def test_a_significant_child_of_a_supervisor_that_heeds_it() -> None:
    one = child(restart="temporary", significant=True)
    assert SupervisorSpec("s", [one], auto_shutdown="all_significant").children == (one,)


def test_backoff_grows_to_its_maximum() -> None:
    backoff = Backoff(initial=0.5, factor=2, max=3, jitter=0)
    assert [backoff.delay(attempt, 0.5) for attempt in (1, 2, 3, 4, 10**6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_spreads_to_either_side() -> None:
    backoff = Backoff(initial=1.0, jitter=0.2)
    assert [backoff.delay(1, draw) for draw in (0.0, 0.5, 0.75)] == [0.8, 1.0, 1.1]


@given(
    st.floats(1e-6, 10),
    st.floats(1, 100),
    st.floats(10, 1e6),
    st.floats(0, 1),
    st.integers(1, 10**9),
    st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_never_above_the_maximum(
    initial: float, factor: float, most: float, jitter: float, attempt: int, draw: float
) -> None:
    backoff = Backoff(initial=initial, factor=factor, max=most, jitter=jitter)
    assert 0 <= backoff.delay(attempt, draw) <= most
    assert backoff.delay(attempt, 0.5) <= backoff.delay(attempt + 1, 0.5)
