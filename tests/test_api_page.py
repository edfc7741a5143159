"""The reference is the docstrings."""

from __future__ import annotations

from tests.reference import PAGE, names_of, write_page


def test_the_page_says_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(), "run: python -m tests.reference"


def test_every_public_name_has_a_text() -> None:
    import lmos_actors

    page = PAGE.read_text(encoding="utf-8")
    for name in names_of(lmos_actors):
        entry = page.partition(f"\n### `{name}`\n")[2].partition("\n### ")[0]
        assert len(entry.split()) > 5, name
