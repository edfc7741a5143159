"""Settings of the whole suite. pytest-trio runs every async test (`trio_mode` in pyproject.toml)."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from lmos_actors.testing import virtual_clock as virtual_clock

# No verdict may depend on how fast the machine is, so neither deadlines nor the check for slow generation.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the option that asks for the tests marked `long`."""
    parser.addoption("--long", action="store_true", help="run the tests marked `long`, too: hours")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what takes minutes or hours, unless it is asked for."""
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="long: run with --long")
        for item in items:
            if item.get_closest_marker("long") is not None:
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Take what the suite itself consists of out of the collector's sight.

    Simulated runs collect garbage often, and tests do to see what is left; each time would go through
    thousands of collected tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_is_not_collected() -> None:
    """Take what earlier modules left alive, such as reports of their tests, out of its sight, too."""
    gc.collect()
    gc.freeze()
