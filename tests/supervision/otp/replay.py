"""The first interpreter of stories: our `Plan` over a tree of records, on a clock of its own.

Each supervisor is a generator that handles one message at a time, as OTP's does, and is deaf while it waits
for a child to stop. It yields seconds to sleep or a `Flag` to wait for.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from lmos_actors.actors import NORMAL, SHUTDOWN, ExitReason, Status
from lmos_actors.errors import ConfigError
from lmos_actors.supervision._plan import Decision as Decision, Plan as Plan

from .stories import (
    TICKS_PER_SECOND,
    Call,
    Exit,
    Observed,
    Snapshot,
    Start,
    Step,
    Story,
    Sup,
    Worker,
    to_spec,
    to_supervisor_spec,
)

if TYPE_CHECKING:
    from lmos_actors.supervision import ChildSpec, SupervisorSpec

REASONS = {
    "error": ExitReason("error", error=RuntimeError("told to")),
    "normal": NORMAL,
    "shutdown": SHUTDOWN,
    "shutdown_detail": ExitReason("shutdown", "detail"),
}


class Flag:
    """Something that happens and can be waited for."""

    def __init__(self) -> None:
        self.waiters: list[Process] = []


Process: TypeAlias = Generator[float | Flag, None, Any]


class Child:
    """The supervisor's record of a child, as the plan wants it."""

    def __init__(self, node: Worker | Sup, path: str) -> None:
        self.node = node
        self.path = path
        self.spec: ChildSpec[Any] | SupervisorSpec = to_spec(node, path, lambda _worker, _path: object)
        self.status: Status = "stopped"
        self.life: WorkerLife | SupLife | None = None


class WorkerLife:
    def __init__(self, owner: SupLife, child: Child, number: int) -> None:
        self.owner = owner
        self.child = child
        self.number = number
        self.alive = True
        self.stopping = False


class World:
    """The clock, what is ready to run, and what was seen."""

    def __init__(self, story: Story, plan: type[Plan[Child]] = Plan) -> None:
        self.story = story
        self.plan = plan
        self.now = 0.0
        self.events: list[str] = []
        self.answers = ["unanswered"] * sum(not isinstance(step, Exit) for step in story.steps)
        self.final: list[Snapshot] = []
        self.starts: Counter[str] = Counter()
        self.lives: dict[str, WorkerLife | SupLife] = {}
        self.wakes: list[float] = []
        self.untimely: list[str] = []
        self._ready: deque[Process] = deque()
        self._heap: list[tuple[float, int, Process]] = []
        self._order = count()

    def run(self, until: float = math.inf) -> Observed:
        """Tell the story up to this time, or to its end."""
        self.spawn(self._tell())
        while self._ready or (self._heap and self._heap[0][0] <= until):
            if not self._ready:
                self.now, _, process = heapq.heappop(self._heap)
                self.spawn(process)
            self._advance(self._ready.popleft())
        return Observed(self.events, self.answers, self.final)

    def number(self, path: str) -> int:
        """Which start at this path the next one is."""
        self.starts[path] += 1
        return self.starts[path]

    def spawn(self, process: Process) -> None:
        self._ready.append(process)

    def raise_flag(self, flag: Flag) -> None:
        self._ready.extend(flag.waiters)
        flag.waiters.clear()

    def note(self, kind: str, path: str, number: int, reason: str = "") -> None:
        tick = int(self.now * TICKS_PER_SECOND)
        self.events.append(f"{tick} {kind} {path} {number} {reason}".rstrip())

    def _advance(self, process: Process) -> None:
        wanted = next(process, None)
        if isinstance(wanted, Flag):
            wanted.waiters.append(process)
        elif wanted is not None:
            heapq.heappush(self._heap, (self.now + wanted, next(self._order), process))

    def _tell(self) -> Process:
        """The storyteller: starts the tree, does the steps, looks, stops the tree."""
        tree = self.story.tree
        root = SupLife(self, tree, tree.name, None, None, self.number(tree.name + "/"))
        if not (yield from root.init()):
            self.note("F", tree.name, root.number)
            return
        root.begin()
        answers = count()
        for step in self.story.steps:
            if step.at / TICKS_PER_SECOND > self.now:
                yield step.at / TICKS_PER_SECOND - self.now
            self._do(step, answers)
        yield self.story.end / TICKS_PER_SECOND - self.now
        if root.alive:
            self.final = list(root.look())
            root.post("stop")

    def _do(self, step: Step, answers: Iterator[int]) -> None:
        if isinstance(step, Exit):
            for name in step.names:
                self._exit(f"{step.sup}/{name}", step.reason)
            return
        answer = next(answers)
        life = self.lives.get(step.sup)
        if not isinstance(life, SupLife) or not life.alive:
            self.answers[answer] = "gone"
            return
        life.post("call", answer, step)

    def _exit(self, path: str, reason: str) -> None:
        life = self.lives.get(path)
        if not isinstance(life, WorkerLife) or not life.alive:
            return
        if life.stopping:
            self.untimely.append(f"{path} exits while it is being stopped")
        life.alive = False
        self.note("e", path, life.number, reason)
        life.owner.post("exit", life.child, life, REASONS[reason])


class SupLife:
    """One incarnation of a supervisor."""

    def __init__(
        self, world: World, node: Sup, path: str, owner: SupLife | None, child: Child | None, number: int
    ) -> None:
        self.world = world
        self.path = path
        self.owner = owner
        self.child = child
        self.number = number
        self.alive = True
        self.busy = False
        self.ended = Flag()
        self.plan = world.plan(to_supervisor_spec(node, path, lambda _worker, _path: object))
        self.names = {one.name: Child(one, f"{path}/{one.name}") for one in node.children}
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._mail = Flag()
        for one in self.names.values():
            self.plan.add(one)

    def init(self) -> Generator[float | Flag, None, bool]:
        for child in list(self.plan.children):
            if not (yield from self._start(child)):
                yield from self._stop_all()
                self.alive = False
                return False
        return True

    def begin(self) -> None:
        self.world.lives[self.path] = self
        self.world.note("S", self.path, self.number)
        self.world.spawn(self._loop())

    def post(self, *message: Any) -> None:
        self._inbox.append(message)
        self.world.raise_flag(self._mail)

    def look(self) -> Iterator[Snapshot]:
        if self.busy:
            self.world.untimely.append(f"{self.path} is busy at the end")
        which: list[tuple[str, str]] = [(child.spec.name, status) for child, status in self.plan.which()]
        counts = self.plan.count()
        yield Snapshot(self.path, which, (counts.specs, counts.active, counts.supervisors, counts.workers))
        for child in self.plan.children:
            if isinstance(child.life, SupLife):
                yield from child.life.look()

    def _loop(self) -> Process:
        while True:
            while not self._inbox:
                self.busy = False
                yield self._mail
            self.busy = True
            kind, *content = self._inbox.popleft()
            if kind == "stop" or (yield from self._handle(kind, *content)):
                break
        yield from self._stop_all()
        self._end(told=kind == "stop")

    def _end(self, told: bool) -> None:
        self.alive = False
        self.world.note("E", self.path, self.number, "shutdown")
        for kind, *content in self._inbox:
            if kind == "call":
                self.world.answers[content[0]] = "gone"
        self.world.raise_flag(self.ended)
        if self.owner is not None and not told:
            self.owner.post("exit", self.child, self, SHUTDOWN)

    def _handle(self, kind: str, *content: Any) -> Generator[float | Flag, None, bool]:
        now = self.world.now
        if kind == "call":
            answer, step = content
            self.world.answers[answer] = yield from self._answer(step)
            return False
        if kind == "again":
            return (yield from self._carry_out(self.plan.try_again(content[0], now)))
        child, life, reason = content
        if child.life is not life:
            return False
        child.life = None
        return (yield from self._carry_out(self.plan.exited(child, reason, now)))

    def _carry_out(self, decision: Decision[Child]) -> Generator[float | Flag, None, bool]:
        for child in decision.stop:
            yield from self._stop(child)
            self.plan.stopped(child)
        for child in decision.forget:
            del self.names[child.spec.name]
        for child in decision.start:
            if (yield from self._start(child)):
                continue
            failed = self.plan.start_failed(child, RuntimeError("start fails"), self.world.now)
            return (yield from self._carry_out(failed))
        if decision.again is not None:
            self.post("again", decision.again)
        return decision.end is not None

    def _start(self, child: Child) -> Generator[float | Flag, None, bool]:
        node, path, world = child.node, child.path, self.world
        if isinstance(node, Sup):
            life = SupLife(world, node, path, self, child, world.number(path + "/"))
            if not (yield from life.init()):
                world.note("F", path, life.number)
                return False
            child.life = life
            life.begin()
        else:
            number = world.number(path)
            if number in node.fails:
                world.note("f", path, number)
                return False
            child.life = world.lives[path] = WorkerLife(self, child, number)
            world.note("s", path, number)
        self.plan.started(child)
        return True

    def _stop(self, child: Child) -> Process:
        life, child.life = child.life, None
        self.plan.become(child, "stopping")
        if isinstance(life, SupLife) and life.alive:
            life.post("stop")
            yield life.ended
        elif isinstance(life, WorkerLife) and life.alive:
            node = child.node
            assert isinstance(node, Worker)
            if node.hang and node.shutdown != "brutal":
                life.stopping = True
                yield node.shutdown / TICKS_PER_SECOND
                self.world.wakes.append(self.world.now)
            if life.alive:
                life.alive = False
                killed = node.hang or node.shutdown == "brutal"
                self.world.note("e", child.path, life.number, "killed" if killed else "shutdown")

    def _stop_all(self) -> Process:
        for child in self.plan.stop_order():
            yield from self._stop(child)
            self.plan.stopped(child)

    def _answer(self, step: Call | Start) -> Generator[float | Flag, None, str]:
        if isinstance(step, Start):
            return (yield from self._start_child(step.child))
        child = self.names.get(step.name)
        word: str
        if step.request == "terminate":
            word = self.plan.check_terminate(child)
        elif step.request == "restart":
            word = self.plan.check_restart(child)
        else:
            word = self.plan.check_delete(child)
        if word != "ok":
            return word
        assert child is not None
        if step.request == "terminate":
            yield from self._stop(child)
            if self.plan.stopped(child):
                del self.names[step.name]
        elif step.request == "restart":
            return "ok" if (yield from self._start(child)) else "failed"
        else:
            self.plan.remove(child)
            del self.names[step.name]
        return "ok"

    def _start_child(self, node: Worker | Sup) -> Generator[float | Flag, None, str]:
        child = Child(node, f"{self.path}/{node.name}")
        try:
            self.plan.spec.check_child(child.spec)
        except ConfigError:
            return "refused"
        word = self.plan.check_start(self.names.get(node.name))
        if word != "ok":
            return word
        if not (yield from self._start(child)):
            return "failed"
        self.plan.add(child)
        self.names[node.name] = child
        return "ok"


def run_story(story: Story, plan: type[Plan[Child]] = Plan) -> Observed:
    return World(story, plan).run()
