"""A directory whose file is taken away, or whose disk fails while time goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.discovery import DirectoryOptions, StoreFailed, ThingDirectory, directory_spec
from lmos_actors.discovery.directory._store import Store
from tests.discovery.web import td

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trio.testing import MockClock

    from lmos_actors.discovery.directory._changes import Change


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


class Failing(Store):
    """Fails from when it is told to."""

    broken = False
    tries = 0

    def commit(self, changes: Sequence[Change], oldest: int) -> None:
        """See `Store`."""
        self.tries += 1
        if self.broken:
            raise StoreFailed(self.path, "it is full")
        super().commit(changes, oldest)


async def test_what_has_ended_while_the_disk_failed_is_taken_away_after_that(
    autojump_clock: MockClock,
) -> None:
    store = Failing(DirectoryOptions())
    gone: list[Any] = []
    async with open_node() as node:
        ref = await node.start(ThingDirectory, options=DirectoryOptions(), store=store)
        await ref.invoke(ThingDirectory.put_thing, "urn:1", {**td("urn:1"), "registration": {"ttl": 10}})
        async with ref.subscribe(ThingDirectory.thing_deleted) as events:
            store.broken, store.tries = True, 0
            await trio.sleep(60)
            assert 5 <= store.tries <= 12  # every five seconds, not all the time
            store.broken = False
            with trio.move_on_after(6):
                gone.append((await anext(events)).id)
        assert gone == ["urn:1"]
        assert await ref.read(ThingDirectory.total) == 0
