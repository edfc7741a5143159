"""Supervision: child specs, supervisor specs, and the supervisors that carry them out."""

from lmos_actors._late import late

with late(__name__):
    from ._agent_supervisor import AgentSupervisor as AgentSupervisor, children_of as children_of
    from ._children import (
        RESERVED as RESERVED,
        ChildInfo as ChildInfo,
        agent_class as agent_class,
        check_top as check_top,
        has_durable_agents as has_durable_agents,
    )
    from ._loop import SupervisorLoop as SupervisorLoop
    from ._members import members_of as members_of
    from ._plan import Counts as Counts
    from ._siblings import (
        Pointer as Pointer,
        Sibling as Sibling,
        hint_of as hint_of,
        name_of as name_of,
        pointer_of as pointer_of,
        sibling as sibling,
    )
    from ._spec import (
        AutoShutdown as AutoShutdown,
        Backoff as Backoff,
        BulkSpec as BulkSpec,
        ChildSpec as ChildSpec,
        Pool as Pool,
        Restart as Restart,
        Shutdown as Shutdown,
        Strategy as Strategy,
        SupervisorSpec as SupervisorSpec,
        check_portable as check_portable,
        standing_by as standing_by,
    )
    from ._supervisor import (
        PoolRef as PoolRef,
        Supervisor as Supervisor,
        SupervisorStatistics as SupervisorStatistics,
        supervisor_of as supervisor_of,
    )
    from ._tree import (
        Tree as Tree,
        agents_of as agents_of,
        children_between as children_between,
        class_at as class_at,
        draw as draw,
        is_member as is_member,
        lose as lose,
        numbered_children as numbered_children,
        place_at as place_at,
        regain as regain,
        restarts_of as restarts_of,
        size_of as size_of,
        supervisors_of as supervisors_of,
        wait_unwound as wait_unwound,
    )
