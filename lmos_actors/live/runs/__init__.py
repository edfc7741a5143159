"""The live view of runs, made from their logs: the page of `run --watch` and `sim --watch`.

The public names are imported from here, as in `from lmos_actors.live.runs import RunsServer`.
"""

from lmos_actors._late import late

with late(__name__):
    from ._board import Outcome as Outcome, Pace as Pace, RunHead as RunHead, RunsBoard as RunsBoard
    from ._network_view import MOST_NODES as MOST_NODES
    from ._run_model import (
        CheckSeen as CheckSeen,
        LinkNews as LinkNews,
        MessageOnLink as MessageOnLink,
        RunNews as RunNews,
        StepSeen as StepSeen,
    )
    from ._server import RunsServer as RunsServer
