"""What a directory has answered for is there again, whatever has ended it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import ActionFailed, StartFailed, open_node
from lmos_actors.directory import DirectoryOptions, ThingDirectory, directory_spec
from lmos_actors.errors import StoreFailed, StoreFull
from lmos_actors.persistence import Batch, Conflict, Durability, MemoryStore, SqliteStore
from tests.persistence.stores import url_in_redis
from tests.redis_server import needs_redis

from .web import ask, directory, listening, patch, put, td

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, trio
from lmos_actors import open_node
from lmos_actors.directory import DirectoryOptions, ThingDirectory, directory_spec

async def main():
    async with open_node() as node:
        ref = await node.start_child(directory_spec(DirectoryOptions(path=sys.argv[1])))
        td = {"@context": "https://www.w3.org/2022/wot/td/v1.1", "title": "Lamp", "security": "nosec_sc",
              "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}}}
        async def register(start):
            for number in range(start, 100_000, 4):
                await ref.invoke(ThingDirectory.put_thing, f"urn:{number}", {**td, "id": f"urn:{number}"})
                print(f"urn:{number}", flush=True)
        async with trio.open_nursery() as nursery:
            for start in range(4):
                nursery.start_soon(register, start)

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", pytest.param("redis", marks=needs_redis)])
def test_a_killed_process_loses_nothing_that_it_has_answered(kind: str, tmp_path: Path) -> None:
    path = url_in_redis(tmp_path) if kind == "redis" else str(tmp_path / "directory.db")
    command = [sys.executable, "-c", PROGRAM, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline().strip() for _ in range(100)]
        process.send_signal(signal.SIGKILL)
        answered += [line.strip() for line in process.stdout if line.endswith("\n")]

    async def main() -> None:
        async with open_node() as node:
            ref = await node.start_child(directory_spec(DirectoryOptions(path=path)))
            found = await ref.invoke(ThingDirectory.search_jsonpath, "$[*].id")
            assert set(answered) <= set(found)
            # each change has its event, and each event its change
            events = await ref.invoke(ThingDirectory.events_after, "other-1", "thing_created", False, 100_000)
            assert await ref.read(ThingDirectory.revision) == len(found)
            assert len(events.frames) == len(found) + 1, "and the gap"

    trio.run(main)


async def test_a_directory_is_there_again_as_it_was(tmp_path: Path, autojump_clock: MockClock) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    async with directory(options):
        await put("urn:x:1", registration={"ttl": 600.5}, description="ä\x00\u2028")
        await put("urn:x:2")
        await patch("urn:x:2", {"title": "New"})
        place = (await ask("POST", "/things", td(None), kind="application/td+json")).header("location")
        await put("urn:x:3")
        await ask("DELETE", "/things/urn:x:3")
        before = (await ask("GET", "/search/jsonpath?query=%24%5B*%5D")).data
        tag = (await ask("GET", "/things")).header("link")
    async with directory(options):
        assert (await ask("GET", "/search/jsonpath?query=%24%5B*%5D")).data == before
        assert (await ask("GET", "/things")).header("link") == tag
        assert place is not None
        assert (await ask("PUT", place, td(None, title="Mine"), kind="application/td+json")).status == 204


async def test_a_database_belongs_to_one_directory_at_a_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    async with open_node() as node:
        await node.start_child(directory_spec(options))
        with pytest.raises(StartFailed) as caught:
            await node.start_child(directory_spec(options, "second"))
        assert isinstance(caught.value.__cause__, StoreFailed)
        assert "has it open" in str(caught.value.__cause__)


@pytest.mark.parametrize("kind", ["text", "foreign", "newer", "folder", "nowhere", "cut"])
async def test_what_is_no_database_of_a_directory_is_left_as_it_is(
    kind: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "directory.db"
    if kind == "text":
        path.write_text("this is no database " * 100)
    elif kind == "folder":
        path.mkdir()
    elif kind == "nowhere":
        path = tmp_path / "file" / "directory.db"
        path.parent.write_text("")
    elif kind == "foreign":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE things (mine TEXT)")
        db.close()
    else:
        async with directory(DirectoryOptions(path=path)):
            await put("urn:x:1")
        if kind == "newer":
            with sqlite3.connect(path) as db:
                db.execute("PRAGMA user_version = 2")
            db.close()
        else:
            path.write_bytes(path.read_bytes()[:5_000])
    before = path.read_bytes() if path.is_file() else b""
    async with open_node() as node:
        with pytest.raises(StartFailed) as caught:
            await node.start_child(directory_spec(DirectoryOptions(path=path)))
        assert isinstance(caught.value.__cause__, StoreFailed)
        assert str(path) in str(caught.value.__cause__)
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize("virtual", [True, False])
def test_what_cannot_be_written_is_answered_and_forgotten(
    virtual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the turn itself where time is virtual, else in a thread."""
    clock = MockClock(autojump_threshold=0) if virtual else None
    trio.run(_unwritten, DirectoryOptions(path=tmp_path / "directory.db"), monkeypatch, clock=clock)


async def _unwritten(options: DirectoryOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_node() as node:
        ref = await node.start_child(directory_spec(options))
        await ref.invoke(ThingDirectory.put_thing, "urn:x:1", td())
        failures: list[Any] = []

        async def change(id: str) -> None:
            try:
                await ref.invoke(ThingDirectory.put_thing, id, td(id, title="New"))
            except ActionFailed as error:
                failures.append(error.output)

        with monkeypatch.context() as patched:

            def full(*_: object) -> None:
                raise StoreFull("directory.db", "database or disk is full")

            patched.setattr(SqliteStore, "commit", full)
            patched.setattr(ThingDirectory, "log", type("Quiet", (), {"error": lambda *_, **__: None})())
            async with trio.open_nursery() as nursery:
                for number in range(1, 6):
                    nursery.start_soon(change, f"urn:x:{number}")
        assert [each["status"] for each in failures] == [503] * 5
        await trio.sleep(0.3)  # until the store is tried again
        page = await ref.invoke(ThingDirectory.list_things)
        assert [each["title"] for each in page.members] == ["Lamp"]
        assert await ref.invoke(ThingDirectory.put_thing, "urn:x:2", td("urn:x:2")) is True
        assert await ref.read(ThingDirectory.revision) == 2, "no number is left out"
        assert ref.statistics().restarts == 0


@pytest.mark.slow
async def test_the_log_on_disk_stays_bounded(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "directory.db"
    async with directory(DirectoryOptions(path=path, max_events=10)) as node:
        ref = node.find(ThingDirectory)
        for number in range(700):
            await ref.invoke(ThingDirectory.put_thing, "urn:x:1", td(title=f"Lamp {number}"))
    with sqlite3.connect(path) as db:
        count = "SELECT count(*) FROM records WHERE space = 'directory.events'"
        assert db.execute(count).fetchone()[0] < 300
    db.close()
    async with directory(DirectoryOptions(path=path, max_events=10)), listening(Last_Event_ID="x") as stream:
        assert (await stream.next())[0] == "lmosx:gap"
        found = [(await stream.next())[0] for _ in range(10)]
        assert found == ["thing_updated"] * 10


async def test_many_changes_at_once_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots: list[int] = []
    commit, all_are_there = SqliteStore.commit, threading.Event()

    def counted(self: SqliteStore, batches: Sequence[Batch], how: Durability) -> list[Conflict | None]:
        if not opening:
            lots.append(len(batches))
            assert all_are_there.wait(30)
        return commit(self, batches, how)

    opening = True
    monkeypatch.setattr(SqliteStore, "commit", counted)
    async with open_node() as node:
        ref = await node.start_child(directory_spec(DirectoryOptions(path=tmp_path / "directory.db")))
        opening = False
        async with trio.open_nursery() as nursery:
            for number in range(100):
                id = f"urn:{number}"
                nursery.start_soon(ref.invoke, ThingDirectory.put_thing, id, td(id))
            await trio.testing.wait_all_tasks_blocked()
            all_are_there.set()
        assert sum(lots) == 100
        assert len(lots) < 5, lots
        assert await ref.read(ThingDirectory.total) == 100


async def test_whoever_stops_a_directory_waits_for_what_it_has_begun(tmp_path: Path) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    answered: list[str] = []

    async def register(ref: Any, id: str) -> None:
        await ref.invoke(ThingDirectory.put_thing, id, td(id))
        answered.append(id)

    async with trio.open_nursery() as nursery:
        async with open_node() as node:
            ref = await node.start_child(directory_spec(options))
            for number in range(20):
                nursery.start_soon(register, ref, f"urn:{number}")
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            while len(answered) < 20:
                await trio.lowlevel.checkpoint()
    async with open_node() as node:
        ref = await node.start_child(directory_spec(options))
        assert await ref.read(ThingDirectory.total) == 20


# ---- a file that is taken away, and a disk that fails while time goes on


async def test_a_file_that_was_taken_away_is_not_written(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "directory.db"
    async with open_node() as node:
        ref = await node.start_child(directory_spec(DirectoryOptions(path=path)))
        await ref.invoke(ThingDirectory.put_thing, "urn:1", td("urn:1"))
        path.unlink()
        with pytest.raises(ActionFailed) as refused:
            await ref.invoke(ThingDirectory.put_thing, "urn:2", td("urn:2"))
        assert "503" in str(refused.value.output)
        path.touch()  # another one in its place is not it either
        with pytest.raises(ActionFailed):
            await ref.invoke(ThingDirectory.delete_thing, "urn:1")
        assert await ref.invoke(ThingDirectory.search_jsonpath, "$[*].id") == ["urn:1"]


class Failing(MemoryStore):
    """Fails from when it is told to."""

    broken = False
    tries = 0

    def commit(self, batches: Sequence[Batch], durability: Durability) -> list[Conflict | None]:
        """See `Store`."""
        self.tries += 1
        if self.broken:
            raise StoreFull(self.name, "it is full")
        return super().commit(batches, durability)


async def test_what_has_ended_while_the_disk_failed_is_taken_away_after_that(
    autojump_clock: MockClock,
) -> None:
    store = Failing()
    gone: list[Any] = []
    async with open_node() as node:
        ref = await node.start(ThingDirectory, options=DirectoryOptions(), store=store)
        await ref.invoke(ThingDirectory.put_thing, "urn:1", {**td("urn:1"), "registration": {"ttl": 10}})
        async with ref.subscribe(ThingDirectory.thing_deleted) as events:
            store.broken, store.tries = True, 0
            await trio.sleep(60)
            assert 5 <= store.tries <= 20  # every five seconds in the end, not all the time
            store.broken = False
            with trio.move_on_after(6):
                gone.append((await anext(events)).id)
        assert gone == ["urn:1"]
        assert await ref.read(ThingDirectory.total) == 0
