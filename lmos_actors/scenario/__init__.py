"""Scenario files: stories that are run on agents and judged."""

from ._cells import fill_late as fill_late
from ._check import load_scenario as load_scenario
from ._compare import judge_compared as judge_compared
from ._divergence import (
    Differing as Differing,
    Divergence as Divergence,
    compare_heads as compare_heads,
    compare_records as compare_records,
    lines_of as lines_of,
)
from ._doubles import recordings_of as recordings_of
from ._exceptions import exception_class as exception_class
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
from ._fields import accepts as accepts, fields_of_agent as fields_of_agent
from ._guard import Guard as Guard, outlived as outlived, staying as staying
from ._logs import (
    CHANGED as CHANGED,
    CUT_SHORT as CUT_SHORT,
    Line as Line,
    LogFile as LogFile,
    Logged as Logged,
)
from ._model import Scenario as Scenario, Simulation as Simulation, scenario_schema as scenario_schema
from ._model_base import USER as USER
from ._model_checks import Compare as Compare
from ._order import orders_of as orders_of
from ._paths import pick as pick
from ._resolve import Cell as Cell, Resolved as Resolved, resolve as resolve
from ._runner import REAL_LIMIT as REAL_LIMIT, run_cell as run_cell
from ._snapshot import Snapshot as Snapshot, Standing as Standing
from ._stopping import Stop as Stop, StopPoint as StopPoint, read_break as read_break
from ._targets import import_target as import_target, project_root as project_root
from ._trees import UsedTree as UsedTree, use_tree as use_tree
from ._until import stopped_at as stopped_at
from ._worker import (
    Going as Going,
    Lost as Lost,
    Order as Order,
    Ready as Ready,
    Said as Said,
    Worker as Worker,
)
from ._worlds import is_real as is_real
