"""Options that cannot be meant are refused when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors.protocol.lmos import OFFERS, SessionOptions

LEAST = {
    "max_bytes": 1,
    "max_open": 0,
    "max_listening": 0,
    "max_open_bytes": 1,
    "max_waiting": 1,
    "max_waiting_bytes": 1,
    "remembered_runs": 0,
}


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("value", [-1, 1.5, True, "1", None])
def test_a_limit_is_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(
        ValueError, match=f"{name} is a whole number of at least {LEAST[name]}, not {value!r}"
    ):
        SessionOptions(**{name: value})


@pytest.mark.parametrize("name", LEAST)
def test_a_limit_has_a_least_value(name: str) -> None:
    assert getattr(SessionOptions(**{name: LEAST[name]}), name) == LEAST[name]
    with pytest.raises(ValueError, match=name):
        SessionOptions(**{name: LEAST[name] - 1})


@pytest.mark.parametrize(
    ("offers", "said"),
    [
        ("streams", "a tuple of words, not 'streams'"),
        (["acks"], "a tuple of words"),
        (("stream",), "no extension 'stream', did you mean 'streams'"),
        (("x",), "no extension 'x'; known are acks, gaps, streams"),
        ((1,), "no extension 1;"),
    ],
)
def test_an_offer_is_one_that_sessions_know(offers: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SessionOptions(offers=offers)


def test_fewer_offers_are_fine() -> None:
    assert SessionOptions(offers=()).offers == ()
    assert SessionOptions(offers=OFFERS[:2]).offers == ("acks", "gaps")
