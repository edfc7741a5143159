"""The programs in docs/guides/http.md that use libraries of others do what they are shown to do."""

from __future__ import annotations

import os
import re
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import Agent, Property, action, open_node, prop
from tests.source import ROOT
from tests.web.foreign import SECONDS, commands, installed
from tests.web.serving import going_on

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = (ROOT / "docs/guides/http.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"


class Weather(Agent):
    """Answers questions about the weather."""

    units: Property[str] = prop(default="celsius")

    @action
    async def forecast(self, city: str) -> str:
        """Forecast tomorrow for one city."""
        return f"Tomorrow {city} is sunny, 25 degrees {self.units}."


async def a_line(stdout: trio.abc.ReceiveStream) -> bytes:
    """Read what a program writes, to the end of a line or of all."""
    line = b""
    while not line.endswith(b"\n") and (more := await stdout.receive_some(1)):
        line += more
    return line


@pytest.mark.parametrize(("title", "runner"), [("ask.js", "node"), ("ask_wotpy.py", "python")])
async def test_a_program_of_the_guide(title: str, runner: str, tmp_path: Path) -> None:
    found = re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```', GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    async with open_node(listen="ws://127.0.0.1:0") as node:
        weather = await node.start(Weather)
        (tmp_path / title).write_text(found[1].replace(ADDRESS, node.urls[0].replace("ws:", "http:")))
        wanted = b"Tomorrow Bonn is sunny, 25 degrees kelvin.\n"
        command = [*commands()[runner], tmp_path / title]
        paths = {**os.environ, "NODE_PATH": str(installed() / "node_modules")}
        process = await trio.lowlevel.open_process(command, stdout=PIPE, env=paths)
        stdout = process.stdout
        assert stdout is not None
        try:
            with trio.fail_after(SECONDS):
                assert await a_line(stdout) == wanted
                if "observeProperty" in found[1]:
                    values = iter(("celsius", "kelvin") * 1000)
                    async with going_on(lambda: weather.write(Weather.units, next(values))):
                        assert await a_line(stdout) in (b"celsius\n", b"kelvin\n")
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await stdout.aclose()
