"""The HTML file: what is put into it, how it is packed, and that nothing of it is taken for markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import statistics
import zlib
from html.parser import HTMLParser
from typing import Any, get_args

import attrs
import pytest
from hypothesis import example, given, strategies as st

from lmos_actors._core import Kind
from lmos_actors.reports import (
    CheckResult,
    FileResult,
    Repeated,
    RunResult,
    SeriesResult,
    StepResult,
    html_page,
    message_text,
    read_record,
)
from lmos_actors.reports._html_logs import LONG_LINE, SOME, keep, keep_logs, shares, short
from lmos_actors.reports._html_series import bands, five_numbers, points_each, thinned
from tests.reports.sample_results import HOSTILE, failed, line, result, run
from tests.source import ROOT

BREAKING = f"</script><script>alert(1)</script><!-- \u2028 {HOSTILE} </style> &amp; 'x' \"y\" {{{{ 7 * 7 }}}}"


class Read(HTMLParser):
    """The elements of a page: name, attributes, text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", {}, []))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.elements[-1][2].append(data)

    def texts(self, tag: str, **attributes: str) -> list[str]:
        return [
            "".join(text)
            for name, own, text in self.elements
            if name == tag and all(own.get(key) == value for key, value in attributes.items())
        ]


def unpacked(page: str, name: str) -> str:
    (text,) = Read(page).texts("script", id=name)
    return zlib.decompress(base64.b64decode(text)).decode()


def report(page: str) -> Any:
    return json.loads(unpacked(page, "report"))


def log(count: int, kind: str = "sent") -> tuple[str, ...]:
    return (
        '{"schema":"lmos-actors/trace/v1","seed":1}',
        *(line(n, kind, "a", id=n, **{"from": "user"}, verb="tell") for n in range(1, count + 1)),
        f'{{"end":{count},"sha256":"{"0" * 64}"}}',
    )


def everything(text: str = BREAKING) -> FileResult:
    """A file in which every text is one that might break out."""
    steps = (
        StepResult(place=text, what=text, ok=True, begin=0.0, end=1.0),
        StepResult(place="", what="", ok=None),
    )
    check = CheckResult(name=text, kind="never", ok=False, expected=text, saw=text, place=text, at=0.5)
    series = (SeriesResult(name=text, agg=text, times=(0.0, 1.0), values=(None, 2.0)),)
    records = (*log(1)[:1], line(1, "sent", text, affordance=text, input={"x": text}, id=1), *log(1)[-1:])
    made = failed(
        values={text: text},
        step_results=steps,
        judged=(check,),
        series=series,
        metrics={text: 1.0},
        log=records,
        again=text,
    )
    return result(
        made, name=text, file=text, repeated=[Repeated(text, problem=text)], compared=[check], notes=(text,)
    )


# ---- one file, and nothing that may be taken for something else


def test_nothing_of_the_results_is_markup() -> None:
    plain, broken = (
        Read(html_page([everything("x")], title="x")),
        Read(html_page([everything()], title=BREAKING)),
    )
    assert [tag for tag, _, _ in broken.elements] == [tag for tag, _, _ in plain.elements]
    assert "alert(1)" not in "".join(broken.texts("script"))


def test_every_text_comes_back_as_it_was() -> None:
    data = report(html_page([everything()], title=BREAKING))
    clean = BREAKING.encode("utf-8", "backslashreplace").decode()
    assert data["title"] == clean
    assert data["files"][0]["name"] == data["files"][0]["repeated"][0]["text"] == clean
    (told,) = data["runs"]
    assert told["step_results"][0] == [clean, clean, True, 0.0, 1.0]
    assert told["combination"] == f"{clean}={clean}"
    assert told["judged"][0]["saw"] == told["series"][0]["name"] == told["again"] == clean


def test_the_log_comes_back_line_by_line() -> None:
    records = everything().runs[0].log
    assert unpacked(html_page([everything()], title=""), "log-0").split("\n") == list(records[:-1])


def test_only_its_own_style_and_script_are_allowed() -> None:
    page = html_page([everything()], title="x")
    (policy,) = (own["content"] for _, own, _ in Read(page).elements if "http-equiv" in own)
    (style,) = Read(page).texts("style")
    script = Read(page).texts("script")[-1]
    digests = [hashlib.sha256(text.encode()).digest() for text in (style, script)]
    own_style, own_script = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    assert policy == (
        f"default-src 'none'; style-src {own_style}; script-src {own_script}; "
        "base-uri 'none'; form-action 'none'"
    )


def test_nothing_is_fetched() -> None:
    page = html_page([everything("x")], title="x")
    addresses = set(re.findall(r"\w+://[^'\" ]*", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|\bimport\b|\bfetch\(|XMLHttp|\bsrc=|\bhref=|<link", page)


def test_the_same_results_give_the_same_page() -> None:
    assert html_page([everything()], title="x") == html_page([everything()], title="x")


def test_who_runs_no_script_reads_the_verdicts() -> None:
    page = html_page([result(run(), failed(seed=2))], title="x")
    assert "story: 1 of 2 runs passed (exit code 1)" in "".join(Read(page).texts("li"))


def test_what_was_checked_and_not_done_is_on_the_page() -> None:
    page = html_page([result(run(), notes=("desk.yaml: not opened: listeners",))], title="x")
    (file,) = report(page)["files"]
    assert file["notes"] == ["desk.yaml: not opened: listeners"]
    assert "note: desk.yaml: not opened: listeners" in "".join(Read(page).texts("li"))


def test_a_page_without_results_is_one() -> None:
    assert report(html_page([], title="nothing")) == {
        "title": "nothing",
        "cut": None,
        "files": [],
        "runs": [],
    }


def test_numbers_that_json_lacks_are_left_out() -> None:
    inf = float("inf")
    series = (SeriesResult(name="s", agg="max", times=(0.0, 1.0), values=(inf, 2.0)),)
    page = html_page([result(run(metrics={"m": float("nan")}, values={"k": inf}, series=series))], title="x")
    (told,) = report(page)["runs"]
    assert (told["metrics"], told["series"][0]["values"]) == ({"m": None}, [None, 2.0])
    assert report(page)["files"][0]["bands"][0]["max"] == [None, 2.0]


def test_last_messages_stand_in_for_a_log() -> None:
    told = report(
        html_page(
            [result(failed(last=("{}",)), failed(last=("{}",), log=log(1)), run(last=("{}",)))], title="x"
        )
    )
    assert [(one["last"], bool(one["log"])) for one in told["runs"]] == [
        (["{}"], False),
        ([], True),
        ([], False),
    ]


# ---- how much of the logs


def test_logs_of_failed_runs_come_first() -> None:
    runs = [run(log=log(60)), failed(log=log(60)), failed(log=log(60)), run()]
    assert {n: part.records for n, part in keep_logs(runs, 1000).items()} == {0: 60, 1: 60, 2: 60}
    assert {n: part.records for n, part in keep_logs(runs, 93).items()} == {1: 60}
    long = [run(log=log(9000)), failed(log=log(9000)), failed(log=log(100))]
    assert {n: part.records for n, part in keep_logs(long, 8000).items()} == {0: 2000, 1: 5898, 2: 100}


@given(st.lists(st.integers(0, 9000), max_size=12), st.integers(0, 20_000))
def test_room_is_shared_out_fairly(lengths: list[int], room: int) -> None:
    given = shares(dict(enumerate(lengths)), room)
    assert sum(given.values()) <= room
    assert all(min(lengths[index], SOME) <= part <= lengths[index] for index, part in given.items())
    if sum(lengths) <= room:
        assert given == {index: length for index, length in enumerate(lengths) if length}
    cut = [part for index, part in given.items() if part < lengths[index]]
    if cut:
        assert sum(given.values()) == room
        assert max(cut) - min(cut) <= 1
        assert max(given.values()) <= max(cut)


def test_of_a_long_log_begin_end_and_fates_are_kept() -> None:
    records = [line(n, "sent", "a", id=n) for n in range(1, 101)]
    records[49] = line(50, "crashed", "a")
    part = keep((*log(0)[:1], *records, *log(0)[1:]), 11, 1_000_000)
    numbers = [json.loads(text)["n"] for text in part.lines[1:]]
    assert numbers == [1, 2, 3, 4, 5, 50, 96, 97, 98, 99, 100]
    assert (part.records, part.whole) == (11, 100)


def test_fates_take_half_of_the_room_at_most() -> None:
    records = [line(n, "started" if n <= 50 else "sent", "a", id=n) for n in range(1, 101)]
    kinds = [json.loads(text)["kind"] for text in keep(records, 10, 1_000_000).lines]
    assert (kinds.count("started"), kinds.count("sent")) == (5, 5)
    kinds = [json.loads(text)["kind"] for text in keep(records[:52], 10, 1_000_000).lines]
    assert (kinds.count("started"), kinds.count("sent")) == (8, 2)


def test_a_log_that_was_cut_before_says_how_long_it_was() -> None:
    assert keep([line(n, "sent", "a", id=n) for n in (1, 2, 900)], 10, 1_000_000).whole == 900


@given(st.integers(0, 40), st.integers(0, 50), st.sampled_from(["sent", "crashed"]))
@example(10, 1, "crashed")
@example(10, 1, "sent")
def test_never_more_than_there_is_room_for(count: int, most: int, kind: str) -> None:
    part = keep(log(count, kind), most, 1_000_000)
    assert part.records == len(part.lines) - 1 <= most
    assert part.records == min(count, most)


def test_characters_are_counted_too() -> None:
    whole = log(100)
    assert keep(whole, 1000, sum(map(len, whole)) // 2).records in range(40, 60)


def test_a_long_record_loses_its_long_members_only() -> None:
    text = line(7, "sent", "a", id=7, input="x" * LONG_LINE, verb="tell")
    got = json.loads(short(text))
    assert got == {
        **json.loads(text),
        "input": f"left out of this page: {LONG_LINE + 2} characters",
    }
    assert short(text).startswith('{"n":7,')
    assert short(text[:-5]) == "{}"
    assert short(line(7, "sent", "a")) == line(7, "sent", "a")


def test_a_page_of_long_records_is_small() -> None:
    text = line(1, "sent", "a", id=1, input=BREAKING * 100_000)
    assert len(html_page([result(run(log=(text,)))], title="x")) < 200_000


def test_steps_of_too_many_runs_are_left_out() -> None:
    steps = tuple(StepResult(place="", what="x", ok=True, begin=0.0, end=0.0) for _ in range(20_000))
    page = html_page(
        [
            result(
                run(step_results=steps),
                run(step_results=steps),
                failed(step_results=steps),
                failed(step_results=steps[:3]),
            )
        ],
        title="x",
    )
    assert [one["step_results"] and len(one["step_results"]) for one in report(page)["runs"]] == [
        20_000,
        None,
        20_000,
        3,
    ]


# ---- series


def series(values: list[float | None], name: str = "s") -> SeriesResult:
    return SeriesResult(
        name=name, agg="max", times=tuple(float(n) for n in range(len(values))), values=tuple(values)
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_quartiles_are_those_of_statistics(values: list[float]) -> None:
    values.sort()
    least, *middle, greatest = five_numbers(values)
    assert (least, greatest) == (values[0], values[-1])
    assert middle == pytest.approx(statistics.quantiles(values, n=4, method="inclusive"), abs=1e-6)


def test_a_band_of_one_value_and_of_none() -> None:
    assert five_numbers([3.0]) == (3.0,) * 5
    assert five_numbers([]) == (None,) * 5


def test_bands_are_over_the_seeds_of_a_combination() -> None:
    runs: list[tuple[str, RunResult]] = [
        ("k=1", run(series=(series([0, 10, None]),))),
        ("k=1", run(series=(series([2, 20, None, 7]),))),
        ("k=2", run(series=(series([5]), series([6], "t")))),
    ]
    got = {(band["name"], band["combination"]): band for band in bands(runs, 100)}
    assert list(got) == [("s", "k=1"), ("s", "k=2"), ("t", "k=2")]
    one = got["s", "k=1"]
    assert (one["times"], one["n"]) == ([0, 1, 2, 3], [2, 2, 0, 1])
    assert (one["min"], one["max"], one["median"]) == ([0, 10, None, 7], [2, 20, None, 7], [1, 15, None, 7])
    assert (one["q1"], one["q3"]) == ([0.5, 12.5, None, 7], [1.5, 17.5, None, 7])


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=8))
def test_the_band_of_series_that_never_fall_never_falls(steps: list[list[int]]) -> None:
    """Though runs stop earlier than others: what they had last stands for them from there on."""
    grown = [[float(sum(each[: n + 1])) for n in range(len(each))] for each in steps]
    runs: list[tuple[str, RunResult]] = [("k=1", run(series=(series([*values]),))) for values in grown]
    (one,) = bands(runs, 100)
    for name in ("min", "q1", "median", "q3", "max"):
        assert one[name] == sorted(one[name])
    assert one["n"] == [sum(len(values) > n for values in grown) for n in range(max(map(len, grown)))]


@given(st.integers(0, 500), st.integers(2, 60))
def test_a_thinned_series_has_first_and_last(count: int, most: int) -> None:
    thin = thinned(series([float(n) for n in range(count)]), most)
    assert len(thin["times"]) <= most
    assert thin["times"] == thin["values"]
    assert thin["whole"] == count
    assert not count or (thin["times"][0], thin["times"][-1]) == (0, count - 1)
    if count <= most:
        assert len(thin["times"]) == count


def test_each_kind_of_record_has_a_sign_on_the_page_and_words() -> None:
    script = (ROOT / "lmos_actors/live/page/log.js").read_text(encoding="utf-8")
    signs = script.partition("const SIGNS = {")[2].partition("};")[0]
    assert set(re.findall(r"(\w+): '", signs)) == set(get_args(Kind))
    told = {"progress": {"progress": 50}, "item": {"value": 50}, "changed": {"property": "p", "value": 50}}
    for kind, fields in told.items():
        record = read_record(line(1, kind, "a", **{"affordance": "p", **fields}))
        assert record is not None
        assert re.search(r"\bp (goes on:|gives|is now) 50", message_text(record))


def test_points_are_shared_out() -> None:
    assert points_each([10, 20]) == 1000
    assert points_each([]) == 1000
    assert points_each([10_000] * 1200) == 500


def test_combinations_of_a_page_are_banded() -> None:
    runs = [
        run(values={"k": k}, seed=seed, series=(series([k, seed]),)) for k in (1, 2) for seed in (1, 2, 3)
    ]
    (file,) = report(html_page([result(*runs)], title="x"))["files"]
    assert [(band["combination"], band["median"]) for band in file["bands"]] == [
        ("k=1", [1, 2]),
        ("k=2", [2, 2]),
    ]


def test_trees_faults_and_failures_are_there() -> None:
    (told,) = report(html_page([result(failed(tree=("root", "  a")))], title="x"))["runs"]
    assert told["tree"] == ["root", "  a"]
    assert told["failures"] == [attrs.asdict(failed().failures[0])]
    assert (told["steps"], told["checks"], told["ended"]) == ([1, 4], [0, 2], "failed")
