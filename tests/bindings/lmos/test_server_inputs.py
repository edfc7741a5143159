"""Streams into an agent over LMOS, frame by frame, as the page of the extensions has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, action
from lmos_actors.errors import SourceFailed
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, accounts, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Ref
    from tests.bindings.server_connections import Serving


class Clerk(Agent):
    heard: list[Any] = attrs.field(factory=list[Any])

    @action(concurrency=2)
    async def add(self, rows: AsyncIterator[int], start: int = 0) -> int:
        total = start
        try:
            async for number in rows:
                self.heard.append(number)
                total += number
        except SourceFailed as exc:
            self.heard.append(exc.reason)
            raise
        except trio.Cancelled:
            self.heard.append("cancelled")
            raise
        return total

    @action
    async def rescue(self, rows: AsyncIterator[int]) -> list[int]:
        found: list[int] = []
        try:
            async for number in rows:
                found.append(number)
        except SourceFailed as exc:
            self.heard.append(exc.reason)
        return found

    @action(on_disconnect="finish")
    async def finish(self, rows: AsyncIterator[int]) -> None:
        try:
            async for number in rows:
                self.heard.append(number)
        except SourceFailed as exc:
            self.heard.append(exc.reason)
            await trio.sleep(1)
            self.heard.append("finished")

    @action
    async def slowly(self, parts: AsyncIterator[bytes]) -> int:
        total = 0
        async for part in parts:
            total += len(part)
            await trio.sleep(1)
        return total

    @action
    async def one(self, rows: AsyncIterator[int]) -> int:
        return await anext(rows)

    @action
    async def echo(self, said: AsyncIterator[str]) -> AsyncIterator[str]:
        async for word in said:
            yield word

    @action
    def story(self) -> list[Any]:
        return self.heard

    @action
    def plain(self, text: str) -> str:
        return text


class Desk:
    """One connection to a clerk, and a word for each message of a stream."""

    def __init__(self, server: Serving, clerk: Ref[Clerk], line: Line) -> None:
        self.server = server
        self.clerk = clerk
        self.line = line

    async def heard(self) -> list[Any]:
        return await self.clerk.invoke(Clerk.story)

    async def begin(self, action: str, *names: str, number: int = 1, **members: Any) -> str:
        """Invoke an action with streams of those names, and take their first credit."""
        streams = {name: {"stream": number + 2 * place} for place, name in enumerate(names)}
        run = self.line.put("invokeAction", thingID="clerk", action=action, streams=streams, **members)
        await settle()
        credits = self.line.take()
        assert [each["messageType"] for each in credits] == ["streamCredit"] * len(names)
        assert {each["stream"] for each in credits} == {each["stream"] for each in streams.values()}
        assert all((each["items"], each["bytes"]) == (16, 262_144) for each in credits)
        assert all(each["correlationID"] == run for each in credits)
        return run

    def item(self, run: str, sequence: int, data: Any, stream: int = 1) -> None:
        self.line.put(
            "streamItem", thingID="clerk", correlationID=run, stream=stream, sequence=sequence, data=data
        )

    def end(self, run: str, sequence: int, stream: int = 1, **members: Any) -> None:
        said = {"stream": stream, "sequence": sequence, **members}
        self.line.put("streamEnd", thingID="clerk", correlationID=run, **said)

    async def answer(self) -> dict[str, Any]:
        await settle()
        (answer,) = self.line.take()
        return answer


@asynccontextmanager
async def desk() -> AsyncGenerator[Desk]:
    async with open_test_node() as node, serving(node) as server:
        clerk = await node.start_child(ChildSpec("clerk", Clerk))
        yield Desk(server, clerk, await server.line())
        accounts(node)


async def test_items_come_under_credit_and_the_end_brings_the_answer(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("add", "rows", input={"start": 100})
        for number in range(3):
            d.item(run, number, number)
        await settle()
        assert d.line.take() == []
        d.end(run, 3)
        answer = await d.answer()
        assert (answer["status"], answer["output"], answer["correlationID"]) == ("completed", 103, run)


async def test_credit_is_given_back_by_halves_for_what_the_handler_has_taken(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("add", "rows")
        for number in range(7):
            d.item(run, number, 1)
        await settle()
        assert d.line.take() == []
        d.item(run, 7, 1)
        credit = await d.answer()
        assert (credit["messageType"], credit["stream"], credit["items"]) == ("streamCredit", 1, 8)


async def test_a_run_in_line_gets_no_credit_until_it_begins(virtual_clock: Any) -> None:
    async with desk() as d:
        first = await d.begin("one", "rows")
        second = d.line.put("invokeAction", thingID="clerk", action="one", streams={"rows": {"stream": 3}})
        assert (await d.answer())["status"] == "pending"
        d.item(first, 0, 5)
        await settle()
        done, progress, credit = d.line.take()
        assert (done["output"], progress["status"]) == (5, "in progress")
        assert (credit["stream"], credit["correlationID"]) == (3, second)


async def test_bytes_come_in_binary_frames_and_are_held_to_the_window(virtual_clock: Any) -> None:
    async with desk() as d:
        streams = {"parts": {"stream": 1, "contentType": "audio/pcm"}}
        run = d.line.put("invokeAction", thingID="clerk", action="slowly", streams=streams)
        await settle()
        d.line.take()
        before = d.line.session_there.held
        for number in range(3):
            frame = b"\x01\x00\x00\x00" + (1).to_bytes(4, "big") + number.to_bytes(4, "big") + bytes(80_000)
            d.line.handler.binary(frame)
        await settle()
        assert d.line.session_there.held - before == 2 * 80_012  # one is with the handler
        d.end(run, 3)
        await trio.sleep(10)
        *_, answer = d.line.take()
        assert answer["output"] == 240_000
        assert d.line.session_there.held < before


async def test_a_break_is_seen_by_the_handler_and_ends_the_run_alone(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("add", "rows")
        d.item(run, 0, 1)
        d.end(run, 1, reason="LookupError: no more")
        answer = await d.answer()
        assert (answer["messageType"], answer["status"], answer["path"]) == ("error", "400", "$.rows")
        assert answer["type"] == "urn:lmos-actors:errors#invalid-input"
        assert await d.heard() == [1, "LookupError: no more"]
        assert d.clerk.statistics().incarnation == 1
        run = await d.begin("rescue", "rows", number=3)
        d.item(run, 0, 7, stream=3)
        d.end(run, 1, stream=3, reason="enough")
        assert (await d.answer())["output"] == [7]


async def test_an_item_of_another_type_stops_the_stream(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("rescue", "rows")
        d.item(run, 0, 1)
        d.item(run, 1, "two")
        d.item(run, 2, 3)
        await settle()
        stop, answer = d.line.take()
        assert (stop["messageType"], stop["stream"], stop["sequence"]) == ("streamEnd", 1, 2)
        assert stop["reason"] == "Expected `int`, got `str` - at $.rows[1]"
        assert answer["output"] == [1]
        run = await d.begin("add", "rows", number=3)
        d.item(run, 0, None, stream=3)
        await settle()
        *_, answer = d.line.take()
        assert (answer["status"], answer["path"]) == ("400", "$.rows")
        assert "Expected `int`, got `null` - at $.rows[0]" in answer["detail"]


async def test_the_final_answer_ends_the_stream_and_what_comes_later_is_ignored(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("one", "rows")
        for number in range(3):
            d.item(run, number, number)
        assert (await d.answer())["output"] == 0
        d.item(run, 3, 3)
        d.end(run, 4)
        await settle()
        assert d.line.take() == []
        assert await d.begin("one", "rows", number=3)


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"action": "add"}, "$.rows"),
        ({"action": "add", "streams": {"lines": {"stream": 1}}}, "$.streams.lines"),
        ({"action": "plain", "input": {"text": "a"}, "streams": {"text": {"stream": 1}}}, "$.streams"),
        (
            {"action": "add", "streams": {"rows": {"stream": 1, "contentType": "audio/pcm"}}},
            "$.streams.rows.contentType",
        ),
        ({"action": "add", "streams": {"rows": {"stream": 2}}}, "$.streams.rows.stream"),
    ],
)
async def test_streams_that_do_not_fit_are_refused(members: Any, path: str, virtual_clock: Any) -> None:
    async with desk() as d:
        answer = await d.line.ask("invokeAction", thingID="clerk", **members)
        assert (answer["messageType"], answer["status"], answer["path"]) == ("error", "400", path)


@pytest.mark.parametrize("wrong", ["credit", "sequence", "count"])
async def test_a_broken_rule_ends_the_run_and_cancels_the_handler(wrong: str, virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("add", "rows")
        other = await d.begin("add", "rows", number=3)
        if wrong == "credit":
            for number in range(17):
                d.item(run, number, 1)
        elif wrong == "sequence":
            d.item(run, 5, 1)
        else:
            d.end(run, 5)
        await settle()
        answer = next(each for each in d.line.take() if each["messageType"] == "error")
        assert (answer["path"], answer["correlationID"]) == ("$.streams", run)
        assert "cancelled" in await d.heard()
        d.item(other, 0, 4, stream=3)
        d.end(other, 1, stream=3)
        assert (await d.answer())["output"] == 4


async def test_a_cancel_ends_the_run_and_its_streams(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("add", "rows")
        d.item(run, 0, 1)
        await settle()
        answer = await d.line.ask("cancelAction", thingID="clerk", action="add", correlationID=run)
        assert answer["cancelled"]
        assert await d.heard() == [1, "cancelled"]
        d.item(run, 1, 1)
        await settle()
        assert d.line.take() == []


async def test_a_connection_that_breaks_cancels_the_handler(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("add", "rows")
        d.item(run, 0, 1)
        await settle()
        d.line.leave()
        await settle()
        assert await d.heard() == [1, "cancelled"]


async def test_a_handler_that_is_to_finish_sees_that_the_connection_ended(virtual_clock: Any) -> None:
    async with desk() as d:
        run = await d.begin("finish", "rows")
        d.item(run, 0, 1)
        await settle()
        d.line.leave()
        await trio.sleep(2)
        assert await d.heard() == [1, "the connection ended", "finished"]


async def test_a_consumer_that_does_not_read_the_answers_is_not_sent_more(virtual_clock: Any) -> None:
    async with desk() as d:
        streams = {"said": {"stream": 1}}
        credit = {"items": 2, "bytes": 10_000}
        run = d.line.put("invokeAction", thingID="clerk", action="echo", streams=streams, credit=credit)
        await settle()
        d.line.take()
        for number in range(16):
            d.item(run, number, f"word {number}")
        await settle()
        answers = d.line.take()
        assert [each.get("output") for each in answers] == ["word 0", "word 1"]  # and no credit: 3 are taken
        d.line.put("streamCredit", thingID="clerk", correlationID=run, items=100, bytes=100_000)
        await settle()
        assert [each["output"] for each in d.line.take() if "output" in each] == [
            f"word {number}" for number in range(2, 16)
        ]
        d.end(run, 16)
        assert (await d.answer())["status"] == "completed"


async def test_a_session_of_the_package_is_served_alike(virtual_clock: Any) -> None:
    async with open_test_node() as node, serving(node) as server:
        await node.start_child(ChildSpec("clerk", Clerk))
        consumer = await server.session()
        run = consumer.session.invoke("clerk", "add", streams={"rows": "application/json"})
        await consumer.settled()
        stream = run.inputs["rows"]
        for number in range(5):
            assert consumer.session.send(stream, number)
        consumer.session.finish(stream)
        happened = await consumer.settled()
        assert [each.value for each in happened if isinstance(each, lmos.RequestAnswered)] == [10]
