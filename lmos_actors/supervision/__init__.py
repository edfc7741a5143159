"""Supervision: child specs, supervisor specs, and the supervisors that carry them out."""

from ._agent_supervisor import AgentSupervisor as AgentSupervisor, children_of as children_of
from ._bulk_supervisor import BulkSpec as BulkSpec, BulkSupervisor as BulkSupervisor
from ._children import ChildInfo as ChildInfo, agent_class as agent_class
from ._ids import RESERVED as RESERVED, check_top as check_top
from ._plan import Counts as Counts
from ._pool import PoolRef as PoolRef, PoolSupervisor as PoolSupervisor
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
    ChildSpec as ChildSpec,
    Pool as Pool,
    Restart as Restart,
    Shutdown as Shutdown,
    Strategy as Strategy,
    SupervisorSpec as SupervisorSpec,
    check_portable as check_portable,
)
from ._supervisor import Supervisor as Supervisor, SupervisorStatistics as SupervisorStatistics
from ._tree import (
    Tree as Tree,
    agents_of as agents_of,
    draw as draw,
    is_member as is_member,
    supervisors_of as supervisors_of,
)
