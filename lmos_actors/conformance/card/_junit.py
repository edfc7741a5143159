"""A report card as JUnit XML, for collectors of test results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ._text import (
    WHOLE,
    WIDTH,
    cut,
    grouped,
    last_traffic,
    said_lines,
)
from ._verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from xml.etree.ElementTree import Element

    from ._verdicts import Card, Result

_NOT_XML: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SKIPPED: Final = (Verdict.NOT_OFFERED, Verdict.NOT_RUN)


def card_junit(card: Card) -> str:
    """Return JUnit XML with a testsuite for each group and a testcase for each case.

    Cases that were not offered or not run are skipped. Tolerated cases have passed, with their differences as
    output. The verdict and the section are properties of each case. A card that was cut short has an extra
    case, which is an error.
    """
    from xml.etree import ElementTree

    suites = _element("testsuites", name=f"lmos-actors conform {card.subject}")
    facts = {
        "subject": card.subject,
        "role": card.role,
        "title": card.title,
        "thing": card.thing,
        "level": card.level.value,
        "spoken": card.spoken,
        "seed": str(card.seed),
        "command": card.command,
        **card.versions,
    }
    for name, results in grouped(card.results).items():
        suites.append(_suite(name, results, facts))
    _count(suites, card.results)
    if card.cut:
        _add_cut(suites, card.cut, facts)
    suites.set("time", f"{card.seconds:.6f}")
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _suite(name: str, results: Sequence[Result], facts: Mapping[str, str]) -> Element:
    suite = _element("testsuite", name=name)
    _count(suite, results)
    suite.set("time", f"{sum(result.seconds for result in results):.6f}")
    _properties(suite, facts)
    suite.extend(_case(name, result) for result in results)
    return suite


def _add_cut(suites: Element, text: str, facts: Mapping[str, str]) -> None:
    suite = _element(
        "testsuite", name="cut short", tests="1", failures="0", errors="1", skipped="0", time="0"
    )
    _properties(suite, facts)
    case = _element("testcase", classname="cut short", name=text, time="0")
    case.append(_element("error", message=text, type="cut short"))
    suite.append(case)
    suites.append(suite)
    suites.set("tests", str(int(suites.get("tests", "0")) + 1))
    suites.set("errors", "1")


def _count(suite: Element, results: Sequence[Result]) -> None:
    suite.set("tests", str(len(results)))
    suite.set("failures", str(sum(result.verdict is Verdict.FAILED for result in results)))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(result.verdict in _SKIPPED for result in results)))


def _case(group: str, result: Result) -> Element:
    case = _element("testcase", classname=group, name=result.id, time=f"{result.seconds:.6f}")
    facts = {"verdict": result.verdict.value, "title": result.title, "section": str(result.section)}
    _properties(case, facts | {f"differs.{each.key}": each.seen for each in result.departures})
    if result.verdict in _SKIPPED:
        case.append(_element("skipped", message=f"{result.verdict.value}: {cut(result.seen, WIDTH)}"))
    elif result.verdict is not Verdict.PASSED:
        failed = result.verdict is Verdict.FAILED
        attributes = {"message": cut(result.seen, WIDTH), "type": "failed"} if failed else {}
        element = _element("failure" if failed else "system-out", **attributes)
        element.text = _clean("\n".join([*said_lines(result), *last_traffic(result, 20, width=WHOLE)]))
        case.append(element)
    return case


def _properties(owner: Element, values: Mapping[str, str]) -> None:
    properties = _element("properties")
    owner.append(properties)
    properties.extend(_element("property", name=name, value=text) for name, text in values.items())


def _element(tag: str, **attributes: str) -> Element:
    from xml.etree import ElementTree

    return ElementTree.Element(tag, {name: _clean(text) for name, text in attributes.items()})


def _clean(text: str) -> str:
    """Return a text with escapes for what XML cannot contain: control characters and lone surrogates."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
