"""JUnit XML: what collects the results of tests can read it, whatever agents say."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from junitparser import Error, JUnitXml, TestCase as Case

from lmos_actors.reports import CheckResult, Failure, Repeated, junit_xml
from lmos_actors.simulation import Difference
from tests.reports.sample_results import BAD, HOSTILE, failed, result, run, sent


def read(*results) -> JUnitXml:
    return JUnitXml.fromstring(junit_xml(results).encode())


def cases(*results) -> dict[str, Case]:
    return {case.name: case for suite in read(*results) for case in suite}


def properties(file, path: str) -> dict[str | None, str | None]:
    (owner,) = ElementTree.fromstring(junit_xml([file]).encode()).findall(path)
    return {found.get("name"): found.get("value") for found in owner.findall("properties/property")}


def test_a_suite_for_each_file_and_a_case_for_each_run() -> None:
    one = result(run(), run(seed=2, real=0.5))
    other = result(
        failed(), run(seed=2, ended="could not run", failures=(BAD,)), file="other.yaml", name="other"
    )
    found = read(one, other)
    assert [(suite.name, suite.tests, suite.failures, suite.errors) for suite in found] == [
        ("story", 2, 0, 0),
        ("other", 2, 1, 1),
    ]
    assert (found.tests, found.failures, found.errors) == (4, 1, 1)
    assert [suite.time for suite in found] == [0.75, 0.5]
    assert [(case.name, case.classname, case.time) for suite in found for case in suite] == [
        ("seed=1", "story", 0.25),
        ("seed=2", "story", 0.5),
        ("seed=1", "other", 0.25),
        ("seed=2", "other", 0.25),
    ]


def test_a_failure_says_what_was_expected_what_was_seen_the_last_messages_and_how_to_see_it_again() -> None:
    last = tuple(sent(n, "user", "weather", "getWeather", input={"n": n}) for n in range(1, 21))
    bad = failed(last=last, tree=("root one_for_one",), replay="lmos-actors replay log.jsonl")
    (problem,) = cases(result(bad))["seed=1"].result
    assert problem.message == "invoke weather.getWeather: expected an answer, saw AgentDied: boom"
    assert problem.type == "failed"
    for words in (
        "story.yaml:9:3: invoke weather.getWeather",
        "expected an answer",
        "saw      AgentDied: boom",
        "root one_for_one",
        "again:  lmos-actors run story.yaml --seed 1",
        "replay: lmos-actors replay log.jsonl",
    ):
        assert words in problem.text
    assert problem.text.count("user -> weather  invoke getWeather") == 20


def test_a_case_says_what_a_repetition_depends_on() -> None:
    file = result(run(values={"city": "Rome", "n": 2}, seed=7, virtual=3.0))
    found = properties(file, "testsuite/testcase")
    assert found["seed"] == "7"
    assert found["virtual_time"] == "3.0"
    assert found["log_sha256"] == "d" * 64
    assert (found["value.city"], found["value.n"]) == ("Rome", "2")
    assert {"python", "lmos-actors", "trio", "pass_rate"} <= properties(file, "testsuite").keys()


def test_trials_are_told_apart() -> None:
    assert list(cases(result(run(), run(trial=2)))) == ["seed=1 trial=1", "seed=1 trial=2"]


@pytest.mark.parametrize(("pass_rate", "counts"), [(0.5, (0, 1)), (0.6, (1, 0))])
def test_a_trial_that_may_fail_does_not_fail_what_passed(pass_rate: float, counts: tuple[int, int]) -> None:
    file = result(run(), failed(trial=2), pass_rate=pass_rate)
    found = read(file)
    assert (found.failures, found.skipped) == counts
    assert bool(file.exit_code()) == bool(found.failures)
    (problem,) = cases(file)["seed=1 trial=2"].result
    assert "saw      AgentDied: boom" in problem.text


def test_what_is_judged_over_several_runs_is_a_case_of_its_own() -> None:
    met = CheckResult(name="trend", kind="compare", ok=True, expected="decreasing", saw="3, 2, 1")
    unmet = CheckResult(
        name="other", kind="compare", ok=False, expected="decreasing", saw="1, 2", place="a:1:2"
    )
    again = [
        Repeated("seed=1"),
        Repeated("seed=2", Difference(3, "a", "b")),
        Repeated("seed=3", problem="it died"),
    ]
    found = cases(result(run(), compared=[met, unmet], repeated=again))
    assert not found["check trend"].result
    assert "a:1:2: check other" in found["check other"].result[0].text
    assert not found["same log in a second process: seed=1"].result
    assert "line 3" in found["same log in a second process: seed=2"].result[0].text
    assert isinstance(found["same log in a second process: seed=3"].result[0], Error)


def test_a_run_that_fails_without_a_word_fails_here_too() -> None:
    (problem,) = cases(result(failed(failures=(), ended="time limit")))["seed=1"].result
    assert problem.message == "time limit"


@pytest.mark.parametrize("text", [HOSTILE, "\x7f\x85\ufffe\uffff", "\ud83d", ""])
def test_no_text_breaks_the_xml(text: str) -> None:
    bad = failed(failures=(Failure(text, text, text, text),), tree=(text,), values={text: text}, again=text)
    (suite,) = read(result(bad, name=text, file=text))
    assert suite.failures == 1


@given(st.text(st.characters(), max_size=40))
def test_a_text_survives_or_is_spelt_out(text: str) -> None:
    written = junit_xml([result(run(values={"k": text}))])
    root = ElementTree.fromstring(written.encode())
    (value,) = [found.get("value") for found in root.iter("property") if found.get("name") == "value.k"]
    if text.isprintable():
        assert value == text
    else:
        assert value is not None
        assert len(value) >= len(text)
