"""The page of the cases is up to date."""

from __future__ import annotations

from tests.conformance_cases import PAGE, write_page


def test_the_page_says_what_the_cases_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(), "run: python -m tests.conformance_cases"
