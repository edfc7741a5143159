"""Settings of the whole suite. pytest-trio runs every async test (`trio_mode` in pyproject.toml)."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import cyclopts
import pytest
from hypothesis import HealthCheck, settings

from lmos_actors.testing import virtual_clock as virtual_clock
from tests.matrix import DIFFERING, EXAMPLES, ask_everything, examples

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# No verdict may depend on how fast the machine is, so neither deadlines nor the check for slow generation.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)


GC_THRESHOLD = 10_000
"""Objects that are made between two searches for garbage; while a node is open, its own threshold counts."""


MATRIX_SECONDS = 900
"""The time limit of a test with `--matrix`: thousands of examples take minutes on a busy machine.

It is meant for tests that hang. A limit that passes is raised wherever the main thread is: within a
callback of trio's entry queue it ends trio's run, and a thread that waits for that callback waits for ever.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the options that ask for more than an ordinary run does."""
    parser.addoption("--long", action="store_true", help="run the tests marked `long`, too: hours")
    parser.addoption("--slow", action="store_true", help="run the tests marked `slow`, too")
    parser.addoption("--matrix", action="store_true", help="run every case of every matrix: tests/matrix.py")
    parser.addoption("--differing", action="store_true", help="run what can differ between Pythons alone")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much is asked, before any test module is imported; heed Ctrl-C in any case."""
    if sys.dont_write_bytecode:
        _keep_bytecode(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell began us so, behind `&`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--matrix"):
        ask_everything()
        config.option.timeout = config.option.timeout or MATRIX_SECONDS
    names_tests = config.args_source is pytest.Config.ArgsSource.ARGS
    # an option, as these are all that workers of xdist get
    config.option.slow |= names_tests or config.option.matrix
    for name in ("local", "ci"):
        settings.register_profile(name, settings.get_profile(name), max_examples=examples(EXAMPLES))
    settings.load_profile("ci" if os.environ.get("CI") else "local")
    if hasattr(config, "workerinput"):
        if not config.option.xmlpath and config.option.durations is None:
            _tell_ends_alone(config)
    elif config.option.verbose < 0:
        config.pluginmanager.register(_FailuresAtOnce(config))


class _FailuresAtOnce:
    """Names each failed test at once, as a long run with `-q` would at its end alone."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter: Any = self._plugins.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\nfailed: {report.nodeid}")


def _tell_ends_alone(config: pytest.Config) -> None:
    """Let this worker of xdist tell how its tests ended, and not that they began, were set up and so on.

    Else each test is six messages, which cost about as much as a small test. `--junit-xml` and `--durations`
    need them all.
    """
    worker: Any = next(each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent"))
    send = worker.sendevent

    def tell(name: str, **told: Any) -> None:
        report = told.get("data", {}) if name == "testreport" else {}
        is_step = report.get("when") in ("setup", "teardown") and report["outcome"] == "passed"
        if name not in ("logstart", "logfinish") and (not is_step or report["sections"]):
            send(name, **told)

    worker.sendevent = tell


def _keep_bytecode(config: pytest.Config) -> None:
    """Keep what is compiled outside the tree, where the environment wants none of it beside the sources.

    Else each worker of xdist would compile all tests, and each of hundreds of processes the whole package.
    """
    try:
        folder = str(config.cache.mkdir("bytecode"))
    except (AttributeError, OSError):  # `-p no:cacheprovider`, or a checkout that cannot be written
        folder = tempfile.mkdtemp(prefix="lmos-actors-bytecode-")
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, None, None]:
    """Collect without the collector of garbage: compiling makes millions of objects, and hardly a circle."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker of xdist begin in another place of a folder when the whole suite is collected.

    Workers that begin in the same place compile the same modules, with their assertions, at the same time.
    So each compiles a part, and finds the others' parts compiled.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and _is_whole(collector.config):
        number, count = _worker()
        start = len(report.result) * number // count
        report.result = [*report.result[start:], *report.result[:start]]
    return report


def _is_whole(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def _worker() -> tuple[int, int]:
    """Return the number of this worker of xdist, and how many there are."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that are the same on every version of Python, where the others are asked for."""
    if not config.getoption("--differing") or collection_path.suffix != ".py":
        return None
    return collection_path.relative_to(config.rootpath).as_posix() not in DIFFERING or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, and what is left to `--matrix`, unless it is asked for.

    Slow tests are left out of a run of the whole suite only: for them, to name their folder is to ask.
    """
    if _is_whole(config):
        items.sort(key=lambda item: item.path.parts)  # the order is the same in each worker
    marks = {mark for mark in ("long", "matrix", "slow") if not config.getoption(f"--{mark}")}
    left = [item for item in items if not marks.isdisjoint(mark.name for mark in item.iter_markers())]
    if left:
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]


def pytest_collection_finish() -> None:
    """Take what the suite itself consists of out of the collector's sight.

    Simulated runs collect garbage often, and tests do to see what is left; each time would go through
    thousands of collected tests. And look for garbage less often: tests make little of it.
    """
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _pydantic_is_not_asked() -> Generator[None]:
    """Let cyclopts not find pydantic, as in the process of a command: it checks each option once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cyclopts.argument._argument.sys", SimpleNamespace(modules={}))
        yield


@pytest.fixture(scope="session", autouse=True)
def _options_are_read_once() -> Generator[None]:
    """Read the options of a command from its signature once: that is most of a command in this process."""
    read, known = cyclopts.App.assemble_argument_collection, dict[Any, Any]()

    def fresh(app: cyclopts.App, **how: Any) -> cyclopts.ArgumentCollection:
        key = (id(app), *sorted(how.items()))
        if key not in known:
            known[key] = (app, read(app, **how))  # with the app, so that no other has its id
        copies = {id(each): copy(each) for each in known[key][1]}
        for each in copies.values():
            each.tokens = []
            each.children = cyclopts.ArgumentCollection(copies[id(child)] for child in each.children)
        return cyclopts.ArgumentCollection(copies.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cyclopts.App, "assemble_argument_collection", fresh)
        yield


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_is_not_collected() -> None:
    """Take what earlier modules left alive, such as reports of their tests, out of its sight, too."""
    gc.collect()
    gc.freeze()
