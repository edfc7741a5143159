"""The runs of files: the processes that they run in, and their results.

This package prints nothing and sets no exit codes: it calls an observer with each result.
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
