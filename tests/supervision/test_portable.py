"""Specs that files and processes carry: what cannot travel is refused, with the way out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from lmos_actors import Agent, ChildSpec, ConfigError, SupervisorSpec, check_portable


class Portable(Agent):
    size: int = 1
    keep: Any = None

    @classmethod
    def large(cls) -> Portable:
        return cls(size=100)


def local() -> Any:
    class Local(Agent):
        pass

    return Local


class Callable:
    def __call__(self) -> Portable:
        return Portable()


class Inheriting(Portable):
    pass


impostor = type("Portable", (Agent,), {"__module__": __name__})
script = type("Script", (Agent,), {"__module__": "__main__"})


@pytest.mark.parametrize(
    "factory",
    [Portable, Portable.large, partial(Portable, size=2), partial(partial(Portable, size=2), keep=(1,))],
)
def test_what_has_a_name_travels(factory: Any) -> None:
    check_portable(ChildSpec("a", factory))
    check_portable(SupervisorSpec("top", [SupervisorSpec("desk", [ChildSpec("a", factory)])]))


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        (lambda: Portable(), r"a\.factory: a lambda has no name .* use functools\.partial"),
        (partial(lambda size: Portable(size=size), 2), r"a\.factory: a lambda"),
        (local(), r"a\.factory: .*Local is made inside a function"),
        (Callable(), r"a\.factory: .* has no name"),
        (Inheriting.large, "is not what the spec holds"),
        (impostor, "is not what the spec holds"),
        (script, "stands in the script that runs"),
        (partial(Portable, keep=lambda: None), r"a\.factory\(keep\): cannot be carried"),
    ],
)
def test_what_has_none_is_refused_with_the_way_out(factory: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_portable(ChildSpec("a", factory))
    with pytest.raises(ConfigError, match=text):
        check_portable(SupervisorSpec("top", [SupervisorSpec("desk", [ChildSpec("a", factory)])]))
