"""The parts that runs have in all worlds other than `process`.

A machine with a disk and a node, the faults of both, and the faults of agents.
"""

from lmos_actors._late import late

with late(__name__):
    from ._agent_faults import INJECTED as INJECTED, AgentFaults as AgentFaults
    from ._machine import Machine as Machine, first_of as first_of
    from ._machine_faults import MachineFaults as MachineFaults
