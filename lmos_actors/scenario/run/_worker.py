"""Worker processes that run cells: several at a time, or a second time to prove determinism.

The same file with the same seed must give the same message log. A second run in a process with another
PYTHONHASHSEED reveals results that depend on the order of a set.

`Worker` is the handle in the parent, and `main` is the worker process. Orders and messages are lines of JSON
over the standard streams. Agents that read or print get other streams, so that they cannot disturb the
protocol.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Protocol

import attrs
import msgspec

from lmos_actors._collector import collector
from lmos_actors.files import FileError
from lmos_actors.reports import RunResult
from lmos_actors.system import RemoteAccess, accepts
from lmos_actors.system.model import is_real

from .._guard import TIME_LIMIT, longest_of, restoring_directory
from ..format import resolve, with_end_at
from ._pace import PaceKeeper, PaceOrder
from ._runner import SLOW, run_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from queue import SimpleQueue

    from ..format import Cell, Resolved
    from ._watched import Onlooker
    from .records import StateSampler

# The import path at the start of this process: folders added later for agents' modules must not shadow the
# modules that the worker itself needs.
_PATH = tuple(sys.path)
_BEGIN = (
    "import sys; sys.path[:] = sys.argv[1:]; import lmos_actors.scenario.run._worker as worker; worker.main()"
)
# a worker without a parent exits at once; bound now because agents may replace it
_exit_process = os._exit
_REFRESH = 0.1
"""Seconds of real time between two progress messages."""


def _sampler() -> StateSampler:
    from .records import StateSampler

    return StateSampler()


def _access(given: RemoteAccess | dict[str, Any]) -> RemoteAccess:
    """Convert the access of an order, which is a mapping if the order was read from JSON."""
    return RemoteAccess(**given) if isinstance(given, dict) else given


def _pace(given: PaceOrder | dict[str, Any] | None) -> PaceOrder | None:
    return PaceOrder(**given) if isinstance(given, dict) else given


@attrs.frozen(kw_only=True)
class RunOrder:
    """One run for a worker: the file and how it was read, the cell by its number and label, and the trial.

    `log` requests the message log, `draw` the tree during the run. `text` is for a run of a search: the
    content of the file in this run, as JSON. The result is then an `ExploredRun`. `changed` is true if the
    file may have changed since the previous order.
    """

    file: str
    settings: dict[str, str]
    seeds: list[int] | None
    until: float | None = None
    cell: int
    label: str
    trial: int
    real_limit: float
    speed: float = 1.0
    log: bool = True
    draw: bool = False
    access: RemoteAccess = attrs.field(default=RemoteAccess(), converter=_access)
    text: str | None = None
    changed: bool = False
    pace: PaceOrder | None = attrs.field(default=None, converter=_pace)
    """The pace of a watched run, None for other runs."""
    of_processor: bool = False
    """Whether the limit is processor time."""

    @property
    def longest(self) -> float:
        """The maximum duration of the run in seconds of real time."""
        return longest_of(self.real_limit) if self.of_processor else self.real_limit


@attrs.frozen
class WorkerReady:
    """A worker's message that it is ready for orders."""


@attrs.frozen
class RunProgress:
    """Progress of a run: done, total, present place, and the drawn tree if the order requests it."""

    done: float
    total: float
    text: str
    tree: tuple[str, ...]


@attrs.frozen
class RunLost:
    """A run without a result. `why` is the reason, `where` its last activity, such as `it hangs at ...`.

    `late` is true if it took too long, `slow` if that may be due only to the machine, and `refused` if the
    file is wrong.
    """

    why: str
    where: str = ""
    late: bool = False
    slow: bool = False
    refused: bool = False


@attrs.frozen
class ExploredRun:
    """The result of a run of a search, with the digests of its states and their instants in microseconds."""

    result: RunResult
    states: tuple[int, ...]
    instants: tuple[int, ...]


@attrs.frozen
class WorkerMessage:
    """A message of a worker about its present order.

    If `died` is true, it is the last message, as the process has ended.
    """

    worker: Worker
    what: WorkerReady | RunProgress | RunLost | RunResult | ExploredRun
    died: bool = False


class Worker:
    """The handle of one worker process; its messages are put into `inbox`.

    The process has the given hash seed and a separate process group. So Ctrl-C does not reach it; its parent
    ends it, and it exits when the parent is gone. Agents print to `errors` (default: standard error of the
    parent).

    For watched runs, `watched` is called with lines of a log and a piece of `RunNews`, in a thread of this
    handle. While it blocks, the run blocks too.
    """

    def __init__(
        self,
        hash_seed: str,
        inbox: SimpleQueue[WorkerMessage],
        errors: BinaryIO | None = None,
        watched: Callable[[bytes, bytes], None] = lambda lines, news: None,
    ) -> None:
        self._watched = watched
        self.heard_at = monotonic()
        """The real time of the last message of the process."""
        self._inbox = inbox
        self._lock = threading.Lock()
        self._ended = False
        self._last: RunLost | None = None
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-P", "-c", _BEGIN, *_PATH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            process_group=0,
        )
        threading.Thread(target=self._read_messages, name="worker", daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def begin(self, order: RunOrder) -> None:
        """Queue an order after the earlier ones."""
        self._tell(attrs.asdict(order))

    def set_pace(self, pace: PaceOrder, *, step: bool = False) -> None:
        """Change the pace of the watched run; with `step`, let the run go on to its next instant.

        May be called from any thread.
        """
        self._tell({"control": attrs.asdict(pace), "step": step})

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps(message).encode() + b"\n"
        with suppress(BrokenPipeError, ValueError), self._lock:  # it is dead, as `_read_messages` reports
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def end(self) -> None:
        """Kill the process and wait for its end. No further message is put into `inbox`."""
        self._ended = True
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):  # the process has not read an order
                self._process.stdin.close()

    def _read_messages(self) -> None:
        """Read messages until the process ends; the target of a separate thread."""
        assert self._process.stdout is not None
        with self._process.stdout as stream, suppress(OSError, ValueError):
            while line := stream.readline():
                self._receive(json.loads(line), stream)
        if not self._ended:
            self._inbox.put(WorkerMessage(self, self._lost(self._process.wait()), died=True))

    def _receive(self, output: dict[str, Any], stream: IO[bytes]) -> None:
        what: WorkerReady | RunProgress | RunLost | RunResult | ExploredRun = WorkerReady()
        self.heard_at = monotonic()
        if "watched" in output:
            lines, news = output["watched"]
            self._watched(stream.read(lines), stream.read(news))
            return
        if "going" in output:
            done, total, text, tree = output["going"]
            what = RunProgress(done, total, text, tuple(tree))
        elif "result" in output:
            log = stream.read(output["log"]).decode("utf-8", "surrogatepass")
            result = msgspec.convert(output["result"], RunResult)
            result = attrs.evolve(result, log=tuple(log.split("\n")[:-1]))
            reached = output.get("reached")
            what = result if reached is None else ExploredRun(result, *map(tuple, reached))
        elif "last" in output:  # the process ends now, by itself
            why, where = output["last"]
            said = f"{why}, and it cannot be ended"
            self._last = RunLost(said, where, late=why == "time limit", slow=why == SLOW)
            return
        elif "lost" in output:
            what = RunLost(output["lost"], refused=output.get("refused", False))
        if not self._ended:
            self._inbox.put(WorkerMessage(self, what))

    def _lost(self, code: int) -> RunLost:
        if self._last is not None and code == TIME_LIMIT:
            return self._last
        how = f"with exit code {code}"
        if code < 0:
            known = {number.value: number.name for number in signal.Signals}
            how = f"by signal {known.get(-code, str(-code))}"
        return RunLost(f"its process ended {how}")


# --- the process


def main() -> None:
    """Run as a worker process until the parent is gone."""
    collector.take_process()
    orders, output = _streams()
    handler = _OrderHandler(output)
    inbox: list[dict[str, Any]] = []
    wait_until_delivered = threading.Condition()

    def listen() -> None:
        while line := orders.readline():
            order = json.loads(line)
            if "control" in order:
                handler.set_pace(PaceOrder(**order["control"]), step=order["step"])
                continue
            with wait_until_delivered:
                inbox.append(order)
                wait_until_delivered.notify()
        _exit_process(0)

    threading.Thread(target=listen, name="orders", daemon=True).start()
    handler.open()
    while True:
        with wait_until_delivered:
            wait_until_delivered.wait_for(lambda: inbox)
            order = inbox.pop(0)
        handler.carry_out(RunOrder(**order))


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """Take over the standard streams; agents then read no input, and print to standard error.

    Return the streams for orders and for output.
    """
    orders, output = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return orders, output


class _OrderHandler:
    """A handler that carries out orders one after the other; successive orders for a file read it once."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._read: tuple[object, Resolved] | None = None
        self._pace: PaceOrder | None = None
        """The pace that was set last. It is newer than the pace of any order, which may have been queued."""
        self._keeper: PaceKeeper | None = None
        self._pace_lock = threading.Lock()

    def set_pace(self, pace: PaceOrder, *, step: bool) -> None:
        """Change the pace; called in the thread that reads orders."""
        with self._pace_lock:
            self._pace = pace
            if self._keeper is not None:
                self._keeper.set(pace)
                if step:
                    self._keeper.step()

    def _onlooker(self, order: RunOrder, cell: Cell) -> Onlooker | None:
        """Return the watcher of a run; None if the run is not watched."""
        if order.pace is None:
            return None
        from ._watched import Onlooker  # most runs do not need its imports

        with self._pace_lock:
            is_paced = not is_real(cell.scenario.world)
            self._keeper = PaceKeeper(self._pace or order.pace) if is_paced else None
        return Onlooker(self._pass_on, self._keeper)

    def _pass_on(self, lines: bytes, news: bytes) -> None:
        self._send({"watched": [len(lines), len(news)]}, lines + news)

    def open(self) -> None:
        """Report to the parent that it can send orders."""
        self._send({"ready": True})

    def carry_out(self, order: RunOrder) -> None:
        """Carry out an order and send its result."""
        try:
            resolved = self._resolved(order)
            cell = resolved.cells[order.cell] if order.cell < len(resolved.cells) else None
            if cell is None or cell.label != order.label:
                raise RuntimeError("the file has changed while it was being run")
        except FileError as error:
            self._send({"lost": str(error), "refused": True})
            return
        except Exception as error:
            self._send({"lost": f"{type(error).__name__}: {error}"})
            return
        states = None if order.text is None else _sampler()
        reporter = _ProgressReporter(self._send, order.draw)
        result = run_cell(
            resolved,
            cell,
            order.trial,
            real_limit=order.real_limit,
            speed=order.speed,
            progress=reporter,
            on_start=reporter.on_start,
            whole_log=order.log,
            states=states,
            on_stuck=lambda why, where: self._send({"last": [why, where]}),
            onlooker=self._onlooker(order, cell),
            of_processor=order.of_processor,
        )
        log = result.log if order.log else ()
        text = "".join(line + "\n" for line in log).encode("utf-8", "surrogatepass")
        data = attrs.asdict(result, filter=lambda field, _: field.name != "log")
        reached = {} if states is None else {"reached": [states.states, states.instants]}
        self._send({"result": data, "log": len(text), **reached}, text)

    def _resolved(self, order: RunOrder) -> Resolved:
        of = (order.file, order.settings, order.seeds, order.until, order.access, order.text)
        if self._read is None or self._read[0] != of or order.changed:
            with redirect_stdout(sys.stderr), restoring_directory():
                read = resolve(
                    order.file,
                    settings=order.settings,
                    seeds=order.seeds,
                    accepts=accepts,
                    text=order.text,
                    fitted=order.text is not None,
                )
            self._read = of, attrs.evolve(with_end_at(read, order.until), access=order.access)
            collector.settle()
        return self._read[1]

    def _send(self, message: Mapping[str, Any], more: bytes = b"") -> None:
        try:
            with self._lock:
                self._output.write(json.dumps(message).encode() + b"\n" + more)
                self._output.flush()
        except BrokenPipeError:
            _exit_process(0)


class _Observer(Protocol):
    def tree(self) -> Sequence[str]: ...


class _ProgressReporter:
    """A progress callback that sends at most one message per `_REFRESH`, with the tree if `drawn` is set."""

    def __init__(self, say: Callable[[dict[str, Any]], None], drawn: bool) -> None:
        self._send = say
        self._drawn = drawn
        self._observer: _Observer | None = None
        self._due = monotonic() + _REFRESH

    def __call__(self, done: float, total: float, text: str) -> None:
        if (now := monotonic()) < self._due:
            return
        tree = self._observer.tree() if self._drawn and self._observer is not None else ()
        # drawing a large tree must not slow the run
        self._due = now + _REFRESH + 100 * (monotonic() - now)
        self._send({"going": [done, total, text, list(tree)]})

    def on_start(self, observer: _Observer) -> None:
        """Store the view of the run."""
        self._observer = observer
