"""Agents that do at random what agents can do."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentError,
    ChildSpec,
    Down,
    Event,
    ExitReason,
    Gap,
    LmosActorsError,
    MailboxOptions,
    Pool,
    Property,
    Ref,
    SupervisorSpec,
    action,
    event,
    prop,
)
from lmos_actors.actors import hold, keep_state, release, set_service_time, slot_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

COUNT = 7  # rogues in the tree


class Bug(Exception):
    """What a rogue raises by mistake."""


class Rogue(Agent, behaviours=("day", "night")):
    """Does what it is told, however unwise."""

    level: Property[int] = prop(default=0)
    ticked: Event[int] = event()
    depth: int = 0

    # ---- being asked

    @action
    def count(self, n: int) -> int:
        self.level += 1
        return n

    @action
    async def wait(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(concurrency=3)
    async def wait_side_by_side(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(when="night", postpone=True)
    def dream(self, n: int) -> int:
        return n

    @action(when="night", postpone=True)
    async def sleepwalk(self, seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    @action(when="day")
    def work(self, n: int) -> int:
        return n

    @action
    def fussy(self, n: int) -> int:
        if self.behaviour == "day" and self.random.random() < 0.5:
            self.stash()
        return n

    @action
    async def fussy_run(self, seconds: float) -> float:
        if self.behaviour == "day" and self.random.random() < 0.5:
            self.stash()
        await trio.sleep(seconds)
        return seconds

    @action
    def fail(self) -> None:
        raise ActionFailed("as agreed")

    @action
    def crash(self) -> None:
        raise Bug("now")

    @action
    async def crash_later(self, seconds: float) -> None:
        await trio.sleep(seconds)
        raise Bug("later")

    @action
    async def numbers(self, count: int) -> Any:
        for number in range(count):
            await trio.sleep(0.1)
            yield number

    # ---- being told to do something; what cannot be done now is no matter

    @action
    def do(self, deed: list[Any]) -> None:
        self.at_once(*deed)

    @action(concurrency=4)
    async def do_slowly(self, deed: list[Any]) -> None:
        try:
            await self.in_time(*deed)
        except (AgentError, LmosActorsError, RuntimeError):
            self.level += 1

    def other(self, number: int) -> Ref[Rogue]:
        return self.find(Rogue, f"rogue-{number % COUNT}")

    def at_once(self, what: str, number: int, seconds: float) -> None:
        other = self.other(number)
        try:
            if what == "link":
                self.link(other)
            elif what == "unlink":
                self.unlink(other)
            elif what == "monitor":
                self.monitor(other, self.on_down)
            elif what == "follow":
                self.follow(other, Rogue.ticked, self.on_tick)
            elif what == "follow topic":
                self.follow(self.topic("news", int), self.on_tick)
            elif what == "publish":
                self.topic("news", int).publish(number)
            elif what == "join":
                self.join_group("all")
            elif what == "leave":
                self.leave_group("all")
            elif what == "broadcast":
                self.group("all", Rogue).broadcast(Rogue.count, number)
            elif what == "send":
                self.send(other, Rogue.count, number)
            elif what == "send run":
                self.send(other, Rogue.wait, seconds)
            elif what == "send fussy":
                self.send(self.ref, Rogue.fussy, number)
                self.send(self.ref, Rogue.fussy_run, seconds)
            elif what == "send self":
                self.send(self.ref, Rogue.count, number)
            elif what == "emit":
                self.ticked.emit(number)
            elif what == "become":
                self.become("night" if self.behaviour == "day" else "day")
            elif what == "unstash":
                self.unstash_all()
            elif what == "state timeout":
                self.state_timeout(seconds, self.on_tick, number)
            elif what == "after":
                self.after(seconds, self.on_tick, number)
            elif what == "crash after":
                self.after(seconds, self.blow)
            elif what == "task":
                self.nursery.start_soon(self.a_task, seconds, number)
            elif what == "stop":
                self.stop()
            elif what == "stop badly":
                self.stop(ExitReason("error", error=Bug("on purpose")))
            elif what == "tell self":
                self.ref.tell_nowait(Rogue.count, number)
                self.ref.tell_nowait(Rogue.dream, number)
            elif what == "publish list":
                self.topic("lists", list[int]).publish([number, 1])
            elif what == "follow lists":
                self.follow(self.topic("lists", list[int]), self.on_list, size=2, on_gap=self.on_gap)
            elif what == "follow crew":
                self.follow(self.find(Rogue, "crew"), Rogue.ticked, self.on_tick)
            elif what == "send crew":
                self.send(self.find(Rogue, "crew"), Rogue.fussy, number)
            elif what == "publish self stop":
                self.topic("news", int).publish(number)
                self.stop()
            elif what == "become twice":
                self.become("night")
                self.unstash_all()
                self.become("day")
            elif what == "become and stash":
                self.become("night" if self.behaviour == "day" else "day")
                if self.random.random() < 0.5:
                    self.stash()
            elif what == "become and crash":
                self.become("night" if self.behaviour == "day" else "day")
                raise Bug("after becoming")
            elif what == "become after":
                self.after(seconds, self.turn_over)
            elif what == "hold":
                hold(other)
            elif what == "release" and slot_of(other).held:
                release(other)
            elif what == "hold and release":
                hold(other)
                self.ref.tell_nowait(Rogue.count, number)
                release(other)
            elif what == "serve":
                set_service_time(other, seconds)
            elif what == "keep state":
                keep_state(other)
        except (AgentError, trio.WouldBlock):
            self.level += 1

    def turn_over(self) -> None:
        self.become("night" if self.behaviour == "day" else "day")

    def on_list(self, numbers: list[int]) -> None:
        numbers.append(3)
        assert len(numbers) == 3

    def on_gap(self, gap: Gap) -> None:
        self.level += 1

    async def in_time(self, what: str, number: int, seconds: float) -> None:
        other = self.other(number)
        if what == "ask":
            await other.within(1 + seconds).invoke(Rogue.count, number)
        elif what == "ask run":
            with trio.move_on_after(seconds):
                await other.invoke(Rogue.wait, 2 * seconds)
        elif what == "child":
            if self.depth < 2:
                await self.start(Rogue, depth=self.depth + 1)
        elif what == "observe":
            async with other.observe(Rogue.level) as levels:
                with trio.move_on_after(seconds):
                    async for _ in levels:
                        pass
        elif what == "linked task":
            async with other.link():
                await trio.sleep(seconds)
        elif what == "linked tasks":
            try:
                async with trio.open_nursery() as nursery:
                    for n in range(3):
                        nursery.start_soon(self.linked, self.other(number + n), n, seconds)
            except* (AgentError, LmosActorsError):
                self.level += 1
        elif what == "linked to itself":
            async with self.ref.link():
                await trio.sleep(seconds)
                raise ActionFailed("inside a link")
        elif what == "pool child":
            if self.depth < 2:
                crew = await self.start_pool(Pool(partial(Rogue, depth=self.depth + 1), 2, by="key", name=""))
                crew_follow = self.follow(crew, Rogue.ticked, self.on_tick)
                with trio.move_on_after(seconds):
                    await crew.resize(1 + number % 3)
                with trio.move_on_after(seconds):
                    await crew.invoke(Rogue.count, number)
                if number % 2:
                    crew_follow.cancel()
        elif what == "link child":
            if self.depth < 2:
                child = await self.start(Rogue, depth=self.depth + 1)
                self.link(child)
                await child.tell(Rogue.do, ["join", 0, 0.0])
        elif what == "become slowly":
            self.become("night" if self.behaviour == "day" else "day")
            await trio.sleep(seconds)
            self.become("night" if self.behaviour == "day" else "day")
        elif what == "sub supervisor":
            if self.depth < 2:
                spec = SupervisorSpec(
                    "team",
                    [
                        ChildSpec("a", partial(Rogue, depth=self.depth + 1)),
                        Pool(partial(Rogue, depth=self.depth + 1), 2, name="b"),
                    ],
                    strategy="one_for_all",
                )
                await self.start_supervisor(spec)
        else:
            self.at_once(what, number, seconds)

    async def linked(self, other: Ref[Rogue], n: int, seconds: float) -> None:
        async with other.link():
            await trio.sleep(seconds * n)
            if n == 2:
                raise ActionFailed("linked")

    async def a_task(self, seconds: float, number: int) -> None:
        await trio.sleep(seconds)
        if number % 3 == 0:
            raise Bug("in a task")

    def on_tick(self, number: int) -> None:
        self.level = number
        if number % 4 == 3:
            self.ticked.emit(number - 1)

    def on_down(self, down: Down) -> None:
        self.level = -down.incarnation

    def blow(self) -> None:
        raise Bug("of a timer")


class Trapping(Rogue, trap_exits=True):
    def on_exit(self, down: Down) -> None:
        self.level = -down.incarnation


class Strict(Rogue, serial=True, mailbox=MailboxOptions(size=2, when_full="reject")):
    pass


class Forgetful(Rogue, mailbox=MailboxOptions(size=2, when_full="drop_oldest")):
    pass


class Tight(Rogue, mailbox=MailboxOptions(size=1)):
    pass


class Slow(Rogue):
    """Takes its time to come and to go, and now and then raises while it does."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        if self.random.random() < 0.5:
            self.send(self.ref, Rogue.fussy, 1)
            self.send(self.ref, Rogue.fussy_run, 0.1)
            self.join_group("all")
            self.become("night")
            if self.random.random() < 0.3:
                with suppress(AgentError):
                    self.link(self.other(0))
            self.follow(self.other(1), Rogue.ticked, self.on_tick)
        await trio.sleep(0.05)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.2)
            if self.random.random() < 0.2:
                raise Bug("while leaving")


class Shaky(Rogue):
    """Does not always start."""

    def started(self) -> None:
        self.follow(self.find(Rogue), Rogue.ticked, self.on_tick)
        self.join_group("all")
        if self.incarnation_to_come() > 1 and self.random.random() < 0.3:
            raise Bug("while starting")

    def incarnation_to_come(self) -> int:
        return self._place().incarnation


KINDS: tuple[type[Rogue], ...] = (Rogue, Trapping, Strict, Forgetful, Tight, Slow, Shaky)
assert len(KINDS) == COUNT
AT_ONCE = (
    "link", "unlink", "monitor", "follow", "follow topic", "publish", "join", "leave", "broadcast", "send",
    "send run", "send self", "send fussy", "emit", "become", "unstash", "state timeout", "after",
    "crash after", "task", "stop",
    "stop badly", "tell self", "publish list", "follow lists", "follow crew", "send crew",
    "publish self stop", "become twice", "become and stash", "become and crash", "become after",
    "hold", "release", "hold and release", "serve", "keep state",
)  # fmt: skip
IN_TIME = (
    *AT_ONCE,
    "ask",
    "ask run",
    "child",
    "observe",
    "linked task",
    "linked tasks",
    "linked to itself",
    "pool child",
    "link child",
    "become slowly",
    "sub supervisor",
)
ASKED = (
    "count",
    "wait",
    "wait_side_by_side",
    "dream",
    "sleepwalk",
    "work",
    "fussy",
    "fail",
    "crash",
    "crash_later",
)
