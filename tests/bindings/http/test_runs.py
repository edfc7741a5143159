"""Runs over HTTP that are looked at later, and clients who leave before they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors import ChildSpec, Pool, SupervisorSpec
from lmos_actors.actors import hold
from lmos_actors.bindings import HttpOptions
from tests.bindings.web import Weather, World, run, served, world

if TYPE_CHECKING:
    from tests.bindings.web import Web

ASYNC = {"prefer": "respond-async"}


async def begin(web: Web, action: str = "forecast", body: Any = None, **headers: str) -> str:
    """Begin a run; give where it is."""
    given = {"city": "Rome"} if action == "forecast" and body is None else body
    answer = await web.ask("POST", f"actions/{action}", given, **{**ASYNC, **headers})
    assert answer.status == 201, answer
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.data["href"] == answer.headers["location"]
    return answer.headers["location"]


# ---- runs


def test_a_run_is_queried_until_it_is_over() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        place = await begin(web)
        first = (await web.ask("GET", place)).data
        assert (first["status"], first["href"]) == ("running", place)
        assert "timeRequested" in first
        await trio.sleep(0.7)
        assert (await web.ask("GET", place)).data["progress"] == 0.5
        await trio.sleep(0.5)
        last = await web.ask("GET", place)
        assert (last.status, last.data["status"], last.data["output"]) == (200, "completed", "sunny in Rome")
        assert "timeEnded" in last.data
        assert "progress" not in last.data
        assert last.headers["cache-control"] == "no-store"

    served(main)


def test_a_run_waits_in_line_for_its_actions_concurrency() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        first, second = await begin(web), await begin(web)
        assert (await web.ask("GET", first)).data["status"] == "running"
        assert (await web.ask("GET", second)).data["status"] == "pending"
        assert (await web.ask("GET", "actions/forecast")).data["href"] == second
        every = (await web.ask("GET", "actions")).data
        assert [each["href"] for each in every["forecast"]] == [second, first]
        await trio.sleep(3)
        assert [each["status"] for each in (await web.ask("GET", "actions")).data["forecast"]] == [
            "completed"
        ] * 2

    served(main)


def test_a_run_is_cancelled() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        place = await begin(web)
        for _ in range(2):  # also one that has ended
            assert (await web.ask("DELETE", place)).status == 204
            told = (await web.ask("GET", place)).data
            assert told["status"] == "failed"
            assert told["error"]["type"] == "urn:lmos-actors:errors#action-cancelled"
        assert there.ref.statistics().cancelled == 1
        done = await begin(web, "who")
        assert (await web.ask("DELETE", done)).status == 204
        assert (await web.ask("GET", done)).data["status"] == "completed"

    served(main)


def test_without_an_id_the_newest_run_is_meant() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        assert (await web.ask("GET", "actions/forecast")).problem == (404, "not-found")
        assert (await web.ask("DELETE", "actions/forecast")).problem == (404, "not-found")
        first, second = await begin(web), await begin(web)
        assert (await web.ask("DELETE", "actions/forecast")).status == 204
        assert (await web.ask("GET", second)).data["status"] == "failed"
        assert (await web.ask("GET", "actions/forecast")).data["href"] == first  # the one that goes on
        assert (await web.ask("GET", "actions/order")).status == 404

    served(main)


def test_an_action_may_say_itself_that_it_answers_before_it_is_done() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        answer = await web.ask("POST", "actions/order")
        assert answer.status == 201
        assert "preference-applied" not in answer.headers
        await trio.sleep(2)
        assert (await web.ask("GET", answer.headers["location"])).data["output"] == "ordered"

    served(main)


@pytest.mark.parametrize(("wait", "status"), [("0.5", 201), ("2", 200), ("0", 201), ("much", 201)])
def test_whoever_prefers_to_wait_a_little_may(wait: str, status: int) -> None:
    async def main(there: World) -> None:
        prefer = f"respond-async, wait={wait}"
        answer = await there.ask("POST", "actions/forecast", {"city": "Rome"}, prefer=prefer)
        assert answer.status == status
        await trio.sleep(2)
        assert there.ref.statistics().handled == 1

    served(main)


def test_how_a_run_has_failed_is_told() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        for action, body, kind in (
            ("fail", {"why": "so"}, "action-failed"),
            ("crash", None, "agent-died"),
            ("forecast", {"city": "x"}, "deadline-exceeded"),
        ):
            later = {"lmos_remaining": "0.25"} if action == "forecast" else {}
            place = await begin(web, action, body, **later)
            await trio.sleep(1)
            told = (await web.ask("GET", place)).data
            assert (told["status"], told["error"]["type"].partition("#")[2]) == ("failed", kind)

    served(main)


@pytest.mark.parametrize("path", ["actions/forecast/no-such", "actions/tell/{id}", "actions/nothing/{id}"])
def test_a_run_is_found_by_its_own_place_alone(path: str) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        run_id = (await begin(web)).rpartition("/")[2]
        for method in ("GET", "DELETE"):
            assert (await web.ask(method, path.format(id=run_id))).problem == (404, "not-found")

    served(main)


@pytest.mark.parametrize("options", [HttpOptions(), HttpOptions(run_seconds=20)])
def test_runs_are_kept_for_a_while(options: HttpOptions) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        place = await begin(web)
        await trio.sleep(options.run_seconds - 1)
        await web.leave()
        assert (await there.ask("GET", place)).status == 200
        await trio.sleep(5)
        assert (await there.ask("GET", place)).status == 404
        assert (await there.ask("GET", "actions")).data == {}

    served(main, http=options)


def test_runs_are_bounded_and_the_oldest_that_have_ended_give_way() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        done = [await begin(web, "who") for _ in range(3)]
        running = await begin(web)
        assert (await web.ask("GET", done[0])).status == 404
        assert [(await web.ask("GET", place)).status for place in (*done[1:], running)] == [200] * 3
        for _ in range(2):
            await begin(web)
        full = await web.ask("POST", "actions/forecast", {"city": "x"}, **ASYNC)
        assert full.problem == (503, "mailbox-full")
        assert full.headers["retry-after"] == "1"
        assert there.ref.statistics().running == 1

    served(main, http=HttpOptions(runs_each=3))


def test_runs_that_somebody_waits_for_are_among_those_that_are_bounded() -> None:
    async def main(there: World) -> None:
        webs = [await there.client() for _ in range(3)]
        for web in webs:
            await web.send("POST", "actions/order", b"", prefer="respond-async, wait=10")
            await wait_all_tasks_blocked()
        assert (await webs[2].answer()).status == 503
        for web in webs[:2]:
            assert (await web.answer()).data == "ordered"
        assert (await webs[2].ask("POST", "actions/order", None, prefer="wait=10")).status == 200

    served(main, http=HttpOptions(runs_each=2))


def test_what_is_kept_in_all_is_bounded_too() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        first = await begin(web, "who")
        for _ in range(2):
            await begin(web)
        assert (await web.ask("GET", first)).status == 404
        assert (await web.ask("POST", "actions/forecast", {"city": "x"}, **ASYNC)).status == 503

    served(main, http=HttpOptions(runs=2))


def test_results_that_are_kept_are_bounded_in_all() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        places = [await begin(web, "whole", f"{n}" * 98, prefer="respond-async") for n in range(4)]
        found = [(await web.ask("GET", place)).status for place in places]
        assert found == [404, 404, 200, 200]

    served(main, http=HttpOptions(outputs_bytes=250))


def test_a_result_that_is_too_long_is_not_kept() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        place = await begin(web, "whole", "x" * 20)
        told = (await web.ask("GET", place)).data
        assert told["status"] == "failed"
        assert "output" not in told

    served(main, http=HttpOptions(output_bytes=10))


def test_a_run_goes_on_when_whoever_asked_for_it_leaves() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        place = await begin(web)
        await web.leave()
        await trio.sleep(2)
        assert (await there.ask("GET", place)).data["status"] == "completed"

    served(main)


# ---- streams


def test_items_come_as_events() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("POST", "actions/pour", b'{"count": 3, "seconds": 1}', accept="text/event-stream")
        assert (await web.head()).headers["content-type"] == "text/event-stream"
        heard = [await web.heard() for _ in range(4)]
        assert [(each.name, each.data) for each in heard if each is not None] == [
            ("item", 0),
            ("item", 1),
            ("item", 2),
            ("lmosx:end", None),
        ]
        assert await web.heard() is None
        assert (await web.ask("GET", "properties/units")).status == 200  # the connection goes on

    served(main)


def test_a_stream_that_fails_before_its_first_item_is_a_problem() -> None:
    async def main(there: World) -> None:
        bad = await there.ask("POST", "actions/pour", {"count": "x"})
        assert bad.problem == (400, "invalid-input")
        assert (
            await there.ask("POST", "actions/pour", {"count": 1}, accept="application/json")
        ).status == 406

    served(main)


def test_a_run_waits_for_a_client_that_does_not_read_its_items() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("POST", "actions/pour", b'{"count": 100000}')
        await trio.sleep(1)
        assert there.ref.statistics().running == 1
        await web.leave()
        await trio.sleep(1)
        assert there.ref.statistics().cancelled == 1

    served(main, buffer=4096)


# ---- clients who leave


@pytest.mark.parametrize(
    ("requests", "counts"),
    [
        ([("POST", "actions/forecast", b'{"city": "x"}')], (1, 0, 1)),  # it runs
        ([("POST", "actions/forecast", b'{"city": "x"}')] * 2, (2, 0, 2)),  # the other in line
        ([("GET", "properties/units/observable", b"")], (1, 1, 0)),
        ([("GET", "events/asked", b"")], (1, 1, 0)),
        ([("POST", "actions/print_out", b"")], (1, 1, 0)),  # goes on all the same
    ],
)
def test_whoever_leaves_takes_back_what_they_asked(
    requests: list[tuple[str, str, bytes]], counts: tuple[int, int, int]
) -> None:
    async def main(there: World) -> None:
        webs = [await there.client() for _ in requests]
        for web, (method, path, body) in zip(webs, requests, strict=True):
            await web.send(method, path, body)
        await wait_all_tasks_blocked()
        for web in reversed(webs):
            await web.leave()
        await trio.sleep(5)
        found = there.ref.statistics()
        assert (found.accepted, found.handled, found.cancelled) == counts
        assert (found.waiting, found.running) == (0, 0)

    served(main)


@pytest.mark.parametrize("cut", [1, 20, 60, 100, -8, -1])
def test_a_request_that_does_not_come_whole_reaches_nobody(cut: int) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        head = b"PUT /agents/weather/properties/units HTTP/1.1\r\nHost: here"
        kinds = b"Content-Type: application/json\r\nContent-Length: 8"
        whole = head + b"\r\n" + kinds + b'\r\n\r\n"kelvin"'
        await web.stream.send_all(whole[:cut])
        await trio.sleep(1)
        await web.leave()
        await trio.sleep(1)
        assert there.ref.statistics().accepted == 0
        assert await there.ref.read(Weather.units) == "celsius"

    served(main)


def test_who_leaves_while_a_late_answer_is_waited_for_takes_it_back() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        await web.send("POST", "actions/forecast", b'{"city": "x"}', prefer="respond-async, wait=9")
        await trio.sleep(0.3)
        await web.leave()
        await trio.sleep(3)
        assert there.ref.statistics().cancelled == 1

    served(main)


# ---- agents that are busy, gone, or in between


def test_a_full_mailbox_is_an_answer() -> None:
    async def main(there: World) -> None:
        webs = [await there.client() for _ in range(6)]
        for web in webs:
            await web.send("POST", "actions/forecast", b'{"city": "x"}')
            await wait_all_tasks_blocked()
        full = await webs[-1].answer()
        assert full.problem == (503, "mailbox-full")
        assert (full.data["started"], full.headers["retry-after"]) == (False, "1")
        for web in webs[:-1]:
            assert (await web.answer()).status == 200
        assert there.ref.statistics().refused == 1

    served(main)


def test_who_asks_when_the_agent_dies_is_told_whether_it_had_begun() -> None:
    async def main(there: World) -> None:
        running, waiting = await there.client(), await there.client()
        await running.send("POST", "actions/crash_later")
        await wait_all_tasks_blocked()
        await waiting.send("POST", "actions/crash_later")
        first, second = await running.answer(), await waiting.answer()
        assert first.problem == second.problem == (500, "agent-died")
        assert (first.data["started"], second.data["started"]) == (True, False)
        assert (await there.ask("GET", "properties/units")).status == 200  # the next life

    served(main)


def test_between_two_lives_it_is_unavailable() -> None:
    async def main(there: World) -> None:
        await there.node.root.terminate_child("weather")
        for method, path, body in (
            ("GET", "properties/units", None),
            ("PUT", "properties/units", "x"),
            ("POST", "actions/tell", {"city": "x"}),
            ("GET", "events/asked", None),
            ("GET", "properties", None),
        ):
            answer = await there.ask(method, path, body)
            assert answer.problem == (503, "agent-unavailable")
            assert (answer.data["started"], answer.headers["retry-after"]) == (False, "1")
        assert (await there.ask("GET", "")).status == 200
        await there.node.root.restart_child("weather")
        assert (await there.ask("GET", "properties/units")).status == 200

    served(main)


def test_what_was_removed_is_not_found() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        place = await begin(web)
        await there.node.root.terminate_child("weather")
        await there.node.root.delete_child("weather")
        for path in ("", "properties/units", "actions/forecast", "actions", f"{place}x"):
            assert (await web.ask("GET", path)).problem == (404, "not-found")
        assert (await web.ask("GET", place)).data["output"] == "sunny in Rome"  # what came of it is known
        assert (await web.ask("DELETE", place)).status == 204

    served(main)


def test_a_pool_shares_requests_and_has_no_properties() -> None:
    async def main() -> None:
        async with world(spec=SupervisorSpec("root", [Pool(Weather, 2, name="weather")])) as there:
            webs = [await there.client() for _ in range(2)]
            for web in webs:
                await web.send("POST", "actions/forecast", b'{"city": "x"}')
            began = trio.current_time()
            for web in webs:
                assert (await web.answer()).data == "sunny in x"
            assert trio.current_time() - began < 1.5
            for path in ("properties/units", "properties", "properties/units/observable"):
                assert (await there.ask("GET", path)).problem == (405, "operation-not-allowed")

    run(main)


def test_what_a_member_of_a_pool_has_not_begun_goes_to_another() -> None:
    async def main() -> None:
        spec = SupervisorSpec("root", [Pool(Weather, 2, name="weather", shutdown=1.0)])
        async with world(spec=spec) as there:
            pool = there.node.root.pool("weather")
            hold(pool.members[1])
            webs = [await there.client() for _ in range(2)]
            for web in webs:
                await web.send("POST", "actions/tell", b'{"city": "x"}', lmos_remaining="5")
            await wait_all_tasks_blocked()
            await pool.resize(1)
            assert [(await web.answer()).data for web in webs] == ["x 1", "x 1"]

    run(main)


# ---- the node leaves


def test_while_the_node_leaves_what_runs_is_finished_and_nothing_new_is_taken() -> None:
    async def main(there: World) -> None:
        web, other = await there.client(), await there.client()
        place = await begin(web, "order", {"seconds": 4})
        await web.send("POST", "actions/forecast", b'{"city": "x"}')
        await wait_all_tasks_blocked()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(there.node.drain)
            await trio.sleep(0.1)
            refused = await other.ask("GET", "properties/units")  # of those who have asked nothing yet
            assert refused.problem == (503, "agent-unavailable")
            assert refused.headers["retry-after"] == "1"
            assert refused.headers["connection"] == "close"
            answer = await web.answer()
            assert (answer.data, answer.headers["connection"]) == ("sunny in x", "close")
        assert 3.5 < trio.current_time() - began < 4.5  # the run that nobody waits for was waited for
        assert place
        found = there.ref.statistics()
        assert (found.handled, found.cancelled) == (2, 0)

    served(main)


def test_runs_end_with_the_node() -> None:
    async def main() -> None:
        async with world() as there:
            web = await there.client()
            await begin(web, "order", {"seconds": 10_000})

    run(main)


def test_the_children_of_a_tree_are_asked_by_name() -> None:
    spec = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("other", Weather)])

    async def main() -> None:
        async with world(spec=spec) as there:
            place = await begin(await there.client())
            other = place.replace("/weather/", "/other/")
            assert (await there.ask("GET", other)).problem == (404, "not-found")

    run(main)
