"""Agents of a scenario that need asyncio, threads or sockets: what the command says of them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.scenario.test_guard import OFF, project as project, with_agent

if TYPE_CHECKING:
    from tests.scenario.project import Project

BODIES = {
    "asyncio": ("await asyncio.sleep(1)", "asyncio code in an agent"),
    "httpx": (
        "async with httpx2.AsyncClient() as c: await c.get('http://127.0.0.1:1/')",
        "socket.getaddrinfo",
    ),
    "thread": ("await anyio.to_thread.run_sync(int)", "trio.to_thread.run_sync"),
    "run": ("asyncio.run(asyncio.sleep(0))", "an event loop of asyncio"),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_scenario_file_names_the_line_and_the_mock(project: Project, body: str) -> None:
    code, said = BODIES[body]
    source = f"""
        import anyio, asyncio, httpx2
        class X(Agent):
            @action
            async def go(self):
                {code}
    """
    path = with_agent(project, textwrap.dedent(source))
    ran = project.command("run", path, *OFF)
    assert ran.code == 1
    shown = " ".join(ran.out.split())
    assert said in shown
    assert "own.py:9" in shown
    assert "`from: mock`" in shown
