"""Runs of actions started over HTTP and queried later: kept for a while, within bounds."""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio

from lmos_actors._core import SMALL, SPENT
from lmos_actors.errors import LmosActorsError, LocalProtocolError, MailboxFull, NotFound
from lmos_actors.protocol.lmos import format_time, problem_of

from ..exposure._problem_details import problem_data
from ._values import written_value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from datetime import datetime

    from lmos_actors._core import Account, Budget
    from lmos_actors.actors import Runtime

    from ._agent_request import AgentRequest
    from ._options import HttpOptions


@attrs.define(eq=False)
class KeptRun:
    """One run; `place` is the path where it can be queried, `owner` the client that may query it."""

    id: str
    owner: str
    agent: str
    action: str
    place: str
    ask: AgentRequest
    account: Account
    asked_at: datetime
    shown: Callable[[dict[str, Any]], dict[str, Any]]
    """Function that returns a question to a person as the client may see it."""
    output: bytes | None = None
    error: dict[str, Any] | None = None
    ended_at: datetime | None = None
    until: float = 0.0

    @property
    def progress(self) -> bytes | None:
        """The progress of the run as JSON; None if there is none."""
        if self.ask.progress is None:
            return None
        try:
            return written_value(self.ask.progress)
        except (LmosActorsError, TypeError, ValueError, OverflowError):
            return None

    @property
    def status(self) -> str:
        """The status of the run, by its LMOS name."""
        if self.ended_at is None:
            return "running" if self.ask.running else "pending"
        return "completed" if self.error is None else "failed"

    def status_data(self) -> dict[str, Any]:
        """Return the run as an ActionStatus."""
        fields: dict[str, Any] = {"status": self.status, "href": self.place}
        fields["timeRequested"] = format_time(self.asked_at)
        if self.ended_at is not None:
            fields["timeEnded"] = format_time(self.ended_at)
        if self.progress is not None:
            fields["progress"] = msgspec.Raw(self.progress)
        if self.ended_at is None and self.ask.question is not None:
            fields["waits"] = self.shown(self.ask.question)
        if self.output is not None:
            fields["output"] = msgspec.Raw(self.output)
        if self.error is not None:
            fields["error"] = self.error
        return fields


class Runs:
    """The runs that are kept, within the limits of `options`.

    The function `failed` receives exceptions that are bugs; `shown` returns a question in the form for
    clients. The inputs of runs that have not ended are charged to `budget`.
    """

    def __init__(
        self,
        rt: Runtime,
        failed: Callable[[BaseException], object],
        budget: Budget,
        shown: Callable[[dict[str, Any]], dict[str, Any]],
        options: HttpOptions,
    ) -> None:
        self._rt = rt
        self._options = options
        self._budget = budget
        self._failed = failed
        self._shown = shown
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()
        self._ended: OrderedDict[str, KeptRun] = OrderedDict()
        self._coming: Counter[str] = Counter()  # reserved places, by owner
        self._size = 0  # bytes of all results

    def __len__(self) -> int:
        return len(self._runs)

    @contextmanager
    def room(self, owner: str, agent: str) -> Generator[None]:
        """Reserve room for one more run, to be kept within the block. Raises MailboxFull."""
        self._make_room(owner, agent)
        self._coming[owner] += 1
        try:
            yield
        finally:
            self._coming -= Counter((owner,))

    def _make_room(self, owner: str, agent: str) -> None:
        """Forget a run if there is no room for one more. Raises MailboxFull if none can be forgotten."""
        self._forget_old()
        most, most_of_one = self._options.runs, self._options.runs_each
        of_owner = [run for run in self._runs.values() if run.owner == owner]
        if len(of_owner) + self._coming[owner] >= most_of_one:
            ended = next((run for run in self._ended.values() if run.owner == owner), None)
            if ended is None:
                raise MailboxFull(agent, most_of_one)
            self._forget(ended)
        elif len(self._runs) + self._coming.total() >= most:
            if not self._ended:
                raise MailboxFull(agent, most)
            self._forget(next(iter(self._ended.values())))

    def keep(
        self, owner: str, agent: str, action: str, place: str, ask: AgentRequest, weight: int = 0
    ) -> KeptRun:
        """Keep a run, and add its id to `place`; its input takes `weight` bytes."""
        run_id = ask.message_id
        account = self._budget.open(lambda: self._give_way(ask))
        place = f"{place}/{run_id}"
        run = KeptRun(run_id, owner, agent, action, place, ask, account, self._rt.entropy.now(), self._shown)
        if weight > SMALL:
            account.charge(weight)
        self._runs[run_id] = run
        ask.on_done = lambda: self._settle(run)
        if ask.done:
            self._settle(run)
        return run

    def _give_way(self, ask: AgentRequest) -> None:
        self._rt.timers.call_at(trio.current_time(), lambda: ask.cancel(SPENT))  # a turn may be running

    def _settle(self, run: KeptRun) -> None:
        """Keep the outcome of a run that has ended, and drop the rest."""
        ask = run.ask
        run.account.close()
        run.ended_at = self._rt.entropy.now()
        error = ask.error
        if error is None:
            try:
                run.output = None if ask.value is None else written_value(ask.value)
            except Exception as bug:
                self._failed(bug)
                error = LocalProtocolError("the answer could not be made")
            longest = self._options.output_bytes
            if run.output is not None and len(run.output) > longest:
                run.output = None
                error = LocalProtocolError(f"the result is over {longest} bytes, which are not kept")
        if error is not None:
            run.error = problem_data(problem_of(error), self._rt.entropy.new_id())
        ask.value = ask.error = ask.on_done = ask.progress = None
        run.until = trio.current_time() + self._options.run_seconds
        self._ended[run.id] = run
        self._size += len(run.output or b"")
        self._forget_old()

    def _forget_old(self) -> None:
        now = trio.current_time()
        while self._ended:
            oldest = next(iter(self._ended.values()))
            if oldest.until > now and self._size <= self._options.outputs_bytes:
                return
            self._forget(oldest)

    def _forget(self, run: KeptRun) -> None:
        del self._runs[run.id]
        if self._ended.pop(run.id, None) is not None:
            self._size -= len(run.output or b"")

    # ---- looking

    def find(self, owner: str, agent: str, action: str, run_id: str) -> KeptRun:
        """Return a run. Raises NotFound, also for a run of another owner or action."""
        run = self._runs.get(run_id)
        mine = run is not None and (run.owner == owner or owner[:1] != "@" != run.owner[:1])
        if run is None or not mine or (run.agent, run.action) != (agent, action) or self._is_over(run):
            raise NotFound("invocation", run_id[:100], where=agent)
        return run

    def newest(self, owner: str, agent: str, action: str) -> KeptRun:
        """Return an owner's newest run of an action, if possible one that has not ended. Raises NotFound."""
        mine = [run for run in self.of(owner, agent) if run.action == action]
        if not mine:
            raise NotFound("invocation", action, where=f"{agent}: a POST begins one")
        return next((run for run in mine if run.ended_at is None), mine[0])

    def of(self, owner: str, agent: str) -> Iterator[KeptRun]:
        """Return an owner's runs at an agent, the newest first."""
        for run in reversed(self._runs.values()):
            if run.owner == owner and run.agent == agent and not self._is_over(run):
                yield run

    def _is_over(self, run: KeptRun) -> bool:
        return run.ended_at is not None and run.until <= trio.current_time()
