"""The parts that scenario and deployment files share: agents, their classes, their tree; deployment files.

A process of a group reads its file with this, and with nothing of stories.
"""

from ._deployment_file import (
    DeploymentFile as DeploymentFile,
    load_deployment as load_deployment,
)
from ._fields import (
    AgentField as AgentField,
    accepts as accepts,
    by_state_name as by_state_name,
    fields_of_agent as fields_of_agent,
)
from ._launch_plan import launch_plan as launch_plan
from ._relay_options import relay_options as relay_options
from ._remote_access import RemoteAccess as RemoteAccess, credentials_key as credentials_key
from ._system import System as System
from ._targets import (
    import_function as import_function,
    import_target as import_target,
)
from ._tree_builder import (
    Places as Places,
    TreeBuilder as TreeBuilder,
    backoff_of as backoff_of,
    has_ref as has_ref,
    root_spec as root_spec,
    start_spec as start_spec,
)
from ._used_tree import (
    UsedTree as UsedTree,
    keywords_of as keywords_of,
    supervisor_paths as supervisor_paths,
    use_tree as use_tree,
)
