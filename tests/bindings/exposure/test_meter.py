"""What a node's instrument is told of requests from afar: what it is told of near ones."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, AgentError, ChildSpec, MailboxOptions, Property, action, prop
from lmos_actors.actors import Thing, hold, release
from lmos_actors.testing import open_test_node
from tests.bindings.server_connections import serving

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


class Weather(Agent):
    units: Property[str] = prop(default="celsius")

    @action
    def turn(self, city: str) -> str:
        return city

    @action
    async def run(self, city: str) -> str:
        await trio.sleep(1)
        return city

    @action
    def fail(self) -> None:
        raise ActionFailed("no")

    @action
    def crash(self) -> None:
        raise KeyError("boom")


class Log:
    def __init__(self) -> None:
        self.records: list[tuple[str, str, dict[str, object]]] = []

    def record(self, kind: Any, agent: str, fields: dict[str, object]) -> None:
        if kind in ("sent", "delivered", "answered", "refused", "cancelled", "dropped"):
            self.records.append((kind, agent, fields))


STORIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("reading", "readProperty", {"name": "units"}),
    ("writing", "writeProperty", {"name": "units", "data": "kelvin"}),
    ("invoking", "invokeAction", {"action": "turn", "input": {"city": "Bonn"}}),
    ("invoking", "invokeAction", {"action": "run", "input": {"city": "Bonn"}}),
    ("invoking", "invokeAction", {"action": "fail"}),
    ("invoking", "invokeAction", {"action": "crash"}),
)


def near(thing: Thing, verb: str, members: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    name = members.get("action") or members["name"]
    data = [members[key] for key in ("data", "input") if key in members]
    call: AbstractAsyncContextManager[Any] = getattr(thing, verb)(name, *data)
    return call


@pytest.mark.parametrize(("verb", "kind", "members"), STORIES)
async def test_near_and_far_leave_the_same_records(
    verb: str, kind: str, members: dict[str, Any], virtual_clock: Any
) -> None:
    logs = Log(), Log()
    async with open_test_node(instrument=logs[0]) as node:
        weather = await node.start_child(ChildSpec("weather", Weather))
        async with near(Thing(weather), verb, members) as call:
            with suppress(AgentError):
                await call.result()
    async with open_test_node(instrument=logs[1]) as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            line.put(kind, **members)
            await trio.sleep(5)
    assert logs[0].records == logs[1].records
    assert [kind for kind, _, _ in logs[0].records] == ["sent", "delivered", "answered"]


async def test_who_has_sent_it_is_in_the_trace(virtual_clock: Any) -> None:
    log = Log()
    async with open_test_node(instrument=log) as node:
        await node.start_child(ChildSpec("weather", Weather))
        async with serving(node) as served:
            line = await served.line()
            trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            await line.ask("readProperty", name="units", traceparent=trace, tracestate="lmosactors=a/b")
    assert [fields.get("from") for kind, _, fields in log.records if kind == "sent"] == ["a/b"]


async def test_what_is_withdrawn_and_refused_is_told(virtual_clock: Any) -> None:
    log = Log()
    async with open_test_node(instrument=log) as node:
        mailbox = MailboxOptions(1)
        weather = await node.start_child(ChildSpec("weather", Weather, mailbox=mailbox))
        async with serving(node) as served:
            line = await served.line()
            hold(weather)
            line.put("readProperty", name="units")
            line.put("readProperty", name="units")
            line.leave()
            await trio.sleep(1)
            release(weather)
    kinds = [kind for kind, _, _ in log.records]
    assert kinds == ["sent", "sent", "refused", "cancelled"]
