"""Whatever stands in a description, it is read or refused, checked, compared and used without an accident."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from tests.matrix import few_or_all
from tests.wire.descriptions import DescriptionUnderFire

STEPS = few_or_all(6, 12)


@given(seed=st.integers(0, 2**64 - 1))
def test_a_description_survives_its_author(seed: int) -> None:
    under_fire = DescriptionUnderFire(Random(seed))
    for _ in range(STEPS):
        under_fire.step()
