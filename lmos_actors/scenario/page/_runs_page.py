"""The page of the runs of one command. A thread of this process serves it during the runs and afterwards.

The main thread gives orders and takes results, as it does without a page. A thread for each worker process
puts the output of a run on the board. The thread here serves the board. The threads share nothing but the
board, and no run waits for a viewer once it has begun.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.errors import ConfigError
from lmos_actors.live.runs import CheckSeen, Outcome, Pace, RunHead, RunsBoard, RunsServer, StepSeen
from lmos_actors.scenario.model import Simulation
from lmos_actors.scenario.run import PaceOrder
from lmos_actors.scenario.run.network import NodeNames
from lmos_actors.system.model import is_real

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lmos_actors.reports import RunResult
    from lmos_actors.scenario.cells import Pool
    from lmos_actors.scenario.format import Cell
    from lmos_actors.scenario.run import RunProgress

PATIENCE: Final = 60.0
"""Seconds for which the first run waits for somebody who looks."""

END: Final = 5.0
"""Seconds for which the command waits in the end until the page is gone."""


class RunsPage:
    """The page of the runs of a pool, served at `port` (0: any free one). Runs begin at `speed`.

    `note` is called with messages for the user, and may be called in any thread.
    """

    def __init__(self, pool: Pool, note: Callable[[str], None], *, port: int, speed: float | None) -> None:
        self._note = note
        self._board = RunsBoard(Pace(speed))
        self._board.on_pace = self._set_pace
        self._pool = pool
        self._server = RunsServer(self._board)
        self._has_waited = speed is None
        self._heads: dict[tuple[str, str, int], RunHead] = {}
        self._port = port
        self._failure: Exception | None = None
        self._is_served = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        pool.watched = self._take

    @property
    def url(self) -> str:
        """The address of the page; available once the page is served."""
        return self._server.url

    @contextmanager
    def served(self) -> Generator[None]:
        """Serve the page during the block, and report its address through `note`. Raises ConfigError."""
        thread = threading.Thread(target=self._serve, name="page of the runs", daemon=True)
        thread.start()
        self._is_served.wait()
        if self._failure is not None:
            raise ConfigError(str(self._failure), "--port") from self._failure
        self._note(f"watch at {self.url}")
        try:
            yield
        finally:
            assert self._token is not None
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._server.stop)
            thread.join(END)

    def _serve(self) -> None:
        """Serve the page; this method is the target of a separate thread."""
        try:
            trio.run(self._main)
        except Exception as error:
            if self._is_served.is_set():  # the runs go on without
                self._note(f"the page has ended: {error!r}")
            self._failure = error
        finally:
            self._is_served.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        await self._server.listen(self._port)
        self._is_served.set()
        await self._server.serve()

    # ---- runs

    def plan(self, file: str, cells: list[Cell], trials: int) -> None:
        """Put the coming runs of a file on the board."""
        heads: list[RunHead] = []
        for cell in cells:
            for trial in range(1, trials + 1):
                head = _head_of(str(len(self._heads) + 1), file, cell, trial)
                self._heads[file, cell.label, trial] = head
                heads.append(head)
        self._board.plan(heads)

    def begins(self, file: str, cell: Cell, trial: int) -> PaceOrder:
        """Note that a run begins, and return its pace. The first run waits for a viewer, up to `PATIENCE`."""
        if not self._has_waited:
            self._has_waited = True
            self._note(f"the first run begins once somebody looks, in {PATIENCE:g} s at the latest")
            self._board.looked_at.wait(PATIENCE)
        self._board.begin(self._heads[file, cell.label, trial].id)
        return _order(self._board.pace)

    def going(self, file: str, cell: Cell, trial: int, going: RunProgress) -> None:
        """Note the progress of a run."""
        self._board.progress(self._heads[file, cell.label, trial].id, going.done, going.total)

    def ended(self, file: str, cell: Cell, run: RunResult) -> None:
        """Note the outcome of a run."""
        self._board.end(self._heads[file, cell.label, run.trial].id, outcome_of(run))

    def _take(self, lines: bytes, news: bytes) -> None:
        if lines:
            self._board.take_lines(lines.decode())
        if news:
            self._board.take_news(news)

    def _set_pace(self, pace: Pace, is_step: bool) -> None:
        self._pool.set_pace(_order(pace), step=is_step)


def _order(pace: Pace) -> PaceOrder:
    return PaceOrder(speed=pace.speed, is_paused=pace.is_paused)


def _head_of(id: str, file: str, cell: Cell, trial: int) -> RunHead:
    scenario, system = cell.scenario, cell.system
    names = NodeNames(cell) if scenario.network is not None else None
    places = {path: name for name, path in system.paths.items()}

    def class_of(path: str) -> str:
        found = system.agent_class(places.get(path, path))
        return str(getattr(found, "__name__", ""))

    return RunHead(
        id=id,
        label=cell.label,
        file=file,
        name=scenario.name,
        trial=trial,
        is_real=is_real(scenario.world),
        until=float(scenario.stop.at) if isinstance(scenario, Simulation) else None,
        nodes=None if names is None else names.all,
        node_of=_itself if names is None else names.of_path,
        class_of=class_of,
    )


def _itself(path: str) -> str:
    return path


_STATUS: Final = {True: "passed", False: "failed", None: "open"}


def outcome_of(run: RunResult) -> Outcome:
    """Return the outcome of a run in the form that the page shows."""
    return Outcome(
        status=run.ended,
        seconds=run.real,
        time=run.virtual,
        failures=tuple(
            f"{each.place} {each.what}: expected {each.expected}, saw {each.saw}".strip()
            for each in run.failures
        ),
        steps=tuple(
            StepSeen(number, step.what, step.place, _STATUS[step.ok], step.begin or 0.0, step.end)
            for number, step in enumerate(run.step_results)
        ),
        steps_done=run.steps_done,
        steps_total=run.steps,
        checks=tuple(
            CheckSeen(check.name, _STATUS[check.ok], check.at, check.expected, check.saw)
            for check in run.judged
        ),
    )
