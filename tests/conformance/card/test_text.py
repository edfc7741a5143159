"""A report card as text, JSON, JUnit and HTML: the same in all of them, and nothing of it is ever obeyed."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from junitparser import Failure, JUnitXml, Skipped

from lmos_actors.conformance import (
    Verdict,
    card_html,
    card_json,
    card_junit,
    card_text,
)
from tests.conformance.cards import DEPARTURE, HOSTILE, card, everything, result, went
from tests.matrix import examples

OF_PASSED = 40  # messages shown of a case that passed
SOME_TRAFFIC = 8  # messages shown of one that failed, as text
WIDTH, LONGEST = 200, 1_000  # characters of a message and of what was seen

OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# --- text


def test_passed_cases_are_folded_and_the_rest_shown() -> None:
    traffic = went('> {"messageType":"readProperty"}', "< {}")
    made = card(
        result("handshake.accept"),
        result("handshake.subprotocol"),
        result("read.value", Verdict.FAILED, "no answer within 2 s", traffic=traffic),
        result(
            "read.timestamp",
            Verdict.TOLERATED,
            f"{DEPARTURE.title}: {DEPARTURE.seen}",
            departures=(DEPARTURE,),
        ),
        result("read.unknown"),
        result("write.value", Verdict.NOT_OFFERED, "no property is writable"),
        result("write.all", Verdict.NOT_OFFERED, "no property is writable"),
        result("write.other", Verdict.NOT_RUN, "it changes something: --allow-unsafe lets it"),
    )
    assert card_text(made) == (
        " handshake  2 passed\n"
        " read       1 passed, 1 tolerated, 1 FAILED\n"
        "   FAILED       read.value  The title of read.value (LMOS communication protocol, propertyReading)\n"
        "     expected a propertyReading\n"
        "     saw      no answer within 2 s\n"
        '     > {"messageType":"readProperty"}\n'
        "     < {}\n"
        "   tolerated    read.timestamp  The title of read.timestamp"
        " (LMOS communication protocol, propertyReading)\n"
        "     expected a propertyReading\n"
        "     saw      a time is written as a number: 1719 in propertyReading\n"
        "     differs  time-number, LMOS communication protocol, propertyReading\n"
        " write      2 not offered, 1 not run\n"
        "   not offered  write.value, write.all: no property is writable\n"
        "   not run      write.other: it changes something: --allow-unsafe lets it\n"
        "8 cases in 1.5 s: 3 passed, 1 tolerated, 1 FAILED, 2 not offered, 1 not run\n"
        "judged:    server http://127.0.0.1:8080/things/lamp, Lamp\n"
        "spoken to: as written\n"
        "level:     lenient, seed 7\n"
        "again:     lmos-actors conform http://127.0.0.1:8080/things/lamp --seed 7\n"
    )


def test_all_cases_are_shown_on_demand() -> None:
    text = card_text(everything(), verbose=True)
    for each in everything().results:
        assert len(re.findall(rf"^   \S.*  {each.id}  a text \(a text, a text\)$", text, re.MULTILINE)) == 1


def test_what_went_by_is_cut_and_counted() -> None:
    long = "x" * 2 * WIDTH
    traffic = (*went(*["> 1"] * SOME_TRAFFIC), *went(f"< {long}", kind="binary"), *went("< 2", connection=2))
    traffic = (*traffic, attrs.evolve(traffic[-1], size=70_000, kind="continuation"))
    text = card_text(
        card(result("read.value", Verdict.FAILED, "y" * 2 * LONGEST, traffic=traffic, left_out=4))
    )
    lines = text.splitlines()
    assert lines[3] == f"     saw      {'y' * LONGEST}… and {LONGEST} characters more"
    assert lines[4:6] == ["     (7 more before)", "     1> 1"]
    at = lines.index("     2< 2")
    assert lines[at - 1] == f"     1< binary {'x' * (WIDTH - 1)}…"
    assert lines[at + 1] == "     2< continuation 2  (70000 bytes)"
    whole = card_text(card(result("read.value", Verdict.FAILED, "y", traffic=traffic)), verbose=True)
    assert whole.count("1> 1") == SOME_TRAFFIC


def test_ids_are_shortened_before_messages() -> None:
    ids = [f"{n}0ec1a2b-0000-4000-8000-00000000000{n}" for n in range(4)]
    long = json.dumps({"ids": ids, "pad": "x" * 40, "timestamp": 17})
    made = card(result("read.value", Verdict.FAILED, "y", traffic=went(f"< {long}", f"> {ids[1]}")))
    *_, received, sent = card_text(made).partition("\n1 case")[0].splitlines()
    assert received.startswith('     < {"ids": ["00ec1a2b…", "10ec1a2b…"')
    assert received.endswith('"timestamp": 17}')
    assert sent == f"     > {ids[1]}"
    assert long in card_text(made, verbose=True)


def test_no_control_sequence_reaches_a_terminal() -> None:
    for verbose in (False, True):
        text = card_text(everything(HOSTILE), verbose=verbose)
        assert OBEYED.search(text) is None
        assert "\\x1b[2Jgone\\x07\\u202egnp\\ud800\\x00" in text


def test_an_empty_card() -> None:
    assert card_text(card()).startswith("0 cases in 1.5 s: none\n")
    assert JUnitXml.fromstring(card_junit(card()).encode()).tests == 0
    assert json.loads(card_json(card()))["exit_code"] == 0
    assert "Conformance of Lamp" in card_html(card())


# --- JSON


def test_json_has_everything() -> None:
    made = everything(HOSTILE)
    data = json.loads(card_json(made).encode("utf-8"))
    for key in ("subject", "role", "title", "thing", "spoken", "seed", "seconds", "command", "versions"):
        assert data[key] == getattr(made, key)
    assert data["schema"] == "lmos-actors/conformance/v1"
    assert data["level"] == "lenient"
    assert data["counts"] == {"passed": 1, "tolerated": 1, "failed": 1, "not offered": 1, "not run": 1}
    assert data["exit_code"] == 1
    assert [each["verdict"] for each in data["results"]] == [each.verdict.value for each in made.results]
    for told, one in zip(data["results"], made.results, strict=True):
        assert set(told) == {"group", *(field.name for field in attrs.fields(type(one)))}
        assert told["group"] == one.id.partition(".")[0]
        assert told["section"] == {"document": HOSTILE, "place": HOSTILE}
        assert told["traffic"] == [attrs.asdict(each) for each in one.traffic]
        assert [each["seen"] for each in told["departures"]] == [each.seen for each in one.departures]


def test_the_exit_code_is_that_of_the_command() -> None:
    assert json.loads(card_json(card(result("a.b"))))["exit_code"] == 0
    assert json.loads(card_json(card(result("a.b")), exit_code=124))["exit_code"] == 124


# --- JUnit


@pytest.mark.parametrize("text", ["a text", HOSTILE])
def test_junit_is_read_by_others(text: str) -> None:
    made = everything(text)
    read = JUnitXml.fromstring(card_junit(made).encode("utf-8"))
    assert (read.tests, read.failures, read.errors, read.skipped) == (5, 1, 0, 2)
    suites = {suite.name: suite for suite in read}
    assert list(suites) == ["handshake", "read", "write"]
    assert {each.name: each.value for each in suites["read"].properties()}["seed"] == "7"
    cases = {case.name: case for suite in read for case in suite}
    assert list(cases) == [each.id for each in made.results]
    kinds = {name: [type(each) for each in case.result] for name, case in cases.items()}
    assert kinds == {
        "handshake.accept": [],
        "read.value": [Failure],
        "read.timestamp": [],
        "write.value": [Skipped],
        "write.all": [Skipped],
    }
    found = cases["read.timestamp"]._elem.iterfind("properties/property")
    told = {each.get("name"): each.get("value") for each in found}
    assert told["verdict"] == "tolerated"
    assert "differs.time-number" in told
    for said in (cases["read.timestamp"].system_out, cases["read.value"].result[0].text):
        assert "expected " in said
        assert "> " in said
    assert cases["handshake.accept"].system_out is None
    assert cases["write.all"].result[0].message.startswith("not run: ")
    assert cases["read.value"].time == 0.25


# --- HTML


class Read(HTMLParser):
    """The elements of a page, and the text in each."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open, []).append(data)

    def of(self, tag: str) -> list[dict[str, Any]]:
        return [own for name, own in self.elements if name == tag]


def test_nothing_of_a_card_is_markup() -> None:
    plain, hostile = Read(card_html(everything())), Read(card_html(everything(HOSTILE)))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert [sorted(own) for _, own in hostile.elements] == [sorted(own) for _, own in plain.elements]
    assert hostile.texts["script"] == plain.texts["script"]
    assert any("<script>alert(1)</script>" in text for text in hostile.texts["code"])
    assert OBEYED.search(card_html(everything(HOSTILE))) is None
    card_html(everything(HOSTILE)).encode("utf-8")


def test_a_page_fetches_nothing_and_runs_its_own_script_alone() -> None:
    page = card_html(everything())
    read = Read(page)
    assert "//" not in re.sub(r"https?://127\.0\.0\.1\S*", "", page.replace("/things", ""))
    assert not [own for _, own in read.elements if {"src", "href", "action", "onclick", "style"} & own.keys()]
    (policy,) = (own["content"] for own in read.of("meta") if own.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_a_page_shows_every_case_without_its_script() -> None:
    made = everything()
    read = Read(card_html(made))
    cases = [own for own in read.of("details") if own.get("class") == "case"]
    assert [own["id"] for own in cases] == [each.id for each in made.results]
    assert [own["id"] for own in cases if "open" in own] == ["read.value"]
    assert [own["data-verdict"] for own in cases] == [
        "passed",
        "failed",
        "tolerated",
        "not-offered",
        "not-run",
    ]
    assert not [own for own in cases if "hidden" in own]
    (form,) = read.of("form")
    assert "hidden" in form, "filters need the script"
    assert len([own for own in read.of("tr") if own.get("class")]) == 3 * 4
    assert "What went by, without 3 before these" in "".join(read.texts["caption"])


def test_a_passed_case_shows_its_end() -> None:
    traffic = went(*["> 1"] * (OF_PASSED + 5))
    read = Read(card_html(card(result("a.b", traffic=traffic, left_out=1))))
    assert len([own for own in read.of("tr") if own.get("class")]) == OF_PASSED
    assert "without 6 before these" in "".join(read.texts["caption"])


@settings(max_examples=examples(40))
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_shown(text: str) -> None:
    made = everything(text)
    card_text(made, verbose=True).encode("utf-8")
    assert json.loads(card_json(made).encode("utf-8"))["title"] == text
    JUnitXml.fromstring(card_junit(made).encode("utf-8"))
    page = card_html(made)
    page.encode("utf-8")
    assert len(Read(page).of("details")) == 5
