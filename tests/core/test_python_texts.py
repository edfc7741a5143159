"""What the versions of Python word otherwise is read alike: texts of each of them, and what this one says."""

from __future__ import annotations

import json
from json import JSONDecodeError
from typing import Any

import pytest

from lmos_actors._core import json_error, unhashable, unknown_argument


def named(*, colour: str = "") -> None:
    del colour


def raised(call: Any, *args: Any, **kwargs: Any) -> TypeError:
    with pytest.raises(TypeError) as caught:
        call(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        TypeError("named() got an unexpected keyword argument 'color'"),  # 3.11 and 3.12
        TypeError(
            "named() got an unexpected keyword argument 'color'. Did you mean 'colour'?"
        ),  # 3.13 and later
        raised(named, color="red"),
    ],
)
def test_an_argument_that_is_not_taken_has_a_name_and_no_guess(error: TypeError) -> None:
    assert unknown_argument(error) == ("named()", "color")


@pytest.mark.parametrize(
    "error", [TypeError("no"), raised(named, 1), ValueError("f() got an unexpected keyword")]
)
def test_other_errors_are_about_no_argument(error: Exception) -> None:
    assert unknown_argument(error) is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TypeError("unhashable type: 'list'"), "unhashable type: 'list'"),  # 3.11 to 3.13
        (
            TypeError("cannot use 'tuple' as a set element (unhashable type: 'list')"),  # 3.14 and later
            "unhashable type: 'list'",
        ),
        (raised(set, [[]]), "unhashable type: 'list'"),
        (TypeError("mine"), "mine"),
    ],
)
def test_what_cannot_be_hashed_is_said_alike(error: TypeError, text: str) -> None:
    assert unhashable(error) == text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[1,]", "Illegal trailing comma before end of array: line 1 column 3 (char 2)"),
        ('{"a": 1,\n}', "Illegal trailing comma before end of object: line 1 column 8 (char 7)"),
        ("[,]", "Expecting value: line 1 column 2 (char 1)"),
        ("[1,}", "Expecting value: line 1 column 4 (char 3)"),
        ("[1,", "Expecting value: line 1 column 4 (char 3)"),
        ('[",]', "Unterminated string starting at: line 1 column 2 (char 1)"),
    ],
)
def test_a_mistake_in_json_is_said_alike(written: str, said: str) -> None:
    with pytest.raises(JSONDecodeError) as caught:
        json.loads(written)
    assert str(json_error(caught.value)) == said
