"""Settings of the whole suite. pytest-trio runs every async test (`trio_mode` in pyproject.toml)."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

from lmos_actors.testing import virtual_clock as virtual_clock

# No verdict may depend on how fast the machine is, so neither deadlines nor the check for slow generation.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_finish() -> None:
    """Take what the suite itself consists of out of the collector's sight.

    Simulated runs collect garbage often, and tests do to see what is left; each time would go through
    thousands of collected tests.
    """
    gc.collect()
    gc.freeze()
