"""Random stories whose outcome OTP defines: told step by step, each new step tried out in our replay.

Left out is what real time leaves open: a step, or a second forced end, at the instant of a forced end; an
exit of a child that is just being stopped; restarts less than a second from the edge of a window, as OTP
counts whole seconds and we do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .replay import Child, Plan, SupLife, World
from .stories import TICKS_PER_SECOND, Call, Exit, Start, Story, Sup, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from lmos_actors.supervision import AutoShutdown, Strategy

    from .stories import Reason, Request, Step

STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")
AUTO_SHUTDOWNS: tuple[AutoShutdown, ...] = ("never", "never", "any_significant", "all_significant")
REASONS: tuple[Reason, ...] = ("error", "error", "error", "normal", "shutdown", "shutdown_detail")
REQUESTS: tuple[Request, ...] = ("terminate", "terminate", "restart", "delete")
REQUESTS_TO_IDLE: tuple[Request, ...] = ("restart", "restart", "delete")
MOST_EVENTS = 48


class Watched(Plan[Child]):
    """A plan that remembers when restarts were counted, to see who comes close to a window's edge."""

    __slots__ = ("counted",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counted: list[float] = []

    def _within_limit(self, cause: BaseException | None, now: float) -> bool:
        self.counted.append(now)
        return super()._within_limit(cause, now)


def at_an_edge(plan: Watched) -> bool:
    return any(
        abs(later - earlier - plan.spec.max_seconds) < 1
        for number, later in enumerate(plan.counted)
        for earlier in plan.counted[:number]
    )


def try_out(story: Story) -> World | None:
    """Tell the story here; None if its outcome depends on more than OTP's rules."""
    plans: list[Watched] = []

    def watched(*args: Any) -> Watched:
        plans.append(Watched(*args))
        return plans[-1]

    world = World(story, watched)  # type: ignore[arg-type]
    observed = world.run()
    steps = [step.at / TICKS_PER_SECOND for step in story.steps]
    instants = [*steps, story.end / TICKS_PER_SECOND, *world.wakes]
    if world.untimely or len(set(instants)) < len(instants) or len(observed.events) > MOST_EVENTS:
        return None
    if "unanswered" in observed.answers or any(map(at_an_edge, plans)):
        return None
    return world


class Teller:
    """Makes up stories of at most `seconds` before the final look, all from one stream of random numbers."""

    def __init__(self, random: Random, seconds: int) -> None:
        self.random = random
        self.seconds = seconds

    def stories(self) -> Iterator[Story]:
        while True:
            story = self._story()
            if story is not None:
                yield story

    def _story(self) -> Story | None:
        story = Story(self._sup("r", 0, "never"), (), 2)
        if try_out(story) is None:
            return None
        for second in range(1, self.seconds):
            story = self._go_on(story, second * TICKS_PER_SECOND)
        for end in range(self.seconds * TICKS_PER_SECOND + 1, (self.seconds + 8) * TICKS_PER_SECOND):
            whole = msgspec.structs.replace(story, end=end)
            if try_out(whole) is not None:
                return whole
        return None

    def _go_on(self, story: Story, at: int) -> Story:
        """The story with one more step at this tick, or as it was."""
        if self.random.random() < 0.2:
            return story
        # The stop at the end must not meet anything: it is put far behind while the story grows.
        world = World(msgspec.structs.replace(story, end=at + 40))
        world.run(until=at / TICKS_PER_SECOND)
        root = world.lives.get(story.tree.name)
        if root is None or (not root.alive and self.random.random() < 0.9):
            return story
        for _ in range(4):
            longer = Story(story.tree, (*story.steps, self._step(world, at)), at + 41)
            if try_out(longer) is not None:
                return longer
        return story

    def _step(self, world: World, at: int) -> Step:
        random = self.random
        sup = self._addressee(world)
        workers = [name for name, child in sup.names.items() if isinstance(child.node, Worker)]
        what = random.random()
        if what < 0.6 and workers:
            number = 1 if random.random() < 0.7 else min(len(workers), random.choice((2, 2, 3)))
            return Exit(at, sup.path, tuple(random.sample(workers, number)), random.choice(REASONS))
        names = list(sup.names)
        if what < 0.72:
            name = random.choice([*names, "f", "g", "h", "i", "j"])
            auto = sup.plan.spec.auto_shutdown if random.random() < 0.9 else "any_significant"
            return Start(at, sup.path, self._node(name, sup.path.count("/") + 1, auto))
        idle = [name for name, child in sup.names.items() if child.status != "running"]
        if idle and random.random() < 0.6:
            return Call(at, sup.path, random.choice(REQUESTS_TO_IDLE), random.choice(idle))
        return Call(at, sup.path, random.choice(REQUESTS), random.choice([*names, *names, *names, "nobody"]))

    def _addressee(self, world: World) -> SupLife:
        """Any supervisor, but rather one that is busy, rarely one that is gone."""
        sups = [life for life in world.lives.values() if isinstance(life, SupLife)]
        alive = [life for life in sups if life.alive]
        busy = [life for life in alive if life.busy]
        if busy and self.random.random() < 0.6:
            return self.random.choice(busy)
        return self.random.choice(alive if alive and self.random.random() < 0.97 else sups)

    def _sup(self, name: str, depth: int, owner_auto: str) -> Sup:
        random = self.random
        auto = random.choice(AUTO_SHUTDOWNS)
        size = random.choice((0, 1, 2, 2, 3, 3, 4)) if depth else random.choice((2, 3, 3, 4, 5))
        restart, significant = self._kind(owner_auto)
        return Sup(
            name,
            tuple(self._node(child, depth + 1, auto) for child in "abcde"[:size]),
            strategy=random.choice(STRATEGIES),
            intensity=random.choice((0, 1, 1, 2, 2, 3) if depth else (1, 2, 3, 4)),
            period=random.choice((1, 2, 4, 6, 20)),
            auto_shutdown=auto,
            restart=restart,
            significant=significant,
        )

    def _node(self, name: str, depth: int, owner_auto: str) -> Worker | Sup:
        random = self.random
        if depth < 3 and random.random() < 0.25:
            return self._sup(name, depth, owner_auto)
        restart, significant = self._kind(owner_auto)
        hang = random.random() < 0.2
        return Worker(
            name,
            restart=restart,
            shutdown=random.choice((1, 3, 5)) if hang else random.choice((1, 1, 1, "brutal")),
            significant=significant,
            hang=hang,
            fails=self._fails(),
        )

    def _kind(self, owner_auto: str) -> tuple[Any, bool]:
        restart = self.random.choice(("permanent", "permanent", "transient", "temporary"))
        significant = restart != "permanent" and owner_auto != "never" and self.random.random() < 0.7
        return restart, significant

    def _fails(self) -> tuple[int, ...]:
        if self.random.random() < 0.75:
            return ()
        first = self.random.choice((1, 2, 2, 2, 2, 2, 3, 3, 3, 3)) if self.random.random() < 0.9 else 4
        return tuple(range(first, first + self.random.choice((1, 1, 2, 3))))
