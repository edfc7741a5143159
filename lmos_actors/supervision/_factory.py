"""What a factory makes, as far as can be told without calling it."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any

from lmos_actors.actors import class_made_by


def class_of(factory: Any) -> type[Any] | None:
    """Give the agent class a factory makes, through partials; None when only a call would tell."""
    made = class_made_by(factory)
    return made if hasattr(made, "__contract__") else None


def name_of(factory: Any) -> str:
    """Give the name of an agent that nobody named: that of its class, `TravelDesk` as `travel-desk`."""
    return _kebab_case(getattr(_inmost(factory), "__name__", "agent"))


@lru_cache(maxsize=256)
def _kebab_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).strip("_<>").lower() or "agent"


def _inmost(factory: Any) -> Any:
    while isinstance(factory, partial):
        factory = factory.func  # pyright: ignore[reportUnknownMemberType]
    return factory  # pyright: ignore[reportUnknownVariableType]


def shown(factory: Any) -> str:
    """Give a factory as text: of what it gives to its agents the names alone, as that may be secret."""
    if not isinstance(factory, partial):
        return repr(factory)
    made: partial[Any] = factory  # pyright: ignore[reportUnknownVariableType]
    given = [*("..." for _ in made.args), *(f"{name}=..." for name in made.keywords)]
    return f"partial({', '.join([shown(made.func), *given])})"
