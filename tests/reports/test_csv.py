"""Series as CSV: one value per line."""

from __future__ import annotations

import csv
import io
from math import inf, nan

import pytest

from lmos_actors.reports import SeriesResult, csv_text
from tests.reports.sample_results import HOSTILE, failed, result, run

INFORMED = SeriesResult(name="informed", agg="fraction", times=(1.0, 2.0), values=(0.5, None))


def read(*results) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(results))))


def test_a_line_for_each_value_and_each_metric() -> None:
    one = run(
        values={"fanout": 2, "loss": 0.1}, series=(INFORMED,), metrics={"all_informed.time": 12.5, "x": None}
    )
    lines = csv_text([result(one)]).splitlines()
    assert lines == [
        "file,name,fanout,loss,seed,trial,ended,series,agg,time,value",
        "story.yaml,story,2,0.1,1,1,passed,informed,fraction,1,0.5",
        "story.yaml,story,2,0.1,1,1,passed,informed,fraction,2,",
        "story.yaml,story,2,0.1,1,1,passed,all_informed.time,metric,,12.5",
        "story.yaml,story,2,0.1,1,1,passed,x,metric,,",
    ]


def test_files_with_other_values_share_the_columns() -> None:
    one = result(run(values={"fanout": 2}, series=(INFORMED,)))
    other = result(failed(values={"world": "memory"}, series=(INFORMED,)), file="b.yaml", name="b")
    rows = read(one, other)
    assert [(row["file"], row["fanout"], row["world"], row["ended"]) for row in rows] == [
        ("story.yaml", "2", "", "passed"),
        ("story.yaml", "2", "", "passed"),
        ("b.yaml", "", "memory", "failed"),
        ("b.yaml", "", "memory", "failed"),
    ]


def test_a_value_named_as_a_column_is_told_apart() -> None:
    (row, _) = read(result(run(values={"seed": 9, "time": [1, {"a": None}]}, series=(INFORMED,), label="x")))
    assert (row["value.seed"], row["seed"]) == ("9", "1")
    assert (row["value.time"], row["time"]) == ('[1, {"a": null}]', "1")


@pytest.mark.parametrize("value", [HOSTILE, 'a,"b"\n', "", True, nan])
def test_every_value_keeps_to_its_place(value: object) -> None:
    (row, _) = read(result(run(values={"k": value}, series=(INFORMED,), label="x")))
    assert None not in row
    assert row["series"] == "informed"


def test_numbers_are_written_in_full() -> None:
    series = SeriesResult(name="s", agg="max", times=(0.1,), values=(1 / 3,))
    (row, inf_row) = read(result(run(series=(series,), metrics={"m": inf})))
    assert float(row["value"]) == 1 / 3
    assert inf_row["value"] == "inf"


def test_without_series_there_is_the_head_alone() -> None:
    assert csv_text([result(run())]) == "file,name,seed,trial,ended,series,agg,time,value\n"
    assert csv_text([]) == "file,name,seed,trial,ended,series,agg,time,value\n"
