"""What `/openapi.json` says is what HTTP does: schemathesis reads it and asks, rightly and wrongly."""

from __future__ import annotations

import sys
from subprocess import STDOUT
from typing import TYPE_CHECKING

import trio

from lmos_actors import open_node
from tests.matrix import few_or_all
from tests.web.things import Desk

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


async def test_nothing_undocumented_comes(tmp_path: Path) -> None:
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start(Desk)
        command = [*SCHEMATHESIS, f"{node.urls[0].replace('ws:', 'http:')}/openapi.json"]
        done = await trio.run_process(command, capture_stdout=True, stderr=STDOUT, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout.decode()
        assert node.connection_failures == ()
