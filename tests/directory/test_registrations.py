"""When registrations end: times to live, dates, renewals, and clocks that do not agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors._core import Entropy
from lmos_actors.directory import DirectoryOptions

from .web import ask, directory, listening, patch, put, td

if TYPE_CHECKING:
    from trio.testing import MockClock

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Wall:
    """The directory's clock: it goes on with the runtime's, but for the steps it is given."""

    def __init__(self) -> None:
        self.skew = 0.0

    def stamp(self) -> float:
        return START.timestamp() + trio.current_time() + self.skew

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.stamp(), UTC)

    def text(self, seconds: float) -> str:
        """Give an instant so many seconds from now."""
        return (self.now() + timedelta(seconds=seconds)).isoformat()


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> Wall:
    """Have a clock that can be set."""
    made = Wall()
    monkeypatch.setattr(Entropy, "now", lambda self: made.now())
    return made


async def registration(id: str = "urn:x:1") -> dict[str, Any] | None:
    """Give what the directory tells of a registration, None where there is none."""
    answer = await ask("GET", f"/things/{id}")
    return answer.data["registration"] if answer.status == 200 else None


def at(registration: dict[str, Any] | None, name: str) -> datetime:
    assert registration is not None
    assert registration[name].endswith("Z")
    return datetime.fromisoformat(registration[name])


async def test_the_directory_gives_the_times(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        made = wall.now()
        await put("urn:x:1")
        await trio.sleep(10)
        await put("urn:x:1", title="New")
        changed = wall.now()
        await trio.sleep(5)
        found = await registration()
        assert at(found, "created") - made < timedelta(seconds=1)
        assert at(found, "modified") - changed < timedelta(seconds=1)
        assert at(found, "modified") - at(found, "created") == timedelta(seconds=10)
        assert at(found, "retrieved") - at(found, "modified") == timedelta(seconds=5)
        assert found is not None
        assert found.keys() == {"created", "modified", "retrieved"}


async def test_a_time_to_live_is_over_without_anybody_asking(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory(), listening() as stream:
        await put("urn:x:1", registration={"ttl": 60})
        assert (await stream.next())[0] == "thing_created"
        begun = trio.current_time()
        found = await registration()
        assert found is not None
        assert found["ttl"] == 60
        assert at(found, "expires") - at(found, "modified") == timedelta(seconds=60)
        assert await stream.next() == ("thing_deleted", {"id": "urn:x:1"})
        assert trio.current_time() - begun == pytest.approx(60, abs=0.1)
        assert await registration() is None
        assert (await ask("GET", "/things")).data == []


async def test_an_empty_patch_renews(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory(), listening() as stream:
        await put("urn:x:1", registration={"ttl": 60})
        first = await registration()
        for _ in range(5):
            await trio.sleep(50)
            assert (await patch("urn:x:1", {})).status == 204
        found = await registration()
        assert at(found, "expires") - at(first, "expires") == timedelta(seconds=250)
        assert found is not None
        assert first is not None
        assert (found["created"], found["modified"]) == (first["created"], first["modified"])
        await trio.sleep(59)
        assert await registration() is not None
        await trio.sleep(2)
        assert await registration() is None
        assert (await patch("urn:x:1", {})).status == 404
        assert [(await stream.next())[0], (await stream.next())[0]] == ["thing_created", "thing_deleted"]


async def test_every_update_begins_a_time_to_live_anew(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:1", registration={"ttl": 60})
        await trio.sleep(50)
        await patch("urn:x:1", {"title": "New"})
        await trio.sleep(50)
        await put("urn:x:1", title="New", registration={"ttl": 60})
        await trio.sleep(50)
        assert await registration() is not None
        await patch("urn:x:1", {"registration": {"ttl": 5}})
        await trio.sleep(6)
        assert await registration() is None


async def test_a_time_to_live_can_be_taken_away(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        for change in ({"registration": None}, {"registration": {"ttl": None, "expires": None}}):
            await put("urn:x:1", registration={"ttl": 60})
            await patch("urn:x:1", change)
            await trio.sleep(1_000)
            assert await registration() is not None
        await put("urn:x:1", registration={"ttl": 60})
        await put("urn:x:1")
        await trio.sleep(1_000)
        assert await registration() is not None


async def test_with_a_time_to_live_a_date_is_passed_over(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:1", registration={"ttl": 60, "expires": wall.text(5)})
        found = await registration()
        assert at(found, "expires") - at(found, "modified") == timedelta(seconds=60)
        await patch("urn:x:1", {"registration": {"expires": wall.text(5)}})
        await trio.sleep(50)
        assert await registration() is not None


async def test_what_only_the_directory_says_is_passed_over(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        old = "2001-01-01T00:00:00Z"
        await put("urn:x:1", registration={"created": old, "modified": old, "retrieved": old})
        found = await registration()
        assert found is not None
        assert old not in found.values()


async def test_a_date_ends_a_registration(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory(), listening() as stream:
        await put("urn:x:1", registration={"expires": wall.text(30)})
        await patch("urn:x:1", {"title": "New"})
        await patch("urn:x:1", {})
        found = await registration()
        assert found is not None
        assert "ttl" not in found
        await patch("urn:x:1", {"registration": {"expires": wall.text(60)}})
        await trio.sleep(59)
        assert await registration() is not None
        await trio.sleep(2)
        assert await registration() is None
        names = [(await stream.next())[0] for _ in range(4)]
        assert names == ["thing_created", "thing_updated", "thing_updated", "thing_deleted"]


async def test_many_end_each_at_its_time(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory(), listening() as stream:
        begun = wall.stamp()
        for number in (3, 1, 2, 1):
            await put(f"urn:{number}", registration={"ttl": number * 10})
        for number in (1, 2, 3):
            while (found := await stream.next())[0] != "thing_deleted":
                pass
            assert found[1]["id"] == f"urn:{number}"
            assert wall.stamp() - begun == pytest.approx(number * 10, abs=0.2)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (7, "registration"), ([], "registration"), ({"ttl": 0}, "registration.ttl"),
        ({"ttl": -1}, "registration.ttl"), ({"ttl": "60"}, "registration.ttl"),
        ({"ttl": True}, "registration.ttl"), ({"ttl": 1e12}, "registration.ttl"),
        ({"ttl": 10**400}, "registration.ttl"), ({"expires": 7}, "registration.expires"),
        ({"expires": "tomorrow"}, "registration.expires"),
        ({"expires": "2030-01-01"}, "registration.expires"),
        ({"expires": "2030-01-01T00:00:00"}, "registration.expires"),
        ({"expires": "2030-02-30T00:00:00Z"}, "registration.expires"),
        ({"expires": "0000-01-01T00:00:00Z"}, "registration.expires"),
        ({"expires": "9999-12-31T23:59:59Z"}, "registration.expires"),
        ({"expires": "2001-01-01T00:00:00Z"}, "registration.expires"),
        ({"created": "yesterday", "ttl": 5}, "registration.created"),
    ],
)  # fmt: skip
async def test_a_registration_that_cannot_be_is_refused(
    given: Any, field: str, wall: Wall, autojump_clock: MockClock
) -> None:
    async with directory():
        for answer in (
            await put("urn:x:1", registration=given),
            await ask("POST", "/things", td(None, registration=given), kind="application/td+json"),
        ):
            assert answer.status == 400
            assert [each["field"] for each in answer.data["validationErrors"]] == [field]
        assert (await ask("GET", "/things")).data == []


@pytest.mark.parametrize(
    "text", ["2026-05-01T14:00:30+01:30", "2026-05-01t12:30:30.5z", "2026-05-01 12:40:00Z"]
)
async def test_dates_are_read_as_rfc_3339_has_them(text: str, wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        assert (await put("urn:x:1", registration={"expires": text})).status == 201


async def test_the_longest_time_and_the_usual_one_can_be_set(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory(DirectoryOptions(default_ttl=30, max_ttl=60)):
        await put("urn:x:1")
        found = await registration()
        assert found is not None
        assert found["ttl"] == 30
        for given in ({"ttl": 61}, {"expires": wall.text(61)}):
            assert (await put("urn:x:1", registration=given)).status == 400
        assert (await put("urn:x:1", registration={"ttl": 60})).status == 204
        await trio.sleep(61)
        assert await registration() is None


async def test_a_longest_time_is_the_usual_one(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory(DirectoryOptions(max_ttl=60)):
        await put("urn:x:1")
        found = await registration()
        assert found is not None
        assert found["ttl"] == 60


# ---- clocks that do not agree


async def test_a_client_with_a_slow_clock_gets_an_error_and_can_use_a_ttl(
    wall: Wall, autojump_clock: MockClock
) -> None:
    async with directory():
        answer = await put("urn:x:1", registration={"expires": wall.text(60 - 3_600)})
        assert answer.status == 400
        (error,) = answer.data["validationErrors"]
        assert error["field"] == "registration.expires"
        assert "by the directory's clock, 2026-05-01T12:" in error["description"]
        assert (await put("urn:x:1", registration={"ttl": 60})).status == 201


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
async def test_a_time_to_live_knows_nothing_of_the_wall_clock(
    step: float, wall: Wall, autojump_clock: MockClock
) -> None:
    async with directory():
        await put("urn:x:1", registration={"ttl": 60})
        wall.skew = step
        await trio.sleep(59)
        assert await registration() is not None
        await patch("urn:x:1", {})
        await trio.sleep(59)
        assert await registration() is not None
        await trio.sleep(2)
        assert await registration() is None


async def test_a_date_is_one_of_the_wall_clock(wall: Wall, autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:back", registration={"expires": wall.text(60)})
        wall.skew = -30
        await trio.sleep(61)
        assert await registration("urn:back") is not None
        await trio.sleep(30)
        assert await registration("urn:back") is None
        await put("urn:forth", registration={"expires": wall.text(3_600)})
        wall.skew = 3_600
        assert await registration("urn:forth") is None, "whoever asks is not told of what is over"
        assert (await ask("GET", "/things")).data == []


@pytest.mark.parametrize("down", [10.0, 100.0])
async def test_time_goes_on_while_a_directory_is_down(
    down: float, wall: Wall, tmp_path: Any, autojump_clock: MockClock
) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    async with directory(options):
        await put("urn:x:1", registration={"ttl": 60})
        await put("urn:x:2", registration={"expires": wall.text(60)})
    await trio.sleep(down)
    async with directory(options):
        left = [each["id"] for each in (await ask("GET", "/things")).data]
        assert left == (["urn:x:1", "urn:x:2"] if down < 60 else [])
        await trio.sleep(max(0.0, 61 - down))
        assert (await ask("GET", "/things")).data == []


async def test_a_clock_that_was_set_back_while_it_was_down_makes_no_time_longer(
    wall: Wall, tmp_path: Any, autojump_clock: MockClock
) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    async with directory(options):
        await put("urn:x:1", registration={"ttl": 60})
    wall.skew = -86_400
    async with directory(options):
        await trio.sleep(59)
        assert await registration() is not None
        await trio.sleep(2)
        assert await registration() is None
