"""A failure that an action declares: the same near, far and over HTTP, and readable without this package."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, action, open_node
from lmos_actors.bindings import fetch
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.bindings.web import HERE, Web, run

if TYPE_CHECKING:
    from pathlib import Path

URL = "http://here:80/agents/desk"
REFUSED = {"code": "taken", "detail": "by Ada", "row": 7}


class Desk(Agent):
    """Refuses, in the words that it is given."""

    @action
    def refuse(self, output: Any) -> None:
        """Refuse in a turn."""
        raise ActionFailed(output)

    @action
    async def refuse_later(self, output: Any) -> None:
        """Refuse in a run."""
        await trio.sleep(0.1)
        raise ActionFailed(output)

    @action
    async def refuse_items(self, output: Any) -> AsyncIterator[int]:
        """Refuse after an item."""
        yield 1
        raise ActionFailed(output)


OUTPUTS: list[Any] = [
    None, "", "sold out", 0, 7, True, [], ["a", 1], {}, {"code": "taken"}, {"detail": "by Ada"}, REFUSED,
    {"code": 5, "message": "by Ada"}, {"code": "gone", "detail": "it was", "status": 410},
    {"status": 409, "why": "so"}, {"status": 200}, {"detail": 5, "rate": 1.0},
    {"type": "mine", "title": "T", "instance": "i", "started": False, "about": {"output": 1}, "path": "$.x"},
    {"detail": "d", "message": "m", "retryIn": 3},
]  # fmt: skip


def written(value: Any) -> str:
    """Return a value as JSON, in which 1 is not true and not 1.0, the order of members apart."""
    return json.dumps(value, sort_keys=True)


async def refused(ref: Any, verb: str, output: Any) -> tuple[Any, ...]:
    """Return what a caller sees of the failure by which an action ends."""

    async def asked() -> None:
        if verb == "refuse_items":
            async with ref.stream(Desk.refuse_items, output) as items:
                assert [item async for item in items] == [1]
        else:
            await ref.invoke(getattr(Desk, verb), output)

    with pytest.raises(ActionFailed) as caught:
        await asked()
    error = caught.value
    return written(error.output), str(error), error.code, error.detail, error.status, error.data


@pytest.mark.parametrize("verb", ["refuse", "refuse_later", "refuse_items"])
@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_a_failure_is_the_same_near_and_far_and_over_http(tmp_path: Path, verb: str, habits: Any) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with (
            open_node(listen="ws://here:80", network=network) as server,
            open_node(network=network) as client,
        ):
            near = await server.start(Desk)
            found = json.loads((await fetch(network, URL, None))[0])
            for owner in (found, *found["actions"].values()):
                owner["forms"] = [each for each in owner["forms"] if "/ws" not in each["href"]]
            await trio.Path(tmp_path / "desk.json").write_text(json.dumps(found))
            far = await client.consume(Desk, URL, habits=habits)
            web = await client.consume(Desk, tmp_path / "desk.json")
            for output in OUTPUTS:
                told = [await refused(ref, verb, output) for ref in (near, far, web)]
                assert told[0] == told[1] == told[2], output
                assert told[0][0] == written(output)

    run(main)


def test_it_is_a_refusal_with_its_code_and_its_data_as_members() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen="ws://here:80", network=network) as node:
            await node.start(Desk)
            web = Web(await network.connect(endpoint_of(HERE), None), "/agents/desk")
            for output, expected in (
                (REFUSED, (409, {"code": "taken", "detail": "by Ada", "row": 7})),
                ("sold out", (409, {"detail": "sold out"})),
                ({"code": "gone", "status": 410}, (410, {"code": "gone", "detail": "gone"})),
            ):
                answer = await web.ask("POST", "actions/refuse", {"output": output})
                assert answer.headers["content-type"] == "application/problem+json"
                data = answer.data
                assert data.pop("instance").startswith("https://eclipse.dev/lmos/protocol/v1/errors/")
                data.pop("about", None)
                assert data == {
                    "type": "urn:lmos-actors:errors#action-failed",
                    "title": "Action Failed",
                    "status": expected[0],
                    "started": True,
                    **expected[1],
                }
                assert answer.status == expected[0]
            assert "about" not in (await web.ask("POST", "actions/refuse", {"output": REFUSED})).data

    run(main)


def test_the_openapi_document_says_so() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen="ws://here:80", network=network) as node:
            await node.start(Desk)
            web = Web(await network.connect(endpoint_of(HERE), None), "")
            document = (await web.ask("GET", "/openapi.json")).data
            post = document["paths"]["/agents/desk/actions/refuse"]["post"]
            assert post["responses"]["409"] == {"$ref": "#/components/responses/ActionFailure"}
            content = document["components"]["responses"]["ActionFailure"]["content"]
            assert list(content) == ["application/problem+json"]
            failure = document["components"]["schemas"]["ActionFailure"]
            assert {"code", "detail"} <= set(failure["properties"])

    run(main)
