"""Who may do what at a directory, the directory as an agent, and searches that cost too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest
import trio

from lmos_actors import ActionFailed, ConfigError, open_node
from lmos_actors.directory import DirectoryOptions, OwnDirectory, ThingDirectory, directory_spec
from lmos_actors.discovery import DirectoryRefused
from lmos_actors.protocol.td import check
from lmos_actors.security import ANYONE, Access, Bearer, Security
from lmos_actors.transport import ConnectFailed
from tests.matrix import some

from .web import ask, directory, listening, put, td

if TYPE_CHECKING:
    from trio.testing import MockClock

SECURITY = Security(
    schemes=(Bearer({"reader": "env:READER", "writer": "env:WRITER", "listener": "env:LISTENER"}),),
    access={
        "directory": Access(read=("reader", "writer"), write=("writer",), subscribe=("listener",), invoke=()),
    },
)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a token for everybody."""
    for name in ("READER", "WRITER", "LISTENER"):
        monkeypatch.setenv(name, f"{name.lower()}-token-that-is-long-enough")


ASKED = [
    ("GET", "/things", "reader"), ("GET", "/things/urn:x:1", "reader"), ("HEAD", "/things", "reader"),
    ("GET", "/search/jsonpath?query=%24", "reader"), ("PUT", "/things/urn:x:1", "writer"),
    ("POST", "/things", "writer"), ("PATCH", "/things/urn:x:1", "writer"),
    ("DELETE", "/things/urn:x:1", "writer"), ("HEAD", "/events", "listener"),
    ("HEAD", "/events/thing_created", "listener"),
]  # fmt: skip
ALLOWED = {"reader": ("reader", "writer"), "writer": ("writer",), "listener": ("listener",)}


@pytest.mark.parametrize(("method", "target", "needs"), ASKED)
@pytest.mark.parametrize("who", ["reader", "writer", "listener", None])
async def test_everybody_may_do_what_they_may(
    method: str, target: str, needs: str, who: str | None, tokens: None, autojump_clock: MockClock
) -> None:
    async with directory(security=SECURITY):
        headers = {} if who is None else {"Authorization": f"Bearer {who}-token-that-is-long-enough"}
        answer = await ask(method, target, {}, **headers)
        if who is None:
            assert answer.status == 401
        elif who in ALLOWED[needs]:
            assert answer.status not in (401, 403)
        else:
            assert answer.status == 403
        if answer.status >= 400 and method != "HEAD":
            assert answer.header("content-type") == "application/problem+json"
        assert answer.status != 500


async def test_its_own_description_names_the_security_schemes(
    tokens: None, autojump_clock: MockClock
) -> None:
    open_to_read = Security(schemes=SECURITY.schemes, access={"directory": Access(read=ANYONE)})
    async with directory(security=open_to_read):
        own = (await ask("GET", "/.well-known/wot")).data
        assert [each["scheme"] for each in own["securityDefinitions"].values()].count("bearer") == 1
        assert not [each for each in check(own) if each.severity == "error"]
        assert (await ask("GET", "/things")).status == 200
        assert (await put("urn:x:1")).status == 401


async def test_whoever_may_see_a_directory_finds_it(tokens: None, autojump_clock: MockClock) -> None:
    public = Security(schemes=SECURITY.schemes, access=SECURITY.access, public_descriptions=True)
    for security, who, status in ((public, None, 200), (SECURITY, None, 401), (SECURITY, "listener", 200)):
        headers = {} if who is None else {"Authorization": f"Bearer {who}-token-that-is-long-enough"}
        async with directory(security=security):
            assert (await ask("GET", "/.well-known/wot", **headers)).status == status


async def test_a_directory_is_an_agent_with_a_description(autojump_clock: MockClock) -> None:
    async with directory():
        own = (await ask("GET", "/agents/directory")).data
        assert not [each for each in check(own) if each.severity == "error"]
        assert {"putThing", "retrieveThing", "searchJSONPath", "listThings"} <= own["actions"].keys()
        assert own["events"].keys() == {"thingCreated", "thingUpdated", "thingDeleted"}


async def test_a_node_asks_its_own_directory_without_a_socket(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        own = OwnDirectory(
            await node.start_child(directory_spec(DirectoryOptions(max_entries=3))), "http://own"
        )
        assert await own.renew("urn:1") is False
        await own.remove("urn:1")
        for number in range(3):
            await own.put(f"urn:{number}", msgspec.json.encode(td(f"urn:{number}")), 60)
        assert await own.renew("urn:1") is True
        assert [each["id"] for each in await own.find(None, 2)] == ["urn:0", "urn:1"]
        assert await own.find("$[?@.id == 'urn:2'].title", 5) == ["Lamp"]
        await own.remove("urn:2")
        assert len(await own.find(None, 5)) == 2
        for refused, status in ((own.find("$[", 5), 400), (own.put("urn:9", b"{}", 60), 400)):
            with pytest.raises(DirectoryRefused) as caught:
                await refused
            assert caught.value.status == status
        await trio.sleep(61)
        assert await own.find(None, 5) == []
        await own.aclose()
    with pytest.raises(ConnectFailed):
        await own.find(None, 5)


@pytest.mark.parametrize(
    "given", [False, 7, DirectoryOptions, {"path": "x"}], ids=["false", "number", "class", "dict"]
)
def test_what_stands_for_no_directory_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError):
        DirectoryOptions.of(given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_entries": 0}, {"max_bytes": 1.5}, {"max_events": True}, {"default_ttl": 0}, {"max_ttl": -1},
        {"max_ttl": float("inf")}, {"heartbeat_seconds": None}, {"search_seconds": "5"}, {"path": 7},
        {"default_ttl": 61, "max_ttl": 60}, {"max_ttl": 1e11},
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DirectoryOptions(**wrong)


# ---- searches that cost too much

WIDE = td("urn:wide", x=[[[1, 2, 3] for _ in range(10)] for _ in range(10)], pattern="(a|a)*$")


@pytest.mark.parametrize(
    "query",
    some([
        "$..*", "$..[?@..[?@..[?@..*]]]", "$[?count($..*) > count(@..*)]",
        "$[?@..*[?@..*[?count(@..*) > 0]]]",
        "$..[*,*,*,*,*,*,*,*]..[*,*,*,*,*,*,*,*]", "$[?@ == $[?@ == $[?@ == $[0]]]]", "$[*]..*..*..*..*",
        "$..[?@ == 1 || @ == 2 || @ == 3 || @ == 4 || @ == 5]..*",
        "$[0::1]..*..*..*", "$[?search(@..pattern, 'a')]..*..*..*..*",
    ], of=3),
)  # fmt: skip
async def test_a_search_that_costs_too_much_is_ended(query: str, autojump_clock: MockClock) -> None:
    options = DirectoryOptions(max_nodes=20_000, max_answer_bytes=100_000)
    async with directory(options) as node:
        ref = node.find(ThingDirectory)
        for number in range(30):
            await ref.invoke(ThingDirectory.put_thing, f"urn:{number}", {**WIDE, "id": f"urn:{number}"})
        answer = await ask("GET", f"/search/jsonpath?query={quote(query, safe='')}")
        assert answer.status == 400
        assert "JSONPath" in answer.data["detail"] or "too much work" in answer.data["detail"]
        assert (await ask("GET", "/search/jsonpath?query=%24%5B0%5D.id")).data == ["urn:0"]
        assert ref.statistics().restarts == 0


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(.*a){25}", "(a{0,99}){0,99}{0,99}", "(", "[", "\\\\"]
)
async def test_regular_expressions_take_linear_time_whatever_they_say(
    pattern: str, autojump_clock: MockClock
) -> None:
    async with directory():
        await put("urn:x:1", description="a" * 50_000 + "!")
        for function in ("match", "search"):
            query = f"$[?{function}(@.description, '{pattern}')].id"
            answer = await ask("GET", f"/search/jsonpath?query={quote(query, safe='')}")
            assert answer.status in (200, 400)


async def test_long_descriptions_cost_more_to_look_at(autojump_clock: MockClock) -> None:
    async with directory(DirectoryOptions(max_nodes=1_000)):
        await put("urn:short")
        assert (await ask("GET", "/search/jsonpath?query=%24%5B*%5D.id")).data == ["urn:short"]
        await put("urn:x:1", description="x" * 100_000)
        assert (await ask("GET", "/search/jsonpath?query=%24%5B*%5D.id")).status == 400


async def test_a_search_ends_by_the_clock_and_by_cancellation() -> None:
    options = DirectoryOptions(search_seconds=0.05, max_nodes=10**9, max_answer_bytes=10**9, max_searches=1)
    async with open_node() as node:
        ref = await node.start_child(directory_spec(options))
        for number in range(30):
            await ref.invoke(ThingDirectory.put_thing, f"urn:{number}", {**WIDE, "id": f"urn:{number}"})
        query = "$..[?@..[?@..[?@..[?@..*]]]]"
        with pytest.raises(ActionFailed, match="too long"):
            await ref.invoke(ThingDirectory.search_jsonpath, query)
        with trio.move_on_after(0.02):
            await ref.invoke(ThingDirectory.search_jsonpath, query)
        assert await ref.invoke(ThingDirectory.search_jsonpath, "$[0].id") == ["urn:0"]


async def test_there_are_so_many_searches_and_no_more() -> None:
    options = DirectoryOptions(search_seconds=0.1, max_nodes=10**9, max_answer_bytes=10**9, max_searches=1)
    async with open_node() as node:
        ref = await node.start_child(directory_spec(options))
        for number in range(30):
            await ref.invoke(ThingDirectory.put_thing, f"urn:{number}", {**WIDE, "id": f"urn:{number}"})
        told: list[int] = []

        async def search() -> None:
            try:
                await ref.invoke(ThingDirectory.search_jsonpath, "$..[?@..[?@..[?@..[?@..*]]]]")
            except ActionFailed as error:
                told.append(error.output["status"])  # type: ignore[index]

        async with trio.open_nursery() as nursery:
            for _ in range(7):
                nursery.start_soon(search)
            await trio.testing.wait_all_tasks_blocked()
            assert await ref.invoke(ThingDirectory.put_thing, "urn:x:1", td()) is True, (
                "others are not held up"
            )
        assert sorted(told) == [400] * 5 + [503] * 2


async def test_a_stream_ends_with_what_let_its_listener_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, autojump_clock: MockClock
) -> None:
    secret = tmp_path / "token"
    secret.write_text("listener-token-that-is-long-enough")
    security = Security(schemes=(Bearer({"listener": f"file:{secret}"}),))
    async with directory(security=security):
        headers = {"Authorization": "Bearer listener-token-that-is-long-enough"}
        async with listening(**headers) as stream:
            secret.write_text("another-token-that-is-long-enough")
            with pytest.raises(trio.EndOfChannel), trio.fail_after(60):
                await stream.next()
