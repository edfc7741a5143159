"""The parts that runs of all worlds have, unless the groups of a deployment are their processes.

A machine with a disk, on which a node is; faults of both, and of agents.
"""

from lmos_actors._late import late

with late(__name__):
    from ._agent_faults import INJECTED as INJECTED, AgentFaults as AgentFaults
    from ._machine import Machine as Machine, first_of as first_of
    from ._machine_faults import MachineFaults as MachineFaults
