"""Results as text, as plain data, and the messages of a log as lines."""

from __future__ import annotations

import json
import re
from math import inf, nan
from typing import Any
from unicodedata import category

import attrs
import pytest
from hypothesis import example, given, strategies as st

from lmos_actors._core import printable
from lmos_actors.reports import (
    CheckResult,
    Failure,
    FaultResult,
    Record,
    Repeated,
    RunResult,
    SeriesResult,
    StepResult,
    as_data,
    bar,
    check_lines,
    clean,
    combination,
    compared_lines,
    failure_lines,
    file_line,
    first_failure,
    folded_line,
    head,
    last_messages,
    message_text,
    read_record,
    repeated_lines,
    run_line,
    summary,
    trial_lines,
)
from lmos_actors.simulation import Difference
from tests.reports.sample_results import HEAD, HOSTILE, failed, line, result, run, sent
from tests.source import ROOT


@pytest.mark.parametrize(
    ("done", "total", "drawn"),
    [
        (0, 10, ".........."),
        (9, 10, "#########."),
        (99, 100, "#########."),
        (5, 5, "##########"),
        (0, 0, "#" * 10),
    ],
)
def test_a_bar_is_full_only_at_the_end(done: int, total: int, drawn: str) -> None:
    assert bar(done, total) == drawn


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"cells": 1, "seeds": 1}, "1 run"),
        ({"cells": 18, "seeds": 3}, "6 cells x 3 seeds"),
        ({"cells": 3, "seeds": 3}, "1 cell x 3 seeds"),
        ({"cells": 4, "seeds": 1}, "4 cells x 1 seed"),
        ({"cells": 6, "seeds": 3, "trials": 2}, "2 cells x 3 seeds x 2 trials"),
        ({"cells": 1, "seeds": 1, "trials": 5}, "1 cell x 1 seed x 5 trials"),
        ({"cells": 7, "seeds": 3}, "7 runs"),  # -k has chosen some
        ({"cells": 7}, "7 runs"),
    ],
)
def test_the_head_of_a_file_says_how_much_there_is_to_do(changes: dict[str, Any], size: str) -> None:
    assert head(result(**changes)) == f"story  story.yaml  {size}"


def test_the_line_of_a_run() -> None:
    made = run(values={"city": "Rome"})
    assert run_line(made, 20, 1) == (
        " city=Rome seed=1      ########## 4/4 steps  2/2 checks  ok  0.25 s (virtual 1.5 s)"
    )
    assert "  trial 1  ##........ 1/4 steps" in run_line(failed(), 6, 2)
    assert "FAILED" in run_line(failed(), 6, 1)
    assert "TIME LIMIT" in run_line(failed(ended="time limit"), 6, 1)
    assert "steps" not in run_line(run(steps=0, steps_done=0), 6, 1)


def test_a_failure_says_what_and_where_how_things_stood_and_how_to_see_it_again() -> None:
    last = tuple(sent(n, "user", "weather", "getWeather") for n in range(1, 12))
    bad = failed(tree=("root", "  weather"), last=last, replay="lmos-actors replay log.jsonl --run 2")
    lines = failure_lines(bad)
    assert lines[:6] == [
        "   story.yaml:9:3: invoke weather.getWeather",
        "     expected an answer",
        "     saw      AgentDied: boom",
        "   root",
        "     weather",
        "   last messages:",
    ]
    assert len(lines) == 6 + 8 + 2
    assert lines[6] == "     0.500000  user -> weather  invoke getWeather  #4"
    assert lines[-2:] == [
        "   again:  lmos-actors run story.yaml --seed 1",
        "   replay: lmos-actors replay log.jsonl --run 2",
    ]
    assert "last messages:" not in "".join(failure_lines(bad, 0))


def test_many_failures_and_long_ones_are_cut() -> None:
    long = Failure("", "w", "e", "x" * 5_000)
    lines = failure_lines(failed(failures=(long,) * 30))
    assert lines.count("   w") == 10
    assert "   and 20 more" in lines
    assert max(map(len, lines)) < 2_100
    assert "and 3000 characters more" in lines[2]


def test_a_value_of_several_lines_stays_below_its_word() -> None:
    lines = failure_lines(failed(failures=(Failure("", "w", "one\ntwo", "a\x1b[2Jb"),)))
    assert lines[1:4] == ["     expected one", "              two", "     saw      a\\x1b[2Jb"]


def _is_shown(character: str) -> bool:
    """Return whether a terminal shows a character, if only as a blank."""
    return character.isprintable() or category(character) == "Zs"


@given(st.text(st.characters(), max_size=30))
@example("\xa0")
def test_nothing_that_a_terminal_obeys_is_printed(text: str) -> None:
    assert all(map(_is_shown, printable(text)))
    if text.isprintable():
        assert printable(text) == text
    bad = failed(failures=(Failure(text, text, text, text),), tree=(text,), last=(sent(1, text, text, text),))
    assert all(map(_is_shown, "".join(failure_lines(bad))))


def test_the_first_failure_in_a_line() -> None:
    assert first_failure(failed()) == (
        "story.yaml:9:3: invoke weather.getWeather: expected an answer, saw AgentDied: boom"
    )
    assert first_failure(failed(failures=(), ended="time limit")) == "time limit"


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        ([1], "seed=1"),
        ([1, 2, 3], "seeds=1..3"),
        ([1, 7, 42], "seeds=1,7,42"),
        ([3, 1, 2], "seeds=3,1,2"),
        ([9, 1, 2, 5, 4, 3, 8], "seeds=9,1,2,5,4 and 2 more"),
    ],
)
def test_the_runs_of_one_combination_on_one_line(seeds: list[int], text: str) -> None:
    runs = [run(values={"city": "Rome"}, seed=seed) for seed in seeds]
    assert {combination(each) for each in runs} == {"city=Rome"}
    n = len(seeds)
    assert folded_line(runs, 0) == f" city=Rome {text}  ########## {n}/{n} runs  ok  {n * 0.25:.2f} s"
    assert f"{n}/{n + 1} runs  1 FAILED" in folded_line([*runs, failed(values={"city": "Rome"})], 0)


def test_a_run_without_values_has_no_combination() -> None:
    assert combination(run(seed=12)) == ""
    assert folded_line([run(), run(seed=2)], 0).startswith(" seeds=1..2  #")


def test_checks_comparisons_repetitions() -> None:
    met = CheckResult(name="seen", kind="eventually", ok=True, expected="x >= 1", saw="1", at=2.5)
    unmet = CheckResult(name="trend", kind="compare", ok=False, expected="less", saw="more", place="a:1:2")
    assert check_lines(run(judged=(met,))) == ["   ok     check seen: expected x >= 1, saw 1"]
    assert compared_lines([unmet]) == [" a:1:2: FAILED check trend: expected less, saw more"]
    again = [Repeated("s1"), Repeated("s2", Difference(3, "a", None)), Repeated("s3", problem="it died")]
    assert repeated_lines(again) == [
        " s2  NOT DETERMINISTIC: another process gave another log, from here on",
        "   line 3:",
        "     a",
        "     (the log has ended)",
        " s3  could not be repeated: it died",
        " same log in a second process: 1 of 3",
    ]


def test_what_several_trials_come_to() -> None:
    runs = [
        run(),
        failed(trial=2),
        run(seed=2),
        run(seed=2, trial=2),
        failed(seed=3),
        failed(seed=3, trial=2),
    ]
    assert trial_lines(result(*runs, pass_rate=0.5)) == [
        " seed=1  1 of 2 trials passed, enough for pass_rate 0.5"
    ]
    assert trial_lines(result(*runs, pass_rate=0.6)) == [
        " seed=1  1 of 2 trials passed, NOT ENOUGH for pass_rate 0.6"
    ]
    many = [each for n in range(1, 16) for each in (run(seed=n), failed(seed=n, trial=2))]
    assert trial_lines(result(*many))[10:] == [" and 5 cells more"]


@pytest.mark.parametrize(
    ("runs", "pass_rate", "code"),
    [
        ([run(), run(trial=2)], 1.0, 0),
        ([run(), failed(trial=2)], 1.0, 5),
        ([run(), failed(trial=2)], 0.5, 0),
        ([failed(), failed(trial=2)], 0.5, 1),
        ([run(), failed(trial=2, ended="time limit")], 1.0, 124),
        ([run(), failed(trial=2, ended="could not run")], 0.5, 3),
        ([run(), failed(seed=2)], 0.5, 1),  # a cell of its own
    ],
)
def test_the_exit_code_of_a_file(runs: list[RunResult], pass_rate: float, code: int) -> None:
    assert result(*runs, pass_rate=pass_rate).exit_code() == code


def test_the_last_lines() -> None:
    several = result(run(), failed(), cells=5, seconds=2.04)
    assert file_line(several) == " 1/2 runs passed, 3 not run  2.0 s"
    assert summary([several, result(run())], 3.26) == "2/3 runs of 2 files passed in 3.3 s"
    assert summary([result(run())], 3.26) == "1/1 runs passed in 3.3 s"


def test_the_last_line_tells_of_what_failed_beside_the_runs() -> None:
    unmet = CheckResult(name="faster", kind="compare", ok=False, expected="faster", saw="slower")
    again = [
        Repeated("seed=1"),
        Repeated("seed=1", problem="gone"),
        Repeated("seed=1", Difference(1, "a", None)),
    ]
    last = summary([result(run(), compared=[unmet, attrs.evolve(unmet, ok=True)], repeated=again)], 3.26)
    assert last == "1/1 runs passed in 3.3 s, 1 comparison FAILED, 2 repetitions FAILED"


# --- messages


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (sent(1, "user", "a", "ask", input={"x": "é"}), 'user -> a  invoke ask {"x": "é"}  #1'),
        (sent(1, "b", "a", "units", verb="read"), "b -> a  read units  #1"),
        (line(1, "delivered", "a", affordance="ask", id=4), "a  delivered ask  #4"),
        (line(1, "answered", "a", affordance="ask", id=4, value=None), "a  ask = null  #4"),
        (line(1, "answered", "a", affordance="ask", id=4, error="E: x"), "a  ask failed: E: x  #4"),
        (line(1, "event", "a", event="changed", data=[1]), "a  event changed [1]"),
        (line(1, "event", "a", topic="news", data=[1]), "a  event news [1]"),
        (line(1, "crashed", "a", reason="E: x"), "a  crashed: E: x"),
        (line(1, "refused", "a", error="MailboxFull", id=4), "a  refused MailboxFull  #4"),
        (line(1, "dead_letter", "a", affordance="ask", reason="x"), "a  dead letter ask x"),
        (line(1, "fault", "a", fault="slow", factor=2), "a  fault slow factor=2"),
        (line(1, "started", "a", incarnation=1), "a  started"),
        (line(1, "started", "a", incarnation=3), "a  started again, incarnation 3"),
        (line(1, "new_kind", "a"), "a  new kind"),
    ],
)  # fmt: skip
def test_a_record_in_words(text: str, said: str) -> None:
    record = read_record(text)
    assert record is not None
    assert message_text(record) == f"0.500000  {said}"
    assert record.as_data() == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        "",
        "{",
        "[]",
        "null",
        '{"n":1}',
        '{"end":3,"sha256":"x"}',
        '{"n":"1","t":0,"kind":"a","agent":"b"}',
    ],
)
def test_what_is_no_record(text: str) -> None:
    assert read_record(text) is None


def test_the_last_messages_leave_out_what_ends_every_run() -> None:
    told = [sent(n, "user", "a", "ask") for n in range(30)]
    others = [line(40 + n, kind, "a") for n, kind in enumerate(("delivered", "started", "stopped"))]
    assert last_messages([HEAD, *told, *others, '{"end":33}']) == tuple(told[-20:])
    assert last_messages([HEAD, *told[:3]]) == tuple(told[:3])
    assert last_messages(told, 2) == tuple(told[-2:])


def test_a_text_that_speaks_of_other_kinds_is_no_reason_to_leave_a_message_out() -> None:
    told = sent(1, "user", "a", "ask", input={"kind": "stopped"})
    assert last_messages([told]) == (told,)


# --- plain data


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        (nan, None),
        (inf, None),
        (1.5, 1.5),
        (True, True),
        (10**30, 10**30),
        ("a\ud800", "a\\ud800"),
        ({1: (1, "\udfff")}, {"1": [1, "\\udfff"]}),
        ({1, 2}, [1, 2]),
    ],
)
def test_plain_data_that_every_reader_takes(value: Any, cleaned: Any) -> None:
    assert clean(value) == cleaned
    json.dumps(clean(value), allow_nan=False).encode()


def test_deep_data_is_cut() -> None:
    json.dumps(clean(deep(500)))


KEYS = {
    "cut",
        "notes",
    "missing","file", "name", "cells", "seeds", "trials", "pass_rate", "passed", "seconds", "runs", "compared", "determinism", "exit_code"}  # fmt: skip # noqa: E501
RUN_KEYS = {"label", "values", "seed", "trial", "ended", "steps", "steps_done", "checks", "checks_passed", "failures", "virtual", "real", "digest", "tree", "step_results", "judged", "series", "faults", "metrics", "messages", "logged", "again", "replay", "real_time"}  # fmt: skip # noqa: E501


def test_a_result_as_data_has_every_key_always() -> None:
    step = StepResult(place="a:1:1", what="wait", ok=None)
    fault = FaultResult(id="f", kind="crash", targets=("a",), begin=1.0, end=None)
    series = SeriesResult(name="s", agg="max", times=(1.0,), values=(nan,))
    check = CheckResult(name="c", kind="never", ok=True, expected="e", saw="s")
    whole = run(step_results=(step,), faults=(fault,), series=(series,), judged=(check,), metrics={"m": inf})
    bad = failed(values={"k": HOSTILE}, tree=(HOSTILE,), last=(sent(1, "user", "a", "ask"),))
    data = as_data(result(whole, bad, compared=[check], repeated=[Repeated("s", Difference(1, "a", None))]))
    text = json.dumps(data, allow_nan=False)
    assert json.loads(text) == data
    text.encode()
    assert data.keys() == KEYS
    assert [each.keys() for each in data["runs"]] == [RUN_KEYS, RUN_KEYS]
    first, second = data["runs"]
    assert first["series"] == [{"name": "s", "agg": "max", "times": [1.0], "values": [None]}]
    assert (first["tree"], first["messages"], first["metrics"]) == ([], [], {"m": None})
    assert second["messages"][0]["affordance"] == "ask"
    assert second["failures"][0]["place"] == "story.yaml:9:3"
    assert data["determinism"][0]["equal"] is False
    assert data["exit_code"] == 4


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    section = page.partition("\n## Results as JSON\n")[2]
    parts = [StepResult, FaultResult, SeriesResult, CheckResult, Failure]
    keys = KEYS | RUN_KEYS | {field.name for part in parts for field in attrs.fields(part)}
    assert keys - set(re.findall(r"`(\w+)`", section)) == set()


def test_a_record_has_its_own_members() -> None:
    assert Record(1, 0.5, "sent", "a", {"id": 3}).get("id") == 3
    assert Record(1, 0.5, "sent", "a", {}).get("id") is None


USER = {"role": "user", "text": "Where is it?"}
ASKED = {"role": "model", "tools": [{"id": "1", "name": "look_up", "arguments": {"number": 17}}]}
GOT = {"role": "tool", "id": "1", "name": "look_up", "result": {"state": "shipped"}}
FAILED = {"role": "tool", "id": "2", "name": "refund", "error": "not allowed"}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"messages": [USER]}, 'invoke generate "Where is it?" (1 message)'),
        (
            {"messages": [USER, ASKED, GOT, FAILED]},
            'invoke generate look_up = {"state": "shipped"}, refund failed: not allowed (4 messages)',
        ),
        ({"messages": ["x"]}, 'invoke generate {"messages": ["x"]}'),
        ({"messages": []}, 'invoke generate {"messages": []}'),
    ],
)
def test_what_a_model_is_asked_is_told_in_few_words(fields: dict[str, Any], text: str) -> None:
    more: dict[str, Any] = {"affordance": "generate", "verb": "invoke", "input": fields, "from": "desk"}
    record = read_record(line(1, "sent", "model", 0.0, **more))
    assert record is not None
    assert message_text(record) == f"0.000000  desk -> model  {text}"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "text", "text": "On its way."}, 'generate says "On its way."'),
        ({"type": "reasoning", "text": "Hm."}, 'generate thinks "Hm."'),
        ({"type": "tool_request", "name": "f", "arguments": {"a": 1}}, 'generate calls f {"a": 1}'),
        ({"type": "tool_request", "name": "f", "unreadable": "{"}, 'generate calls f "{"'),
        (
            {"type": "end", "reason": "tools", "usage": {"input_tokens": 9, "output_tokens": 2}},
            "generate ends: tools, 9 and 2 tokens",
        ),
        ({"type": "end"}, "generate ends: stop, 0 and 0 tokens"),
        ({"type": "other"}, 'generate gives {"type": "other"}'),
        ("a text", 'generate gives "a text"'),
    ],
)
def test_what_a_model_says_is_told_in_few_words(item: Any, text: str) -> None:
    record = read_record(line(1, "item", "model", 0.0, affordance="generate", value=item))
    assert record is not None
    assert message_text(record) == f"0.000000  model  {text}"
