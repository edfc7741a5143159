"""The Directory Service API over HTTP: what W3C WoT Discovery asks for, and what nobody should send."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import trio

from lmos_actors.directory import DirectoryOptions, ThingDirectory
from lmos_actors.protocol.td import check

from .web import MERGE, Answer, ask, connected, directory, patch, put, td

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

TD_JSON = "application/td+json"
DISCOVERY = "https://www.w3.org/2022/wot/discovery"
UUID = re.compile(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def links(answer: Answer) -> dict[str, str]:
    """Give the targets of the Link headers by relation, and the tag of the collection."""
    found: dict[str, str] = {}
    for value in answer.all("link"):
        match = re.fullmatch(r'<([^>]*)>; rel="(\w+)"(?:; etag="([^"]*)")?', value)
        assert match is not None, value
        found[match[2]] = match[1]
        if match[3]:
            found["etag"] = match[3]
    return found


def fields(answer: Answer) -> list[str]:
    """Give the places of the validation errors of a problem, which is in the form of RFC 9457."""
    assert answer.header("content-type") == "application/problem+json"
    assert answer.data["status"] == answer.status
    assert answer.data["title"]
    found = answer.data["validationErrors"]
    assert all(each.keys() == {"field", "description"} and each["description"] for each in found)
    return [each["field"] for each in found]


# ---- one description


async def test_a_description_lives_from_its_creation_to_its_deletion(autojump_clock: MockClock) -> None:
    async with directory():
        created = await put("urn:x:1")
        assert (created.status, created.header("location"), created.body) == (201, "/things/urn:x:1", b"")
        found = await ask("GET", "/things/urn:x:1")
        assert found.status == 200
        assert found.header("content-type") == TD_JSON
        assert found.data.pop("registration").keys() == {"created", "modified", "retrieved"}
        assert found.data["title"] == "Lamp"
        assert found.data["@context"] == ["https://www.w3.org/2022/wot/td/v1.1", DISCOVERY]
        assert (await put("urn:x:1", title="Lantern")).status == 204
        assert (await ask("GET", "/things/urn:x:1")).data["title"] == "Lantern"
        assert (await patch("urn:x:1", {"description": "old"})).status == 204
        both = (await ask("GET", "/things/urn:x:1")).data
        assert (both["title"], both["description"]) == ("Lantern", "old")
        gone = await ask("DELETE", "/things/urn:x:1")
        assert (gone.status, gone.body) == (204, b"")
        for method in ("GET", "DELETE"):
            assert (await ask(method, "/things/urn:x:1")).status == 404
        assert (await patch("urn:x:1", {})).status == 404


async def test_what_was_retrieved_can_be_put_back_as_it_is(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:1", registration={"ttl": 60})
        enriched = (await ask("GET", "/things/urn:x:1")).data
        answer = await ask("PUT", "/things/urn:x:1", enriched, kind=TD_JSON)
        assert answer.status == 204
        again = (await ask("GET", "/things/urn:x:1")).data
        assert again["@context"] == enriched["@context"], "the context is not added twice"
        assert again["registration"]["ttl"] == 60


async def test_a_description_without_an_id_gets_an_opaque_one(autojump_clock: MockClock) -> None:
    async with directory():
        made = await ask("POST", "/things", td(None), kind=TD_JSON)
        assert made.status == 201
        where = made.header("location")
        assert where is not None
        found = (await ask("GET", where)).data
        assert UUID.fullmatch(found["id"])
        assert where == f"/things/{found['id']}"
        # its owner has no id for it, and need not say the one it was given
        assert (await ask("PUT", where, td(None, title="New"), kind=TD_JSON)).status == 204
        assert (await ask("GET", where)).data["title"] == "New"
        assert (await ask("GET", where)).data["id"] == found["id"]
        refused = await ask("POST", "/things", td("urn:x:1"), kind=TD_JSON)
        assert (refused.status, fields(refused)) == (400, ["id"])


@pytest.mark.parametrize(
    "id",
    [
        "urn:x:1", "http://a.example/b/../c?d=e&f#g", "a/b", "/", "..", ".", "a b".replace(" ", "%20"), "%41",
        "a+b", "urn:é", "urn:\U0001f600", "urn:x:;,'\"()", "things", "x" * 2048, "\\", "a%2Fb", "http://[::1]:80/",
    ],
)  # fmt: skip
async def test_any_id_that_may_be_is_reached_percent_encoded(id: str, autojump_clock: MockClock) -> None:
    async with directory():
        place = f"/things/{quote(id, safe='')}"
        made = await put(id, place)
        assert made.status == 201
        where = made.header("location")
        assert where is not None
        for target in (place, where):
            found = await ask("GET", target)
            assert (found.status, found.data["id"]) == (200, id)
        assert (await ask("GET", f"/search/jsonpath?query={quote('$[*].id', safe='')}")).data == [id]
        assert (await ask("DELETE", where)).status == 204


@pytest.mark.parametrize("id", ["a b", "a\tb", "a\nb", "a\x00b", "a\x7fb", "x" * 2049])
async def test_an_id_that_no_uri_can_be_is_refused(id: str, autojump_clock: MockClock) -> None:
    async with directory():
        answer = await put(id, f"/things/{quote(id, safe='')}")
        assert answer.status in (400, 404)
        assert (await ask("GET", "/things")).data == []


async def test_a_slash_of_an_id_need_not_be_encoded(autojump_clock: MockClock) -> None:
    async with directory():
        await put("http://a.example/b", "/things/http://a.example/b")
        assert (await ask("GET", "/things/http%3A%2F%2Fa.example%2Fb")).status == 200


async def test_the_id_in_the_body_is_that_of_the_place(autojump_clock: MockClock) -> None:
    async with directory():
        for body in (td("urn:x:2"), td(None), td(7), td("")):
            answer = await ask("PUT", "/things/urn:x:1", body, kind=TD_JSON)
            assert (answer.status, fields(answer)) == (400, ["id"])
        assert (await ask("GET", "/things")).data == []


# ---- merge patches


async def test_a_patch_replaces_adds_and_removes(autojump_clock: MockClock) -> None:
    async with directory():
        await put(
            "urn:x:1", description="gone", titles={"de": "Lampe", "en": "Lamp"}, support="http://a.example"
        )
        change = {"description": None, "titles": {"de": None, "fr": "Lampe"}, "title": "New", "absent": None}
        assert (await patch("urn:x:1", change)).status == 204
        found = (await ask("GET", "/things/urn:x:1")).data
        assert "description" not in found
        assert "absent" not in found
        assert found["titles"] == {"en": "Lamp", "fr": "Lampe"}
        assert (found["title"], found["support"]) == ("New", "http://a.example")


def deep(levels: int) -> Any:
    """Give objects inside one another."""
    found: Any = {}
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({"title": None}, ["(root)"]),
        ({"title": 7}, ["title"]),
        ({"security": "other_sc"}, ["security"]),
        ({"securityDefinitions": None}, ["(root)"]),
        ({"security": None, "title": None}, ["(root)", "(root)"]),
        ({"@context": None}, ["(root)"]),
        ({"properties": {"on": {"type": "boolean"}}}, ["properties.on"]),
        ({"properties": {"on": {"forms": [{"href": 7}]}}}, ["properties.on.forms.0.href"]),
        ({"id": "urn:x:2"}, ["id"]),
        ({"id": None}, ["id"]),
        ({"registration": {"ttl": -1}}, ["registration.ttl"]),
        ({"registration": 7}, ["registration"]),
        ({"x": deep(200)}, ["(root)"]),
    ],
)
async def test_a_patch_that_would_break_a_description_changes_nothing(
    change: Any, places: list[str], autojump_clock: MockClock
) -> None:
    async with directory():
        await put("urn:x:1")
        before = (await ask("GET", "/things/urn:x:1")).header("etag")
        answer = await patch("urn:x:1", change)
        assert (answer.status, fields(answer)) == (400, places)
        assert (await ask("GET", "/things/urn:x:1")).header("etag") == before


async def test_a_patch_says_what_it_is(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:1")
        for kind in ("application/json", TD_JSON, None, "text/plain"):
            answer = await ask("PATCH", "/things/urn:x:1", {}, kind=kind)
            assert (answer.status, answer.header("accept-patch")) == (415, MERGE)


# ---- lists

IDS = ["urn:Z", "urn:a", "urn:a:10", "urn:a:9", "urn:é", "urn:\uffee", "urn:\U0001f600"]
"""In the order of code points: UTF-16, and people, have another."""


async def filled(ids: list[str] = IDS) -> None:
    for id in reversed(ids):
        assert (await put(id, f"/things/{quote(id)}")).status == 201


def ids_in(answer: Answer) -> list[str]:
    members = answer.data if isinstance(answer.data, list) else answer.data["members"]
    return [member["id"] for member in members]


async def test_a_list_is_in_the_order_of_code_points(autojump_clock: MockClock) -> None:
    async with directory():
        empty = await ask("GET", "/things")
        assert (empty.status, empty.data) == (200, [])
        await filled()
        found = await ask("GET", "/things")
        assert ids_in(found) == IDS
        assert found.header("content-type") == "application/ld+json"
        assert "next" not in links(found)
        plain = await ask("GET", "/things", Accept="application/json")
        assert plain.header("content-type") == "application/json"
        assert (await ask("GET", "/things", Accept="text/turtle")).status == 406


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("form", ["array", "collection", None])
async def test_pages_together_are_the_list(limit: int, form: str | None, autojump_clock: MockClock) -> None:
    async with directory():
        await filled()
        target: str | None = f"/things?limit={limit}" + (f"&format={form}" if form else "")
        seen: list[str] = []
        tags: list[str] = []
        while target is not None:
            page = await ask("GET", target)
            assert 0 < len(ids_in(page)) <= limit
            seen += ids_in(page)
            told = links(page)
            assert told["canonical"] == "/things"
            tags.append(told["etag"])
            if form == "collection":
                assert page.data["@context"] == DISCOVERY
                assert page.data["@type"] == "ThingCollection"
                assert page.data["total"] == len(IDS)
                assert page.data.get("next") == told.get("next")
            target = told.get("next")
            assert target is None or f"limit={limit}" in target
        assert seen == IDS
        assert len(set(tags)) == 1


async def test_the_tag_of_the_collection_changes_with_its_order_alone(autojump_clock: MockClock) -> None:
    async with directory():
        tags = []
        gone = ask("DELETE", "/things/urn:a")
        for change in (put("urn:a"), put("urn:b"), put("urn:a", title="X"), gone):
            await change
            tags.append(links(await ask("GET", "/things?limit=1"))["etag"])
        assert tags[1] == tags[2]
        assert len(set(tags)) == 3


async def test_pages_past_the_end_are_empty(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:a")
        for offset in (1, 99, 10**17 - 1):
            page = await ask("GET", f"/things?offset={offset}&limit=5")
            assert (page.status, page.data) == (200, [])
            assert "next" not in links(page)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 400), ("limit=-1", 400), ("limit=x", 400), ("limit=", 400), ("limit=1.5", 400),
        ("limit=1&limit=2", 400), ("limit=%D9%A1", 400), ("offset=-1", 400), ("offset=" + "9" * 5000, 400),
        ("format=xml", 400), ("sort_by=title", 501), ("sort_order=desc", 501), ("unknown=1", 200),
    ],
)  # fmt: skip
async def test_a_query_that_cannot_be_read_is_a_problem(
    query: str, status: int, autojump_clock: MockClock
) -> None:
    async with directory():
        answer = await ask("GET", f"/things?{query}")
        assert answer.status == status
        if status != 200:
            assert answer.header("content-type") == "application/problem+json"


@pytest.mark.parametrize("form", ["array", "collection"])
async def test_a_long_list_comes_whole_and_a_page_is_bounded(form: str, autojump_clock: MockClock) -> None:
    options = DirectoryOptions(max_page=300)
    async with directory(options) as node:
        ref = node.find(ThingDirectory)
        ids = [f"urn:{number:04}" for number in range(450)]
        for id in ids:
            await ref.invoke(ThingDirectory.put_thing, id, td(id))
        whole = await ask("GET", f"/things?format={form}")
        assert ids_in(whole) == ids
        assert form == "array" or whole.data["total"] == 450
        page = await ask("GET", "/things?limit=1000")
        assert ids_in(page) == ids[:300]
        assert links(page)["next"] == "/things?offset=300&limit=1000"
        nothing = await ask("HEAD", "/things")
        assert (nothing.status, nothing.body) == (200, b"")


# ---- HTTP


@pytest.mark.parametrize(
    "target",
    ["/things", "/things?limit=1", "/things/urn:x:1", "/.well-known/wot", "/search/jsonpath?query=$"],
)
async def test_head_gives_the_headers_of_get(target: str, autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:1")
        read, told = await ask("GET", target), await ask("HEAD", target)
        assert told.body == b""
        assert told.status == read.status == 200
        assert told.headers == read.headers


async def test_an_unchanged_description_is_not_sent_again(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:x:1", registration={"ttl": 60})
        tag = (await ask("GET", "/things/urn:x:1")).header("etag")
        assert tag is not None
        assert (await ask("GET", "/things/urn:x:1", If_None_Match=tag)).status == 304
        await trio.sleep(1)
        await put("urn:x:1", title="X")
        assert (await ask("GET", "/things/urn:x:1", If_None_Match=tag)).status == 200


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("PATCH", "/things", "GET, POST, HEAD, OPTIONS"),
        ("POST", "/things/urn:x:1", "GET, PUT, PATCH, DELETE, HEAD, OPTIONS"),
        ("POST", "/search/jsonpath", "GET, HEAD, OPTIONS"),
        ("DELETE", "/events", "GET, HEAD, OPTIONS"),
        ("PUT", "/.well-known/wot", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_method_that_is_not_there_is_405(
    method: str, target: str, allowed: str, autojump_clock: MockClock
) -> None:
    async with directory():
        answer = await ask(method, target, {})
        assert (answer.status, answer.header("allow")) == (405, allowed)
        assert answer.header("content-type") == "application/problem+json"
        assert (await ask("OPTIONS", target)).header("allow") == allowed


@pytest.mark.parametrize(
    "target", ["/search/xpath?query=x", "/search/sparql?query=x", "/search", "/events/thing_x"]
)
async def test_what_is_not_offered_is_not_found(target: str, autojump_clock: MockClock) -> None:
    async with directory():
        answer = await ask("GET", target)
        assert (answer.status, answer.header("content-type")) == (404, "application/problem+json")


HOSTILE: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "an array": (b"[]", 400),
    "a text": (b'"urn:x:1"', 400),
    "NaN": (b'{"id":NaN}', 400),
    "a lone surrogate": (b'{"id":"urn:x:1","title":"\\ud800"}', 400),
    "no UTF-8": (b'{"id":"\xff"}', 400),
    "a byte order mark": (b"\xef\xbb\xbf{}", 400),
    "nested without end": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400),
    "nested deep": (json.dumps(td(x=deep(60))).encode(), 400),
    "a number without end": (json.dumps(td(x=1))[:-2].encode() + b"1" * 5_000 + b"}", 400),
    "too large a number": (json.dumps(td(x=1))[:-2].encode() + b"1e999}", 400),
    "no description": (b'{"id":"urn:x:1"}', 400),
    "a model": (json.dumps(td(**{"@type": "tm:ThingModel"})).encode(), 400),
    "too large": (json.dumps(td(description="x" * (256 << 10))).encode(), 413),
    "far too large": (b" " * (1 << 20), 413),
    "larger than any body": (b" " * (5 << 20), 413),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(("method", "target"), [("PUT", "/things/urn:x:1"), ("POST", "/things")])
async def test_nothing_hostile_gets_in(
    name: str, method: str, target: str, autojump_clock: MockClock
) -> None:
    body, status = HOSTILE[name]
    async with directory() as node:
        answer = await ask(method, target, body, kind=TD_JSON)
        assert answer.status in ((status, 400) if method == "POST" else (status,))
        assert (await ask("GET", "/things")).data == []
        assert node.connection_failures == ()
        assert node.find(ThingDirectory).statistics().restarts == 0


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_hostile_gets_in_as_a_patch(name: str, autojump_clock: MockClock) -> None:
    body, status = HOSTILE[name]
    async with directory() as node:
        await put("urn:x:1")
        answer = await ask("PATCH", "/things/urn:x:1", body, kind=MERGE)
        assert answer.status in (status, 204)
        found = (await ask("GET", "/things")).data
        assert [each["id"] for each in found] == ["urn:x:1"]
        assert not [each for each in check(found[0]) if each.severity == "error"]
        assert node.find(ThingDirectory).statistics().restarts == 0


async def test_a_body_says_what_it_is(autojump_clock: MockClock) -> None:
    async with directory():
        for kind in ("application/json", "application/ld+json", TD_JSON + "; charset=utf-8", None):
            assert (await ask("PUT", "/things/urn:x:1", td(), kind=kind)).status in (201, 204)
        assert (await ask("PUT", "/things/urn:x:1", td(), kind="text/turtle")).status == 415
        packed = gzip.compress(json.dumps(td()).encode())
        assert (
            await ask("PUT", "/things/urn:x:1", packed, kind=TD_JSON, Content_Encoding="gzip")
        ).status == 415


async def test_a_full_directory_takes_no_more_and_lets_go(autojump_clock: MockClock) -> None:
    async with directory(DirectoryOptions(max_entries=2)):
        for id in ("urn:a", "urn:b"):
            assert (await put(id)).status == 201
        full = await put("urn:c")
        assert (full.status, full.header("content-type")) == (507, "application/problem+json")
        assert (await put("urn:a", title="New")).status == 204
        await ask("DELETE", "/things/urn:a")
        assert (await put("urn:c")).status == 201
    async with directory(DirectoryOptions(max_total_bytes=5_000)):
        assert (await put("urn:a", description="x" * 1_000)).status == 201
        assert (await put("urn:b", description="x" * 1_000)).status == 507
        assert (await patch("urn:a", {"description": "x" * 3_500})).status == 507
        assert (await patch("urn:a", {"description": "x"})).status == 204
        assert (await put("urn:b", description="x" * 1_000)).status == 201


async def test_many_bodies_at_once_that_never_end_do_no_harm(autojump_clock: MockClock) -> None:
    async with directory():
        streams = []
        for _ in range(20):
            connection = await connected()
            head = b"PUT /things/urn:x:1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"
            await connection.stream.send_all(head)
            streams.append(connection)
        assert (await put("urn:y")).status == 201
        assert [(await each.answer()).status for each in streams] == [408] * 20


# ---- search


def searched(query: str) -> str:
    return f"/search/jsonpath?query={quote(query, safe='')}"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("$[?@.title=='Lamp'].id", ["urn:a", "urn:c"]),
        ("$[?@.properties.on].id", ["urn:b"]),
        ("$[*].title", ["Lamp", "Heater", "Lamp"]),
        ("$[?match(@.title, 'H.*r')].id", ["urn:b"]),
        ("$[?search(@.title, 'a')].id", ["urn:a", "urn:b", "urn:c"]),
        (r"$[?match(@.title, '\\p{Lu}.m[.p]')].id", ["urn:a", "urn:c"]),
        ("$[?match(@.title, '(?=L).*')].id", []),
        ("$[?count(@.properties.*) == 1].id", ["urn:b"]),
        ("$[-1].id", ["urn:c"]),
        ("$[0:2].id", ["urn:a", "urn:b"]),
        ("$[?@.none].id", []),
        ("$.title", []),
        ("$[?@.id == $[1].id].title", ["Heater"]),
    ],
)
async def test_jsonpath_selects_of_all_descriptions(
    query: str, found: list[Any], autojump_clock: MockClock
) -> None:
    async with directory():
        await put("urn:a")
        on = {"type": "boolean", "forms": [{"href": "http://a.example/on"}]}
        await put("urn:b", title="Heater", properties={"on": on})
        await put("urn:c")
        answer = await ask("GET", searched(query))
        assert (answer.status, answer.header("content-type")) == (200, "application/json")
        assert answer.data == found


async def test_a_search_gives_whole_descriptions_with_their_registration(autojump_clock: MockClock) -> None:
    async with directory():
        await put("urn:a")
        (found,) = (await ask("GET", searched("$[*]"))).data
        assert found["registration"].keys() == {"created", "modified"}
        assert (await ask("GET", searched("$"))).data == [[found]]


@pytest.mark.parametrize(
    "target",
    [
        "/search/jsonpath", "/search/jsonpath?query=", "/search/jsonpath?query=%24&query=%24", searched("x"),
        searched("$[?"), searched("$[" * 900), searched("$[?@.a==" + "(" * 900),
        searched("$[" + "9" * 400 + "]"),
        searched("$" + ".a" * 1_500), searched("$[?@.a =~ /(a+)+$/]"), searched("$ | $"),
        "/search/jsonpath?query=%24%5B%27%ED%A0%80",
        searched("$[?nope(@.a)]"), searched("$[?length(@.*)]"),
    ],
)  # fmt: skip
async def test_a_bad_expression_is_a_problem(target: str, autojump_clock: MockClock) -> None:
    async with directory() as node:
        answer = await ask("GET", target)
        assert (answer.status, answer.header("content-type")) == (400, "application/problem+json")
        assert len(answer.body) < 2_000
        assert node.find(ThingDirectory).statistics().restarts == 0


# ---- its own description


def forms() -> Iterator[tuple[str, str, str, str, int | None]]:
    """Give what the Thing Model of directories says: kind, name, place, method, status."""
    yield "properties", "things", "/things{?offset,limit,format}", "GET", 200
    yield "actions", "createThing", "/things/{id}", "PUT", 201
    yield "actions", "createAnonymousThing", "/things", "POST", 201
    yield "actions", "retrieveThing", "/things/{id}", "GET", 200
    yield "actions", "updateThing", "/things/{id}", "PUT", 204
    yield "actions", "partiallyUpdateThing", "/things/{id}", "PATCH", 204
    yield "actions", "deleteThing", "/things/{id}", "DELETE", 204
    yield "actions", "searchJSONPath", "/search/jsonpath{?query}", "GET", 200
    yield "events", "thingCreated", "/events/thing_created{?diff}", "GET", 200
    yield "events", "thingUpdated", "/events/thing_updated{?diff}", "GET", 200
    yield "events", "thingDeleted", "/events/thing_deleted", "GET", 200


@pytest.mark.parametrize("prefix", ["", "/house"])
async def test_its_own_description_is_that_of_a_directory(prefix: str, autojump_clock: MockClock) -> None:
    async with directory(public_url=f"wss://agents.example{prefix}"):
        answer = await ask("GET", "/.well-known/wot")
        assert answer.header("content-type") == TD_JSON
        own = answer.data
        assert check(own, strict=True) == ()
        assert own["@type"] == "ThingDirectory"
        old, new = "https://www.w3.org/2019/wot/td/v1", "https://www.w3.org/2022/wot/td/v1.1"
        assert own["@context"][:3] == [old, new, DISCOVERY]
        assert own["base"] == "https://agents.example/"
        for kind, name, place, method, status in forms():
            (form,) = own[kind][name]["forms"]
            assert (form["href"], form["htv:methodName"]) == (prefix + place, method)
            assert form["response"]["htv:statusCodeValue"] == status
        assert {"things"} == own["properties"].keys()
        named = [name for kind, name, *_ in forms() if kind != "properties"]
        assert [*own["actions"], *own["events"]] == named
        assert own["actions"]["partiallyUpdateThing"]["forms"][0]["contentType"] == MERGE
        assert own["events"]["thingCreated"]["forms"][0]["subprotocol"] == "sse"


async def test_links_and_locations_are_below_the_public_address(autojump_clock: MockClock) -> None:
    async with directory(public_url="https://agents.example/house/"):
        assert (await put("urn:x:1")).header("location") == "/house/things/urn:x:1"
        await put("urn:x:2")
        page = await ask("GET", "/things?limit=1")
        assert links(page)["canonical"] == "/house/things"
        assert links(page)["next"] == "/house/things?offset=1&limit=1"
