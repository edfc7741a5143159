"""Scenario files: stories that are run on agents and judged."""

from ._cells import fill_late as fill_late
from ._check import load_scenario as load_scenario
from ._classes import accepts as accepts
from ._expect import (
    FEWEST_SAMPLES as FEWEST_SAMPLES,
    Verdict as Verdict,
    filled as filled,
    judge_bounded as judge_bounded,
    judge_error as judge_error,
    judge_expect as judge_expect,
    judge_latency as judge_latency,
    judge_value as judge_value,
    percentile as percentile,
    waits_to_the_end as waits_to_the_end,
)
from ._guard import Guard as Guard, staying as staying
from ._model import Scenario as Scenario, scenario_schema as scenario_schema
from ._model_base import USER as USER
from ._paths import pick as pick
from ._resolve import Cell as Cell, Resolved as Resolved, resolve as resolve
from ._runner import REAL_LIMIT as REAL_LIMIT, run_cell as run_cell
from ._story import exception_class as exception_class
from ._targets import import_target as import_target, project_root as project_root
from ._until import stopped_at as stopped_at
from ._worker import Going as Going, Lost as Lost, Order as Order, Said as Said, Worker as Worker
