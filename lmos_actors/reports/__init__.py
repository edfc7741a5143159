"""What came of runs, as data and for people: text, JUnit, Mermaid, CSV, HTML."""

from ._results import (
    CheckResult as CheckResult,
    Ended as Ended,
    Failure as Failure,
    FaultResult as FaultResult,
    FileResult as FileResult,
    Repeated as Repeated,
    RunResult as RunResult,
    SeriesResult as SeriesResult,
    StepResult as StepResult,
    as_data as as_data,
    worst as worst,
)
from ._text import (
    bar as bar,
    failure_lines as failure_lines,
    head as head,
    repeated_lines as repeated_lines,
    run_line as run_line,
    summary as summary,
)
