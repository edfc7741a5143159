"""Scenario files as they are read: every name resolved and every value checked before a run."""

from ._deployment_file import (
    DeploymentFile as DeploymentFile,
    is_deployment as is_deployment,
    load_deployment as load_deployment,
)
from ._end_override import with_end_at as with_end_at
from ._fields import (
    AgentField as AgentField,
    accepts as accepts,
    by_state_name as by_state_name,
    fields_of_agent as fields_of_agent,
)
from ._key_order import orders_of as orders_of
from ._launch_plan import launch_plan as launch_plan
from ._load import load_scenario as load_scenario
from ._relay_options import relay_options as relay_options
from ._remote_access import RemoteAccess as RemoteAccess, remedy_for as remedy_for
from ._resolve import Cell as Cell, Resolved as Resolved, resolve as resolve
from ._system import System as System
from ._targets import (
    import_function as import_function,
    import_target as import_target,
)
from ._tree_builder import (
    Places as Places,
    TreeBuilder as TreeBuilder,
    backoff_of as backoff_of,
    root_spec as root_spec,
    start_spec as start_spec,
)
from ._used_tree import (
    UsedTree as UsedTree,
    supervisor_paths as supervisor_paths,
    use_tree as use_tree,
)
from .validators._topology import neighbours_of as neighbours_of
