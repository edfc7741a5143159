"""Which agents are language models."""

from __future__ import annotations

import sys


def is_model(cls: type) -> bool:
    """Return whether a class is a language model. Without `lmos_actors.llm` in use, none is."""
    llm = sys.modules.get("lmos_actors.llm")
    return llm is not None and issubclass(cls, llm.Model)
