"""What a directory is asked for, how often, and how much of its answers is taken."""

from __future__ import annotations

import gc
import json
import tracemalloc
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import Agent, AgentUnavailable, ChildSpec, NotFound, SupervisorSpec, action, open_node
from lmos_actors.actors import AgentQuery
from lmos_actors.directory import DirectoryOptions
from lmos_actors.directory._changes import EventLog, LoggedEvent
from lmos_actors.directory._entries import InvalidDescription, Moment
from lmos_actors.directory._registrations import PURGED_AT_ONCE, Registrations
from lmos_actors.discovery import DirectoryRefused, HttpDirectory
from lmos_actors.discovery._finder import MAX_LINKS
from lmos_actors.discovery._lookup import KnownReplicas, Replica, SearchResults
from lmos_actors.errors import ConnectFailed
from lmos_actors.protocol.td import Description
from lmos_actors.security import Bearer, Security
from tests.directory.web import ask, directory, listening, put, td
from tests.discovery.fake import FakeDirectory, directory_at
from tests.networks import default_network

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

URL = "http://directory:81"


class Weather(Agent):
    """Answers questions about the weather."""

    place: str = "?"

    @action
    def where(self) -> str:
        return self.place


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


def test_no_more_is_taken_than_was_asked_for() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.extra = [{"n": number} for number in range(150)]
        async with directory_at(URL, fake):
            asked = HttpDirectory(default_network(), URL)
            assert len(await asked.find("$[*]", 70)) == 70
            assert len(await asked.find(None, 70)) == 70

    run(main)


@pytest.mark.parametrize(
    ("link", "pages"),
    [
        (b"</b>; rel=next", 20),
        (b'</b>; rel="next"', 20),
        (b'</b>; title="x"; REL = "prev next"', 20),
        (b"</a>; rel=canonical\r\nLink: </b>; rel=next", 20),
        (b"</b>; rel=next\r\nLink: </a>; rel=canonical", 20),
        (b"</a>; rel=canonical, </b>; rel=next", 20),
        (b"</next>; rel=canonical", 1),
        (b"</b>; rel=nextish", 1),
        (b'</b>; rel="not-next"', 1),
    ],
)
def test_pages_are_read_while_there_is_a_next_and_not_for_ever(link: bytes, pages: int) -> None:
    class Paged(FakeDirectory):
        def _response(self, http: Any, request: Any, body: bytes) -> bytes:
            said = super()._response(http, request, body)
            return said.replace(b"\r\n\r\n", b"\r\nLink: " + link + b"\r\n\r\n", 1)

    async def main() -> None:
        fake = Paged()
        fake.raw = b"[1]"
        async with directory_at(URL, fake):
            assert await HttpDirectory(default_network(), URL).find(None, 10**9) == [1] * pages
            assert fake.count("GET") == pages

    run(main)


def test_a_connection_that_was_closed_meanwhile_is_made_anew() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        asked = HttpDirectory(default_network(), URL, keep=True)
        for _ in range(2):
            async with directory_at(URL, fake):
                assert await asked.renew("urn:x:1") is False
                assert await asked.renew("urn:x:1") is False
        await asked.aclose()
        assert (fake.connections, fake.count("PATCH")) == (2, 4)

    run(main)


def test_two_questions_at_a_time_wait_for_no_other() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.seconds = 6.0
        asked = HttpDirectory(default_network(), URL, keep=True)
        async with directory_at(URL, fake):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(asked.find, "$", 1)
            assert trio.current_time() == pytest.approx(6.0)
            await asked.find("$", 1)
            assert fake.connections == 3
            await asked.aclose()

    run(main)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"detail": "full"}', "full"),
        (b'{"title": "Full"}', "Full"),
        (b'{"detail": "\\u001b[2J"}', ""),
        (b'{"detail": "a\\nb"}', ""),
        (b'{"detail": "' + b"x" * 301 + b'"}', ""),
        (b'{"detail": 7}', ""),
        (b"[" * 9999, ""),
        (b"<html>", ""),
    ],
)
def test_a_refusal_is_shortened_to_one_line(body: bytes, why: str) -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.answer = lambda *_: (409, body)  # type: ignore[method-assign]
        async with directory_at(URL, fake):
            with pytest.raises(DirectoryRefused) as caught:
                await HttpDirectory(default_network(), URL).put("urn:x:1", b"{}", 60.0)
            assert (caught.value.status, caught.value.why) == (409, why)

    run(main)


def test_by_a_name_one_is_found_that_has_it() -> None:
    async def main() -> None:
        tree = SupervisorSpec(
            "root", [ChildSpec(name, lambda name=name: Weather(place=name)) for name in ("oslo", "rome")]
        )
        async with (
            directory_at(URL),
            open_node(tree, listen="ws://there:80", register=URL),
            open_node(lookup=URL) as node,
        ):
            await trio.sleep(1)
            for name in ("rome", "oslo"):
                assert await node.find(Weather, name).invoke(Weather.where) == name
            with pytest.raises(NotFound):
                await node.find(Weather, "paris").invoke(Weather.where)

    run(main)


def test_a_connection_on_which_something_went_wrong_is_closed() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        asked = HttpDirectory(default_network(), URL, keep=True)
        async with directory_at(URL, fake):
            fake.raw = b"[" + b" " * (9 << 20) + b"]"
            with pytest.raises(ConnectFailed, match="longer"):
                await asked.find("$", 1)
            await trio.testing.wait_all_tasks_blocked()
            assert fake.open == 0
            fake.raw = None
            await asked.find("$", 1)
            assert fake.open == 1
            await asked.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert fake.open == 0

    run(main)


# ---- what is kept of answers


class Line:
    """Stands for a link to an agent elsewhere."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def replica(id: str) -> tuple[Replica, Line]:
    line = Line()
    made = Replica.elsewhere(id, Description(title=id), URL, lambda: line)
    assert made.link is line
    return made, line


def test_what_is_dropped_is_let_go_once_it_has_answered() -> None:
    made, line = replica("urn:x:1")
    with made.counted(), made.counted():
        made.drop()
        assert line.released == 0
    assert line.released == 1


class Told:
    """Stands for what looks in directories: tells of these agents."""

    rt = SimpleNamespace(ended=False)

    def __init__(self, nursery: trio.Nursery) -> None:
        self.start_soon = nursery.start_soon
        self.ids: list[str] = []
        self.silent: list[str] = []
        self.lines: dict[str, Line] = {}

    async def found(self, _: AgentQuery) -> SearchResults:
        await trio.sleep(1)
        results = SearchResults()
        for id in self.ids:
            described = Description(title=id)
            found: Any = SimpleNamespace(epoch=0, key=None, id=id, description=described, directory=URL)
            results.things[id] = found
        results.silent = dict.fromkeys(self.silent)
        return results

    def replica(self, _: Any, found: Any) -> Replica:
        made, self.lines[found.id] = replica(found.id)
        return made


def test_so_many_are_kept_and_what_is_gone_is_let_go() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            told: Any = Told(nursery)
            known = KnownReplicas(told, AgentQuery())
            told.ids = [f"urn:x:{number:03}" for number in range(100, 0, -1)]
            await known.look_up()
            assert list(known.replicas) == [f"urn:x:{number:03}" for number in range(1, 65)]
            kept = known.replicas["urn:x:064"]
            told.ids = ["urn:x:064", "urn:x:200"]
            await known.look_up()
            assert list(known.replicas) == ["urn:x:064", "urn:x:200"]
            assert known.replicas["urn:x:064"] is kept
            assert sum(line.released for line in told.lines.values()) == 63
            told.ids, told.silent = [], [URL]
            await known.look_up()
            assert list(known.replicas) == ["urn:x:064", "urn:x:200"]
            told.silent = ["http://other"]
            await known.look_up()
            assert not known.replicas
            assert (told.lines["urn:x:064"].released, told.lines["urn:x:200"].released) == (1, 1)

    run(main)


def test_several_are_looked_for_again_after_a_while_and_not_before() -> None:
    async def main() -> None:
        async with directory_at(URL) as fake, open_node(lookup=URL) as node, AsyncExitStack() as stack:

            async def start(name: str) -> None:
                tree = SupervisorSpec("root", [ChildSpec("weather", lambda: Weather(place=name))])
                await stack.enter_async_context(open_node(tree, listen=f"ws://{name}:80", register=URL))
                await trio.sleep(1)

            await start("oslo")
            ref = node.find(Weather, spread="round_robin")
            assert await ref.invoke(Weather.where) == "oslo"
            await start("rome")
            for _ in range(13):
                await trio.sleep(1)
                assert await ref.invoke(Weather.where) == "oslo"
            assert fake.count("GET") == 1
            await trio.sleep(3)
            await ref.invoke(Weather.where)
            await trio.sleep(0.1)
            assert fake.count("GET") == 2
            assert {await ref.invoke(Weather.where) for _ in range(2)} == {"oslo", "rome"}

    run(main)


def test_who_is_down_is_not_looked_for_at_every_request() -> None:
    async def main() -> None:
        async with directory_at(URL) as fake, open_node(lookup=URL) as node:
            async with open_node(listen="ws://oslo:80", register=URL) as oslo:
                await oslo.start(Weather)
                await trio.sleep(1)
                fake.extra = list(fake.entries.values())
            ref = node.find(Weather)
            for _ in range(50):
                with pytest.raises(AgentUnavailable):
                    await ref.invoke(Weather.where)
                await trio.sleep(0.1)
            assert 2 <= fake.count("GET") <= 8  # after 0.1, 0.2, 0.4 and 0.8 s, then once a second

    run(main)


def test_whoever_takes_a_connection_and_says_nothing_is_passed_over() -> None:
    async def main() -> None:
        fake, mute = FakeDirectory(), FakeDirectory()
        mute.hangs = True
        async with (
            directory_at(URL, fake),
            directory_at("http://mute:80", mute),
            open_node(listen="ws://oslo:80", register=URL) as oslo,
            open_node(lookup=URL) as node,
        ):
            await oslo.start(Weather)
            await trio.sleep(1)
            (entry,) = fake.entries.values()
            fake.extra = [json.loads(json.dumps(entry).replace("oslo", "mute"))]
            ref = node.find(Weather, spread="round_robin")
            begin = trio.current_time()
            for _ in range(2):
                await ref.invoke(Weather.where)
            assert mute.connections
            assert trio.current_time() - begin < 25

    run(main)


def test_of_those_that_are_spread_over_so_many_are_remembered() -> None:
    async def main() -> None:
        async with open_node(lookup=URL) as node:

            def link(title: str) -> Any:
                return node._discovery._finder.spread(AgentQuery(Weather, title=title), "round_robin", None)

            first, second = link("first"), link("second")
            for number in range(MAX_LINKS - 2):
                link(f"{number}")
            assert link("first") is first
            link("one more")
            assert link("first") is first
            assert link("second") is not second

    run(main)


# ---- exploring


def test_of_a_node_with_very_many_agents_some_are_left_out() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        links = [{"rel": "item", "href": f"/agents/{number}"} for number in range(105)]
        fake.raw = json.dumps(td("urn:x:node", links=links)).encode()
        async with directory_at("http://rome:80", fake), open_node() as node:
            found = await node.discover("rome")
            assert len(fake.asked) == 101
            assert found.left_out == ("5 more agents of http://rome/.well-known/wot",)
            assert [each.id for each in found.things] == ["urn:x:node"]
            assert found.with_more(found).things == found.things
            fake.raw = json.dumps([td(f"urn:x:{number}") for number in range(1_010)]).encode()
            assert len((await node.discover("rome")).things) == 1_000

    run(main)


def test_a_directory_does_not_register_itself() -> None:
    async def main() -> None:
        async with directory(True, register=True) as node:
            await node.start(Weather)
            await trio.sleep(1)
            assert [each["title"] for each in (await ask("GET", "/things")).data] == ["Weather"]

    run(main)


def test_a_search_that_is_over_makes_room_and_an_answer_has_an_end() -> None:
    async def main() -> None:
        async with directory(DirectoryOptions(max_searches=1, max_answer_bytes=450)):
            await put("urn:x:1")
            for _ in range(10):
                assert (await ask("GET", "/search/jsonpath?query=$[*]")).status == 200
            await put("urn:x:2")
            assert (await ask("GET", "/search/jsonpath?query=$[*]")).status == 400

    run(main)


# ---- events


def test_a_filtered_stream_keeps_its_position_up_to_date() -> None:
    async def main() -> None:
        async with (
            directory(DirectoryOptions(heartbeat_seconds=5)),
            listening("/events/thing_deleted") as stream,
        ):
            await put("urn:x:1")
            await put("urn:x:2")
            with trio.move_on_after(11):
                await stream.next()
            assert stream.last.endswith("-2")

    run(main)


def test_a_stream_ends_when_the_token_is_taken_away(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-that-is-long-enough\n")
    security = Security(schemes=(Bearer({"alice": f"file:{tokens}"}),))

    async def main() -> None:
        headers = {"Authorization": "Bearer a-token-that-is-long-enough"}
        options = DirectoryOptions(heartbeat_seconds=5)
        async with directory(options, security=security), listening(**headers) as stream:
            with trio.move_on_after(11):
                await stream.next()
            assert stream.comments >= 2
            tokens.write_text("another-token-that-is-long-enough\n")
            with trio.fail_after(11), pytest.raises(trio.EndOfChannel):
                await stream.next()

    run(main)


def test_events_arrive_in_pieces() -> None:
    log = EventLog("life", most=1_000, most_bytes=64 << 20)
    log.add(
        LoggedEvent(number, "thing_created", f"urn:x:{number}", b"x" * 100_000) for number in range(1, 11)
    )
    last, pieces = "life-0", []
    while True:
        page = log.after(last, "", diff=True, most=100)
        pieces.append(len(page.frames))
        last = page.last
        if not page.more:
            break
    assert (pieces, last) == ([3, 3, 3, 1], "life-10")


def test_a_directory_that_has_too_much_takes_less() -> None:
    at = Moment(wall=1e9, tick=0.0)
    shelf = Registrations(DirectoryOptions())
    shelf.settle([shelf.put("urn:x:1", td("urn:x:1", title="Lamp" * 100), at)])
    smaller = Registrations(DirectoryOptions(max_total_bytes=100), [shelf.get("urn:x:1", at)])
    with pytest.raises(InvalidDescription):
        smaller.put("urn:x:2", td("urn:x:2"), at)
    smaller.settle([smaller.put("urn:x:1", td("urn:x:1", title="Lamp"), at)])
    assert 0 < smaller.bytes < shelf.bytes


def test_what_has_ended_is_taken_away_in_pieces() -> None:
    shelf = Registrations(DirectoryOptions())
    begin = Moment(wall=1e9, tick=0.0)
    for number in range(PURGED_AT_ONCE + 5):
        shelf.settle([shelf.put(f"urn:x:{number}", td(f"urn:x:{number}", registration={"ttl": 9}), begin)])
    end = Moment(wall=1e9, tick=9.0)
    assert [len(shelf.purge(end)) for _ in range(3)] == [PURGED_AT_ONCE, 5, 0]


@pytest.mark.parametrize("length", [10, 1_000, 10_000])
def test_what_counts_is_what_the_process_holds(length: int) -> None:
    at = Moment(wall=1e9, tick=0.0)
    shelf = Registrations(DirectoryOptions(path="kept.db"))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(500):
            id = f"urn:x:{number}"
            shelf.settle([shelf.put(id, td(id, title="L" * length), at)])
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held / 1.5 < shelf.bytes < held * 1.5
