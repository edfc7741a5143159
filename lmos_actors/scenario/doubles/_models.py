"""Which agents are language models."""

from __future__ import annotations

import sys


def is_model(cls: type) -> bool:
    """Return whether a class is a language model; always False if `lmos_actors.llm` is not imported."""
    llm = sys.modules.get("lmos_actors.llm")
    return llm is not None and issubclass(cls, llm.Model)


def is_live(cls: type) -> bool:
    """Return whether a class is a language model that queries a provider over the network."""
    return is_model(cls) and bool(getattr(cls, "is_live", False))
