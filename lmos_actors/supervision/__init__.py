"""Who restarts whom: child specs, supervisor specs, and the supervisors that carry them out."""

from ._children import ChildInfo as ChildInfo, agent_class as agent_class
from ._plan import Counts as Counts
from ._spec import (
    AutoShutdown as AutoShutdown,
    Backoff as Backoff,
    ChildSpec as ChildSpec,
    Restart as Restart,
    Shutdown as Shutdown,
    Strategy as Strategy,
    SupervisorSpec as SupervisorSpec,
)
from ._supervisor import Supervisor as Supervisor, SupervisorStatistics as SupervisorStatistics
