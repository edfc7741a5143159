"""The examples of the guide on calling agents from a shell: they are run against the agent that it shows."""

from __future__ import annotations

import queue
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.cli import main
from tests.test_docs import DOCS, agrees, blocks, commands

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = DOCS / "guides/call-agents-from-a-shell.md"
SHOWN = "127.0.0.1:8080"
BLOCKS = blocks(PAGE.read_text(encoding="utf-8"))


async def _serve(cls: Any, told: queue.SimpleQueue[Any]) -> None:
    over = trio.Event()
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start(cls)
        told.put((node.urls[0].partition("://")[2], trio.lowlevel.current_trio_token(), over))
        await over.wait()


@pytest.fixture
def place() -> Iterator[str]:
    (agent,) = [block for block in BLOCKS if block.title == "weather.py"]
    names: dict[str, Any] = {"__name__": "weather"}
    exec(compile(agent.body, "weather.py", "exec", dont_inherit=True), names)
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, names["Weather"], told))
    thread.start()
    there, token, over = told.get(timeout=30)
    yield there
    token.run_sync_soon(over.set)
    thread.join(30)


def test_the_examples(place: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [block for block in BLOCKS if "tests/cli/test_guide.py" in block.marker]
    for block in examples:
        wanted = re.search(r"it ends with (\d)", block.marker)
        for command in commands(block):
            words = [word.replace(SHOWN, place) for word in command.arguments]
            monkeypatch.setenv("NO_COLOR", "1")
            monkeypatch.setattr("sys.stdout.isatty", lambda: True)
            with pytest.raises(SystemExit) as ended:
                main(words)
            monkeypatch.undo()
            ran = capfd.readouterr()
            output = ran.out + re.sub(r"^forecast: .*\n", "", ran.err, flags=re.MULTILINE)
            assert ended.value.code == (int(wanted[1]) if wanted else 0), (words, output)
            assert agrees(command.listing, output), f"{words} prints\n{output}"
    assert len(examples) >= 6
