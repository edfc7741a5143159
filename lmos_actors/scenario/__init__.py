"""Scenario and deployment files, as they are read; `run`, `judge` and `explore` have faces of their own."""

from ._group_agents import GroupAgents as GroupAgents
from ._guard import (
    REAL_LIMIT as REAL_LIMIT,
    Guard as Guard,
    refusing_exit as refusing_exit,
    restoring_directory as restoring_directory,
)
from ._worlds import is_real as is_real
from .format import (
    Cell as Cell,
    DeploymentFile as DeploymentFile,
    RemoteAccess as RemoteAccess,
    Resolved as Resolved,
    UsedTree as UsedTree,
    accepts as accepts,
    fields_of_agent as fields_of_agent,
    import_function as import_function,
    import_target as import_target,
    is_deployment as is_deployment,
    launch_plan as launch_plan,
    load_deployment as load_deployment,
    load_scenario as load_scenario,
    orders_of as orders_of,
    relay_options as relay_options,
    resolve as resolve,
    use_tree as use_tree,
    with_end_at as with_end_at,
)
from .model import (
    DATABASE as DATABASE,
    USER as USER,
    Compare as Compare,
    Deployment as Deployment,
    Group as Group,
    Remote as Remote,
    Scenario as Scenario,
    Simulation as Simulation,
    fill_late as fill_late,
    filled_for as filled_for,
    needs_of as needs_of,
    project_root as project_root,
    scenario_schema as scenario_schema,
    texts_of as texts_of,
)
from .values import (
    delay_in as delay_in,
    exception_class as exception_class,
    pick as pick,
    sampler as sampler,
)
