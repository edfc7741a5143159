"""Text of others, spelt out for people. The same rule of pages: `tests/live/test_page_browser.py`."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors._core import printable
from tests.matrix import examples

CASES = [
    ("plain", "plain"),
    ("Größe 東京 😀 ❤️", "Größe 東京 😀 ❤️"),
    ("a\u00a0b\u3000c", "a\u00a0b\u3000c"),  # spaces of other widths
    ("\x1b[2J\x9b2J\x00\x7f", "\\x1b[2J\\x9b2J\\x00\\x7f"),
    ("a\r\n\tb", "a\\r\\n\\tb"),
    ("safe\u202eexe.txt", "safe\\u202eexe.txt"),
    ("\u2066a\u2069 \u061c", "\\u2066a\\u2069 \\u061c"),
    ("pay\u200bpal \ufeff", "pay\\u200bpal \\ufeff"),
    ("a\u3164b\u115f\u034f", "a\\u3164b\\u115f\\u034f"),
    ("hi\U000e0041\U000e0100", "hi\\U000e0041\\U000e0100"),
    ("\ud800", "\\ud800"),
    ("\u2028\ue000\u0378", "\\u2028\\ue000\\u0378"),
    # joiners: between letters that are written with them, and hidden among Latin ones
    ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
    ("ad\u200dmin", "ad\\u200dmin"),
    ("\u200cadmin", "\\u200cadmin"),
    ("é\u200d \u0645\u200c\u200c", "é\\u200d \u0645\u200c\\u200c"),  # Latin letters; one behind another
    ("\u3164\u200d", "\\u3164\\u200d"),
]


@pytest.mark.parametrize(("text", "shown"), CASES, ids=[ascii(text) for text, _ in CASES])
def test_what_is_obeyed_or_hidden_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_ends_and_tabs_stay_where_they_are_wanted() -> None:
    assert printable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"
    assert printable("a\n\u202e", keep="\n") == "a\n\\u202e"


def test_a_piece_of_a_text_is_shown_as_it_is_in_the_whole() -> None:
    assert printable("\u200c\u062e", before="\u0645\u06cc") == "\u200c\u062e"
    assert printable("\u200d💻", before="👩") == "\u200d💻"
    assert printable("\u200dmin", before="ad") == "\\u200dmin"
    assert printable("\u200c\u200c", before="\u0645") == "\u200c\\u200c"


@settings(max_examples=examples(1_000))
@given(st.text(st.characters()))
def test_nothing_that_turns_or_hides_is_left(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    shown.encode()  # as UTF-8
    for each in shown:
        assert unicodedata.category(each)[0] != "C" or each in "\u200c\u200d"
        assert each not in "\u2028\u2029\u034f\u115f\u3164"
