"""What runs of all worlds have, unless the groups of a deployment are their processes.

A machine with a disk, on which a node is, and the faults of both.
"""

from ._faults import INJECTED as INJECTED, FaultFailed as FaultFailed, Faults as Faults
from ._machine import Machine as Machine, first_of as first_of
