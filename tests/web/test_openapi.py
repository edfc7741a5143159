"""What `/openapi.json` says is what HTTP does: schemathesis reads it and asks, rightly and wrongly."""

from __future__ import annotations

import json
import sys
from subprocess import STDOUT
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import ChildSpec, open_node
from lmos_actors.bindings import fetch
from lmos_actors.transport import MemoryNetwork
from tests.matrix import few_or_all
from tests.web.things import Desk, Till

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = few_or_all(1, 4)
"""For each operation, besides those that go around the edges of what it takes."""

SCHEMATHESIS = [
    *(sys.executable, "-m", "schemathesis.cli", "run", "--no-color", "--generation-deterministic"),
    *("--no-shrink", "--continue-on-failure", "--request-timeout", "5"),
    *("--max-examples", str(EXAMPLES), "--warnings", "off"),
    *("--header", "Prefer: wait=0"),  # who listens by long poll is answered, value or not
    *("--exclude-path", "/agents/desk/events"),  # no long poll there: each lasts as long as it may
]


@pytest.mark.slow
async def test_nothing_undocumented_comes(tmp_path: Path) -> None:
    async with open_node(listen="ws://127.0.0.1:0", store="memory:") as node:
        await node.start(Desk)
        await node.start_child(ChildSpec("till", Till))
        command = [*SCHEMATHESIS, f"{node.urls[0].replace('ws:', 'http:')}/openapi.json"]
        done = await trio.run_process(command, capture_stdout=True, stderr=STDOUT, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout.decode()
        assert node.connection_failures == ()


async def test_a_request_may_have_a_key_where_answers_are_kept() -> None:
    network = MemoryNetwork()
    async with open_node(listen="ws://server", network=network, store="memory:") as node:
        await node.start(Desk)
        await node.start_child(ChildSpec("till", Till))
        text, _ = await fetch(network, "http://server/openapi.json", None)
    takes_key = {
        path: "422" in item["post"]["responses"]
        for path, item in json.loads(text)["paths"].items()
        if any(each["name"] == "Idempotency-Key" for each in item.get("post", {}).get("parameters", ()))
    }
    assert takes_key == {"/agents/till/actions/sell": True}
