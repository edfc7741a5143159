"""Random programs of agents that wait for each other, and a model that finds circles of seats by force.

A program is a tree of messages: each names an agent and an action, and the steps that the action takes. The
agents write down what each run waits for, so the model needs nothing of what the package finds out itself; of
the mailboxes it takes who stands where. It strikes out whatever can go on, again and again, until nothing
changes, and walks through the rest.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from lmos_actors import Agent, AgentError, ChildSpec, MailboxFull, MailboxOptions, Ref, action, invoke_all
from lmos_actors.actors import CircleSearch, slot_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from lmos_actors import Node

Fact: TypeAlias = "tuple[Any, ...]"
"""A node of the model: `("run", agent, number)`, `("turns", agent)`, `("seat", agent)` and others."""


Key: TypeAlias = "tuple[str, int]"
"""An agent, and the number of a message to it: `invoke_all` sends one number to several agents."""


@attrs.define(eq=False)
class Message:
    """One message of a program: where it goes, and the steps that its action takes."""

    agent: str
    action: str
    steps: list[Any]
    number: int = -1


@attrs.define(eq=False)
class Step:
    """What an action does: `verb` says how it sends its messages, or that it sleeps or forks."""

    verb: str
    messages: list[Message] = attrs.Factory(list)
    seconds: float = 0.0


class Records:
    """What the agents of one program have written down."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.runs: dict[Key, set[Key]] = {}  # open runs, and the messages that each waits for
        self.refused: dict[int, MailboxFull] = {}
        self.begun: set[int] = set()
        self.waits: dict[trio.CancelScope, None] = {}  # of the tasks that send or ask now
        self.judged = False

    @contextmanager
    def wait(self) -> Generator[None]:
        """Let the wait in a block be one that can be cancelled."""
        with trio.CancelScope() as scope:
            self.waits[scope] = None
            try:
                yield
            finally:
                del self.waits[scope]

    def take(self, message: Message) -> Message:
        """Number a message and all that come of it."""
        message.number = len(self.messages)
        self.messages.append(message)
        for step in message.steps:
            for inner in step.messages:
                if step.verb == "all":  # which sends the first to all of them: what that sends is sent once
                    inner.steps = [each for each in inner.steps if each.verb == "sleep"]
                self.take(inner)
        return message


RECORDS = Records()


class Player(Agent, behaviours=("shut", "open")):
    """Takes the steps of the messages that it gets."""

    def ref_to(self, message: Message) -> Ref[Player]:
        return self.find(Player, message.agent)

    @action
    def turn(self, number: int) -> None:
        RECORDS.begun.add(number)
        for step in RECORDS.messages[number].steps:
            for message in step.messages:
                self.send_on(message)

    @action
    def open_up(self, number: int) -> None:
        RECORDS.begun.add(number)
        self.become("open" if self.behaviour == "shut" else "shut")

    @action(when=("open",), postpone=True)
    def enter(self, number: int) -> None:
        self.turn_again(number)

    def turn_again(self, number: int) -> None:
        RECORDS.begun.add(number)
        for step in RECORDS.messages[number].steps:
            for message in step.messages:
                self.send_on(message)

    def send_on(self, message: Message) -> None:
        try:
            self.send(self.ref_to(message), getattr(Player, message.action), message.number)
        except MailboxFull as error:
            RECORDS.refused[message.number] = error

    @action
    async def run(self, number: int) -> None:
        await self.take_steps(number)

    @action(concurrency=2)
    async def pair(self, number: int) -> None:
        await self.take_steps(number)

    async def take_steps(self, number: int) -> None:
        RECORDS.begun.add(number)
        key = self.path, number
        RECORDS.runs[key] = set()
        try:
            for step in RECORDS.messages[number].steps:
                await self.take_step(key, step)
        finally:
            del RECORDS.runs[key]

    async def take_step(self, run: Key, step: Step) -> None:
        if step.verb == "sleep":
            await trio.sleep(step.seconds)
        elif step.verb == "send":
            for message in step.messages:
                self.send_on(message)
        elif step.verb == "all":
            same = {each.agent: each for each in step.messages if each.action == step.messages[0].action}
            await self.wait_for(run, step.verb, list(same.values()))
        else:
            async with trio.open_nursery() as nursery:
                for message in step.messages:
                    nursery.start_soon(self.wait_for, run, step.verb, [message])

    async def wait_for(self, run: Key, verb: str, messages: list[Message]) -> None:
        first = messages[0]
        keys = {(each.agent, first.number) for each in messages}
        RECORDS.runs[run] |= keys
        ref, handle = self.ref_to(first), getattr(Player, first.action)
        try:
            with RECORDS.wait():
                if verb == "tell":
                    await ref.tell(handle, first.number)
                elif verb == "ask":
                    await ref.invoke(handle, first.number)
                elif verb == "begin":
                    async with ref.begin(handle, first.number) as call:
                        await trio.sleep(0.5)
                        await call.result()
                else:  # the same number for all: what it does is done once for each
                    await invoke_all([self.ref_to(each) for each in messages], handle, first.number)
        except MailboxFull as error:
            RECORDS.refused[first.number] = error
        except AgentError:
            assert RECORDS.judged  # the node ends
        finally:
            RECORDS.runs[run] -= keys


class Serial(Player, serial=True):
    """Does one thing at a time."""


class Shadow(CircleSearch):
    """Notes which messages are to be refused, and refuses none of them."""

    def __init__(self, rt: Any) -> None:
        super().__init__(rt)
        self.found: dict[Any, tuple[str, ...]] = {}

    def closed_by(self, envelope: Any) -> tuple[str, ...]:
        circle = super().closed_by(envelope)
        if circle:
            self.found.setdefault(envelope, circle)
        return ()

    def refuse(self, envelope: Any, circle: tuple[str, ...]) -> bool:
        self.found.setdefault(envelope, circle)
        return False


AGENTS = ("a", "b", "c")


async def start_players(node: Node, kinds: Iterable[tuple[type[Player], int]]) -> list[Ref[Player]]:
    """Start the agents, of those classes and with so many seats each."""
    specs = [
        ChildSpec(name, partial(cls), mailbox=MailboxOptions(size=size))
        for name, (cls, size) in zip(AGENTS, kinds, strict=False)
    ]
    return [await node.start_child(spec) for spec in specs]


# ---- programs by number


ACTIONS: Final = ("turn", "turn", "run", "run", "run", "pair", "enter", "open_up")
VERBS: Final = ("send", "send", "tell", "tell", "ask", "begin", "all")
SECONDS: Final = (0.0, 0.5, 1.0, 2.0)


def program(seed: int) -> tuple[list[tuple[type[Player], int]], list[tuple[float, Message]]]:
    """Return the program of that number: the agents, and the first messages with their instants."""
    chance = Random(seed)
    kinds = [(chance.choice([Player, Serial]), chance.randint(1, 2)) for _ in AGENTS]
    count = chance.randint(1, 8)
    return kinds, [(chance.choice(SECONDS[:3]), _message(chance, chance.randint(0, 2))) for _ in range(count)]


def _message(chance: Random, depth: int) -> Message:
    return Message(chance.choice(AGENTS), chance.choice(ACTIONS), _steps(chance, depth) if depth else [])


def _steps(chance: Random, depth: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(chance.randint(0, 3)):
        if chance.random() < 0.3:
            steps.append(Step("sleep", [], chance.choice(SECONDS)))
        else:
            verb, count = chance.choice(VERBS), chance.randint(1, 3)
            steps.append(Step(verb, [_message(chance, depth - 1) for _ in range(count)]))
    return steps


# ---- the model


class Model:
    """What waits for what, when nothing goes on any more."""

    def __init__(self, players: list[Ref[Player]]) -> None:
        self.every: dict[Fact, set[Fact]] = defaultdict(set)  # goes on when all of these have
        self.some: dict[Fact, set[Fact]] = defaultdict(set)  # goes on when one of these has
        self.where: dict[Key, Fact] = {}  # what happens next to a message
        self.parked: dict[Any, tuple[Fact, Fact]] = {}  # who waits, and for which seat
        slots = [slot_of(player) for player in players]
        for slot in slots:
            self._take_mailbox(slot, slot.extra)
        for slot in slots:
            self._take_line(slot)
        for run, keys in RECORDS.runs.items():
            self.every["run", *run] |= {self.where[key] for key in keys if key in self.where}

    def _take_mailbox(self, slot: Any, extra: Any) -> None:
        path = slot.path
        turns, seat, aside = ("turns", path), ("seat", path), ("aside", path)
        runs = {run: ("run", path, run.args[0]) for run in extra.runs} if extra is not None else {}
        for run, fact in runs.items():
            self.where[path, run.args[0]] = fact
        for op, line in extra.pending.items() if extra is not None else ():
            room = ("room", path, op.name)
            for envelope in line:
                self.where[path, envelope.args[0]] = room
                self.some[room] |= {fact for run, fact in runs.items() if run.op.original is op}
                if not _is_own(envelope):
                    self.some[seat] |= self.some[room]
        for item in (item for item in slot.queue if not hasattr(item, "take")):  # turns of timers
            self.where[path, _number(item)] = turns
            if not _is_own(item):
                self.some[seat].add(turns)
        for item in extra.stash.items.values() if extra is not None and extra.stash is not None else ():
            self.where[path, _number(item)] = aside
            self.some[aside] |= {turns, *runs.values()}
            if not _is_own(item):
                self.some[seat].add(turns)
        if slot.serial:
            self.every[turns] |= {*runs.values()}

    def _take_line(self, slot: Any) -> None:
        seat = ("seat", slot.path)
        for envelope in (slot.extra.parked or ()) if slot.extra is not None else ():
            key = slot.path, envelope.args[0]
            self.where[key] = seat
            sender = envelope.sender
            if sender is not None and envelope in sender.extra.out:
                self.parked[envelope] = ("turns", sender.path), seat
                self.every["turns", sender.path].add(seat)
            for run, keys in RECORDS.runs.items():
                if key in keys:
                    self.parked[envelope] = ("run", *run), seat

    def circles(self) -> list[set[Any]]:
        """Return the messages that wait for a seat in a circle; together those of circles that touch."""
        links = self._stuck()
        after = {fact: _reached(links, fact) for fact in links}
        found: dict[frozenset[Fact], set[Any]] = defaultdict(set)
        for envelope, (waiter, seat) in self.parked.items():
            if waiter in after.get(seat, ()):
                found[frozenset(fact for fact in after[seat] if seat in after[fact])].add(envelope)
        return list(found.values())

    def _stuck(self) -> dict[Fact, set[Fact]]:
        """Return what cannot go on, with what it waits for."""
        every, some = self.every, self.some
        stuck = {fact for fact in (*every, *some) if every.get(fact) or some.get(fact)}
        while True:
            left = {fact for fact in stuck if every[fact] & stuck or (some[fact] and some[fact] <= stuck)}
            if left == stuck:
                return {fact: (every[fact] | some[fact]) & stuck for fact in stuck}
            stuck = left


def _is_own(item: Any) -> bool:
    """Return whether it is a message that an agent has sent itself, which has a seat of its own."""
    return type(item).__name__ in ("SelfMessage", "SelfEnvelope")


def _number(item: Any) -> int:
    number: int = (item[1] if isinstance(item, tuple) else item.args)[0]
    return number


def _reached(links: dict[Fact, set[Fact]], start: Fact) -> set[Fact]:
    seen: set[Fact] = set()
    left = [*links[start]]
    while left:
        fact = left.pop()
        if fact not in seen:
            seen.add(fact)
            left += links[fact]
    return seen
