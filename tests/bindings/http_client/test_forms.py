"""Things of strangers: a fault in one part of a description leaves the rest alone.

The tables are in the spirit of the descriptions that the W3C collects.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.errors import ConfigError, InvalidInput, NotAllowed, Unauthorized
from lmos_actors.protocol import td
from lmos_actors.security import ApiKey, Credentials
from tests.bindings.web_things import NOTHING, described, events, form, say, sent, sites

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node
    from lmos_actors.bindings import ConsumedThing
    from tests.bindings.web_things import Site

AT = "http://lamp/things/td"
GOOD = {"type": "integer", "forms": [form("/good")]}


@asynccontextmanager
async def stranger(
    credentials: Credentials | None = None, **members: Any
) -> AsyncGenerator[tuple[Site, Node, ConsumedThing]]:
    """Serve a description below a path, and consume it there."""
    async with sites("http://lamp", credentials=credentials) as ((site,), node):
        site.on("GET /things/td", say(described(**members), kind="application/td+json"))
        site.on("GET /good", say(1))
        thing = await node.consume_thing(AT)
        site.asked.clear()
        yield site, node, thing


# ---- the address that a description came from is its base (RFC 3986, 5.1.3)

PLACES = {  # base, href, request
    "absolute": (None, "http://lamp/x", "/x"),
    "a path": (None, "/x", "/x"),
    "a relative path": (None, "x", "/things/x"),
    "with dots": (None, "./a/../x", "/things/x"),
    "up": (None, "../x", "/x"),
    "a query alone": (None, "?x", "/things/td?x"),
    "nothing": (None, "", "/things/td"),
    "another authority": (None, "//lamp:80/x", "/x"),
    "a base": ("http://lamp/b/c", "x", "/b/x"),
    "a base with a slash": ("http://lamp/b/c/", "x", "/b/c/x"),
    "a relative base": ("/b/", "x", "/b/x"),
    "a base below": ("b/", "x", "/things/b/x"),
    "a literal template": (None, "x{?response-required}", "/things/x{?response-required}"),
}


@pytest.mark.parametrize("row", PLACES)
async def test_hrefs_are_resolved_as_in_rfc_3986(autojump_clock: object, row: str) -> None:
    base, href, asked = PLACES[row]
    members: dict[str, Any] = {} if base is None else {"base": base}
    async with stranger(properties={"on": {"forms": [form(href)]}}, **members) as (site, _, thing):
        site.on(f"GET {asked}", say("read"))
        assert await thing.read("on") == "read"


async def test_a_redirect_leads_to_the_base(autojump_clock: object) -> None:
    async with sites("http://lamp") as ((site,), node):
        site.on("GET /td", say(None, "302 Found", Location="/deep/er/td"))
        wanted = described(properties={"on": {"forms": [form("x")]}})
        site.on("GET /deep/er/td", say(wanted, kind="application/td+json"))
        site.on("GET /deep/er/x", say(7))
        assert await (await node.consume_thing("http://lamp/td")).read("on") == 7


# ---- faults of one affordance: what is used, and the reason

FAULTS: dict[str, tuple[Any, str]] = {  # the affordance, and a part of the reason
    "no forms": ({"type": "integer"}, "forms is missing"),
    "empty forms": ({"forms": []}, "forms is empty"),
    "forms of another kind": ({"forms": "/x"}, "forms must be an array"),
    "a form without href": ({"forms": [{"op": "readproperty"}]}, "/forms/0 href is missing"),
    "an href of another kind": ({"forms": [{"href": 7}]}, "/forms/0/href href must be a text"),
    "an unknown operation": ({"forms": [form("/x", "read")]}, "'read'|\"read\" is not an operation"),
    "a space": ({"forms": [form("http://la mp/x")]}, "is not a URI"),
    "write only": (
        {"writeOnly": True, "forms": [form("/x", "readproperty")]},
        "reads a property that is wri",
    ),
    "an array": (["on"], "must be an object"),
    "a text": ("on", "must be an object"),
}


@pytest.mark.parametrize("row", FAULTS)
async def test_a_fault_makes_one_affordance_unusable(autojump_clock: object, row: str) -> None:
    affordance, why = FAULTS[row]
    async with stranger(properties={"bad": affordance, "good": GOOD}) as (site, _, thing):
        assert await thing.read("good") == 1
        assert await thing.read_all() == {"good": 1}
        site.asked.clear()
        with pytest.raises(NotAllowed, match=why):
            await thing.read("bad")
        assert site.asked == []


async def test_what_is_read_only_is_not_written(autojump_clock: object) -> None:
    both = {"readOnly": True, "forms": [form("/good", "readproperty", "writeproperty")]}
    async with stranger(properties={"both": both}) as (_, _, thing):
        assert await thing.read("both") == 1
        with pytest.raises(NotAllowed, match="writes a property that is readOnly"):
            await thing.write("both", 2)


HARMLESS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # members of the thing, and of the property
    "no title": ({"title": 5}, {}),
    "no security": ({"security": None, "securityDefinitions": None}, {}),
    "an undefined scheme": ({"security": "other"}, {}),
    "an empty combo": ({"securityDefinitions": {"nosec_sc": {"scheme": "combo"}}}, {}),
    "another context": ({"@context": "http://example.com/"}, {}),
    "an unknown type": ({}, {"type": "date-time"}),
    "titles of another kind": ({}, {"titles": "On"}),
    "a type of another kind": ({"@type": {"a": 1}}, {"@type": {"b": 2}}),
    "a response without a type": ({}, {"forms": [form("/good", response={})]}),
    "an undefined response": ({}, {"forms": [form("/good", additionalResponses=[{"schema": "none"}])]}),
    "a bad form beside": ({}, {"forms": [{"op": 7}, form("/good")]}),
    "a WebSocket beside": ({}, {"forms": [form("ws://lamp/ws"), form("/good")]}),
    "another scheme beside": ({}, {"forms": [form("coap://lamp/x"), form("mqtt:x"), form("/good")]}),
    "forms of the thing": ({"forms": [{"op": "readallproperties"}, 7]}, {}),
    "links of another kind": ({"links": [{"rel": "item"}, "x"]}, {}),
    "items of a composed thing": ({"links": [{"rel": "item", "href": "part"}]}, {}),
    "events of another kind": ({"events": []}, {}),
}


@pytest.mark.parametrize("row", HARMLESS)
async def test_other_faults_change_no_request(autojump_clock: object, row: str) -> None:
    of_thing, of_property = HARMLESS[row]
    async with stranger(properties={"on": GOOD | of_property}, **of_thing) as (site, _, thing):
        assert await thing.read("on") == 1
        site.on("PUT /good", NOTHING)
        await thing.write("on", 5)
        assert [(each.line, each.body) for each in site.asked] == [("GET /good", b""), ("PUT /good", b"5")]


MEANINGLESS: dict[str, tuple[Any, str]] = {
    "no object": ([1], "there are: none"),
    "no JSON": (b"{", "not JSON"),
    "a model": (described(properties={"on": GOOD}) | {"@type": "tm:ThingModel"}, "a Thing Model"),
    "nothing at all": (described(), "nor for HTTP"),
    "other schemes": (described(actions={"a": {"forms": [form("coap://lamp/x")]}}), "nor for HTTP"),
    "no usable form": (described(actions={"a": {"forms": [{"op": "x"}]}}), "a/forms/0 href is missing"),
}


@pytest.mark.parametrize("row", MEANINGLESS)
async def test_what_has_no_meaning_is_refused(autojump_clock: object, row: str) -> None:
    data, why = MEANINGLESS[row]
    async with sites("http://lamp") as ((site,), node):
        site.on("GET /td", say(data, kind="application/td+json"))
        with pytest.raises(ConfigError, match=why):
            await node.consume_thing("http://lamp/td")


def test_checks_stay_strict() -> None:
    """What a consumer tolerates is still an error of `check`, and so for directories and `describe`."""
    for affordance, why in FAULTS.values():
        found = td.check(described(base="http://lamp/", properties={"bad": affordance}))
        assert any(each.severity == "error" for each in found), why
    relative = described(properties={"on": GOOD})
    assert "relative" in str(td.check(relative)[0])
    assert td.check(relative, source=AT) == ()


# ---- variables of URLs

UNITS = {"unit": {"type": "string"}}
METER: dict[str, Any] = {
    "properties": {
        "heat": {
            "observable": True,
            "uriVariables": UNITS | {"digits": {"type": "integer"}},
            "forms": [
                form("/heat{?unit,digits}"),
                form("/heat/watch{?unit}", "observeproperty", subprotocol="sse"),
            ],
        },
        "room": {"forms": [form("/rooms/{id}")]},
    },
    "actions": {"log": {"uriVariables": UNITS, "input": {"type": "string"}, "forms": [form("/log{?unit}")]}},
    "events": {
        "hot": {
            "uriVariables": UNITS,
            "forms": [form("/hot{?unit}", "subscribeevent", subprotocol="sse")],
        }
    },
}


async def until(last: Any, feed: Any) -> AsyncGenerator[Any]:
    """Yield the values of a feed up to a last one."""
    async for value in feed:
        yield value
        if value == last:
            return


async def test_every_kind_of_affordance_takes_variables(autojump_clock: object) -> None:
    async with stranger(**METER) as (site, _, thing):
        site.on("GET /heat?unit=f&digits=2", say(1))
        site.on("GET /heat?unit=f", say(2))
        site.on("GET /heat", say(3))
        site.on("PUT /heat?unit=f", NOTHING)
        site.on("POST /log?unit=f", say("logged"))
        site.on("GET /heat/watch?unit=f", events(sent(5)))
        site.on("GET /heat/watch", events(sent(6)))
        site.on("GET /hot?unit=f", events(sent("hot")))
        warm = thing.with_variables(unit="f")
        assert await warm.with_variables({"digits": 2}).read("heat") == 1
        assert await warm.read("heat") == 2
        assert await thing.read("heat") == 3
        await warm.within(5).write("heat", 4)
        assert await warm.invoke("log", "x") == "logged"
        async with warm.observe("heat") as feed, thing.observe("heat") as other:
            assert [each async for each in until(5, feed)][-1] == 5
            assert [each async for each in until(6, other)][-1] == 6
        assert {"GET /heat", "GET /heat?unit=f"} <= {each.line for each in site.asked[-4:]}  # the values now
        async with warm.subscribe("hot") as feed:
            assert await anext(aiter(feed)) == "hot"
        assert warm == thing.with_variables(unit="f") != thing


async def test_variables_that_do_not_fit_are_refused_before_anything_is_sent(autojump_clock: object) -> None:
    async with stranger(**METER) as (site, _, thing):
        with pytest.raises(InvalidInput, match="no variable 'units'; there is unit, digits"):
            await thing.with_variables(units="f").read("heat")
        with pytest.raises(InvalidInput, match="no variable 'units'"):
            async with thing.with_variables(units="f").subscribe("hot"):
                pass
        with pytest.raises(InvalidInput, match="goes into the URL"):
            thing.with_variables(unit={"a": 1})
        with pytest.raises(InvalidInput, match="needs a value for 'id'"):
            await thing.read("room")  # not declared, and needed all the same
        assert site.asked == []
        site.on("GET /rooms/a%2Fb", say(1))
        assert await thing.with_variables(id="a/b").read("room") == 1
        with pytest.raises(NotAllowed, match="before retrying"):
            thing.retrying().with_variables(unit="f")


# ---- API keys

KEYED = {  # the scheme, and what is sent: request, header
    "a header": ({"in": "header", "name": "X-Key"}, "/x", ("x-key", "k/1")),
    "the query": ({"in": "query", "name": "key"}, "/x?key=k%2F1", None),
    "by default the query": ({"name": "a b"}, "/x?a%20b=k%2F1", None),
    "a cookie": ({"in": "cookie", "name": "sid"}, "/x", ("cookie", "sid=k/1")),
}


def keyed(scheme: dict[str, Any], href: str = "/x", *, security: Any = "k", **more: Any) -> dict[str, Any]:
    """Return the members of a thing that asks for a key."""
    return {
        "properties": {"on": {"forms": [form(href)]}},
        "securityDefinitions": {"k": {"scheme": "apikey", **scheme}, "open": {"scheme": "nosec"}, **more},
        "security": security,
    }


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Credentials:
    monkeypatch.setenv("LAMP_KEY", "k/1")
    return Credentials({"http://lamp": ApiKey("env:LAMP_KEY")}, allow_insecure=True)


@pytest.mark.parametrize("row", KEYED)
async def test_an_api_key_goes_where_the_description_wants_it(
    autojump_clock: object, row: str, key: Credentials
) -> None:
    scheme, asked, header = KEYED[row]
    async with stranger(key, **keyed(scheme)) as (site, _, thing):
        site.on(f"GET {asked}", say(1))
        assert await thing.read("on") == 1
        found = site.asked[-1].headers
        assert header is None or found.get(header[0]) == header[1]
        assert "authorization" not in found
    async with stranger(**keyed(scheme)) as (site, _, thing):
        with pytest.raises(Unauthorized, match="asks for an API key"):
            await thing.read("on")
        assert site.asked == []


async def test_a_key_in_the_url_and_combinations(autojump_clock: object, key: Credentials) -> None:
    in_url = keyed({"in": "uri", "name": "key"}, "/{key}/x")
    async with stranger(key, **in_url) as (site, _, thing):
        site.on("GET /k%2F1/x", say(1))
        assert await thing.read("on") == 1
    either: dict[str, Any] = {"c": {"scheme": "combo", "oneOf": ["open", "k", "c"]}}
    async with stranger(**keyed({"name": "key"}, security=["c"], **either)) as (site, _, thing):
        site.on("GET /x", say(1))
        assert await thing.read("on") == 1
    async with stranger(key, **keyed({"name": "key"}, security="c", **either)) as (site, _, thing):
        site.on("GET /x?key=k%2F1", say(1))
        assert await thing.read("on") == 1
    both: dict[str, Any] = {"c": {"scheme": "combo", "allOf": ["open", "k"]}}
    async with stranger(**keyed({"name": "key"}, security="c", **both)) as (site, _, thing):
        with pytest.raises(Unauthorized):
            await thing.read("on")


@pytest.mark.parametrize("scheme", [{"in": "body", "name": "/key"}, {"in": "header"}, {"in": "auto"}])
async def test_a_key_that_cannot_be_placed_is_not_sent(
    autojump_clock: object, scheme: dict[str, Any], key: Credentials
) -> None:
    async with stranger(key, **keyed(scheme)) as (site, _, thing):
        with pytest.raises(NotAllowed, match="asks for an API key"):
            await thing.read("on")
        assert site.asked == []


async def test_a_form_may_ask_for_no_key(autojump_clock: object) -> None:
    members = keyed({"name": "key"})
    members["properties"]["good"] = {"forms": [form("/good", security=["open"])]}
    async with stranger(**members) as (_, _, thing):
        assert await thing.read("good") == 1


@pytest.mark.parametrize("scheme", [{"in": "header", "name": "X-Key"}, {"in": "cookie", "name": "sid"}])
async def test_a_redirect_takes_no_key_to_another_server(
    autojump_clock: object, scheme: dict[str, Any], key: Credentials
) -> None:
    members = described(**keyed(scheme))
    async with sites("http://lamp", "http://other", credentials=key) as ((site, other), node):
        site.on("GET /td", say(members, kind="application/td+json"))
        site.on("GET /x", say(None, "307 Temporary Redirect", Location="http://other/x"))
        other.on("GET /x", say(1))
        thing = await node.consume_thing("http://lamp/td")
        assert await thing.read("on") == 1
        assert not {"x-key", "cookie"}.intersection(other.asked[-1].headers)
        assert "k/1" not in repr(site.asked[0])  # nor is it sent for the description
