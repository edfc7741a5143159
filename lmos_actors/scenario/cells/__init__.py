"""The runs of files: the processes that they run in, and their results.

Nothing is printed here, and nothing here knows of exit codes: an observer is called with each result.
"""

from lmos_actors._late import late

with late(__name__):
    from ._jobs import (
        FileJobs as FileJobs,
        Jobs as Jobs,
        Progress as Progress,
        repeated as repeated,
    )
    from ._planned import PlannedFile as PlannedFile
    from ._pool import Pool as Pool, Task as Task
