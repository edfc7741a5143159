"""The second interpreter of stories: real agents under real supervisors, on virtual time.

It sees less than OTP's recorder: not when supervisors start and end, and not which kind of taken a name is.
`as_seen_here` leaves the same out of a record. An agent that hangs does so in leaving its lifespan, so
its own exit takes it a step of its task; `exits_in_line` is false for stories that ask for more.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from lmos_actors import (
    Agent,
    ConfigError,
    NotFound,
    StartFailed,
    Supervisor,
    SupervisorSpec,
    open_node,
    simulate,
)
from lmos_actors.errors import NameTaken, WrongState

from .replay import REASONS
from .stories import (
    TICKS_PER_SECOND,
    Call,
    Exit,
    Observed,
    Snapshot,
    Start,
    Story,
    Sup,
    Worker,
    to_spec,
    to_supervisor_spec,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lmos_actors import Node


class Plain(Agent):
    pass


class Hanging(Agent):
    told: dict[str, str]
    place: str

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        yield
        if self.place not in self.told:
            await trio.sleep_forever()


def hangs(worker: Worker) -> bool:
    return worker.hang and worker.shutdown != "brutal"


class Stage:
    """One story being played; also the instrument that sees the agents' starts and ends."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.events: list[str] = []
        self.answers = ["unanswered"] * sum(not isinstance(step, Exit) for step in story.steps)
        self.final: list[Snapshot] = []
        self._starts: Counter[str] = Counter()
        self._workers: dict[str, Worker] = {}
        self._told: dict[str, str] = {}

    def record(self, kind: str, agent: str, fields: dict[str, object]) -> None:
        if kind == "started":
            self._note("s", agent)
        elif kind in ("stopped", "crashed"):
            worker = self._workers[agent]
            by_force = "killed" if worker.hang or worker.shutdown == "brutal" else "shutdown"
            self._note("e", agent, self._told.pop(agent, by_force))

    def _note(self, kind: str, path: str, reason: str = "") -> None:
        tick = round(trio.current_time() * TICKS_PER_SECOND)
        self.events.append(f"{tick} {kind} {path} {self._starts[path]} {reason}".rstrip())

    def factory(self, worker: Worker, path: str) -> Callable[[], Agent]:
        def make() -> Agent:
            self._starts[path] += 1
            if self._starts[path] in worker.fails:
                self._note("f", path)
                raise RuntimeError("start fails")
            self._workers[path] = worker
            return Hanging(told=self._told, place=path) if hangs(worker) else Plain()

        return make

    async def play(self) -> None:
        tree = to_supervisor_spec(self.story.tree, self.story.tree.name, self.factory)
        async with open_node(instrument=self) as node, trio.open_nursery() as nursery:
            try:
                await node.start_supervisor(attrs.evolve(tree, restart="temporary"))
            except StartFailed:
                return
            asked = 0
            for step in self.story.steps:
                await trio.sleep_until(step.at / TICKS_PER_SECOND)
                if isinstance(step, Exit):
                    self._exit(node, step)
                else:
                    nursery.start_soon(self._ask, node, step, asked)
                    asked += 1
            await trio.sleep_until(self.story.end / TICKS_PER_SECOND)
            root = supervisor(node, tree.name)
            if root is not None:
                self._look(root)

    def _exit(self, node: Node, step: Exit) -> None:
        sup = supervisor(node, step.sup)
        for name in step.names:
            child: Any = next((one for one in sup.children if one.label == name), None) if sup else None
            if child is not None and child.status == "running" and child.agent is not None:
                self._told[child.path] = step.reason
                child.die(REASONS[step.reason])

    async def _ask(self, node: Node, step: Call | Start, number: int) -> None:
        sup = supervisor(node, step.sup)
        try:
            if sup is None:
                self.answers[number] = "gone"
            elif isinstance(step, Call):
                await getattr(sup, f"{step.request}_child")(step.name)
                self.answers[number] = "ok"
            else:
                await self._start(sup, step)
                self.answers[number] = "ok"
        except WrongState as error:
            self.answers[number] = "gone" if sup is not None and error.path == sup.path else error.state
        except (NotFound, NameTaken, ConfigError, StartFailed) as error:
            self.answers[number] = WORDS[type(error)]

    async def _start(self, sup: Supervisor, step: Start) -> None:
        spec = to_spec(step.child, f"{step.sup}/{step.child.name}", self.factory)
        if isinstance(spec, SupervisorSpec):
            await sup.start_supervisor(spec)
        else:
            await sup.start_child(spec)

    def _look(self, sup: Supervisor) -> None:
        counts = sup.count_children()
        which: list[tuple[str, str]] = [(info.name, info.status) for info in sup.which_children()]
        self.final.append(
            Snapshot(sup.path, which, (counts.specs, counts.active, counts.supervisors, counts.workers))
        )
        for child in sup.children:
            if isinstance(child, Supervisor) and child.status == "running":
                self._look(child)


WORDS: dict[type[Exception], str] = {
    NotFound: "not_found",
    NameTaken: "taken",
    ConfigError: "refused",
    StartFailed: "failed",
}


def supervisor(node: Node, path: str) -> Supervisor | None:
    found = node.root
    try:
        for name in path.split("/"):
            found = found.supervisor(name)
    except NotFound:
        return None
    return found


def run_story(story: Story) -> Observed:
    stage = Stage(story)
    simulate(stage.play)
    return Observed(stage.events, stage.answers, stage.final)


def as_seen_here(observed: Observed) -> Observed:
    events = [event for event in observed.events if event.split()[1].islower()]
    answers = ["taken" if answer.startswith("already") else answer for answer in observed.answers]
    return Observed(events, answers, observed.final)


def exits_in_line(story: Story) -> bool:
    slow = _hanging(story.tree, "")
    for step in story.steps:
        if isinstance(step, Start):
            slow |= _hanging(step.child, f"{step.sup}/")
    return not any(
        isinstance(step, Exit)
        and len(step.names) > 1
        and any(f"{step.sup}/{name}" in slow for name in step.names)
        for step in story.steps
    )


def _hanging(node: Worker | Sup, above: str) -> set[str]:
    path = above + node.name
    if isinstance(node, Worker):
        return {path} if hangs(node) else set()
    return {place for child in node.children for place in _hanging(child, f"{path}/")}
