"""The examples of pages that ask from a shell: they are run against the agents that these pages show."""

from __future__ import annotations

import queue
import re
import shlex
import shutil
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.cli import main
from tests.docs.test_documents import DOCS, Block, agrees, blocks, commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOWN = "127.0.0.1:8080"
BLOCKS = blocks((DOCS / "guides/call-agents-from-a-shell.md").read_text(encoding="utf-8"))
FOR_OTHERS = blocks((DOCS / "tutorial/agents-for-others.md").read_text(encoding="utf-8"))


async def _serve(cls: Any, told: queue.SimpleQueue[Any]) -> None:
    over = trio.Event()
    async with open_node(listen="ws://127.0.0.1:0") as node:
        await node.start(cls)
        told.put((node.urls[0].partition("://")[2], trio.lowlevel.current_trio_token(), over))
        await over.wait()


@contextmanager
def served(page: list[Block], title: str, name: str) -> Iterator[str]:
    """Serve the agent of a page in a thread, for as long as the block lasts; gives its host and port."""
    (agent,) = [block for block in page if block.title == title]
    names: dict[str, Any] = {"__name__": title.removesuffix(".py")}
    exec(compile(agent.body, title, "exec", dont_inherit=True), names)
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=trio.run, args=(_serve, names[name], told))
    thread.start()
    there, token, over = told.get(timeout=30)
    yield there
    token.run_sync_soon(over.set)
    thread.join(30)


@pytest.fixture
def place() -> Iterator[str]:
    with served(BLOCKS, "weather.py", "Weather") as there:
        yield there


def test_the_examples(
    place: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for block in BLOCKS:
        if block.title is not None and block.title.endswith(".jsonl"):
            (tmp_path / block.title).write_text(block.body)
    examples = [block for block in BLOCKS if "tests/cli/test_guide.py" in block.marker]
    for block in examples:
        wanted = re.search(r"it ends with (\d)", block.marker)
        for command in commands(block):
            words = [word.replace(SHOWN, place) for word in command.arguments]
            monkeypatch.setenv("NO_COLOR", "1")
            monkeypatch.setattr("sys.stdout.isatty", lambda: True)
            monkeypatch.chdir(tmp_path)
            with pytest.raises(SystemExit) as ended:
                main(words)
            monkeypatch.undo()
            ran = capfd.readouterr()
            output = ran.out + re.sub(r"^forecast: .*\n", "", ran.err, flags=re.MULTILINE)
            assert ended.value.code == (int(wanted[1]) if wanted else 0), (words, output)
            assert agrees(command.listing, output), f"{words} prints\n{output}"
    assert len(examples) >= 6


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_examples_with_curl() -> None:
    (example,) = [block for block in FOR_OTHERS if "tests/cli/test_guide.py" in block.marker]
    questions = re.findall(r"^\$ (curl .*)\n(.*)$", example.body, flags=re.MULTILINE)
    with served(FOR_OTHERS, "library.py", "Library") as there:
        for question, answer in questions:
            words = shlex.split(question.replace(SHOWN, there))
            ran = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
            assert agrees(answer, ran.stdout + "\n"), f"{question} prints\n{ran.stdout}"
    assert len(questions) == 3
