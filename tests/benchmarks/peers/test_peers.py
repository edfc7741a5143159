"""The comparison with other libraries: our own side runs, and the table says who is missing."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from tests.benchmarks.peers import __main__ as command
from tests.benchmarks.peers.programs import PEERS, WORK, measure, program

NEAR = [work for work in WORK if not work.startswith("far_")]  # tests/benchmarks/test_run.py has those


@pytest.mark.parametrize("work", NEAR)
def test_our_side_of_each_work_runs(work: str) -> None:
    run = program("lmos_actors", work)
    assert run is not None
    assert run(1_000) >= 0


def test_work_grows_until_it_takes_long_enough() -> None:
    asked: list[int] = []

    def run(n: int) -> float:
        asked.append(n)
        return n / 10_000

    by_time, _ = measure(run, "tell")
    assert by_time == pytest.approx(10_000)
    assert asked == [100, 100, 400, 1_600, 3_200, 6_400]


def test_the_table_names_who_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"lmos_actors": ["600.0", "500.0"], "pykka": ["200.0", "100.0"], "mesa": ["none"]}
    monkeypatch.setattr(command, "measured", lambda peer, work: words.get(peer, ["absent", peer]))
    command.main(["tell", "--rounds", "2"])
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["lmos_actors", "600", "500", "1.00"] in rows
    assert ["pykka", "200", "100", "3.00"] in rows
    missing = [peer for peer in PEERS if peer not in words]
    assert f"not installed: {', '.join(missing)}\n" in printed
    assert "has no such thing: mesa\n" in printed


def test_a_peer_that_is_not_installed_is_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pykka", None)
    command.one("pykka", "tell")
    assert capsys.readouterr().out.startswith("absent")


def test_unknown_work_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["tel"])
    assert "no such work: tel" in capsys.readouterr().err


def test_every_peer_has_a_driver() -> None:
    assert {path.stem for path in command.ROOT.glob("tests/benchmarks/peers/with_*.py")} == {
        f"with_{peer}" for peer in PEERS
    }
    assert import_module("tests.benchmarks.peers.with_lmos_actors").tell
