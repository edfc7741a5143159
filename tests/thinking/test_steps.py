"""What the next life finds of a turn may be damaged, newer, or too much: each time the outcome is clear.

And what the turns of a chat agent do while the store fails, and when very many of them are found at once.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from lmos_actors import ActionFailed, ChildSpec, SupervisorSpec, open_node, simulate
from lmos_actors.errors import LmosActorsError, StoreFailed
from lmos_actors.facades import ChatAgent
from lmos_actors.persistence import Delete, Put
from lmos_actors.testing import settle
from tests.thinking import models
from tests.thinking.models import answered
from tests.thinking.test_resumed_at_every_step import (
    Digger,
    Mortal,
    Script,
    World,
    chat,
    first_life,
    kill,
    said_in,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from lmos_actors.llm import ModelItem, ModelRequest
    from lmos_actors.persistence import Batch, Conflict, Durability, Write

ANSWER = "I I I I gold a gold b gold c gold d gold e"
"""What a turn answers that nothing has cut off."""
RESUMED = "I I I I ? ? gold c gold d gold e"
"""What the turn of `first_life` answers, if nothing is wrong with its record."""


# ---- damaged, newer and foreign records


def turn(**fields: Any) -> Callable[[str, str], Write]:
    """Write the record of a turn with these fields."""
    plain = {"version": 1, "text": "dig", "at": 1.0, **fields}
    return lambda key, _: Put("chat turns", key, msgspec.json.encode(plain))


def step(value: bytes, number: int = 1) -> Callable[[str, str], Write]:
    """Write a step, as it would be kept."""
    return lambda _, first: Put("chat steps", f"{first[:-1]}{number}", value)


def model(*tools: dict[str, Any]) -> bytes:
    requests = [{"type": "tool_request", **each} for each in tools]
    return msgspec.json.encode({"type": "said", "message": {"role": "model", "tools": requests}})


DAMAGED: dict[str, tuple[Callable[[str, str], Write], str]] = {
    "no JSON": (lambda key, _: Put("chat turns", key, b"{"), "cannot be read"),
    "no text": (lambda key, _: Put("chat turns", key, b'{"text":"\xff"}'), "cannot be read"),
    "nested": (lambda key, _: Put("chat turns", key, b'{"metadata":' + b"[" * 99_999), "cannot be read"),
    "newer": (turn(version=2), "has the version 2"),
    "counted to the end": (turn(resumed=3), "was resumed 3 times"),
    "too large": (turn(is_too_large=True), "had recorded more than is kept"),
    "parts of an unknown type": (turn(parts=[{"type": "smell"}]), "cannot be read"),
    "parts of no type": (turn(parts=[{}]), "cannot be read"),
    "a step is no JSON": (step(b"\x00"), "step 1 cannot be read"),
    "a step is nested": (step(b"[" * 99_999), "step 1 cannot be read"),
    "a step of an unknown type": (step(b'{"type":"dream"}'), "step 1 cannot be read"),
    "a step of a newer version": (
        step(b'{"type":"back","to":"","why":"","mood":1}'),
        "step 1 cannot be read",
    ),
    "a step is missing": (step(b"{}", 3), "step 2 is missing"),
}

TOLERATED: dict[str, tuple[Callable[[str, str], Write], str]] = {
    "as it was": (turn(), RESUMED),
    "a tool that is gone": (step(model({"id": "a", "name": "drill"})), "I I I ? gold c gold d gold e"),
    "arguments that do not fit": (
        step(model({"id": "a", "name": "dig", "arguments": {"nome": 1}})),
        "I I I ? gold c gold d gold e",
    ),
    "a result that nobody has asked for": (
        step(msgspec.json.encode({"type": "said", "message": {"role": "tool", "id": "q", "name": "x"}}), 2),
        RESUMED,
    ),
    "all steps are gone": (lambda _, first: Delete("chat steps", first), ANSWER),
}


def found(world: World, damage: Callable[[str, str], Write]) -> None:
    """Have the next life find something else."""
    store = world.store
    store.open()
    ((key, _),), ((first, _),) = store.scan("chat turns", limit=9), store.scan("chat steps", limit=9)
    store.commit([[damage(key, first)]], "process")
    store.close()


async def answer_after(damage: Callable[[str, str], Write]) -> Any:
    """Return what the history has of a turn whose record is changed between two lives."""
    world = World()
    await first_life(world)
    found(world, damage)
    async with open_node(tree(world), store=world.store) as node:
        digger = node.find(Digger)
        _, answer = await said_in(digger)
        assert "digger running #1" in node.tree(), "it has crashed"
        assert await answered(digger, "dig", "other", new=True) == ANSWER
        for space in ("chat turns", "chat steps"):
            assert world.store.scan(space, limit=9) == []
    return answer


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_turn_that_cannot_be_resumed_is_given_up_with_the_reason(kind: str) -> None:
    damage, why = DAMAGED[kind]
    answer = simulate(answer_after, damage)
    assert answer.failed.code == "GIVEN_UP"
    assert why in answer.failed.message


@pytest.mark.parametrize("kind", TOLERATED)
def test_a_turn_goes_on_with_what_is_there(kind: str) -> None:
    damage, text = TOLERATED[kind]
    answer = simulate(answer_after, damage)
    assert (answer.failed, answer.text) == (None, text)


def test_many_turns_that_were_given_up_are_summarised_as_others_are() -> None:
    """What the model gets of them is longer than what was said in them."""

    async def main() -> None:
        world = World()
        for _ in range(4):
            world.has_done = trio.Event()
            await first_life(world)
            found(world, turn(version=2))
            async with open_node(tree(world), store=world.store) as node:
                await said_in(node.find(Digger))
        async with open_node(store=world.store) as node:
            await node.start(partial(models.Script, answers=("They failed.", "Yes.")))
            digger = await node.start_child(ChildSpec("digger", partial(Digger, history_tokens=40)))
            assert await answered(digger, "dig", "s") == "Yes."

    simulate(main)


# ---- a store that fails


class Failing(Mortal):
    """A store that fails from a commit on for five seconds."""

    left = -1
    until = 0.0

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        now = self.clock.current_time()
        if self.left == 0:
            self.until = now + 5.0
        self.left -= 1
        if now < self.until:
            raise StoreFailed(self.name, "the disk is full")
        return super().commit(batches, durability)

    def __init__(self) -> None:
        super().__init__()
        self.clock = trio.lowlevel.current_clock()


async def failing_in_a_turn(commit: int) -> bool:
    """Have the store fail in a turn; return whether it came so far."""
    world = World(store=(store := Failing()))
    async with open_node(tree(world), store=store) as node:
        digger = node.find(Digger)
        await digger.ready()
        store.left = commit
        with suppress(ActionFailed):
            await answered(digger, "dig", "s", new=True)
        fails = trio.current_time() < store.until
        await trio.sleep(10)
        assert store.scan("chat turns", limit=9) == []
        assert store.scan("chat steps", limit=9) == []
        before = list(world.did)
        assert len(set(before)) == len(before)
    async with open_node(tree(world), store=store) as node:
        with suppress(ActionFailed):  # its session may be kept or not
            assert len(await said_in(node.find(Digger))) == (0 if fails else 2)
        await settle()
        assert world.did == before, "a turn goes on whose caller was told that it has failed"
    return fails


def test_a_turn_that_fails_with_the_store_is_not_resumed_once_that_works_again() -> None:
    commit = 0
    while simulate(failing_in_a_turn, commit):
        commit += 1
    assert commit > 8


async def failing_in_a_resumed_turn(commit: int) -> bool:
    world = World(store=(store := Failing()))
    await first_life(world)
    store.left = commit
    async with open_node(tree(world), store=store) as node:
        asked, answer = await said_in(node.find(Digger))
        fails = bool(store.until)
        assert asked.text == "dig"
        assert answer.failed is None or answer.failed.code == "INTERNAL_ERROR"
        assert len(set(world.did)) == len(world.did)
        assert store.scan("chat turns", limit=9) == []
    return fails


def test_a_resumed_turn_outlives_a_store_that_fails_or_is_found_as_failed() -> None:
    commit = 0
    while simulate(failing_in_a_resumed_turn, commit):
        commit += 1
    assert commit > 8


# ---- bounds


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_turn_that_records_too_much_goes_on_and_is_not_resumed(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmos_actors.persistence._sessions.TURN_STEPS", steps)

    async def main() -> None:
        world = World()
        async with open_node(tree(world), store=world.store) as node, trio.open_nursery() as nursery:
            digger = node.find(Digger)
            await digger.ready()
            assert await answered(digger, "dig", "other", new=True) == ANSWER
            world.has_done = trio.Event()
            nursery.start_soon(chat, digger)
            await world.has_done.wait()
            await trio.sleep(0.07)  # by then it has recorded four steps, and goes on
            kill(node, world)
        world.store.is_dead = False
        async with open_node(tree(world), store=world.store) as node:
            _, answer = await said_in(node.find(Digger))
            assert answer.failed is not None
            assert "had recorded more than is kept" in answer.failed.message

    simulate(main)


def test_an_agent_that_is_restarted_again_and_again_gives_its_turns_up() -> None:
    async def main() -> None:
        world = World()
        await first_life(world)
        async with open_node(tree(world), store=world.store) as node:
            digger = node.find(Digger)
            for _ in range(3):
                await trio.sleep(0.005)
                await node.root.terminate_child("digger")
                await node.root.restart_child("digger")
            _, answer = await said_in(digger)
            assert answer.failed is not None
            assert "was resumed 3 times" in answer.failed.message
        assert sorted(world.did) == ["a", "b"]

    simulate(main)


class Waiting(Script):
    """Answers when it may, and notes when it was asked."""

    may: Any
    asked: list[float]
    are_asked: Any
    """An event for when as many have asked as there are."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        self.asked.append(trio.current_time())
        if len(self.asked) == self.concurrency:
            self.are_asked.set()
        await self.may.wait()
        async for item in super().respond(request):
            yield item  # noqa: ASYNC119 -- the runtime closes what it runs


@pytest.mark.slow  # its lines: the tests above
def test_many_turns_begin_one_after_the_other_and_none_waits_for_one_that_takes_long() -> None:
    turns = 130

    async def main() -> None:
        world, asked, are_asked = World(), list[float](), trio.Event()

        def waiting(may: trio.Event) -> SupervisorSpec:
            script = partial(
                Waiting, world=world, may=may, asked=asked, are_asked=are_asked, concurrency=turns
            )
            return SupervisorSpec("root", [ChildSpec("script", script), tree(world).children[1]])

        async def ask(digger: Any, number: int) -> None:
            with suppress(LmosActorsError):
                await answered(digger, "dig", f"s{number}", new=True)

        async with (
            open_node(waiting(trio.Event()), store=world.store) as node,
            trio.open_nursery() as nursery,
        ):
            digger = node.find(Digger)
            await digger.ready()
            for number in range(turns):
                nursery.start_soon(ask, digger, number)
            await are_asked.wait()
            await settle()
            kill(node, world)
        world.store.is_dead = False
        asked.clear()
        may = trio.Event()
        async with open_node(waiting(may), store=world.store) as node:
            began = trio.current_time()
            await trio.sleep(10)
            assert [sum(began + n <= at < began + n + 1 for at in asked) for n in range(4)] == [64, 64, 2, 0]
            may.set()
            for number in range(turns):
                history = await node.find(Digger).invoke(ChatAgent.history, f"s{number}", settled=True)
                assert [each.text for each in history] == ["dig", ANSWER]
        assert sorted(world.did) == sorted("abcde" * turns)

    simulate(main)
