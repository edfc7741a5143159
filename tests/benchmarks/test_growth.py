"""What grows is measured: each program runs, and the table shows the figures and their ratio."""

from __future__ import annotations

import pytest

from tests.benchmarks import growth


@pytest.mark.parametrize("name", [name for name in growth.GROWTH if not name.startswith("connect")])
def test_each_program_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant in ("SOME", "NAMED", "REGISTERED"):
        monkeypatch.setattr(growth, constant, 10)
    assert growth.GROWTH[name].run(20) >= 0


def test_the_table_shows_figures_and_their_ratio(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "measured", lambda name, n, rounds: n / 1_000)
    growth.main(["told", "--most", "10000"])
    assert "1,000: 1.00   10,000: 10.00   (10.00)" in capsys.readouterr().out


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        growth.main(["tolt"])
    assert "no such thing: tolt" in capsys.readouterr().err
