"""Results made by hand, for tests of what is made of them."""

from __future__ import annotations

import json
from typing import Any

import attrs

from lmos_actors.reports import Failure, FileResult, RunResult

HOSTILE = 'a\x00b\x1b[2Jc "]]>" <b> & ; # 100% %%{init: {}}%% \ud800 \u2028 é 漢 \U0001f600\nend'
"""A text that every format has to be wary of."""

RUN = RunResult(
    label="seed=1",
    values={},
    seed=1,
    trial=1,
    ended="passed",
    steps=4,
    steps_done=4,
    checks=2,
    checks_passed=2,
    failures=(),
    virtual=1.5,
    real=0.25,
    digest="d" * 64,
)
BAD = Failure("story.yaml:9:3", "invoke weather.getWeather", "an answer", "AgentDied: boom")


def run(**changes: Any) -> RunResult:
    """A run that passed, but for the changes; the label follows from values and seed."""
    made = attrs.evolve(RUN, **changes)
    words = [*(f"{key}={value}" for key, value in made.values.items()), f"seed={made.seed}"]
    return made if "label" in changes else attrs.evolve(made, label=" ".join(words))


def failed(**changes: Any) -> RunResult:
    """A run that failed at its second step."""
    usual: dict[str, Any] = {"ended": "failed", "steps_done": 1, "checks_passed": 0, "failures": (BAD,)}
    return run(**(usual | {"again": "lmos-actors run story.yaml --seed 1"} | changes))


def result(*runs: RunResult, **changes: Any) -> FileResult:
    """What came of the file story.yaml."""
    trials = max((run.trial for run in runs), default=1)
    usual: dict[str, Any] = {"file": "story.yaml", "name": "story", "pass_rate": 1.0, "trials": trials}
    usual |= {"cells": len(runs) // trials, "runs": list(runs)}
    return FileResult(**(usual | changes))


def line(number: int, kind: str, agent: str, at: float = 0.5, **fields: Any) -> str:
    """A line of a message log, as the log writes it."""
    head = f'{{"n":{number},"t":{at:.6f},"kind":"{kind}","agent":{json.dumps(agent)}'
    body = json.dumps(dict(sorted(fields.items())), separators=(",", ":"))[1:-1]
    return f"{head},{body}}}" if fields else f"{head}}}"


HEAD = '{"schema":"lmos-actors/trace/v1","seed":1}'


def sent(number: int, sender: str, agent: str, name: str, verb: str = "invoke", **fields: Any) -> str:
    """The line of a request."""
    origin = {"from": sender}
    return line(
        number, "sent", agent, id=number, trace=number, affordance=name, verb=verb, **origin, **fields
    )
