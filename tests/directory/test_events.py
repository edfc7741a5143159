"""The events of a directory: their order, their data, and those who come back, read slowly or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.directory import DirectoryOptions, ThingDirectory
from lmos_actors.transport import DoorOptions

from .web import ask, connected, directory, listening, patch, put, td

if TYPE_CHECKING:
    from trio.testing import MockClock

    from .web import Stream

GAP = "lmosx:gap"


def merged(value: Any, patch: Any) -> Any:
    """Return the value with a JSON merge patch (RFC 7396) made to it."""
    if not isinstance(patch, dict):
        return patch
    kept = value if isinstance(value, dict) else {}
    changed = {name: merged(kept.get(name), part) for name, part in patch.items() if part is not None}
    return {name: part for name, part in kept.items() if name not in patch} | changed


async def some() -> None:
    """Have one of each happen."""
    await put("urn:x:1")
    await put("urn:x:1", title="New")
    await put("urn:x:2")
    await ask("DELETE", "/things/urn:x:1")


async def taken(stream: Stream, count: int) -> list[tuple[str, str]]:
    """Give the names and the ids of the next events."""
    found = [await stream.next() for _ in range(count)]
    return [(name, data["id"]) for name, data in found]


async def quiet(stream: Stream, seconds: float = 100.0) -> bool:
    """Say whether no event comes."""
    with trio.move_on_after(seconds):
        await stream.next()
        return False
    return True


ALL = [
    ("thing_created", "urn:x:1"), ("thing_updated", "urn:x:1"), ("thing_created", "urn:x:2"),
    ("thing_deleted", "urn:x:1"),
]  # fmt: skip


async def test_subscribers_get_all_events_in_order(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:0")
        async with listening() as stream:
            await some()
            assert await taken(stream, 4) == ALL
            assert await quiet(stream), "what was before is not told, nor anything twice"
            assert stream.comments > 3, "a silent stream gives signs of life"


@pytest.mark.parametrize("kind", ["thing_created", "thing_updated", "thing_deleted"])
async def test_one_kind_can_be_asked_for(kind: str, autojump_clock: MockClock) -> None:
    async with directory(), listening(f"/events/{kind}") as stream:
        await some()
        wanted = [each for each in ALL if each[0] == kind]
        assert await taken(stream, len(wanted)) == wanted
        assert await quiet(stream)


async def test_without_diff_an_event_holds_only_the_id(autojump_clock: MockClock) -> None:
    async with directory(), listening("/events?diff=false") as stream:
        await some()
        assert [(await stream.next())[1].keys() for _ in range(4)] == [{"id"}] * 4


async def test_with_diff_a_copy_can_be_kept(autojump_clock: MockClock) -> None:
    async with directory(), listening("/events?diff=true") as stream:
        copies: dict[str, Any] = {}
        await some()
        await patch("urn:x:2", {"titles": {"en": "Lamp", "de": "Lampe"}, "registration": {"ttl": 60}})
        await patch("urn:x:2", {"titles": {"en": None}, "description": "x"})
        listed = (await ask("GET", "/things")).data
        for _ in range(6):
            name, data = await stream.next()
            if name == "thing_deleted":
                assert data == {"id": "urn:x:1"}
                del copies[data["id"]]
            else:
                copies[data["id"]] = merged(copies.get(data["id"]), data) if name == "thing_updated" else data
        for each in listed:
            del each["registration"]["retrieved"]
        assert list(copies.values()) == listed


async def test_a_put_and_a_patch_that_change_nothing_are_no_events(autojump_clock: MockClock) -> None:
    async with directory(), listening() as stream:
        await put("urn:x:1", registration={"ttl": 60})
        for _ in range(3):
            await put("urn:x:1", registration={"ttl": 60})
            await patch("urn:x:1", {"title": "Lamp"})
            await patch("urn:x:1", {})
        assert await taken(stream, 1) == ALL[:1]
        assert await quiet(stream, 10)


@pytest.mark.parametrize("query", ["diff=1", "diff=", "diff", "diff=true&diff=true"])
async def test_a_diff_that_cannot_be_read_is_a_problem(query: str, autojump_clock: MockClock) -> None:
    async with directory():
        answer = await ask("GET", f"/events?{query}")
        assert (answer.status, answer.header("content-type")) == (400, "application/problem+json")


async def test_head_of_a_stream_ends_at_once(autojump_clock: MockClock) -> None:
    async with directory():
        answer = await ask("HEAD", "/events")
        assert (answer.status, answer.header("content-type")) == (200, "text/event-stream")


async def test_whoever_comes_back_misses_nothing(autojump_clock: MockClock) -> None:
    async with directory():
        async with listening() as stream:
            await put("urn:x:0")
            await stream.next()
        await some()
        async with listening(Last_Event_ID=stream.last) as again:
            assert await taken(again, 4) == ALL
        async with listening("/events/thing_created", Last_Event_ID=stream.last) as again:
            assert await taken(again, 2) == [ALL[0], ALL[2]]


async def test_whoever_has_seen_no_event_knows_where_to_go_on(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:0")
        async with listening() as stream:
            assert await quiet(stream, 1)
        assert stream.last
        await some()
        async with listening(Last_Event_ID=stream.last) as again:
            assert await taken(again, 4) == ALL


@pytest.mark.parametrize(
    "said", ["nonsense", "other-3", "-", "x-99999999999999999999", "life-", "%s-99", "%s--1"]
)
async def test_an_id_that_is_not_of_this_log_is_answered_by_a_gap(
    said: str, autojump_clock: MockClock
) -> None:
    async with directory():
        await some()
        async with listening() as stream:
            assert await quiet(stream, 1)
        life = stream.last.partition("-")[0]
        async with listening(Last_Event_ID=said.replace("%s", life)) as again:
            name, data = await again.next()
            assert (name, data["missed"]) == (GAP, None)
            assert await taken(again, 4) == ALL, "and by all that is still known"


async def test_what_is_no_longer_kept_is_counted(autojump_clock: MockClock) -> None:
    async with directory(DirectoryOptions(max_events=3)):
        async with listening() as stream:
            await put("urn:x:0")
            await stream.next()
        for number in range(5):
            await put(f"urn:y:{number}")
        async with listening(Last_Event_ID=stream.last) as again:
            assert await again.next() == (GAP, {"reason": "no longer kept here", "missed": 2})
            assert await taken(again, 3) == [("thing_created", f"urn:y:{number}") for number in (2, 3, 4)]


async def test_a_restart_of_the_node_loses_no_event(tmp_path: Any, autojump_clock: MockClock) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    async with directory(options), listening() as stream:
        await put("urn:x:0")
        await stream.next()
    async with directory(options):
        await some()
    async with directory(options), listening(Last_Event_ID=stream.last) as again:
        assert await taken(again, 4) == ALL
        await put("urn:x:9")
        assert await taken(again, 1) == [("thing_created", "urn:x:9")]


async def test_a_log_in_memory_is_another_after_a_restart(autojump_clock: MockClock) -> None:
    async with directory(), listening() as stream:
        await put("urn:x:0")
        await stream.next()
    async with directory():
        await some()
        async with listening(Last_Event_ID=stream.last) as again:
            assert (await again.next())[0] == GAP
            assert await taken(again, 4) == ALL


async def test_streams_end_with_the_directory(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        ended = trio.Event()

        async def listen(task_status: trio.TaskStatus[None]) -> None:
            async with listening() as stream:
                task_status.started()
                with pytest.raises(trio.EndOfChannel):
                    await stream.next()
                ended.set()

        async with directory():
            await nursery.start(listen)
            begun = trio.current_time()
        with trio.fail_after(1):
            await ended.wait()
        assert trio.current_time() - begun < 2, "nobody was waited for"


async def test_there_are_so_many_streams_and_no_more(autojump_clock: MockClock) -> None:
    async with directory(DirectoryOptions(max_listeners=2)):
        async with listening(), listening():
            answer = await ask("GET", "/events")
            assert (answer.status, answer.header("retry-after")) == (503, "5")
        await trio.sleep(1)
        async with listening():
            pass


async def test_a_subscriber_that_does_not_read_delays_no_other(autojump_clock: MockClock) -> None:
    options = DirectoryOptions(max_events=50)
    async with directory(options, door=DoorOptions(write_seconds=10)) as node:
        ref = node.find(ThingDirectory)
        lazy = await connected()
        await lazy.send("GET", "/events?diff=true")
        async with listening() as stream:
            for number in range(200):
                id = f"urn:{number}"
                await ref.invoke(ThingDirectory.put_thing, id, td(id, description="x" * 20_000))
                assert await taken(stream, 1) == [("thing_created", id)]
            await trio.sleep(11)  # by then it is let go
            assert node.connections == 1
        assert ref.statistics().restarts == 0


async def test_a_slow_subscriber_gets_the_gap(autojump_clock: MockClock) -> None:
    options = DirectoryOptions(max_events=50)
    async with directory(options) as node, listening("/events?diff=true") as stream:
        ref = node.find(ThingDirectory)
        for number in range(200):
            id = f"urn:{number}"
            await ref.invoke(ThingDirectory.put_thing, id, td(id, description="x" * 20_000))
        names = [(await stream.next())]
        while names[-1][1].get("id") != "urn:199":
            names.append(await stream.next())
        gaps = [data["missed"] for name, data in names if name == GAP]
        told = [data for name, data in names if name == "thing_created"]
        assert gaps
        assert len(told) + sum(gaps) == 200


async def test_a_crash_ends_no_stream_and_loses_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    for options in (DirectoryOptions(), DirectoryOptions(path=tmp_path / "directory.db")):
        async with directory(options) as node, listening() as stream:
            await put("urn:x:1")
            await put("urn:x:1", title="New")
            with monkeypatch.context() as patched:
                patched.setattr(ThingDirectory, "_entry_text", lambda *_: 1 / 0)
                assert (await ask("GET", "/things/urn:x:1")).status == 500
            await trio.sleep(1)
            assert node.find(ThingDirectory).statistics().restarts == 1
            assert (await ask("GET", "/things/urn:x:1")).data["title"] == "New"
            await put("urn:x:2")
            await ask("DELETE", "/things/urn:x:1")
            assert await taken(stream, 4) == ALL
            assert await quiet(stream)


async def test_agents_get_events_too(autojump_clock: MockClock) -> None:
    async with directory() as node:
        ref = node.find(ThingDirectory)
        async with ref.subscribe_all() as feed:
            await some()
            found = [await feed.receive() for _ in range(4)]
            names = ["thingCreated", "thingUpdated", "thingCreated", "thingDeleted"]
            assert [(each.event, each.data.id) for each in found] == [
                (name, id) for name, (_, id) in zip(names, ALL, strict=True)
            ]
        assert await ref.read(ThingDirectory.total) == 1
