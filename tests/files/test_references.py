"""`$(...)`: found, filled, escaped, kept."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lmos_actors.files import KEEP, BadReference, Reference, fill, references

VALUES = {
    "vars.city": "Bonn",
    "vars.n": 3,
    "vars.on": True,
    "vars.none": None,
    "vars.list": [1],
    "vars.odd": "$(x",
}


def look(reference: Reference) -> object:
    return KEEP if reference.namespace == "saved" else VALUES[f"{reference.namespace}.{reference.name}"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(vars.city)", "Bonn"),
        ("in $(vars.city)!", "in Bonn!"),
        ("$(vars.n)", 3),
        ("$(vars.n)$(vars.n)", "33"),
        ("$(vars.list)", [1]),
        ("$(vars.on) $(vars.none)", "true null"),
        ("costs $5 (or so)", "costs $5 (or so)"),
        ("$$(vars.city)", "$(vars.city)"),
        ("$$$(vars.n)", "$$(vars.n)"),
        ("${vars.city}", "${vars.city}"),
        ("$(saved.x) $(vars.n)", "$(saved.x) 3"),
    ],
)
def test_references_are_filled_with_values(text: str, value: object) -> None:
    assert fill(text, look) == value
    assert type(fill(text, look)) is type(value)


@pytest.mark.parametrize(
    ("text", "start", "part"),
    [
        ("a $(vars.city", 2, "not closed"),
        ("$()", 0, "names no namespace"),
        ("in $(city)", 3, r"did you mean \$\(vars.city\)"),
        ("$(vars.)", 0, "names no namespace"),
        ("$(vars.a b)", 0, "is not a name"),
        ("$(vars.a..b)", 0, "is not a name"),
        ("x $(vars.list)", 2, "cannot stand inside"),
    ],
)
def test_what_is_no_reference(text: str, start: int, part: str) -> None:
    with pytest.raises(BadReference, match=part) as caught:
        fill(text, look)
    assert caught.value.start == start


def test_references_know_their_place() -> None:
    found = references("a $(vars.city) $$(no) $(find:title=Weather Agent)")
    assert [(ref.namespace, ref.name, ref.start, ref.end) for ref in found] == [
        ("vars", "city", 2, 14),
        ("find", "title=Weather Agent", 22, 49),
    ]


@given(st.lists(st.sampled_from(["$(vars.city)", "$(vars.odd)", "$$(", "$", "(", "x", " "])))
def test_filling_twice_is_filling_once(parts: list[str]) -> None:
    """What is filled with `again` and then once more is what one filling gives, whatever the values hold."""
    text = "".join(parts)
    try:
        once = fill(text, look)
    except BadReference:
        return
    early = fill(text, look, again=True)
    assert isinstance(early, str)
    assert fill(early, look) == once
