"""The states of a slot and the gates of its mailbox, as small numbers.

`state` is the stage of life of the slot; comparisons such as `state >= ENDING` rely on the order. `gate`
shows what the agent is doing about its mailbox. A turn may begin in the asker's own step only at zero
(`IDLE`), so that the hot path has to test just one number for truth.
"""

from __future__ import annotations

from typing import Final

# Where a slot is in its life.
EMPTY, STARTING, RUNNING, DRAINING, ENDING, DOWN, GONE = range(7)
STATES: Final = ("empty", "starting", "running", "stopping", "ending", "down", "gone")
# The states in the words of errors.
STATE_TEXTS: Final = (
    "not started yet",
    "starting",
    "running",
    "stopping",
    "ending",
    "down until it is started again",
    "gone",
)

# What the agent is doing about its mailbox. Only at zero may a turn begin in the step of the sender.
IDLE: Final = 0
BUSY: Final = 1  # in the ready queue, or its turn runs
HANDING: Final = 2  # a run was handed over and has not begun
HELD: Final = 3  # a message of its turn waits for a seat elsewhere
SERIAL: Final = 4  # `serial=True` and a run is open
QUIET: Final = 5  # as idle, but no turn begins in an asker's step: stopping, senders parked, turns take time
CLOSED: Final = 6
PAUSED: Final = 7  # held from outside
WORKING: Final = 8  # its service time goes by for one message
WORKED: Final = 9  # in the ready queue, for the turn of that message alone
TALLIED: Final = 10  # as idle, and its accounts are in the sums of the node, see `_tally.py`
