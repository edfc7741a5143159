"""One run of one cell: its world, agents, steps, timeline and faults."""

from lmos_actors._late import late

with late(__name__):
    from ._doubles import live_replays as live_replays, recordings_of as recordings_of
    from ._pace import PaceKeeper as PaceKeeper, PaceOrder as PaceOrder
    from ._runner import SLOW as SLOW, real_limit_of as real_limit_of, run_cell as run_cell
    from ._worker import (
        ExploredRun as ExploredRun,
        RunLost as RunLost,
        RunOrder as RunOrder,
        RunProgress as RunProgress,
        Worker as Worker,
        WorkerMessage as WorkerMessage,
        WorkerReady as WorkerReady,
    )
    from .records import (
        AgentSnapshot as AgentSnapshot,
        Snapshot as Snapshot,
        StateSampler as StateSampler,
        StopInstrument as StopInstrument,
        StopPoint as StopPoint,
        log_header as log_header,
        read_break as read_break,
    )
