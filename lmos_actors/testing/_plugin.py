"""Fixtures and hooks for pytest with pytest-trio; without pytest they are plain functions."""

from __future__ import annotations

import os
import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ._seeds import SEED_VARIABLE, seed_of_run, used_seeds
from ._test_node import TestNode, open_test_node
from ._world import deadlock_clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    import pytest

    from lmos_actors.simulation import VirtualClock

_HAS_PYTEST: Final = find_spec("pytest") is not None
_OPTION: Final = "--lmos-seeds"


def _fixture(fn: Callable[..., Any]) -> Any:
    if not _HAS_PYTEST:
        return fn
    import pytest

    return pytest.fixture(fn)


def _wrapper(fn: Callable[..., Any]) -> Any:
    if not _HAS_PYTEST:
        return fn
    import pytest

    return pytest.hookimpl(wrapper=True)(fn)


def _trio_fixture(fn: Callable[..., Any]) -> Any:
    if not _HAS_PYTEST or find_spec("pytest_trio") is None:
        return _fixture(fn)
    pytest_trio: Any = import_module("pytest_trio")  # it has no types
    return pytest_trio.trio_fixture(fn)


@_fixture
def virtual_clock(request: pytest.FixtureRequest) -> Generator[VirtualClock]:
    """Return the clock of the test; pytest-trio runs a test on the clock that it requests as a fixture.

    A test that is blocked for ever outside `open_test_node` ends with `trio.TrioInternalError`, caused by
    Deadlocked. With `--lmos-seeds` the test runs once for each seed.
    """
    before = os.environ.get(SEED_VARIABLE)
    seed = getattr(request, "param", None)
    if seed is not None:
        os.environ[SEED_VARIABLE] = str(seed)
    yield deadlock_clock()
    if seed is not None:
        _restore(before)


def _restore(before: str | None) -> None:
    os.environ.pop(SEED_VARIABLE, None)
    if before is not None:
        os.environ[SEED_VARIABLE] = before


@_trio_fixture
async def node(virtual_clock: VirtualClock) -> AsyncGenerator[TestNode]:
    """Return an open node, made by `open_test_node()`; the test must also take `virtual_clock`."""
    async with open_test_node() as opened:
        yield opened  # noqa: ASYNC119 -- pytest-trio ends its fixtures


# ---- hooks, for `pytest_plugins = ["lmos_actors.testing"]` in the topmost conftest.py


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--lmos-seeds N`."""
    group = parser.getgroup("lmos_actors")
    text = f"run each test that takes virtual_clock with this many seeds, from {SEED_VARIABLE} or 0 on"
    group.addoption(_OPTION, type=int, default=1, metavar="N", help=text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests on virtual time once for each seed."""
    count: Any = metafunc.config.getoption(_OPTION)
    if count > 1 and "virtual_clock" in metafunc.fixturenames:
        first = seed_of_run()
        seeds = range(first, first + count)
        ids = [f"seed{seed}" for seed in seeds]
        metafunc.parametrize("virtual_clock", seeds, indirect=True, ids=ids)


def pytest_runtest_setup() -> None:
    """Clear the seeds of the previous test: the new test has opened no node yet."""
    used_seeds.clear()


@_wrapper
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the command that reruns a failed test, with its seed, to the test's report."""
    report = yield
    if report.failed and used_seeds:
        test = item.nodeid
        given: Any = getattr(item, "callspec", None)
        own = None if given is None else given.params.get("virtual_clock")
        if type(own) is int:  # `--lmos-seeds` has added it to the test's id
            test = re.sub(rf"\[seed{own}\]$|-seed{own}(?=[\]-])|(?<=\[)seed{own}-", "", test, count=1)
        commands = [f"{SEED_VARIABLE}={seed} pytest {shlex.quote(test)}" for seed in used_seeds]
        report.sections.append(("to run it again on the same seed", "\n".join(commands)))
    return report
