"""Every benchmark case runs, and says what it should; how fast is for `python -m tests.benchmarks`."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import Agent, ChildSpec, every, open_node
from tests.benchmarks import __main__ as command, against, codec, http, limits_wire, wire
from tests.benchmarks.cases import CASES, Case
from tests.benchmarks.one import calls, main as measure_here
from tests.benchmarks.ours import Echo, Passes, idle_passes, passes_in_minutes
from tests.matrix import some
from tests.redis_server import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Restless(Agent):
    @every(60.0)
    def look(self) -> None:
        pass


class Servers:
    """Servers that cases have started, kept for those that follow: nothing is measured here."""

    def __init__(self) -> None:
        self.open = ExitStack()
        self.told: dict[tuple[Any, ...], Any] = {}

    def keeping(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def kept(*words: str) -> Iterator[Any]:
            if "lines" in words:  # it serves one connection, and ends
                with start(*words) as told:
                    yield told
                return
            if (start, *words) not in self.told:
                self.told[start, *words] = self.open.enter_context(start(*words))
            yield self.told[start, *words]

        return kept


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    made = Servers()
    with made.open:
        yield made


@pytest.mark.slow  # its lines: the tests of what is measured
@pytest.mark.parametrize("name", some(CASES, of=11))
def test_a_case_runs(name: str, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("redis") and PROGRAM is None and os.environ.get("LMOS_ACTORS_REDIS") != "required":
        pytest.skip("there is no redis-server here")
    case = CASES[name]
    if "emory" not in name:
        shared = servers.keeping(limits_wire.other_process)
        monkeypatch.setattr(limits_wire, "other_process", shared)
        monkeypatch.setattr(wire, "other_process", shared)
        monkeypatch.setattr(http, "served", servers.keeping(http.served))
    for side in ("limit", "ours") if case.limit is not None else ("ours",):
        value = measure_here(side, name, case.tiny)
        if case.unit == " bytes" or "emory" in name:  # of a process that gives other memory back meanwhile
            assert isfinite(value)
        elif case.unit in (" passes", " frames") or name.startswith("bulk"):
            assert value >= 0
        else:
            assert value > 0


@pytest.mark.parametrize("kind", codec.KINDS)
def test_a_sample_of_the_codec_is_a_message(kind: str) -> None:
    reader = codec.codec_of("spec")
    assert reader.decode(reader.encode(codec.sample(kind))) == codec.sample(kind)


def test_calls_are_counted_for_each_unit_without_the_start() -> None:
    assert 5.0 <= calls("ask", 1_000) < 5.2


def test_a_limit_is_measured_only_where_there_is_one() -> None:
    with pytest.raises(ValueError, match="stop has no limit"):
        measure_here("limit", "stop", 1)


def test_an_idle_node_makes_no_pass_of_the_run_loop() -> None:
    assert idle_passes(1000) == 0


def test_an_idle_node_in_real_time_makes_no_pass_either() -> None:
    async def with_node() -> float:
        async with open_node() as node:
            refs = await node.root.start_many(ChildSpec("echo", Echo), 100)
            for ref in refs:
                await ref.within(1.0).invoke(Echo.slowly, 1)
            return await passes_in_minutes()

    alone = trio.run(passes_in_minutes, clock=MockClock(autojump_threshold=0))
    assert trio.run(with_node, clock=MockClock(autojump_threshold=0)) == alone


def test_a_pass_of_the_run_loop_is_counted() -> None:
    async def with_one_timer() -> float:
        async with open_node() as node:
            await node.start(Restless)
            return await passes_in_minutes()

    # not by `simulate`, whose clock fires timers without a pass
    alone = trio.run(passes_in_minutes, clock=MockClock(autojump_threshold=0))
    assert trio.run(with_one_timer, clock=MockClock(autojump_threshold=0)) >= alone + 10


async def test_passes_are_counted_one_by_one() -> None:
    passes = Passes()
    trio.lowlevel.add_instrument(passes)
    for _ in range(3):
        await trio.lowlevel.checkpoint()
    trio.lowlevel.remove_instrument(passes)
    assert passes.count == 3


def a_case(*, target: float, less: bool = False, limited: bool = False) -> Case:
    return Case("x", "the x", float, 1, 1, target, float if limited else None, less_is_better=less)


@pytest.mark.parametrize(
    ("case", "limit", "ours", "met"),
    [
        (a_case(target=0.5, limited=True), 100.0, 50.0, True),
        (a_case(target=0.5, limited=True), 100.0, 49.0, False),
        (a_case(target=100), None, 100.0, True),
        (a_case(target=100), None, 99.0, False),
        (a_case(target=100, less=True), None, 101.0, False),
        (a_case(target=0, less=True), None, 0.0, True),
    ],
)
def test_a_target_is_met_or_not(case: Case, limit: float | None, ours: float, met: bool) -> None:
    result = command.Result(case, limit, ours)
    assert result.met is met
    assert command.row(result).endswith("met" if met else "MISSED")
    assert command.as_data(result)["ratio"] == (None if limit is None else ours / limit)


def test_sides_take_turns_and_the_first_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    sides: list[str] = []

    def measured(_case: Case, side: str, _n: int) -> float:
        sides.append(side)
        return float(len(sides))

    monkeypatch.setattr(command, "measure", measured)
    result = command.run(a_case(target=1, limited=True), 2, 1)
    assert sides == ["ours", "limit", "limit", "ours", "ours", "limit"]
    assert (result.limit, result.ours) == (4.5, 4.5)


@pytest.mark.slow
def test_the_command_measures_in_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main(["stop", "--rounds", "1", "--scale", "0.001", "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["case"] == "stop"
    assert code == (0 if found["met"] else 1)


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["tel"])
    assert "no such case: tel" in capsys.readouterr().err


def test_two_versions_are_compared_round_by_round_less_what_no_work_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = CASES["ask"]

    def measure(root: Path, measured: Case, n: int) -> tuple[float, float]:
        assert measured is case
        return 0.0, (1.0 if n == case.tiny else 1.5) + (n > case.tiny and root == tmp_path)

    monkeypatch.setattr(against, "measure", measure)
    assert list(against.ratios(case, tmp_path, 2, case.n)) == [3.0, 3.0]  # 1.5 s before, 0.5 s now


@pytest.mark.slow  # its lines: none of the package
def test_memory_is_compared_by_its_own_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(against, "measure", lambda root, case, n: (600.0 if root == tmp_path else 500.0, 1.0))
    assert list(against.ratios(CASES["memory"], tmp_path, 1, 10)) == [1.2]
