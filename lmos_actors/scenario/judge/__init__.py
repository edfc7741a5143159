"""Checks of a run: judges, their expectations, and the logs they read."""

from lmos_actors._late import late

with late(__name__):
    from ._compare import judge_compared as judge_compared
    from ._cuts import Cut as Cut
    from ._divergence import (
        Divergence as Divergence,
        FieldDifference as FieldDifference,
        compare_heads as compare_heads,
        compare_records as compare_records,
        lines_of as lines_of,
    )
    from ._expect import (
        FEWEST_SAMPLES as FEWEST_SAMPLES,
        MESSAGE as MESSAGE,
        Verdict as Verdict,
        fill_expect as fill_expect,
        judge_bounded as judge_bounded,
        judge_error as judge_error,
        judge_expect as judge_expect,
        judge_latency as judge_latency,
        judge_match as judge_match,
        judge_value as judge_value,
        percentile as percentile,
        waits_to_the_end as waits_to_the_end,
    )
    from ._judge import (
        AgentDirectory as AgentDirectory,
        Judge as Judge,
        StepAnswer as StepAnswer,
        name_of as name_of,
    )
    from ._judges import TIMED as TIMED, Judges as Judges
    from ._linearizability import (
        UNKNOWN as UNKNOWN,
        Operation as Operation,
        linearize as linearize,
        smallest_failing as smallest_failing,
    )
    from ._logs import (
        CHANGED as CHANGED,
        CUT_SHORT as CUT_SHORT,
        LogFile as LogFile,
        LoggedRun as LoggedRun,
        LogLine as LogLine,
    )
