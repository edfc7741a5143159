"""Finding the thing that is judged: where its description is, which of several is meant, where it leads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lmos_actors import ConfigError
from lmos_actors.conformance.target import AccessOptions, HttpForm, Target, find_target, next_of
from lmos_actors.conformance.wire import Unreachable
from lmos_actors.protocol.td import MAX_BYTES

from .pages import SILENCE, Page, described, moved, serving

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "http://thing:80"
WELL_KNOWN = f"{HERE}/.well-known/wot"
SOCKET = "ws://thing/ws"


def form(
    href: str = SOCKET, op: Any = "readproperty", subprotocol: str | None = "lmosprotocol"
) -> dict[str, Any]:
    found = {"href": href, "op": op}
    return found if subprotocol is None else {**found, "subprotocol": subprotocol}


def td(thing_id: str = "urn:a", *forms: dict[str, Any], **members: Any) -> dict[str, Any]:
    shown = {"level": {"type": "integer", "forms": list(forms or (form(),))}}
    title = f"Thing {thing_id[-1]}"
    return {"@context": "https://www.w3.org/2022/wot/td/v1.1", "id": thing_id, "title": title, **members} | (
        {} if "properties" in members else {"properties": shown}
    )


async def found(
    pages: dict[str, Page], url: str, *more: str, headers: Callable[[str], Any] | None = None, **options: Any
) -> Target:
    async with serving(pages, *more) as served:
        access = AccessOptions(network=served.network, patience=10)
        access = access if headers is None else attrs.evolve(access, headers=headers)
        return await find_target(url, access, **options)


# --- where a description is looked for


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (HERE, WELL_KNOWN),
        (f"{HERE}/", WELL_KNOWN),
        (HERE, f"{HERE}/"),
        (WELL_KNOWN, f"{HERE}/"),
        (HERE, f"{HERE}/things"),
        (f"{HERE}/agents/a", f"{HERE}/agents/a"),
        (SOCKET, f"{HERE}/ws"),
        (SOCKET, WELL_KNOWN),
        (SOCKET, f"{HERE}/"),
        (SOCKET, f"{HERE}/things"),
        ("ws://thing", f"{HERE}/"),
    ],
)
async def test_a_description_is_found(url, place, autojump_clock) -> None:
    target = await found({place: described(td("urn:a", form(f"{SOCKET}")))}, url)
    assert target.thing.id == "urn:a"
    assert target.thing.title == "Thing a"
    assert target.thing.media_type == "application/td+json"
    assert target.thing.where.startswith("http://thing")
    assert target.thing.description is not None
    assert target.given == url
    assert target.socket == (SOCKET if url != "ws://thing" else "ws://thing/")
    assert target.others == ()
    assert (target.form is None) == url.startswith("ws:")


async def test_the_likeliest_place_comes_first_and_nothing_is_asked_twice(autojump_clock) -> None:
    async with serving({WELL_KNOWN: described(td("urn:a")), f"{HERE}/": described([td("urn:b")])}) as pages:
        target = await find_target(HERE, AccessOptions(network=pages.network))
    assert target.thing.id == "urn:a"
    assert [each.id for each in target.others] == ["urn:b"]
    assert sorted(pages.paths) == ["/", "/.well-known/wot", "/things"]


async def test_a_file_has_it(tmp_path, autojump_clock) -> None:
    file = tmp_path / "thing.json"
    file.write_text(json.dumps(td("urn:a")))
    target = await found({}, str(file))
    assert (target.thing.where, target.thing.media_type, target.socket) == (str(file), "", SOCKET)


async def test_what_is_in_a_file_that_is_named_is_meant_whatever_it_is(tmp_path, autojump_clock) -> None:
    file = tmp_path / "thing.json"
    for text, known in (('{"id": "urn:a", "title": "bare"}', "urn:a"), ("no JSON", str(file))):
        file.write_text(text)
        assert (await found({}, SOCKET, description=str(file))).thing.id == known


async def test_a_file_that_is_too_long_is_no_description(tmp_path, autojump_clock) -> None:
    file = tmp_path / "thing.json"
    file.write_bytes(b"{}".ljust(MAX_BYTES))
    assert (await found({}, SOCKET, description=str(file))).thing.id == str(file)
    file.write_bytes(b"{}".ljust(MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="a description has at most 1048576 bytes"):
        await found({}, SOCKET, description=str(file))


@pytest.mark.parametrize("kind", ["file", "url"])
async def test_it_is_looked_for_where_the_option_says_alone(kind, tmp_path, autojump_clock) -> None:
    file = tmp_path / "thing.json"
    file.write_text(json.dumps(td("urn:a", form("ws"))))
    place = str(file) if kind == "file" else "http://other/td"
    async with serving(
        {"http://other/td": described(td("urn:a", form("ws"))), WELL_KNOWN: described(td("urn:b"))}
    ) as pages:
        target = await find_target("ws://thing/ws", AccessOptions(network=pages.network), description=place)
    assert (target.thing.id, target.socket, target.others) == ("urn:a", SOCKET, ())
    assert pages.paths == ([] if kind == "file" else ["/td"])


async def test_hrefs_of_a_file_are_relative_to_the_server_that_is_given(tmp_path, autojump_clock) -> None:
    file = tmp_path / "thing.json"
    file.write_text(json.dumps(td("urn:a", form("live", subprotocol="lmosprotocol"))))
    target = await found({}, HERE, description=str(file))
    assert target.socket == "ws://thing/live"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(status, autojump_clock) -> None:
    pages = {WELL_KNOWN: moved("/b?x#frag", status), f"{HERE}/b?x": described(td("urn:a", form("ws")))}
    target = await found(pages, HERE)
    assert (target.thing.where, target.socket) == (f"{HERE}/b?x".replace(":80", ""), SOCKET)


async def test_five_redirects_are_followed_and_no_more(autojump_clock) -> None:
    pages = {f"{HERE}/{number}": moved(f"/{number + 1}") for number in range(1, 7)}
    pages[f"{HERE}/7"] = described(td())
    with pytest.raises(Unreachable, match="more than 5 redirects"):
        await found(pages, "http://thing/1")
    assert (await found(pages, "http://thing/2")).thing.id == "urn:a"


async def test_credentials_go_to_the_authority_that_was_given_alone(autojump_clock) -> None:
    pages = {
        f"{HERE}/a": moved("http://other/b"),
        "http://other/b": moved("http://thing/c"),
        f"{HERE}/c": described(td("urn:a", form("ws://third/ws"))),
        "http://third/": described([td("urn:b", form("ws://third/ws"))]),
    }
    async with serving(pages) as served:
        shown = AccessOptions(network=served.network, headers=lambda url: ((b"Authorization", url.encode()),))
        target = await find_target("http://thing/a", shown)
    told = {request.split(b" ")[1]: b"Authorization: " in request for request in served.asked}
    assert told == {b"/a": True, b"/b": False, b"/c": True, b"/": False, b"/things": False}
    assert [each.id for each in target.others] == ["urn:b"]


async def test_an_accept_header_of_ones_own_stands(autojump_clock) -> None:
    async with serving({f"{HERE}/a": described(td())}) as pages:
        own = AccessOptions(network=pages.network, headers=lambda _: ((b"accept", b"text/x"),))
        await find_target("http://thing/a", own)
        await find_target("http://thing/a", AccessOptions(network=pages.network))
    assert [request.lower().count(b"accept:") for request in pages.asked if b"/a " in request] == [1, 1]
    assert b"application/td+json" in pages.asked[-3]


@pytest.mark.parametrize(
    ("here", "location", "told"),
    [
        ("https://a/", "http://a/b", "it redirects to http://a/b, which is not secure"),
        ("http://a/", "gopher://a/b", "it redirects to what is no address"),
        (
            "http://a/",
            "http://[::1]/b",
            "it redirects to http://[::1]/b, which is another host there than here",
        ),
    ],
)
def test_where_no_redirect_is_followed_to(here, location, told) -> None:
    with pytest.raises(Unreachable) as caught:
        next_of("https://given/", here, location)
    assert (caught.value.url, caught.value.why.startswith(told)) == ("https://given/", True)
    assert next_of(here, here, "https://b/y#z") == "https://b/y"


# --- what is none


@pytest.mark.parametrize(
    ("pages", "url", "told"),
    [
        ({}, HERE, "nothing is listening there"),
        (
            {f"{HERE}/x": Page()},
            "http://thing/y",
            "http://thing/y: no description is there (it answered 404)",
        ),
        ({f"{HERE}/x": Page(status=401)}, "http://thing/x", "it answered 401; --bearer, --basic or --header"),
        ({f"{HERE}/x": described(b"<html>", "text/html")}, "http://thing/x", "not JSON"),
        ({f"{HERE}/x": described(b"{")}, "http://thing/x", "not JSON"),
        ({f"{HERE}/x": described(b"17")}, "http://thing/x", "a description is a JSON object"),
        ({f"{HERE}/x": described([])}, "http://thing/x", "no description is there"),
        ({f"{HERE}/x": described({"title": 7})}, "http://thing/x", "cannot be read"),
        ({f"{HERE}/x": SILENCE}, "http://thing/x", "no answer within 10 s"),
        ({f"{HERE}/x": Page()}, SOCKET, "--description says which URL or file has it"),
        ({f"{HERE}/": described(b"<html>", "text/html")}, SOCKET, "text/html is no description"),
        ({f"{HERE}/": described({"status": "up"}, "application/json")}, SOCKET, "--description"),
    ],
)
async def test_without_a_description_it_is_unreachable(pages, url, told, autojump_clock) -> None:
    with pytest.raises(Unreachable) as caught:
        await found(pages, url)
    assert told in str(caught.value)


async def test_an_unreachable_target_is_reported(autojump_clock) -> None:
    with pytest.raises(Unreachable, match=r"^http://nobody/td: nothing is listening there$"):
        await found({WELL_KNOWN: described(td())}, SOCKET, description="http://nobody/td")


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("gopher://thing", {}, "cannot read the description"),
        ("ws://", {}, "names no host"),
        ("nothing.json", {}, "nothing.json: cannot read the description: No such file"),
        (SOCKET, {"description": "nothing.json"}, "nothing.json: cannot read"),
    ],
)
async def test_what_cannot_be_meant_is_a_mistake_of_the_caller(url, options, told, autojump_clock) -> None:
    with pytest.raises(ConfigError) as caught:
        await found({WELL_KNOWN: described(td())}, url, **options)
    assert told in str(caught.value)


# --- which of several


SEVERAL = {
    f"{HERE}/": described([td("urn:x:a"), td("http://thing/agents/b"), td("c", form("ws://thing/other"))])
}


@pytest.mark.parametrize(
    ("thing", "meant"), [("urn:x:a", 0), ("a", 0), ("Thing a", 0), ("b", 1), ("c", 2), ("Thing c", 2)]
)
@pytest.mark.parametrize("url", [HERE, SOCKET])
async def test_one_of_several_is_named(thing, meant, url, autojump_clock) -> None:
    target = await found(SEVERAL, url, thing=thing)
    ids = ["urn:x:a", "http://thing/agents/b", "c"]
    assert target.thing.id == ids[meant]
    assert json.loads(target.thing.text) == target.thing.data
    if meant < 2:
        assert [each.id for each in target.others] == [ids[1 - meant]]


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (None, "say which one by --thing; there are: urn:x:a, http://thing/agents/b, c"),
        ("Thing aa", "(did you mean 'Thing a'?); there are: urn:x:a"),
        ("zzzzzz", "--thing 'zzzzzz' is not there; there are"),
    ],
)
async def test_it_is_asked_which_one_is_meant(thing, told, autojump_clock) -> None:
    with pytest.raises(ConfigError) as caught:
        await found(SEVERAL, HERE, thing=thing)
    assert told in str(caught.value)


async def test_a_socket_says_which_one_is_meant(autojump_clock) -> None:
    target = await found(SEVERAL, "ws://thing/other")
    assert (target.thing.id, target.others) == ("c", ())


async def test_a_socket_is_looked_for_in_every_place(autojump_clock) -> None:
    pages = {
        WELL_KNOWN: described(td("urn:a", form("ws://thing/other"))),
        f"{HERE}/things": described([td("urn:b")]),
    }
    assert (await found(pages, SOCKET)).thing.id == "urn:b"
    assert (await found(pages, SOCKET, thing="urn:a")).thing.id == "urn:a"


async def test_one_name_of_two_is_not_clear(autojump_clock) -> None:
    listed = [td("urn:x:a", title="Twin"), td("urn:y:b", title="Twin")]
    with pytest.raises(ConfigError, match="fits several things: say which one by its id; there are: urn:x:a"):
        await found({f"{HERE}/": described(listed)}, HERE, thing="Twin")


async def test_things_without_ids_are_distinguished(autojump_clock) -> None:
    listed = [{key: value for key, value in td(f"urn:{name}").items() if key != "id"} for name in "ab"]
    target = await found({f"{HERE}/": described(listed)}, HERE, thing="Thing b")
    assert (target.thing.title, [each.title for each in target.others]) == ("Thing b", ["Thing a"])


async def test_a_socket_that_no_description_names_takes_the_only_one(autojump_clock) -> None:
    target = await found({f"{HERE}/": described([td("urn:a", form("ws://inside:1/ws"))])}, SOCKET)
    assert (target.thing.id, target.socket) == ("urn:a", SOCKET)


async def test_others_are_those_on_the_same_socket_whatever_the_socket_is_called(autojump_clock) -> None:
    listed = [td("urn:a", form("ws://in:1/ws")), td("urn:b", form("ws://in:1/ws")), td("urn:c")]
    target = await found({f"{HERE}/": described(listed)}, "ws://thing/x", thing="urn:a")
    assert [each.id for each in target.others] == ["urn:b"]
    other = target.other(target.others[0])
    assert (other.thing.id, other.socket, [each.id for each in other.others]) == (
        "urn:b",
        target.socket,
        ["urn:a"],
    )


async def test_what_is_described_at_the_socket_itself_is_meant(autojump_clock) -> None:
    pages = {f"{HERE}/agents/a": described(td("urn:a")), WELL_KNOWN: described([td("urn:a"), td("urn:b")])}
    target = await found(pages, "ws://thing/agents/a")
    assert (target.thing.id, target.socket) == ("urn:a", "ws://thing/agents/a")


async def test_what_has_its_address_for_an_id_is_not_another_where_it_is_listed(autojump_clock) -> None:
    own, other = td(f"{HERE}/agents/a"), td(f"{HERE}/agents/b")
    pages = {f"{HERE}/agents/a": described(own), f"{HERE}/": described([own, other])}
    target = await found(pages, f"{HERE}/agents/a")
    assert [each.id for each in target.others] == [f"{HERE}/agents/b"]


async def test_a_list_of_links_is_followed(autojump_clock) -> None:
    links = [{"rel": "item", "href": "agents/a"}, {"rel": "item", "href": "http://thing/agents/b"}]
    listing = {"@context": "x", "title": "node", "links": links, "properties": {}}
    pages = {
        WELL_KNOWN: described(listing),
        f"{HERE}/.well-known/agents/a": described(td("urn:a")),
        f"{HERE}/agents/b": described(td("urn:b")),
    }
    target = await found(pages, HERE, thing="urn:b")
    assert (target.thing.id, [each.id for each in target.others]) == ("urn:b", ["urn:a"])
    with pytest.raises(ConfigError, match=r"there are: urn:a, urn:b$"):
        await found(pages, HERE)
    del pages[f"{HERE}/agents/b"]
    assert (await found(pages, HERE)).thing.id == "urn:a"


async def test_a_thing_with_http_only_is_distinguished_from_the_list_that_links_to_it(autojump_clock) -> None:
    listing = {"@context": "x", "title": "node", "links": [{"rel": "item", "href": "/a"}], "properties": {}}
    pages = {
        WELL_KNOWN: described(listing),
        f"{HERE}/a": described(td("urn:a", form("/p", subprotocol=None))),
    }
    target = await found(pages, HERE)
    assert (target.thing.id, target.socket, target.others) == ("urn:a", None, ())


async def test_a_list_that_is_named_is_the_only_place(autojump_clock) -> None:
    pages = {f"{HERE}/things": described([td("urn:a")]), WELL_KNOWN: described(td("urn:b"))}
    assert (await found(pages, f"{HERE}/things")).thing.id == "urn:a"


# --- where it leads


@pytest.mark.parametrize(
    ("description", "socket"),
    [
        (td("urn:a", form("http://thing/p", subprotocol=None), form("ws://thing/b")), "ws://thing/b"),
        (td("urn:a", form("ws://thing/a", subprotocol=None), form("ws://thing/b")), "ws://thing/b"),
        (td("urn:a", form("ws://thing/a", subprotocol=None)), "ws://thing/a"),
        (td("urn:a", form("ws://thing/a", subprotocol="webthingprotocol")), None),
        (td("urn:a", form("ws://thing/a", subprotocol="webthingprotocol"), form("wss://thing/b")), "wss://thing/b"),
        (td("urn:a", form("ws://thing/{x}")), None),
        (td("urn:a", form("http://thing:8080/ws")), "ws://thing:8080/ws"),
        (td("urn:a", form("https://thing/ws")), "wss://thing/ws"),
        (td("urn:a", form("/live")), "ws://thing/live"),
        (td("urn:a", form("live"), base="wss://far:1/x/"), "wss://far:1/x/live"),
        (td("urn:a", form("live"), base="/x/"), "ws://thing/x/live"),
        (td("urn:a", form("coap://thing/a"), form("ws:///ws"), form("ws://thing/b")), "ws://thing/b"),
        (td("urn:a", form("ws://far/ws"), form("ws://thing/ws")), SOCKET),
        (td("urn:a", form("ws://far/ws"), form("ws://third/ws")), "ws://far/ws"),
        (td("urn:a", properties={}, forms=[form(op="subscribeallevents")]), SOCKET),
        (td("urn:a", properties={}, events={"e": {"forms": [form(op="subscribeevent")]}}), SOCKET),
    ],
)  # fmt: skip
async def test_the_socket_is_that_of_the_form_for_lmos(description, socket, autojump_clock) -> None:
    target = await found(
        {f"{HERE}/td": described(description)}, "http://thing/td", "http://far:1", "http://far"
    )
    assert target.socket == socket
    assert (target.form is None) == (socket is None)


async def test_kotlin_wot_is_taken_as_it_is(autojump_clock) -> None:
    kettle = {
        "id": "kettle", "title": "kettle", "@type": "lmos:Agent",
        "properties": {
            "unit": {"readOnly": True, "forms": [form("ws://thing:8080/ws", ["readproperty"])]}
        },
    }  # fmt: skip
    pages = {"http://thing:8080/": described([kettle], "application/json")}
    for url in ("http://thing:8080", "ws://thing:8080/ws"):
        target = await found(pages, url)
        assert (target.thing.id, target.socket) == ("kettle", "ws://thing:8080/ws")
        assert target.thing.media_type == "application/json"
        assert target.read_only() == ("unit",)


# --- what cannot be loaded


BROKEN = td(
    "urn:a",
    actions={
        "ok": {"safe": True, "forms": [form(op="invokeaction")]},
        "odd": {"safe": "yes", "input": {"type": "string"}, "forms": [form(op="invokeaction"), {"op": 7}]},
        "bare": {"safe": True, "forms": 7},
        "none": 7,
    },
    links="nowhere",
)


async def test_what_can_be_read_of_a_wrong_description_is(autojump_clock) -> None:
    target = await found({WELL_KNOWN: described(BROKEN)}, HERE)
    assert target.thing.description is None
    assert "safe" in target.thing.problem or "links" in target.thing.problem
    assert (target.thing.data, target.socket) == (BROKEN, SOCKET)
    assert list(target.properties) == ["level"]
    assert list(target.actions) == ["ok", "odd", "bare"]
    assert target.safe_actions() == ("ok", "bare")
    assert target.actions["odd"].input == {"type": "string"}
    assert len(target.actions["odd"].forms or ()) == 1


@pytest.mark.parametrize("body", [b'{"id": "urn:a", "title": ]', b"\xff{}", b"[" * 100_000])
async def test_no_json_at_all_is_judged_where_the_socket_is_known(body, autojump_clock) -> None:
    target = await found({WELL_KNOWN: described(body)}, SOCKET)
    assert (target.thing.data, target.thing.description, target.socket) == ({}, None, SOCKET)
    assert target.thing.problem
    assert target.thing.id == ("urn:a" if b"urn:a" in body else "http://thing/.well-known/wot")
    assert target.properties == {}
    named = await found({WELL_KNOWN: described(body)}, SOCKET, thing="urn:z")
    assert named.thing.id == "urn:z"


async def test_a_thing_without_an_id_is_known_by_where_it_is(autojump_clock) -> None:
    pages = {WELL_KNOWN: described({key: value for key, value in td().items() if key != "id"})}
    assert (await found(pages, HERE)).thing.id == "http://thing/.well-known/wot"


# --- what it offers


AFFORDANCES = td(
    "urn:a",
    base="http://thing/t/",
    properties={
        "both": {"observable": True, "forms": [form("ws"), {"href": "p/both", "contentType": "text/x"}]},
        "read": {"readOnly": True, "forms": [{"href": "p/read{?unit}"}, form("p/sse", subprotocol="sse")]},
        "write": {"writeOnly": True, "forms": [{"href": "p/write", "op": ["writeproperty"]}]},
        "neither": {"readOnly": True, "writeOnly": True, "forms": []},
    },
    actions={
        "safe": {"safe": True, "forms": [{"href": "http://thing/a", "htv:methodName": "PUT"}]},
        "unsafe": {"safe": False, "forms": [{"href": "{"}]},
        "noSuchAction": {"forms": []},
    },
    events={"NOSUCHACTION2": {"forms": [form("ws", "subscribeevent")]}},
)
AFFORDANCES["lmosx:offers"] = ["acks", "streams"]


async def test_affordances_are_sorted_by_what_can_be_done(autojump_clock) -> None:
    target = await found({WELL_KNOWN: described(AFFORDANCES)}, HERE)
    assert target.socket == "ws://thing/t/ws"
    assert target.readable() == ("both", "read")
    assert target.writable() == ("both", "write")
    assert target.restorable() == ("both",)
    assert target.read_only() == ("read",)
    assert target.write_only() == ("write",)
    assert target.observable() == ("both",)
    assert target.safe_actions() == ("safe",)
    assert target.offers == {"acks", "streams"}


@pytest.mark.parametrize(
    ("kind", "name", "op", "expected"),
    [
        ("properties", "both", "readproperty", ("http://thing/t/p/both", "GET", "text/x")),
        ("properties", "both", "writeproperty", ("http://thing/t/p/both", "PUT", "text/x")),
        ("properties", "both", "observeproperty", None),
        ("properties", "read", "readproperty", ("http://thing/t/p/read", "GET", "application/json")),
        ("properties", "read", "writeproperty", None),
        ("properties", "nothing", "readproperty", None),
        ("actions", "safe", "invokeaction", ("http://thing/a", "PUT", "application/json")),
        ("actions", "unsafe", "invokeaction", ("http://thing/t/{", "POST", "application/json")),
        ("events", "NOSUCHACTION2", "subscribeevent", None),
    ],
)
async def test_forms_for_http(kind, name, op, expected, autojump_clock) -> None:
    target = await found({WELL_KNOWN: described(AFFORDANCES)}, HERE)
    there = (
        None if expected is None else HttpForm(url=expected[0], method=expected[1], content_type=expected[2])
    )
    assert target.http_form(kind, name, op) == there


async def test_names_that_are_not_there(autojump_clock) -> None:
    target = await found({WELL_KNOWN: described(AFFORDANCES)}, HERE)
    assert target.unknown_property() == "noSuchProperty"
    assert target.unknown_action() == "noSuchAction3"
    assert target.unknown_event() == "noSuchEvent"
    assert target.unknown_thing().startswith("urn:uuid:")
    assert target.unknown_thing() != target.thing.id
