"""One run of one cell: its world, agents, steps, timeline and faults."""

from ._doubles import recordings_of as recordings_of
from ._guard import Guard as Guard, outlived as outlived, staying as staying
from ._runner import REAL_LIMIT as REAL_LIMIT, run_cell as run_cell
from ._snapshot import Snapshot as Snapshot, Standing as Standing
from ._stopping import Stop as Stop, StopPoint as StopPoint, read_break as read_break
from ._worker import (
    Going as Going,
    Lost as Lost,
    Order as Order,
    Ready as Ready,
    Said as Said,
    Worker as Worker,
)
