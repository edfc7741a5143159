"""What people see of a node from outside: who waits for whom, the dump, and the signal that asks for it."""

from ._dump import dump as dump
from ._shown import graph_of as graph_of, shown as shown
from ._signal import dumps as dumps
from ._statistics import NodeStatistics as NodeStatistics, statistics_of as statistics_of
