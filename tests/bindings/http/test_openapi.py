"""The OpenAPI document: what it says is served, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action
from tests.bindings.web import Weather, World, run, served, world

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = ("get", "put", "post", "delete", "patch")


class Odd(Agent):
    """Has names that a path must quote."""

    @action(name="a {b}/c?")
    def act(self) -> int:
        """Give a number."""
        return 1


class Taker(Agent):
    """Takes streams."""

    @action
    async def take(self, rows: AsyncIterator[int], least: int, words: tuple[str, ...] = ()) -> int:
        """Count."""
        return len([row async for row in rows if row >= least])

    @action
    async def weigh(self, parts: AsyncIterator[bytes]) -> int:
        """Count bytes."""
        return sum([len(part) async for part in parts])

    @action
    async def echo(self, words: AsyncIterator[str]) -> AsyncIterator[str]:
        """Give them back."""
        async for word in words:
            yield word

    @action
    async def merge(self, left: AsyncIterator[int], right: AsyncIterator[int]) -> int:
        """Take two."""
        return await anext(left) + await anext(right)

    @action
    def act(self) -> int:
        """Give a number."""
        return 1


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


async def document_of(there: World) -> Any:
    answer = await there.ask("GET", "/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    again = await there.ask("GET", "/openapi.json", if_none_match=answer.headers["etag"])
    assert again.status == 304
    return answer.data


def test_everything_that_it_names_is_served() -> None:
    async def main(there: World) -> None:
        document = await document_of(there)
        assert document["openapi"] == "3.1.0"
        assert document["servers"] == [{"url": "http://here"}]
        found = list(operations(document))
        assert len({each["operationId"] for _, _, each in found}) == len(found) > 30
        for path, item in document["paths"].items():
            allowed = (await there.ask("OPTIONS", path)).headers["allow"].lower().split(", ")
            assert {method for method in METHODS if method in item} <= set(allowed), path
        for path, method, each in found:
            wait = {"prefer": "wait=0.1", "accept": "application/json"} if "observable" in path else {}
            if "/events" in path or method != "get":
                continue
            answer = await there.ask("GET", path, **wait)
            assert str(answer.status) in each["responses"], path
            assert answer.status < 500

    served(main)


@pytest.mark.parametrize(
    ("path", "method", "bodies", "answers"),
    [
        ("properties/units", "get", None, [200, 304]),
        ("properties/units", "put", {"type": "string", "default": "celsius"}, [204]),
        ("properties/units/observable", "get", None, [200, 204]),
        ("actions/warn", "post", ..., [201, 204]),
        ("actions/who", "post", None, [200, 201]),
        ("actions/pour", "post", ..., [200]),
        ("actions/tell/{id}", "delete", None, [204]),
        ("events/asked", "get", None, [200, 204]),
    ],
)
def test_an_operation_says_what_goes_in_and_out(
    path: str, method: str, bodies: Any, answers: list[int]
) -> None:
    async def main(there: World) -> None:
        operation = (await document_of(there))["paths"][f"/agents/weather/{path}"][method]
        codes = sorted(map(int, operation["responses"]))
        assert [code for code in codes if code < 400] == answers
        assert {400, 401, 403, 404, 405, 406, 429, 500, 503} <= set(codes)
        assert ({412, 413, 415} <= set(codes)) == ("requestBody" in operation)
        body = operation.get("requestBody")
        if bodies is None:
            assert body is None
        elif bodies is not ...:
            schema = body["content"]["application/json"]["schema"]
            assert schema["type"] == bodies["type"]
        else:
            assert body["required"]

    served(main)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("properties/station", "put"),
        ("properties/code", "get"),
        ("properties/quiet/observable", "get"),
        ("actions/pour", "get"),
        ("actions/pour/{id}", "get"),
    ],
)
def test_what_is_not_served_is_not_there(path: str, method: str) -> None:
    async def main(there: World) -> None:
        paths = (await document_of(there))["paths"]
        assert method not in paths.get(f"/agents/weather/{path}", {})

    served(main)


def test_names_are_quoted() -> None:
    spec = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("o d", Odd)])

    async def main() -> None:
        async with world(spec=spec) as there:
            document = await document_of(there)
            path = "/agents/o%20d/actions/a%20%7Bb%7D%2Fc%3F"
            assert list(document["paths"][path]) == ["post", "get", "delete"]
            assert (await there.ask("POST", path)).data == 1

    run(main)


def test_it_changes_with_what_is_served() -> None:
    async def main(there: World) -> None:
        await document_of(there)
        await there.node.start_child(ChildSpec("other", Odd))
        assert "/agents/other/actions" in (await document_of(there))["paths"]
        await there.node.root.terminate_child("other")
        await there.node.root.delete_child("other")
        assert "/agents/other/actions" not in (await document_of(there))["paths"]

    served(main)


def test_an_action_that_takes_a_stream_has_it_as_its_body() -> None:
    async def main(there: World) -> None:
        await there.node.start_child(ChildSpec("taker", Taker))
        paths = (await document_of(there))["paths"]
        take = paths["/agents/taker/actions/take"]
        assert list(take) == ["post"]
        content = take["post"]["requestBody"]["content"]
        assert {kind: each["schema"]["type"] for kind, each in content.items()} == {
            "application/x-ndjson": "integer"
        }
        least, words = take["post"]["parameters"]
        assert (least["name"], least["in"], least["required"]) == ("least", "query", True)
        assert least["schema"]["type"] == "integer"
        assert (words["name"], words["in"], words["required"]) == ("words", "query", False)
        assert words["content"]["application/json"]["schema"]["type"] == "array"
        assert set(take["post"]["responses"]) >= {"200", "415"}
        assert "201" not in take["post"]["responses"]
        assert set(paths["/agents/taker/actions/weigh"]["post"]["requestBody"]["content"]) == {
            "application/x-ndjson",
            "application/octet-stream",
        }
        both = paths["/agents/taker/actions/echo"]["post"]["responses"]["200"]["content"]
        assert both["application/x-ndjson"] == {"schema": {"type": "string"}}
        described = (await there.ask("GET", "/agents/taker")).data["actions"]
        assert [each.get("contentType") for each in described["weigh"]["forms"][1:]] == [
            "application/x-ndjson",
            "application/octet-stream",
        ]
        assert [each.get("subprotocol") for each in described["echo"]["forms"]] == ["lmosprotocol", "sse"]

    served(main)


def test_an_action_that_takes_two_streams_is_not_in_it_and_refused() -> None:
    async def main(there: World) -> None:
        await there.node.start_child(ChildSpec("taker", Taker))
        assert "/agents/taker/actions/merge" not in (await document_of(there))["paths"]
        lines = "application/x-ndjson"
        refused = await there.ask("POST", "/agents/taker/actions/merge", b"1", content_type=lines)
        assert (refused.status, refused.data["detail"]) == (
            405,
            "Taker.merge takes 2 input streams, and a request over HTTP has one body: use it over LMOS",
        )
        described = (await there.ask("GET", "/agents/taker")).data
        assert [form["href"].partition(":")[0] for form in described["actions"]["merge"]["forms"]] == ["ws"]

    served(main)
