"""Runs in `world: process`: the groups of a deployment as processes, and faults of these."""

from ._faults import ProcessFaults as ProcessFaults
from ._network import ProcessNetwork as ProcessNetwork
from ._processes import Processes as Processes
