"""Processes: the groups of a deployment in `world: process`, their faults, and agents `from: process`."""

from lmos_actors._late import late

with late(__name__):
    from ._faults import ProcessFaults as ProcessFaults
    from ._network import ProcessNetwork as ProcessNetwork
    from ._own_processes import OwnProcesses as OwnProcesses
    from ._processes import Processes as Processes
