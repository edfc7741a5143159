"""Records of what happens between a request and its answer, and that none of them tells a secret."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, Progress, Property, Ref, Secret, action, open_node, prop
from lmos_actors.simulation import TraceLog, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Teller(Agent):
    """Tells on the way, in the open and in secret."""

    level: Property[int] = prop(default=1)
    code: Property[Secret[str]] = prop(default="code one")

    @action
    async def work(self, progress: Progress[int]) -> str:
        progress.report(1)
        await trio.sleep(1)
        progress.report(2)
        return "done"

    @action
    async def whisper(self, progress: Progress[Secret[str]]) -> str:
        progress.report("said in secret")
        return "done"

    @action
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @action
    async def codes(self) -> AsyncIterator[Secret[str]]:
        yield "given in secret"

    @action
    async def refuse(self, why: str) -> None:
        raise ActionFailed({"why": why})

    @action
    def refuse_at_once(self, why: str) -> None:
        raise ActionFailed({"why": why})

    @action
    def refuse_hidden(self, why: Secret[str]) -> None:
        raise ActionFailed({"why": why})

    @action
    def shut(self) -> None:
        self.level += 1
        self.code = "code two"

    @action
    def crash(self) -> None:
        raise ValueError("told to")


def told(doing: Callable[[Ref[Teller]], Coroutine[Any, Any, None]], *kinds: str) -> list[dict[str, Any]]:
    """Give the records of these kinds, without number, time and agent."""
    log = TraceLog()

    async def main() -> None:
        async with open_node() as node:
            await doing(await node.start(Teller))

    simulate(main, log=log)
    assert "secret" not in "".join(log.lines())
    found = [json.loads(line) for line in log.lines()]
    left_out = ("n", "t", "agent", "kind", "id")
    return [
        {name: value for name, value in record.items() if name not in left_out}
        for record in found
        if record.get("kind") in kinds
    ]


def test_progress_is_recorded_whether_anybody_listens_or_not() -> None:
    async def doing(teller: Ref[Teller]) -> None:
        await teller.invoke(Teller.work)

    assert told(doing, "progress") == [
        {"affordance": "work", "progress": 1},
        {"affordance": "work", "progress": 2},
    ]


def test_secret_progress_is_not() -> None:
    async def doing(teller: Ref[Teller]) -> None:
        await teller.invoke(Teller.whisper)

    assert told(doing, "progress") == [{"affordance": "whisper", "progress": "***"}]


def test_the_items_of_a_stream_are_recorded_as_they_are_taken() -> None:
    async def doing(teller: Ref[Teller]) -> None:
        async with teller.stream(Teller.count, 3) as items:
            assert [item async for item in items] == [0, 1, 2]
        async with teller.stream(Teller.codes) as secrets:
            assert [item async for item in secrets] == ["given in secret"]

    assert told(doing, "item") == [
        {"affordance": "count", "value": 0},
        {"affordance": "count", "value": 1},
        {"affordance": "count", "value": 2},
        {"affordance": "codes", "value": "***"},
    ]


def test_what_a_failure_gives_is_recorded_beside_its_text() -> None:
    async def doing(teller: Ref[Teller]) -> None:
        for refuse in (Teller.refuse, Teller.refuse_at_once):
            with pytest.raises(ActionFailed):
                await teller.invoke(refuse, "no")
        with pytest.raises(ActionFailed):
            await teller.invoke(Teller.refuse_hidden, "a secret reason")

    answers = told(doing, "answered")
    assert [answer.get("output") for answer in answers] == [{"why": "no"}, {"why": "no"}, None]
    assert answers[2]["error"] == 'ActionFailed: {"why": "***"}'


def test_changes_are_recorded_where_somebody_observes_and_after_a_restart() -> None:
    async def doing(teller: Ref[Teller]) -> None:
        await teller.invoke(Teller.shut)
        async with teller.observe(Teller.level) as levels, teller.observe(Teller.code):
            await teller.invoke(Teller.shut)
            await teller.tell(Teller.crash)
            assert [await anext(levels), await anext(levels)] == [3, 1]

    assert told(doing, "changed") == [
        {"property": "level", "value": 3},
        {"property": "code", "value": "***"},
        {"property": "level", "value": 1},
        {"property": "code", "value": "***"},
    ]


def test_who_begins_to_observe_is_answered_with_the_value() -> None:
    async def doing(teller: Ref[Teller]) -> None:
        async with teller.observe(Teller.level), teller.observe(Teller.code):
            pass

    assert told(doing, "answered") == [
        {"affordance": "level", "value": 1},
        {"affordance": "code", "value": "***"},
    ]


class Relaying(Agent):
    """Takes work up by messages to itself."""

    other: Ref[Teller]

    @action
    def begin(self) -> None:
        self.send(self.ref, Relaying.later)
        self.send(self.ref, Relaying.soon)

    @action
    async def later(self) -> None:
        await self.other.invoke(Teller.work)

    @action
    def soon(self) -> None:
        self.send(self.other, Teller.shut)


def test_what_an_agent_tells_itself_is_in_the_trace_of_what_it_was_told() -> None:
    log = TraceLog()

    async def main() -> None:
        async with open_node() as node:
            relaying = await node.start(Relaying, other=await node.start(Teller))
            await relaying.invoke(Relaying.begin)
            await trio.sleep(2)

    simulate(main, log=log)
    found = [json.loads(line) for line in log.lines()]
    sent = [each for each in found if each.get("kind") == "sent" and "trace" in each]
    assert sorted((each["affordance"], each["trace"]) for each in sent) == [
        ("begin", 1),
        ("shut", 1),
        ("work", 1),
    ]
    taken = [each for each in found if each.get("kind") == "delivered" and each["affordance"] == "later"]
    assert [each["id"] for each in taken] == [None]  # a message to itself has no number
