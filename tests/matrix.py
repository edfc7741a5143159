"""What an ordinary run leaves to `--matrix`: most of a large matrix, and most of the random examples.

Nothing is left out for good: `pytest --matrix` runs all of it, and `.ci/run --matrix` does so on the oldest
Python. The share of an ordinary run is the same each time, so that a failure is no matter of luck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

T = TypeVar("T")

EXAMPLES = 100
"""What Hypothesis draws for a test that names no number."""

DIFFERING = {
    # annotations, signatures and types, which each version makes and shows in another way
    "tests/actors/test_contract.py": "annotations and signatures of agent classes",
    "tests/actors/test_descriptions.py": "docstrings and types in descriptions",
    "tests/actors/test_input_streams.py": "annotations of streams",
    "tests/actors/test_secrets.py": "types that are marked secret",
    "tests/actors/values/test_values.py": "types of values",
    "tests/core/test_annotations.py": "annotations of agent classes",
    "tests/persistence/test_agent_states.py": "types of kept state, by cattrs",
    "tests/actors/durable/test_durable_timers.py": "types of kept arguments",
    "tests/actors/durable/test_value_checks.py": "types of kept state",
    "tests/protocol/td/test_schema.py": "schemas of types, by msgspec",
    "tests/testing/test_fakes.py": "signatures of fakes",
    "tests/thinking/test_agent.py": "fields of a body, types of tools",
    "tests/thinking/test_tools.py": "types of tools",
    # tracebacks, frames, messages of exceptions
    "tests/actors/crashes/test_reports.py": "tracebacks and messages of exceptions",
    "tests/actors/declaration/test_declarations.py": "frames, and the lines that errors name",
    "tests/actors/test_own_tasks.py": "groups of exceptions",
    "tests/core/test_errors.py": "messages of exceptions",
    "tests/core/test_python_texts.py": "messages of exceptions",
    "tests/observe/test_dump.py": "stacks of tasks",
    "tests/system/test_targets.py": "errors of imports, and their lines",
    # data, and how deep and how strictly it is read
    "tests/cli/test_inputs.py": "messages of json",
    "tests/conformance/relay/test_all.py": "how deep json reads",
    "tests/files/test_document.py": "YAML with and without libyaml, which not every version has a wheel of",
    # the interpreter: garbage, threads, signals, processes, modules
    "tests/actors/values/test_hiding.py": "reference counts and the garbage collector",
    "tests/actors/test_unawaited.py": "coroutines that are never awaited",
    "tests/actors/test_wrong_loop.py": "asyncio",
    "tests/cli/test_doctor.py": "what the command says of the interpreter",
    "tests/cli/test_dispatch.py": "signals, closed pipes, the end of the process",
    "tests/cli/test_imports.py": "which modules a start imports",
    "tests/core/test_collector.py": "the garbage collector",
    "tests/core/test_set_orders.py": "orders of sets",
    "tests/deployment/test_fork_server.py": "fork, and what it leaves",
    "tests/persistence/test_sqlite.py": "sqlite3",
    "tests/persistence/test_killed_writer.py": "processes and sqlite3",
    "tests/portal/test_portal.py": "threads and asyncio",
    "tests/security/test_tls.py": "ssl",
    "tests/simulation/test_surroundings.py": "what the head of a log says of the interpreter",
    "tests/simulation/test_world.py": "the order of tasks, and its digest",
    "tests/transport/test_tls.py": "ssl",
    # what people read and type
    "tests/docs/test_documents.py": "the code of the pages",
    "tests/scenario/test_shipped.py": "digests of the shipped scenarios",
    "tests/test_exports.py": "public names and their docstrings",
}
"""The files whose tests can differ between versions of Python, each with the reason.

`.ci/run --matrix` runs all tests on the oldest and on the newest version, and these on the versions between.
"""

_everything = False


def ask_everything() -> None:
    """Let this run be one of `--matrix`. To be called before any test module is imported."""
    global _everything
    _everything = True


def some(
    cases: Iterable[T], *, of: int, matrix: int = 1, besides: Callable[[T], bool] = lambda case: False
) -> list[T]:
    """Return every `of`-th of the cases, beginning with the first; with `--matrix` every `matrix`-th.

    `besides`: whether to take a case in any run, as it alone runs some lines of the package.
    """
    step = matrix if _everything else of
    return [case for number, case in enumerate(cases) if number % step == 0 or besides(case)]


def slow(cases: Iterable[T], of: Container[T], *, mark: str = "slow") -> list[Any]:
    """Return the cases as parameters, those of `of` marked `slow`, or otherwise."""
    return [pytest.param(case, marks=[getattr(pytest.mark, mark)] * (case in of)) for case in cases]


def few_or_all(few: T, everything: T) -> T:
    """Return what an ordinary run takes, or what `--matrix` takes."""
    return everything if _everything else few


def examples(number: int) -> int:
    """Return how many examples Hypothesis draws: a twelfth of the number, or all of it with `--matrix`."""
    return few_or_all(max(number // 12, 5), number)
