"""Checks of a run: judges, what they expect, and the logs they read."""

from ._compare import judge_compared as judge_compared
from ._divergence import (
    Differing as Differing,
    Divergence as Divergence,
    compare_heads as compare_heads,
    compare_records as compare_records,
    lines_of as lines_of,
)
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
from ._judges import TIMED as TIMED, Judges as Judges
from ._judging import Judge as Judge, name_of as name_of
from ._logs import (
    CHANGED as CHANGED,
    CUT_SHORT as CUT_SHORT,
    Line as Line,
    LogFile as LogFile,
    Logged as Logged,
)
