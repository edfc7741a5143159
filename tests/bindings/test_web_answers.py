"""Answers over HTTP where something does not go as planned: what is said, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from lmos_actors import Pool, SupervisorSpec
from lmos_actors.actors import hold
from lmos_actors.bindings.http import _runs as _web_runs
from lmos_actors.observe import MetricsOptions
from lmos_actors.observe._edge import NodeEdge
from tests.bindings.web import Weather, World, run, served, world

ALONE = MetricsOptions(registry=None)


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


def test_a_request_that_another_member_of_a_pool_takes_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []
    came: Any = NodeEdge.came

    def watching(*asked: Any) -> Any:
        watched.append(came(*asked))
        return watched[-1]

    monkeypatch.setattr(NodeEdge, "came", watching)

    async def main() -> None:
        spec = SupervisorSpec("root", [Pool(Weather, 2, name="weather", shutdown=1.0)])
        async with world(spec=spec, metrics=ALONE) as there:
            pool = there.node.root.pool("weather")
            hold(pool.members[1])
            webs = [await there.client() for _ in range(2)]
            for web in webs:
                await web.send("POST", "actions/tell", b'{"city": "x"}')
            await wait_all_tasks_blocked()
            await pool.resize(1)
            assert [(await web.answer()).data for web in webs] == ["x 1", "x 1"]
            assert [each._ended for each in watched] == [True, True]

    run(main)
