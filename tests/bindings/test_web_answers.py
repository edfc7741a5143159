"""Answers over HTTP where something does not go as planned: what is said, and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Agent, ChildSpec, Pool, Property, SupervisorSpec, action, prop
from lmos_actors.actors import hold
from lmos_actors.bindings import _web_runs
from lmos_actors.observe import MetricsOptions, _edge
from lmos_actors.supervision import PoolSupervisor
from tests.bindings.web import Weather, World, run, served, world
from tests.observe.talk import samples

if TYPE_CHECKING:
    from tests.bindings.web import Web

ALONE = MetricsOptions(registry=None)


class Odd(Agent):
    """Has and gives what JSON cannot say."""

    level: Property[float] = prop(default=0.0)

    @action
    def spoil(self) -> None:
        """Spoil the level."""
        self.level = float("nan")

    @action
    async def drip(self, count: int) -> AsyncIterator[float]:
        """Give good items, then a bad one, for ever."""
        for number in range(count):
            yield float(number)
        while True:
            yield float("nan")
            await trio.sleep(1)


async def odd(there: World) -> Web:
    await there.node.start_child(ChildSpec("odd", Odd))
    return await there.client("/agents/odd")


@pytest.mark.parametrize("count", [0, 2])
def test_a_stream_with_an_item_that_json_cannot_say_ends_with_a_problem(count: int) -> None:
    async def main(there: World) -> None:
        web = await odd(there)
        await web.send("POST", "actions/drip", b'{"count": %d}' % count)
        assert (await web.head()).status == 200
        for number in range(count):
            item = await web.heard()
            assert item is not None
            assert (item.name, item.data) == ("item", number)
        end = await web.heard()
        assert end is not None
        assert (end.name, end.data["status"]) == ("lmosx:end", 500)
        assert await web.heard() is None
        assert (await web.ask("GET", "properties/level")).status == 200  # the connection goes on
        counts = there.node.find(Odd).statistics()
        assert (counts.running, counts.cancelled) == (0, 1)
        assert len(there.node.connection_failures) == 1
        there.node._connections.failures.clear()  # pyright: ignore[reportPrivateUsage]

    served(main)


def test_a_write_on_condition_of_a_value_that_json_cannot_say_costs_no_life() -> None:
    async def main(there: World) -> None:
        web = await odd(there)
        assert (await web.ask("POST", "actions/spoil")).status == 204
        assert (await web.ask("PUT", "properties/level", 1.0, if_match='"x"')).problem[0] == 412
        assert (await web.ask("PUT", "properties/level", 1.0, if_none_match="*")).problem[0] == 412
        assert (await web.ask("PUT", "properties/level", 1.0, if_none_match='"x"')).status == 204
        assert (await web.ask("GET", "properties/level")).data == 1.0
        assert there.node.find(Odd).incarnation == 1

    served(main)


def test_a_weak_tag_is_no_condition_for_a_write() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        tag = (await web.ask("GET", "properties/units")).headers["etag"]
        assert (await web.ask("GET", "properties/units", if_none_match=f"W/{tag}")).status == 304
        assert (await web.ask("PUT", "properties/units", "x", if_match=f"W/{tag}")).status == 412
        assert (await web.ask("PUT", "properties/units", "x", if_match=tag)).status == 204

    served(main)


@pytest.mark.parametrize("path", ["events/asked", "events", "properties/units/observable"])
def test_no_length_is_said_of_what_has_no_end(path: str) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        head = await web.ask("HEAD", path, accept="text/event-stream")
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert "content-length" not in head.headers

    served(main)


def test_runs_that_somebody_waits_for_are_among_those_that_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_web_runs, "MOST_OF_ONE", 2)

    async def main(there: World) -> None:
        webs = [await there.client() for _ in range(3)]
        for web in webs:
            await web.send("POST", "actions/order", b"", prefer="respond-async, wait=10")
            await wait_all_tasks_blocked()
        assert (await webs[2].answer()).status == 503
        for web in webs[:2]:
            assert (await web.answer()).data == "ordered"
        assert (await webs[2].ask("POST", "actions/order", None, prefer="wait=10")).status == 200

    served(main)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "sort"),
    [
        ("GET", "nothing", {}, 404, "4xx"),
        ("DELETE", "properties/units", {}, 405, "4xx"),
        ("GET", "properties/units", {"accept": "text/html"}, 406, "4xx"),
        ("PUT", "properties/units", {"if_match": '"x"'}, 412, "4xx"),
        ("PUT", "properties/units", {"content_type": "text/plain"}, 415, "4xx"),
        ("PUT", "properties/units", {}, 204, "2xx"),
        ("POST", "actions/odd", {}, 500, "5xx"),
    ],
)
def test_what_is_counted_is_what_was_answered(
    method: str, path: str, headers: dict[str, str], status: int, sort: str
) -> None:
    async def main(there: World) -> None:
        body = '"x"'.encode() if method == "PUT" else None
        assert (await there.ask(method, path, body, **headers)).status == status
        counted = samples(await there.node.metrics())
        found = {key: n for key, n in counted.items() if "requests_total" in str(key) and "http" in str(key)}
        assert sum(found.values()) == 1
        assert sort in str(next(iter(found)))
        there.node._connections.failures.clear()  # pyright: ignore[reportPrivateUsage]

    served(main, metrics=ALONE)


def test_a_request_that_another_member_of_a_pool_takes_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []
    came = _edge.NodeEdge.came
    monkeypatch.setattr(_edge.NodeEdge, "came", lambda *each: watched.append(came(*each)) or watched[-1])

    async def main() -> None:
        spec = SupervisorSpec("root", [Pool(Weather, 2, name="weather", shutdown=1.0)])
        async with world(spec=spec, metrics=ALONE) as there:
            supervisor = there.node.root.named("weather")
            assert isinstance(supervisor, PoolSupervisor)
            hold(supervisor.ref.members[1])
            webs = [await there.client() for _ in range(2)]
            for web in webs:
                await web.send("POST", "actions/tell", b'{"city": "x"}')
            await wait_all_tasks_blocked()
            await supervisor.ref.resize(1)
            assert [(await web.answer()).data for web in webs] == ["x 1", "x 1"]
            assert [each._ended for each in watched] == [True, True]

    run(main)
