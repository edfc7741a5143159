"""Runs over LMOS: pending, progress, cancel, query, deadlines, streams (DECISIONS W1, W6, B5, D13)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, MailboxOptions, Progress, action
from lmos_actors.actors import hold, release
from lmos_actors.errors import LocalProtocolError
from lmos_actors.protocol import lmos
from lmos_actors.testing import open_test_node, settle
from tests.bindings.server_connections import Line, accounts, serving


class Weather(Agent):
    ended: list[str] = attrs.field(factory=list[str])

    @action
    async def forecast(self, progress: Progress[float], city: str) -> str:
        for tenth in range(1, 4):
            await trio.sleep(0.1)
            progress.report(tenth / 10)
        return f"sunny in {city}"

    @action(concurrency=4)
    async def hold_on(self, name: str = "it") -> str:
        try:
            await trio.sleep(100)
        finally:
            self.ended.append(name)
        return name

    @action(synchronous=False)
    async def later(self) -> str:
        await trio.sleep(1)
        return "done"

    @action(synchronous=False)
    def soon(self) -> str:
        return "done"

    @action
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            self.ended.append(f"made {number}")
            yield number

    @action
    async def chunks(self, size: int, count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield bytes(size)

    @action
    async def big(self, size: int) -> AsyncIterator[str]:
        yield "x"
        yield "x" * size
        self.ended.append("went on")

    @action
    async def crash(self) -> AsyncIterator[int]:
        yield 1
        raise KeyError("boom")

    @action
    def story(self) -> list[str]:
        return self.ended


def statuses(said: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(one["correlationID"], one["status"], one.get("progress")) for one in said]


async def test_a_run_that_waits_is_pending_and_progress_is_conflated(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("invokeAction", action="forecast", input={"city": "Bonn"})
            line.put("invokeAction", action="forecast", input={"city": "Rome"})
            await settle()
            assert statuses(line.take()) == [("m2", "pending", None)]
            await trio.sleep(0.15)
            assert statuses(line.take()) == [("m1", "in progress", 0.1)]
            await trio.sleep(0.2)
            assert statuses(line.take()) == [
                ("m1", "in progress", 0.3),
                ("m1", "completed", None),
                ("m2", "in progress", None),
            ]
            await trio.sleep(1)
            assert statuses(line.take()) == [("m2", "in progress", 0.3), ("m2", "completed", None)]
        accounts(node)


async def test_an_action_may_say_that_it_answers_later(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("invokeAction", action="later")
            await trio.sleep(2)
            told = [status for _, status, _ in statuses(line.take())]
            assert told == ["pending", "in progress", "completed"]
            line.put("invokeAction", action="soon")
            await settle()
            assert [status for _, status, _ in statuses(line.take())] == ["pending", "completed"]
            hold(weather)
            line.put("invokeAction", action="later")
            assert [status for _, status, _ in statuses(line.take())] == ["pending"]
            release(weather)
            await trio.sleep(2)


async def test_a_run_is_queried_and_cancelled_by_its_id(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            for name in ("one", "two", "three"):
                line.put("invokeAction", action="hold_on", input={"name": name})
            await settle()
            line.put("queryAction", action="hold_on", correlationID="m2")
            (status,) = line.take()
            assert (status["status"], status["inReplyTo"]) == ("in progress", "m4")
            line.put("cancelAction", action="hold_on", correlationID="m2", reason="no need")
            await settle()
            (cancelled,) = line.take()
            assert cancelled["correlationID"] == "m2"
            assert (cancelled["status"], cancelled["cancelled"], cancelled["reason"]) == (
                "failed",
                True,
                "no need",
            )
            again = await line.ask("cancelAction", action="hold_on", correlationID="m2")
            assert (again["status"], again["reason"], again["inReplyTo"]) == ("failed", "no need", "m6")
            unknown = await line.ask("cancelAction", action="hold_on", correlationID="m9")
            assert unknown["status"] == "404"
            newest = await line.ask("cancelAction", action="hold_on")
            assert newest["correlationID"] == "m3"
            story = await line.ask("invokeAction", action="story")
            assert story["output"] == ["two", "three"]
            assert weather.statistics().cancelled == 2
            await trio.sleep(200)
            (done,) = line.take()
            assert (done["correlationID"], done["output"]) == ("m1", "one")
        accounts(node)


async def test_a_queued_run_is_cancelled_without_having_run(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        mailbox = MailboxOptions(1)
        weather = await node.start_child(ChildSpec("weather", Weather, mailbox=mailbox))
        async with serving(node) as served:
            line = await served.line()
            hold(weather)
            line.put("invokeAction", action="hold_on")
            line.put("queryAction", action="hold_on", correlationID="m1")
            assert line.take()[0]["status"] == "pending"
            line.put("cancelAction", action="hold_on", correlationID="m1")
            assert line.take()[0]["cancelled"]
            line.put("invokeAction", action="story")  # its seat is free
            assert not line.take()
            release(weather)
            await settle()
            assert line.take()[0]["output"] == []
        accounts(node)


async def test_a_deadline_ends_a_run_and_what_waits(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("invokeAction", action="hold_on", remaining=0.5)
            await trio.sleep(0.4)
            assert not line.take()
            await trio.sleep(0.2)
            (error,) = line.take()
            assert (error["type"], error["about"]) == (
                "urn:lmos-actors:errors#deadline-exceeded",
                {"seconds": 0.5},
            )
            hold(weather)
            line.put("invokeAction", action="story", remaining=0.5)
            await trio.sleep(0.6)
            assert line.take()[0]["status"] == "503"
            line.put("invokeAction", action="story", remaining=1e300)
            line.put("invokeAction", action="story", remaining=10)
            release(weather)
            await settle()
            assert [done["output"] for done in line.take()] == [["it"], ["it"]]
            await trio.sleep(100)
            assert not line.take()
            assert weather.statistics().cancelled == 2
        accounts(node)


async def test_a_stream_goes_under_credit(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            credit = {"items": 2, "bytes": 100_000}
            line.put("invokeAction", action="count", input={"to": 5}, credit=credit)
            await settle()
            assert [item["output"] for item in line.take()] == [0, 1]
            story = await line.ask("invokeAction", action="story")
            assert story["output"] == ["made 0", "made 1", "made 2"]
            await settle()
            line.put("streamCredit", correlationID="m1", items=1, bytes=1000)
            await settle()
            assert line.session_there.waiting == 1
            assert [item["output"] for item in line.take()] == [2]
            line.put("streamCredit", correlationID="m1", items=10, bytes=1000)
            await settle()
            *items, end = line.take()
            assert [item["output"] for item in items] == [3, 4]
            assert (end["status"], "output" in end) == ("completed", False)
        accounts(node)


async def test_a_stream_without_credit_is_held_back_by_a_reader_that_does_not_read(
    virtual_clock: Any,
) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put("invokeAction", action="chunks", input={"size": 10_000, "count": 500})
            await settle()
            items = 0
            while frames := line.handler.frames(65_536):
                items += len(frames)
                await settle()
                assert 0 < line.session_there.waiting_bytes <= 300_000 or items == 501
            assert items == 501
        accounts(node)


async def test_a_stream_of_bytes_goes_in_binary_frames(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.session()
            call = line.session.invoke(
                "weather",
                "chunks",
                {"size": 3, "count": 40},
                credit=lmos.Credit(items=16, bytes=1000),
                binary=True,
            )
            items: list[bytes] = []
            for _ in range(20):
                for happening in await line.settled():
                    if isinstance(happening, lmos.RunItem):
                        items.append(happening.output)
                        line.session.consumed(call)
            assert items == [b"\0\0\0"] * 40
            assert call.done
            assert call.error is None


@pytest.mark.parametrize("how", ["cancel", "leave", "crash"])
async def test_a_stream_that_waits_for_credit_ends(how: str, virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            credit = {"items": 1, "bytes": 1000}
            line.put("invokeAction", action="count", input={"to": 5}, credit=credit)
            await settle()
            line.take()
            if how == "cancel":
                line.put("cancelAction", action="count", correlationID="m1")
            elif how == "leave":
                line.leave()
            else:
                line.put("invokeAction", action="crash")
            await settle()
            counts = weather.statistics()
            assert (counts.running, counts.waiting) == (0, 0)
            assert served.server.statistics().open == 0
            if how == "crash":
                item, crashed, end = line.take()
                assert (end["correlationID"], end["started"]) == ("m1", True)
                assert (item["output"], crashed["started"]) == (1, True)
        accounts(node)


async def test_an_item_that_is_too_long_ends_its_run_alone(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        options = lmos.SessionOptions(max_bytes=1000)
        async with serving(node, options=options, failures=True) as served:
            line = await served.line()
            line.put("invokeAction", action="big", input={"size": 5000})
            await settle()
            item, end = line.take()
            assert (item["output"], end["messageType"], end["status"]) == ("x", "error", "500")
            assert [type(each) for each in served.failures] == [LocalProtocolError]
            story = await line.ask("invokeAction", action="story")
            assert story["output"] == []
            assert weather.statistics().cancelled == 1
        accounts(node)


async def test_kotlin_wot_gets_the_items_as_one_answer(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line(offered=())
            said = {"thingId": "weather", "thingID": ..., "messageID": ..., "correlationID": ...}
            line.put("invokeAction", action="count", input={"to": 3}, messageId="k1", **said)
            await settle()
            (done,) = line.take()
            assert (done["status"], done["output"]) == ("completed", [0, 1, 2])
            line.put("invokeAction", action="count", input={"to": 2000}, messageId="k2", **said)
            await settle()
            (error,) = line.take()
            assert error["messageType"] == "error"
            assert weather.statistics().running == 0
        accounts(node)


async def test_interleaved_runs_of_one_action_keep_apart(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            one, two = await served.line(), await served.line()
            one.put("invokeAction", action="hold_on", input={"name": "one"}, messageID="same")
            two.put("invokeAction", action="hold_on", input={"name": "two"}, messageID="same")
            await settle()
            two.put("cancelAction", action="hold_on", correlationID="same")
            assert two.take()[0]["cancelled"]
            await trio.sleep(200)
            assert one.take()[0]["output"] == "one"
            assert not two.take()
        accounts(node)


async def test_a_duplicate_is_carried_out_once(virtual_clock: Any) -> None:
    async with open_test_node() as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line: Line = await served.line()
            for _ in range(2):
                line.put("invokeAction", action="hold_on", messageID="twin")
            await trio.sleep(200)
            line.put("invokeAction", action="hold_on", messageID="twin")
            assert [done["output"] for done in line.take()] == ["it", "it"]
            assert weather.statistics().handled == 1
