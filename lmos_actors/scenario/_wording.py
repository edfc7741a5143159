"""How the steps of a story are counted and named, for those who watch it being told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ._model_base import USER
from ._model_steps import Asking, Expect, Inject, Parallel, Repeat, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

Steps: TypeAlias = "Sequence[Any]"


def count_steps(steps: Steps) -> int:
    """Count the steps that a story will take, rounds and branches included."""
    total = 0
    for step in steps:
        if isinstance(step, Repeat):
            total += step.times * count_steps(step.steps)
        elif isinstance(step, Parallel):
            total += sum(count_steps(branch) for branch in step.branches)
        else:
            total += 1
    return total


def describe(step: Any) -> str:
    """Name a step for people: `invoke concierge.getWeather`."""
    words: list[str] = [type(step).__name__.lower()]
    if isinstance(step, Asking):
        name = getattr(step, "action", None) or getattr(step, "property", None) or getattr(step, "event", "")
        words.append(f"{step.target}.{name}")
        words += [f"as {step.as_}"] if step.as_ != USER else []
    elif isinstance(step, Inject):
        words.append(f"crash {step.fault.target} with {step.fault.with_}")
    elif isinstance(step, Wait) and step.until is not None:
        words.append(f"until {step.until.agent} is {step.until.is_}")
    elif isinstance(step, Wait):
        words.append(f"for {step.for_}")
    elif isinstance(step, Expect):
        words.append(f"{step.that} of {step.target}.{step.event}" if step.event else f"{step.that} {step.of}")
    return " ".join(words) + (f" ({step.id})" if step.id else "")
