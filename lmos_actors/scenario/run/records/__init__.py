"""The receivers of the records of a run: its log, its steps, its states, and its stop point."""

from lmos_actors._late import late

with late(__name__):
    from ._log_header import log_header as log_header
    from ._snapshot import AgentSnapshot as AgentSnapshot, Snapshot as Snapshot
    from ._states import StateSampler as StateSampler
    from ._step_log import StepEntry as StepEntry, StepLog as StepLog
    from ._stop_point import (
        KINDS as KINDS,
        StopInstrument as StopInstrument,
        StopPoint as StopPoint,
        read_break as read_break,
    )
    from ._watch import Watch as Watch
