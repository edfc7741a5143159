"""The seed of a test, and the note that shows it on failures."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lmos_actors._core import whole_number_of
from lmos_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

SEED_VARIABLE: Final = "LMOS_ACTORS_SEED"

used_seeds: Final[dict[int, None]] = {}
"""Seeds taken from the environment during the current test, for its report."""


def seed_of_run() -> int:
    """Return the seed that is set in the environment, or 0 if none is set. Raises ConfigError."""
    text = os.environ.get(SEED_VARIABLE, "0")
    try:
        seed = whole_number_of(text)
    except ValueError:
        raise ConfigError(f"must be a whole number, not {text!r}", SEED_VARIABLE) from None
    used_seeds[seed] = None
    return seed


@contextmanager
def noting_seed(seed: int | None) -> Generator[None]:
    """Add a note with the seed to an exception that leaves the block."""
    try:
        yield
    except BaseException as exc:
        exc.add_note(f"seed {seed}: rerun with {SEED_VARIABLE}={seed}")
        raise
