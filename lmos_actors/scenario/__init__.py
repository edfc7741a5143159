"""Scenario and simulation files: their structs, and the guard around runs of code by others.

Subpackages read files (`format`), run them (`run`), judge runs (`judge`), and search (`explore`).
"""

from lmos_actors._late import late

with late(__name__):
    from ._guard import (
        REAL_LIMIT as REAL_LIMIT,
        Guard as Guard,
        refusing_exit as refusing_exit,
        restoring_directory as restoring_directory,
    )
    from .model import (
        Compare as Compare,
        Scenario as Scenario,
        scenario_schema as scenario_schema,
    )
