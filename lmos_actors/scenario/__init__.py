"""Deployment files, and what scenario files share with them.

Scenario files as they are read have a face of their own, `format`, and so have `run`, `judge` and `explore`:
a process of a group needs none of them.
"""

from ._group_agents import GroupAgents as GroupAgents
from ._guard import (
    REAL_LIMIT as REAL_LIMIT,
    Guard as Guard,
    refusing_exit as refusing_exit,
    restoring_directory as restoring_directory,
)
from .model import (
    DATABASE as DATABASE,
    MOST_REPLICAS as MOST_REPLICAS,
    USER as USER,
    Compare as Compare,
    Deployment as Deployment,
    Group as Group,
    LauncherPage as LauncherPage,
    Remote as Remote,
    Scenario as Scenario,
    Simulation as Simulation,
    fill_late as fill_late,
    filled_for as filled_for,
    is_deployment as is_deployment,
    is_real as is_real,
    needs_of as needs_of,
    project_root as project_root,
    scenario_schema as scenario_schema,
    texts_of as texts_of,
)
from .system import (
    DeploymentFile as DeploymentFile,
    RemoteAccess as RemoteAccess,
    UsedTree as UsedTree,
    accepts as accepts,
    fields_of_agent as fields_of_agent,
    import_function as import_function,
    import_target as import_target,
    keywords_of as keywords_of,
    launch_plan as launch_plan,
    load_deployment as load_deployment,
    relay_options as relay_options,
    use_tree as use_tree,
)
from .values import (
    delay_in as delay_in,
    exception_class as exception_class,
    pick as pick,
    sampler as sampler,
)
