"""The search of `explore`, its finds and their shrinking, and the worker processes for the runs."""

from lmos_actors._late import late

with late(__name__):
    from ._exploration import Exploration as Exploration, SearchRequest as SearchRequest
    from ._failure import failures_of as failures_of, is_void as is_void, sentence_of as sentence_of
    from ._finds import Finds as Finds
    from ._folder import Find as Find, Folder as Folder
    from ._plain import (
        Data as Data,
        faults_of as faults_of,
        plain_cells as plain_cells,
        text_of as text_of,
        with_schedule as with_schedule,
        without_drawn as without_drawn,
        yaml_of as yaml_of,
    )
    from ._runs import (
        TIME_LIMIT as TIME_LIMIT,
        Explored as Explored,
        Runs as Runs,
        explored as explored,
    )
    from ._search import BATCH as BATCH, Outcome as Outcome, Schedule as Schedule, Search as Search
    from ._shrink import Shrinker as Shrinker
    from ._space import (
        Permit as Permit,
        ScheduledFault as ScheduledFault,
        Space as Space,
        space_of as space_of,
    )
    from ._weight import size_text as size_text, weight_of as weight_of
