"""Results of runs, as data and as reports: text, JUnit, Mermaid, CSV, HTML."""

from lmos_actors._late import late

with late(__name__):
    from ._csv import csv_text as csv_text
    from ._html import html_page as html_page
    from ._junit import junit_xml as junit_xml
    from ._mermaid import MOST_MESSAGES as MOST_MESSAGES, mark_cut as mark_cut, mermaid as mermaid
    from ._messages import (
        LAST as LAST,
        Record as Record,
        as_text as as_text,
        clean as clean,
        last_messages as last_messages,
        message_text as message_text,
        read_record as read_record,
        records as records,
    )
    from ._results import (
        CheckResult as CheckResult,
        Cut as Cut,
        Ended as Ended,
        Failure as Failure,
        FaultResult as FaultResult,
        FileResult as FileResult,
        Missing as Missing,
        NodeRestart as NodeRestart,
        Repeated as Repeated,
        RunResult as RunResult,
        SeriesResult as SeriesResult,
        StepResult as StepResult,
        as_data as as_data,
        cut_data as cut_data,
        cut_of as cut_of,
        worst as worst,
    )
    from ._text import (
        SOME_MESSAGES as SOME_MESSAGES,
        bar as bar,
        check_lines as check_lines,
        combination as combination,
        compared_lines as compared_lines,
        count as count,
        failure_lines as failure_lines,
        file_line as file_line,
        first_failure as first_failure,
        folded_line as folded_line,
        head as head,
        missing_lines as missing_lines,
        note_lines as note_lines,
        repeated_lines as repeated_lines,
        run_line as run_line,
        summary as summary,
        trial_lines as trial_lines,
        verdict as verdict,
    )
