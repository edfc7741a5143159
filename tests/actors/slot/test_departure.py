"""`self.send_after`: a message that is sent when its time comes, as `self.send` sends one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    InvalidInput,
    MailboxOptions,
    Pool,
    Ref,
    action,
    open_node,
    simulate,
)
from lmos_actors.simulation import TraceLog
from lmos_actors.testing import TestNode, open_test_node, settle
from lmos_actors.transport import MemoryNetwork


class Box(Agent):
    """Keeps what it hears, and when; with `slow` its runs hold it up."""

    heard: Any = None

    @action
    def hear(self, word: str, times: int = 1) -> None:
        self.heard.extend([(trio.current_time(), word)] * times)

    @action
    async def hear_slowly(self, word: str) -> None:
        await trio.sleep(10)
        self.heard.append((trio.current_time(), word))


class Sender(Agent):
    """Sends as it is told to."""

    timer: Any = None
    turns: Any = None
    to: Any = None

    @action
    def send_in(self, seconds: float, word: str) -> None:
        self.timer = self.send_after(seconds, self.to, Box.hear, word)

    @action
    def slowly(self, seconds: float, word: str) -> None:
        self.send_after(seconds, self.to, Box.hear_slowly, word)

    @action
    def several(self, seconds: float, words: tuple[str, ...]) -> None:
        for word in words:
            self.send_after(seconds, self.to, Box.hear, word, times=2)

    @action
    def wrongly(self, value: int) -> str:
        wrong: Any = self.send_after
        tries = [
            lambda: wrong(1, self.to, Box.hear, value),
            lambda: wrong(1, self.to, Box.hear),
            lambda: wrong(-1, self.to, Box.hear, "word"),
            lambda: wrong(float("nan"), self.to, Box.hear, "word"),
            lambda: wrong(1, self.to, Sender.note, "word"),
            lambda: wrong(1, "box", Box.hear, "word"),
            lambda: wrong(1, self.to, "hear", "word"),
        ]
        return " ".join(_error_of(each) for each in tries)

    @action
    def to_name(self, seconds: float, name: str) -> None:
        self.send_after(seconds, self.find(Box, name), Box.hear, "found")

    @action
    def to_itself(self, seconds: float) -> None:
        self.send_after(seconds, self.ref, Sender.note, "own")

    @action
    def note(self, word: str) -> None:
        self.turns.append((trio.current_time(), word))

    @action
    def call_off(self) -> None:
        self.timer.cancel()
        self.timer.cancel()

    @action
    def crash(self) -> None:
        raise ZeroDivisionError


def _error_of(call: Any) -> str:
    try:
        call()
    except Exception as exc:
        return type(exc).__name__
    return "accepted"


Heard = list[tuple[float, str]]


async def two(node: TestNode, **spec: Any) -> tuple[Ref[Sender], Ref[Box], Heard]:
    heard: Heard = []
    box = await node.root.start_child(ChildSpec("box", lambda: Box(heard=heard), **spec))
    return await node.start(Sender, turns=[], to=box), box, heard


async def test_a_message_arrives_when_its_time_comes_and_in_order(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, box, heard = await two(node)
        await sender.tell(Sender.send_in, 2.0, "b")
        await sender.tell(Sender.several, 1.0, ("x", "y"))
        await sender.tell(Sender.send_in, 0.0, "a")
        await trio.sleep(5)
        assert heard == [(0, "a"), (1, "x"), (1, "x"), (1, "y"), (1, "y"), (2, "b")]
        counts = box.statistics()
        assert (counts.accepted, counts.handled) == (4, 4)


async def test_it_can_be_cancelled(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, _, heard = await two(node)
        await sender.tell(Sender.send_in, 2.0, "never")
        await sender.invoke(Sender.call_off)
        await trio.sleep(5)
        assert heard == []


async def test_it_ends_with_the_incarnation(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, _, heard = await two(node)
        await sender.tell(Sender.send_in, 2.0, "never")
        with pytest.raises(AgentDied):
            await sender.invoke(Sender.crash)
        await sender.ready()
        await trio.sleep(5)
        assert heard == []


async def test_what_is_wrong_is_refused_at_the_line_that_says_it(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, box, heard = await two(node)
        found = await sender.invoke(Sender.wrongly, 7)
        kinds = ["InvalidInput"] * 2 + ["ValueError"] * 2 + ["NotFound"] + ["TypeError"] * 2
        assert found.split() == kinds
        await trio.sleep(5)
        assert heard == []
        assert box.statistics().accepted == 0
        assert issubclass(InvalidInput, Exception)


async def test_whom_find_does_not_know_yet_is_sought_when_it_is_sent(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, _, _ = await two(node)
        late: Heard = []
        await sender.tell(Sender.to_name, 2.0, "late")
        await sender.tell(Sender.to_name, 2.0, "nobody")
        await settle()
        await node.root.start_child(ChildSpec("late", lambda: Box(heard=late)))
        await trio.sleep(5)
        assert late == [(2, "found")]
        [letter] = node.dead_letters
        assert (letter.sender, letter.affordance) == ("sender", "hear")


async def test_an_agent_that_does_not_run_leaves_a_dead_letter(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, _, heard = await two(node)
        await sender.tell(Sender.send_in, 2.0, "late")
        await settle()
        await node.root.terminate_child("box")
        await trio.sleep(5)
        assert heard == []
        [letter] = node.dead_letters
        assert (letter.agent, letter.sender, letter.affordance) == ("box", "sender", "hear")


async def test_a_mailbox_that_refuses_leaves_a_dead_letter_and_the_sender_lives(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, box, heard = await two(node, mailbox=MailboxOptions(1, "reject"))
        for word in ("runs", "waits", "refused"):
            await sender.tell(Sender.slowly, 1.0, word)
        await trio.sleep(30)
        assert [word for _, word in heard] == ["runs", "waits"]
        [letter] = node.dead_letters
        assert "full" in letter.reason
        assert (await sender.ready(), sender.statistics().restarts) == (None, 0)
        assert box.statistics().refused == 1


async def test_a_message_that_finds_no_seat_holds_its_sender_back(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, _, heard = await two(node, mailbox=MailboxOptions(1))
        for word in ("runs", "waits", "held"):
            await sender.tell(Sender.slowly, 1.0, word)
        await trio.sleep(2)
        await sender.tell(Sender.send_in, 0.0, "after")  # a turn, for which the sender has to wait
        await trio.sleep(5)
        assert sender.statistics().waiting == 1
        await trio.sleep(60)
        assert heard == [(11, "runs"), (21, "waits"), (21, "after"), (31, "held")]
        assert sender.statistics().waiting == 0


async def test_to_oneself(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        turns: list[Any] = []
        sender = await node.start(Sender, turns=turns)
        await sender.tell(Sender.to_itself, 3.0)
        await trio.sleep(5)
        assert turns == [(3, "own")]
        assert sender.statistics().accepted == sender.statistics().handled == 2


async def test_to_a_pool(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        Pooled.heard = []
        pool = await node.start_pool(Pool(Pooled, 2))
        teller = await node.start(Teller, to=pool)
        await teller.invoke(Teller.begin, 1.0)
        await trio.sleep(5)
        assert Pooled.heard == ["word"]


class Pooled(Agent):
    heard: Any = None

    @action
    def hear(self, word: str) -> None:
        Pooled.heard.append(word)


class Teller(Agent):
    to: Any = None

    @action
    def begin(self, seconds: float) -> None:
        self.send_after(seconds, self.to, Pooled.hear, "word")


def test_to_an_agent_of_another_node() -> None:
    async def main() -> list[str]:
        Pooled.heard = []
        network = MemoryNetwork()
        async with (
            open_node(listen="ws://server", network=network) as server,
            open_node(network=network) as client,
        ):
            await server.start(Pooled)
            far = await client.consume(Pooled, "http://server/agents/pooled")
            teller = await client.start(Teller, to=far)
            await teller.invoke(Teller.begin, 2.0)
            await trio.sleep(1)
            assert Pooled.heard == []
            await trio.sleep(5)
            return list(Pooled.heard)

    assert simulate(main) == ["word"]


def test_it_is_logged_as_sent_when_it_is_sent_in_the_trace_it_came_of() -> None:
    log = TraceLog()

    async def main() -> None:
        heard: Heard = []
        async with open_node() as node:
            box = await node.root.start_child(ChildSpec("box", lambda: Box(heard=heard)))
            sender = await node.start(Sender, turns=[], to=box)
            await sender.tell(Sender.send_in, 2.0, "a")
            await trio.sleep(5)

    simulate(main, log=log)
    lines = [json.loads(line) for line in log.lines()[1:]]
    sent = {line["agent"]: line for line in lines if line["kind"] == "sent"}
    assert sent["box"]["t"] == 2.0
    assert sent["box"]["from"] == "sender"
    assert sent["box"]["trace"] == sent["sender"]["trace"]


async def test_an_idle_agent_is_not_kept_busy_by_what_it_will_send(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        sender, _, heard = await two(node)
        for number in itertools.repeat(50, 3):
            await sender.tell(Sender.send_in, number, "late")
        assert await sender.invoke(Sender.wrongly, 1)
        await node.root.terminate_child("sender")  # at once: timers hold nobody back
        assert trio.current_time() == 0
        await trio.sleep(100)
        assert heard == []
