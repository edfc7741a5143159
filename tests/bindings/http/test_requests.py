"""Properties and actions over HTTP: what is answered, with which status, to good requests and to bad ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors import ChildSpec, SupervisorSpec
from tests.bindings.web import Weather, World, run, served, world
from tests.matrix import examples

URN = "urn:uuid:1f0c2f3e-6f0c-4b06-8d5b-2d5f3c1c9d10"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def asked(method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Ask for one thing."""

    async def main(there: World) -> Any:
        return await there.ask(method, path, body, **headers)

    return served(main)


# ---- what is done


def test_properties_are_read_and_written() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        assert (await web.ask("GET", "properties/units")).data == "celsius"
        written = await web.ask("PUT", "properties/units", "kelvin")
        assert (written.status, written.body) == (204, b"")
        assert (await web.ask("GET", "properties")).data == {"units": "kelvin", "station": "Bonn", "quiet": 0}
        assert (await web.ask("PUT", "properties", {"units": "x", "code": 8.0, "quiet": 5})).status == 204
        assert (await web.ask("PUT", "properties/quiet", 5.0)).status == 204
        assert (await web.ask("GET", "properties/quiet")).data == 5
        refused = await web.ask("PUT", "properties", {"units": "never", "station": "Kiel"})
        assert refused.problem == (405, "operation-not-allowed")
        assert (await web.ask("GET", "properties/units")).data == "x"  # all or none

    served(main)


@pytest.mark.parametrize(
    ("path", "body", "status", "output"),
    [
        ("actions/tell", {"city": "Rome"}, 200, "Rome 1"),
        ("actions/tell", {"city": "Rome", "days": 3, "unknown": None}, 200, "Rome 3"),
        ("actions/tell?city=Rome", None, 200, "Rome 1"),
        ("actions/tell?city=S%C3%A3o+Paulo&days=2&other=1", None, 200, "São Paulo 2"),
        ("actions/tell?city=7", None, 200, "7 1"),
        ("actions/tell?days=2", {"city": "Rome"}, 200, "Rome 2"),
        ("actions/tell", {"city": "Rome", "days": 3.0, "unknown": 1}, 200, "Rome 3"),
        ("actions/warn", {"level": 3}, 204, None),
        ("actions/warn", {"level": 3.0, "times": 1.0}, 204, None),
        ("actions/whole", 3.0, 200, 3.0),
        ("actions/whole", b"null", 200, None),
        ("actions/forecast", {"city": "Rome"}, 200, "sunny in Rome"),
        ("actions/whole", ["a", {"b": None}], 200, ["a", {"b": None}]),
        ("actions/whole", 3, 200, 3),
        ("actions/who", None, 200, {"consumer": "here:17", "principal": None, "trace": None}),
        ("actions/who", {}, 200, {"consumer": "here:17", "principal": None, "trace": None}),
        ("actions/who", b"null", 200, {"consumer": "here:17", "principal": None, "trace": None}),
    ],
)
def test_actions_are_invoked(path: str, body: Any, status: int, output: Any) -> None:
    answer = asked("POST", path, body)
    assert answer.status == status
    if status == 200:
        got = answer.data
        if path == "actions/who":
            got["consumer"] = output["consumer"]
        assert got == output
        assert answer.headers["cache-control"] == "no-store"


def test_a_trace_goes_on() -> None:
    answer = asked("POST", "actions/who", traceparent=TRACE)
    assert answer.data["trace"] == TRACE[3:35]


def test_a_value_that_has_not_changed_is_not_sent_again() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        for path in ("properties/units", "properties"):
            tag = (await web.ask("GET", path)).headers["etag"]
            again = await web.ask("GET", path, if_none_match=f'"x", W/{tag}')
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
            await web.ask("PUT", "properties/units", path)
            assert (await web.ask("GET", path, if_none_match=tag)).status == 200

    served(main)


def test_a_write_may_depend_on_what_was_there() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        tag = (await web.ask("GET", "properties/units")).headers["etag"]
        assert (await web.ask("PUT", "properties/units", "kelvin", if_match=tag)).status == 204
        late = await web.ask("PUT", "properties/units", "rankine", if_match=tag)
        assert (late.status, late.data["title"]) == (412, "Precondition Failed")
        assert (await web.ask("PUT", "properties/units", "rankine", if_none_match="*")).status == 412
        assert (await web.ask("PUT", "properties/units", 5, if_match="*")).problem == (400, "invalid-input")
        every = (await web.ask("GET", "properties")).headers["etag"]
        assert (await web.ask("PUT", "properties", {"units": "x"}, if_match=every)).status == 204
        assert (await web.ask("PUT", "properties", {"units": "y"}, if_match=f'"z", {every}')).status == 412
        assert (await web.ask("PUT", "properties", {"units": "y"}, if_match="*")).status == 204
        assert await there.ref.read(Weather.units) == "y"

    served(main)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("", "GET, HEAD, OPTIONS"),
        ("properties", "GET, HEAD, PUT, OPTIONS"),
        ("properties/units", "GET, HEAD, PUT, OPTIONS"),
        ("properties/station", "GET, HEAD, OPTIONS"),
        ("properties/code", "PUT, OPTIONS"),
        ("properties/units/observable", "GET, HEAD, OPTIONS"),
        ("actions", "GET, HEAD, OPTIONS"),
        ("actions/tell", "POST, GET, HEAD, DELETE, OPTIONS"),
        ("actions/tell/1", "GET, HEAD, DELETE, OPTIONS"),
        ("events", "GET, HEAD, OPTIONS"),
        ("events/asked", "GET, HEAD, OPTIONS"),
    ],
)
def test_places_say_what_can_be_done_there(path: str, methods: str) -> None:
    async def main(there: World) -> None:
        options = await there.ask("OPTIONS", path)
        assert (options.status, options.headers["allow"]) == (204, methods)
        for method in ("PATCH", "PUT", "POST", "DELETE", "GET", "BREW"):
            if method not in methods:
                refused = await there.ask(method, path)
                assert refused.problem[0] == 405
                assert refused.headers["allow"] == methods

    served(main)


@pytest.mark.parametrize(
    "path", ["properties/units", "properties", "actions", "", "properties/units/observable"]
)
def test_head_is_get_without_the_body(path: str) -> None:
    async def main(there: World) -> None:
        head = await there.ask("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        if not path.endswith("observable"):
            got = await there.ask("GET", path)
            for name in ("content-type", "content-length", "etag"):
                assert head.headers.get(name) == got.headers.get(name)

    served(main)


# ---- what is refused


REFUSED: list[tuple[str, str, Any, dict[str, str], tuple[int, str]]] = [
    ("GET", "properties/unit", None, {}, (404, "not-found")),
    ("GET", "properties/tell", None, {}, (405, "operation-not-allowed")),
    ("GET", "/agents/weather/properties/", None, {}, (404, "not-found")),
    ("GET", "properties/*", None, {}, (404, "not-found")),
    ("GET", "actions/nothing", None, {}, (404, "not-found")),
    ("GET", "properties/code", None, {}, (405, "operation-not-allowed")),
    ("PUT", "properties/station", "x", {}, (405, "operation-not-allowed")),
    ("PUT", "properties/units", 5, {}, (400, "invalid-input")),
    ("PUT", "properties/units", None, {}, (400, "invalid-input")),
    ("PUT", "properties", [1], {}, (400, "invalid-input")),
    ("PUT", "properties", {"unit": "x"}, {}, (404, "not-found")),
    ("POST", "actions/tell", {"town": "Rome"}, {}, (400, "invalid-input")),
    ("POST", "actions/tell", None, {}, (400, "invalid-input")),
    ("POST", "actions/tell", [], {}, (400, "invalid-input")),
    ("POST", "actions/tell", {"city": 5}, {}, (400, "invalid-input")),
    ("POST", "actions/tell?city=Rome&city=Bonn", None, {}, (400, "invalid-input")),
    ("POST", "actions/tell?city=Rome", {"city": "Bonn"}, {}, (400, "invalid-input")),
    ("POST", "actions/tell?city=Rome&days=soon", None, {}, (400, "invalid-input")),
    ("POST", "actions/tell?city=%FF", None, {}, (400, "invalid-input")),
    ("POST", "actions/tell?" + "&".join(f"a{n}=1" for n in range(200)), None, {}, (400, "invalid-input")),
    ("POST", "actions/whole", None, {}, (400, "invalid-input")),
    ("POST", "actions/tell", {"city": "x", "days": 1.5}, {}, (400, "invalid-input")),
    ("PUT", "properties/quiet", 1.5, {}, (400, "invalid-input")),
    ("PUT", "properties/station", 5, {}, (405, "operation-not-allowed")),
    ("PUT", "properties/station", None, {}, (405, "operation-not-allowed")),
    ("POST", "actions/telll", {"city": "Rome"}, {}, (404, "not-found")),
    ("POST", "actions/units", {}, {}, (405, "operation-not-allowed")),
    ("POST", "actions/%3Funits", {}, {}, (404, "not-found")),
    ("POST", "actions/%3F", {}, {}, (404, "not-found")),
    ("POST", "actions/tell", {"city": "x"}, {"lmos_remaining": "soon"}, (400, "invalid-input")),
    ("POST", "actions/tell", {"city": "x"}, {"lmos_remaining": "0"}, (503, "deadline-exceeded")),
    ("POST", "actions/forecast", {"city": "x"}, {"lmos_remaining": "0.5"}, (503, "deadline-exceeded")),
    ("POST", "actions/fail", {"why": "so"}, {}, (409, "action-failed")),
    ("GET", "events/tell", None, {}, (405, "operation-not-allowed")),
    ("GET", "events/ask", None, {}, (404, "not-found")),
    ("GET", "properties/quiet/observable", None, {}, (405, "operation-not-allowed")),
    ("GET", "properties/unit/observable", None, {}, (404, "not-found")),
    ("GET", "/agents/wether/properties/units", None, {}, (404, "not-found")),
    ("GET", "/agents/wether", None, {}, (404, "not-found")),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "problem"), REFUSED)
def test_what_is_wrong_is_told_as_over_lmos(
    method: str, path: str, body: Any, headers: dict[str, str], problem: tuple[int, str]
) -> None:
    answer = asked(method, path, body, **headers)
    assert answer.problem == problem
    assert answer.data["instance"].startswith("https://eclipse.dev/lmos/protocol/v1/errors/")
    assert answer.headers["cache-control"] == "no-store"


def test_problems_say_what_helps() -> None:
    assert asked("POST", "actions/tell", {"city": 5}).data["path"] == "$.city"
    assert asked("GET", "properties/unit").data["about"]["nearest"] == "units"
    assert asked("GET", "/agents/wether/properties/units").data["about"]["nearest"] == "weather"
    failed = asked("POST", "actions/fail", {"why": "so"}).data
    assert (failed["started"], failed["about"]) == (True, {"output": {"why": "so"}})
    assert len(asked("GET", f"/agents/{'x' * 9000}/properties/units").body) < 1_000


DEEP = b"[" * 5_000 + b"]" * 5_000
BAD_BODIES: list[bytes] = [
    b"{",
    b"nul",
    b"'a'",
    b'"a" "b"',
    b"\xff\xfe",
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b"\xef\xbb\xbf1",
    b"NaN",
    b"1e999",
    b"9" * 2_000,
    DEEP,
    b"[" * 65 + b"]" * 65,
    b'{"a":' * 65 + b"1" + b"}" * 65,
    b"0." + b"1" * 1_100,
    b'{"city": "a", "city": "b"}',
    b'{"city": "a:b", "days": 1, "days": 2}',
    b'[{"a": {"b": 1, "b": 2}}]',
    b'{"a": 1, "\\u0061": 2}',
    b'{"a":1}' + b"\x00",
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:20]))
@pytest.mark.parametrize("path", ["actions/whole", "properties/units"])
def test_a_body_that_is_no_good_json_is_refused(path: str, body: bytes) -> None:
    method = "PUT" if path.startswith("properties") else "POST"
    assert asked(method, path, body).problem == (400, "invalid-input")


def test_what_is_within_the_limits_is_taken() -> None:
    deep = b"[" * 64 + b"]" * 64
    assert asked("POST", "actions/whole", deep).body == deep
    assert asked("POST", "actions/whole", b"0." + b"1" * 990).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"a:b": ":", "c": {"d": "e:f"}, "g": [{"h": 1}, {"h": 2}]}',
        b'{"": ":::::\\":", "a": {}}',
        b'["a:b", ":"]',
        b'{"a": {"a": {"a": 1}}}',
    ],
)
def test_colons_in_texts_are_no_members(body: bytes) -> None:
    assert asked("POST", "actions/whole", body).data == json.loads(body)


class Pairs(list[Any]):
    """An object, its members as pairs."""


@settings(max_examples=examples(200), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(':"\\{}[]ab', max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(st.tuples(st.text(':"\\ab', max_size=2), inner), max_size=4).map(Pairs)
        ),
        max_leaves=12,
    )
)
def test_members_that_stand_there_twice_are_found(value: Any) -> None:
    text = _written(value)
    answer = asked("POST", "actions/whole", text.encode())
    if _has_twice(value):
        assert answer.problem == (400, "invalid-input")
        assert "twice" in answer.data["detail"]
    else:
        assert answer.data == json.loads(text)


def _written(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {_written(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return "[" + ",".join(map(_written, items)) + "]"
    return json.dumps(value)


def _has_twice(value: Any) -> bool:
    if isinstance(value, Pairs):
        names = [key for key, _ in value]
        return len(set(names)) < len(names) or any(_has_twice(each) for _, each in value)
    items: list[Any] = value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
    return any(map(_has_twice, items))


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "text/plain"},
        {"content_type": ""},
        {"content_type": "application/json; charset=latin-1"},
        {"content_type": "application/jsonp"},
        {"content_type": "application/td+json"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "multipart/form-data; boundary=application/json"},
        {"content_encoding": "gzip"},
        {"content_encoding": "identity, br"},
    ],
)
def test_only_json_is_taken(headers: dict[str, str]) -> None:
    for method, path in (("PUT", "properties/units"), ("POST", "actions/whole"), ("PUT", "properties")):
        answer = asked(method, path, b'"x"', **headers)
        assert answer.problem[0] == 415
    assert asked("POST", "actions/who", b"", **headers).status == 200  # there is no body that it says this of


def test_what_is_said_twice_is_not_believed() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        head = b"PUT /agents/weather/properties/units HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n"
        kinds = b"Content-Type: application/json\r\nContent-Type: text/plain\r\n\r\n"
        await web.stream.send_all(head + kinds + b'"x"')
        assert (await web.stream.receive_some(100)).startswith(b"HTTP/1.1 415 ")

    served(main)


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json;charset="utf-8"',
        "application/json; profile=x",
    ],
)
def test_json_may_be_said_in_several_ways(kind: str) -> None:
    assert asked("POST", "actions/whole", "grüß".encode(), content_type=kind).problem[0] == 400
    assert asked("POST", "actions/whole", '"grüß"'.encode(), content_type=kind).data == "grüß"


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [
        ("properties/units", "application/json", 200),
        ("properties/units", "application/*;q=0.1", 200),
        ("properties/units", "text/html, */*;q=0.1", 200),
        ("properties/units", "text/html", 406),
        ("properties/units", "application/json;q=0, */*", 406),
        ("properties", "application/xml", 406),
        ("properties/units/observable", "text/html", 406),
        ("events", "application/json", 406),
        ("events/asked", "image/png", 406),
        ("actions", "text/html", 406),
    ],
)
def test_nobody_is_sent_what_they_do_not_take(path: str, accept: str, status: int) -> None:
    answer = asked("GET", path, accept=accept)
    assert answer.status == status
    if status == 406:
        assert answer.problem[0] == 406


def test_an_action_is_not_invoked_for_an_answer_that_is_not_taken() -> None:
    async def main(there: World) -> None:
        assert (await there.ask("POST", "actions/warn", {"level": 1}, accept="text/html")).problem[0] == 406
        assert there.ref.statistics().accepted == 0

    served(main)


@pytest.mark.parametrize(
    "target",
    [
        "/agents/weather/../weather/properties/units",
        "/agents/weather/./properties/units",
        "/agents//weather/properties/units",
        "/agents/weather//properties/units",
        "/agents/weather/properties//units",
        "/agents/weather/properties/units/",
        "/agents/weather/properties/units/observable/",
        "/agents/weather/properties/units/observable/more/and/more",
        "/agents/weather/properties%2Funits",
        "/agents/weather/properties/%2e%2e/units",
        "/agents/weather/properties/uni%00ts",
        "/agents/weather/properties/units%00",
        "/agents/weather%00/properties/units",
        "/agents/weather/properties/%FF%FE",
        "/agents/weather/properties/" + "x" * 12_000,
        "/agents/weather/" + "a/" * 6_000,
        "/agents/weather/secrets/units",
        "/agents/weather/properties/units;v=1",
        "/agents/%2e%2e/weather",
        "/agents/",
        "/agents/weather/",
        "/agents/http:%2F%2Fhere%2Fagents%2Fweather/properties/units",
        "/agents/%2Fagents%2Fweather/properties/units",
        "/agents/Weather/properties/units",
    ],
    ids=lambda target: target[:60],
)
def test_paths_that_lead_nowhere_are_not_found(target: str) -> None:
    async def main(there: World) -> None:
        for method in ("GET", "PUT"):
            answer = await there.ask(method, target, b'"x"' if method == "PUT" else None)
            assert answer.problem[0] in (404, 405)
            assert len(answer.body) < 2_000
        assert await there.ref.read(Weather.units) == "celsius"

    served(main)


@pytest.mark.parametrize("name", ["desk.weather", "desk%2Fweather", "desk%2fw%65ather"])
def test_an_agent_deeper_in_the_tree_has_one_part_of_a_path(name: str) -> None:
    tree = SupervisorSpec("root", [SupervisorSpec("desk", [ChildSpec("weather", Weather)])])

    async def main() -> None:
        async with world(spec=tree) as there:
            assert (await there.ask("GET", f"/agents/{name}/properties/units")).data == "celsius"
            assert (await there.ask("GET", f"/agents/{name}")).data["title"] == "Weather"
            later = await there.ask("POST", f"/agents/{name}/actions/order")
            assert later.headers["location"].startswith("/agents/desk.weather/actions/order/")

    run(main)


def test_a_body_may_come_in_chunks() -> None:
    async def main(there: World) -> None:
        web = await there.client()
        head = b"PUT /agents/weather/properties/units HTTP/1.1\r\nHost: here"
        kinds = b"Content-Type: application/json\r\nTransfer-Encoding: chunked"
        await web.stream.send_all(head + b"\r\n" + kinds + b'\r\n\r\n8\r\n"kelvin"\r\n0\r\n\r\n')
        assert (await web.stream.receive_some(100)).startswith(b"HTTP/1.1 204 ")
        assert await there.ref.read(Weather.units) == "kelvin"

    served(main)
