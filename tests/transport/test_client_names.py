"""Which names of a client's certificate are names by which somebody can be known."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from lmos_actors.transport._tls import certificate_of

DIRECTORY = ("DirName", ((("commonName", "alice.example"),),))
ALICE = ((("commonName", "alice.example"),),)


class Shown:
    """A stream whose client has shown what Python tells of a certificate."""

    def __init__(self, *names: Any) -> None:
        self._names = names

    def getpeercert(self, binary_form: bool = False) -> Any:
        return b"der" if binary_form else {"subject": ALICE, "subjectAltName": self._names}


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ([], ["alice.example"]),
        ([("DNS", "eve.example"), ("DNS", "*.example")], ["eve.example", "*.example"]),
        (
            [("email", "eve@example"), ("URI", "spiffe://example/eve")],
            ["eve@example", "spiffe://example/eve"],
        ),
        ([("IP Address", "10.0.0.1"), ("IP Address", "0:0:0:0:0:0:0:1")], ["10.0.0.1", "0:0:0:0:0:0:0:1"]),
        ([DIRECTORY], []),
        ([DIRECTORY, ("DNS", "eve.example")], ["eve.example"]),
        ([("othername", "<unsupported>"), ("Registered ID", "1.2.3")], []),
    ],
)
def test_names_are_of_the_kinds_that_can_be_written(shown: list[Any], names: list[str]) -> None:
    """One that has alternative names of any kind is known by none but these."""
    assert _names(*shown) == names


@pytest.mark.parametrize(
    "shown",
    [("URI", "alice.example"), ("email", "alice.example"), ("DNS", "eve@example"), ("URI", "10.0.0.1")],
)
def test_a_name_of_one_kind_is_not_taken_for_one_of_another(shown: Any) -> None:
    assert _names(shown) == []


def _names(*shown: Any) -> list[str]:
    stream: Any = Shown(*shown)
    found = certificate_of(stream, ssl.create_default_context())
    assert found is not None
    return list(found.names)
