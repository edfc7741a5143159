"""Results as JUnit XML, for CI servers."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from ._messages import LAST, clean, shorten
from ._text import cut_line, failure_lines, missing_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from xml.etree.ElementTree import Element

    from ._results import CheckResult, FileResult, Missing, Repeated, RunResult

_PACKAGES = ("lmos-actors", "trio", "msgspec", "attrs")
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(results: Sequence[FileResult]) -> str:
    """Return JUnit XML with a testsuite for each file and a testcase for each run.

    Checks that compare several cells, and repetitions in a second process, are testcases of their own. Times
    are real seconds; virtual time, seed, values, hash of the message log and versions are properties.
    """
    # late: both take long to import, and most commands write no report
    from importlib.metadata import version
    from xml.etree import ElementTree

    suites = _element("testsuites", name="lmos-actors")
    python = ".".join(map(str, sys.version_info[:3]))
    versions = {"python": python, **{package: version(package) for package in _PACKAGES}}
    for result in results:
        suites.append(_suite(result, versions))
    _count(suites, [suite for suite in suites if suite.tag == "testsuite"])
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _suite(result: FileResult, versions: Mapping[str, str]) -> Element:
    suite = _element("testsuite", name=result.name, file=result.file)
    _properties(suite, {**versions, "pass_rate": result.pass_rate, "exit_code": result.exit_code()})
    enough = frozenset(label for label, trials in result.by_label().items() if not result.verdict(trials))
    for run in result.runs:
        suite.append(_case_of_run(result, run, tolerated=run.label in enough))
    for check in result.compared:
        suite.append(_case_of_check(result, check))
    for again in result.repeated:
        suite.append(_case_of_repetition(result, again))
    if result.cut is not None:
        suite.append(_case_of_cut(result))
    for missing in result.missing:
        suite.append(_case_of_missing(result, missing))
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("time", f"{sum(run.real for run in result.runs):.6f}")
    return suite


def _count(suites: Element, all_of_them: list[Element]) -> None:
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in all_of_them)))
    suites.set("time", f"{sum(float(suite.get('time', '0')) for suite in all_of_them):.6f}")


def _name(result: FileResult, run: RunResult | Missing) -> str:
    return f"{run.label} trial={run.trial}" if result.trials > 1 else run.label


def _case_of_cut(result: FileResult) -> Element:
    """Return the test case of a file that ended early: an error, so that the file does not count as passed.

    After a failure with `--fail-fast` there is a failed case already, so this one is skipped.
    """
    assert result.cut is not None
    name = f"{result.cut.why}: {len(result.runs)} of {result.asked} runs"
    case = _element("testcase", classname=result.name, name=name, file=result.file, time="0")
    text = "\n".join([cut_line([result]), *missing_lines([result])])
    kind = "error" if result.cut.code else "skipped"
    _not_ok(case, kind, cut_line([result]), result.cut.why, text)
    return case


def _case_of_missing(result: FileResult, run: Missing) -> Element:
    name = _name(result, run)
    case = _element("testcase", classname=result.name, name=name, file=result.file, time="0")
    message = "begun, not ended" if run.begun else "did not run"
    why = result.cut.why if result.cut is not None else "not run"
    _not_ok(case, "skipped", f"{message}: {why}", why, "")
    return case


def _case_of_run(result: FileResult, run: RunResult, *, tolerated: bool) -> Element:
    """Return the test case of a run; a `tolerated` failure is reported as skipped.

    A failure is tolerated if enough other trials have passed.
    """
    name = _name(result, run)
    case = _element("testcase", classname=result.name, name=name, file=result.file, time=f"{run.real:.6f}")
    facts: dict[str, Any] = {
        "seed": run.seed,
        "trial": run.trial,
        "virtual_time": run.virtual,
        "log_sha256": run.digest,
        **{f"value.{key}": value for key, value in run.values.items()},
    }
    commands = {"again": run.again, "replay": run.replay}
    _properties(case, facts | {name: words for name, words in commands.items() if words})
    if run.ok:
        return case
    first = run.failures[0] if run.failures else None
    message = f"{first.what}: expected {first.expected}, saw {first.saw}" if first else run.ended
    text = "\n".join(failure_lines(run, messages=LAST))
    kind = "skipped" if tolerated else "error" if run.ended == "could not run" else "failure"
    _not_ok(case, kind, message, run.ended, text)
    return case


def _case_of_check(result: FileResult, check: CheckResult) -> Element:
    case = _element("testcase", classname=result.name, name=f"check {check.name}", file=result.file, time="0")
    if not check.ok:
        place = f"{check.place}: " if check.place else ""
        text = f"{place}check {check.name}\n  expected {check.expected}\n  saw      {check.saw}"
        _not_ok(case, "failure", f"expected {check.expected}, saw {check.saw}", "compare", text)
    return case


def _case_of_repetition(result: FileResult, again: Repeated) -> Element:
    name = f"same log in a second process: {again.label}"
    case = _element("testcase", classname=result.name, name=name, file=result.file, time="0")
    if again.problem:
        _not_ok(case, "error", again.problem, "could not be repeated", again.problem)
    elif again.difference:
        text = str(again.difference)
        _not_ok(case, "failure", "another process gave another log", "not deterministic", text)
    return case


def _not_ok(case: Element, kind: str, message: str, sort: str, text: str) -> None:
    found = _element(kind, message=shorten(message, 300), type=sort)
    found.text = _clean(text)
    case.append(found)


def _properties(owner: Element, values: Mapping[str, Any]) -> None:
    properties = _element("properties")
    owner.append(properties)
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(clean(value), ensure_ascii=False)
        properties.append(_element("property", name=name, value=text))


def _element(tag: str, **attributes: str) -> Element:
    from xml.etree import ElementTree

    return ElementTree.Element(tag, {name: _clean(text) for name, text in attributes.items()})


def _clean(text: str) -> str:
    """Return a text with escapes for the characters that XML forbids: control characters, lone surrogates."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
