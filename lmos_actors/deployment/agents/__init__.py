"""The agents and the process of one group, and refs to remote agents."""

from lmos_actors._late import late

with late(__name__):
    from ._group_agents import (
        GroupAgents as GroupAgents,
    )
    from ._group_names import (
        GroupNames as GroupNames,
    )
    from ._group_process import (
        enter_group as enter_group,
        group_for as group_for,
    )
    from ._remote_agents import (
        RemoteAgents as RemoteAgents,
    )
