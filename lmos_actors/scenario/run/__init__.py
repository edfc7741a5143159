"""One run of one cell: its world, agents, steps, timeline and faults."""

from ._doubles import live_replays as live_replays, recordings_of as recordings_of
from ._log_header import log_header as log_header
from ._node_names import NodeNames as NodeNames
from ._pace import PaceKeeper as PaceKeeper, PaceOrder as PaceOrder
from ._runner import SLOW as SLOW, real_limit_of as real_limit_of, run_cell as run_cell
from ._snapshot import AgentSnapshot as AgentSnapshot, Snapshot as Snapshot
from ._states import StateSampler as StateSampler
from ._stop_point import StopInstrument as StopInstrument, StopPoint as StopPoint, read_break as read_break
from ._worker import (
    ExploredRun as ExploredRun,
    RunLost as RunLost,
    RunOrder as RunOrder,
    RunProgress as RunProgress,
    Worker as Worker,
    WorkerMessage as WorkerMessage,
    WorkerReady as WorkerReady,
)
