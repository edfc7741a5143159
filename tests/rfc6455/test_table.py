"""The table is that of the suite, case for case, and the verdicts tell right from wrong."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from lmos_actors.transport import Ended
from tests.rfc6455.cases import GROUPS, larger
from tests.rfc6455.plan import NORMAL, PROTOCOL, STILL, Case, Ending
from tests.rfc6455.tester import Seen
from tests.rfc6455.utf8 import ROWS
from tests.rfc6455.verdicts import (
    FAILED,
    FAILED_BY_CLIENT,
    INFORMED,
    NON_STRICT,
    OK,
    STRICT,
    UNCLEAN,
    WRONG_CODE,
    Verdict,
    judged,
    own_account,
)
from tests.rows import each_row
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

# how many cases there are below each number, in the suite as of 2025
PUBLISHED = {
    "1.1": 8, "1.2": 8, "2": 11, "3": 7, "4.1": 5, "4.2": 5, "5": 20, "6.1": 3, "6.2": 4, "6.3": 2, "6.4": 4,
    "6.5": 5, "6.6": 11, "6.7": 4, "6.8": 2, "6.9": 4, "6.10": 3, "6.11": 5, "6.12": 8, "6.13": 5, "6.14": 10,
    "6.15": 1, "6.16": 3, "6.17": 5, "6.18": 5, "6.19": 5, "6.20": 7, "6.21": 8, "6.22": 34, "6.23": 7,
    "7.1": 6, "7.3": 6, "7.5": 1, "7.7": 13, "7.9": 9, "7.13": 2, "9.1": 6, "9.2": 6, "9.3": 9, "9.4": 9,
    "9.5": 6, "9.6": 6, "9.7": 6, "9.8": 6, "10.1": 1,
}  # fmt: skip


def cases() -> Iterator[Case]:
    for group, makers in GROUPS.items():
        for make in makers:
            for case in make():
                assert case.id.startswith(f"{group}.")
                yield case
    yield from larger()


def test_every_case_of_the_suite_is_there_once() -> None:
    found = [case.id for case in cases()]
    wanted = [f"{number}.{last}" for number, count in PUBLISHED.items() for last in range(1, count + 1)]
    assert len(wanted) == 301
    assert sorted(found) == sorted(wanted)


def test_the_page_counts_them() -> None:
    page = (ROOT / "docs/reference/rfc6455.md").read_text(encoding="utf-8")
    counted = dict(re.findall(r"^\| (\d+) \|.*?\| (\d+) \|", page, re.MULTILINE))
    groups = Counter(number.partition(".")[0] for number in PUBLISHED for _ in range(PUBLISHED[number]))
    assert {group: int(count) for group, count in counted.items()} == groups


def test_what_the_suite_only_informs_of_and_what_it_lets_pass() -> None:
    found = list(cases())
    assert [case.id for case in found if case.free] == ["7.1.6", "7.13.1", "7.13.2"]
    assert [case.id for case in found if case.lenient is not None] == [
        "3.2", "3.3", "3.4", "4.1.3", "4.1.4", "4.1.5", "4.2.3", "4.2.4", "4.2.5", "5.15",
        "6.4.1", "6.4.3", "6.4.2", "6.4.4",
    ]  # fmt: skip


def test_python_agrees_about_the_texts() -> None:
    """Two opinions: a slip of the table shows."""
    for section, rows in ROWS.items():
        for number, (is_utf8, payload) in enumerate(rows, 1):
            assert decodes(payload) == is_utf8, f"6.{section}.{number}"


def decodes(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


HI = ("text", b"hi")
GREETED = Case(id="a", moves=(), strict=(HI,))
REFUSED = Case(id="b", moves=(), strict=(STILL,), lenient=(STILL, STILL), ending=PROTOCOL)
BYE, WRONG = b"\x03\xe8", b"\x03\xea"


def clean(*heard: tuple[str, bytes], **more: object) -> Seen:
    return Seen(**{"heard": [*heard], "said": BYE, "answered": BYE, "first": "tester", "ended": True, **more})  # type: ignore[arg-type]


def failed(*heard: tuple[str, bytes], **more: object) -> Seen:
    return clean(*heard, **{"said": WRONG, "answered": WRONG, "first": "testee", **more})


VERDICTS = [
    (GREETED, clean(HI), STRICT),
    (GREETED, clean(), Verdict(FAILED, OK)),
    (GREETED, clean(HI, HI), Verdict(FAILED, OK)),
    (GREETED, clean(("binary", b"hi")), Verdict(FAILED, OK)),
    (GREETED, clean(HI, never="a frame with a mask"), Verdict(FAILED, FAILED)),
    (GREETED, clean(HI, first="testee"), Verdict(OK, FAILED)),
    (GREETED, clean(HI, first=None, said=None, answered=None), Verdict(OK, FAILED)),
    (GREETED, clean(HI, answered=None), Verdict(OK, UNCLEAN)),
    (GREETED, clean(HI, answered=WRONG), Verdict(OK, WRONG_CODE)),
    (GREETED, clean(HI, answered=b""), Verdict(OK, WRONG_CODE)),
    (GREETED, clean(HI, ended=False), Verdict(OK, FAILED_BY_CLIENT)),
    (REFUSED, failed(STILL), STRICT),
    (REFUSED, failed(STILL, STILL), Verdict(NON_STRICT, OK)),
    (REFUSED, failed(), Verdict(FAILED, OK)),
    (REFUSED, failed(STILL, first="tester"), Verdict(OK, FAILED)),
    (REFUSED, failed(STILL, answered=BYE), Verdict(OK, WRONG_CODE)),
    (REFUSED, failed(STILL, first=None, answered=None), Verdict(OK, FAILED)),
    (Case(id="c", moves=(), free=True), failed(HI), INFORMED),
    (Case(id="c", moves=(), free=True), failed(HI, never="an opcode 3"), Verdict(FAILED, FAILED)),
]  # fmt: skip


@each_row(("case", "seen", "verdict"), VERDICTS)
def test_each_way_to_behave_has_its_verdict(case: Case, seen: Seen, verdict: Verdict) -> None:
    assert judged(case, seen) == verdict


def test_what_an_end_says_of_itself_is_judged_too() -> None:
    codeless = Case(id="d", moves=(), ending=Ending(by="tester", codes=(None,), clean=True))
    assert NORMAL.clean
    for case, seen, right in (
        (GREETED, clean(HI), Ended(1000, "", "peer", clean=True)),
        (codeless, clean(said=b"", answered=b""), Ended(1005, "", "peer", clean=True)),
        (REFUSED, failed(STILL), Ended(1002, "anything", "us", clean=False)),
    ):
        assert own_account(case, seen, right) == ""
        for code, by, is_clean in ((1001, right.by, right.clean), (right.code, "broken", right.clean),
                                   (right.code, right.by, not right.clean)):  # fmt: skip
            assert "ended so" in own_account(case, seen, Ended(code, "", by, clean=is_clean))  # type: ignore[arg-type]
