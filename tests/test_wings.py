"""Each wing but the runtime can be taken away: the rest imports and runs, and errors name the wing."""

from __future__ import annotations

import ast
import re
import shutil
import socket
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.source import PACKAGE, ROOT, package_modules
from tests.test_architecture import ASSEMBLY, NAMES, WINGS, layer_of, wing_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
wing_of = import_module("lmos_actors._wings").wing_of
away = sys.argv[1:]
import lmos_actors
for module in pkgutil.walk_packages(lmos_actors.__path__, "lmos_actors."):
    if module.name != "lmos_actors.__main__":
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            assert module.name.startswith("lmos_actors.cli."), (module.name, error)
            assert wing_of(error.name) in away, (module.name, error)
"""
PLAIN = """
import trio
from lmos_actors import Agent, action, open_node

class Echo(Agent):
    @action
    def say(self, text: str) -> str:
        return text

async def main():
    async with open_node() as node:
        assert await (await node.start(Echo)).invoke(Echo.say, "hello") == "hello"

trio.run(main)
"""
CONSENT = """
import trio
from lmos_actors import Agent, action, open_node
from lmos_actors.approvals import Approvals

class Refunds(Agent):
    @action(concurrency=100)
    async def refund(self, order: str) -> str:
        return "paid" if await self.approve("Refund?", {"order": order}, key=order) else "not paid"

async def main():
    async with open_node() as node:
        refunds = await node.start(Refunds)
        approvals = node.find(Approvals)
        async with refunds.begin(Refunds.refund, "17") as call:
            await approvals.ready()
            async with approvals.observe(Approvals.waiting) as numbers:
                async for number in numbers:
                    if number:
                        break
            waiting = await approvals.invoke(Approvals.entries)
            await approvals.invoke(Approvals.accept, waiting[0].id, "as agreed")
            assert await call.result() == "paid"

trio.run(main)
"""
SERVICES = """
import trio
from lmos_actors import open_node
from lmos_actors.facades import ChatAgent, ChatTurn, open_chat

class Guide(ChatAgent):
    async def reply(self, turn: ChatTurn) -> str:
        return "It is 20 minutes."

async def main():
    async with open_node(listen="ws://127.0.0.1:8080", omnia=True) as node:
        await node.start(Guide)
        async with open_chat("http://127.0.0.1:8080/agents/guide") as chat:
            assert (await chat.say("How far is it?")).text == "It is 20 minutes."

trio.run(main)
"""
MINDS = """
import trio
from lmos_actors import Agent, action, open_node
from lmos_actors.facades import ChatAgent, TextChunk
from lmos_actors.llm import Model, ModelEnd, TextDelta, ToolMessage, ToolRequest
from lmos_actors.thinking import ThinkingAgent

class Orders(Agent):
    @action
    def look_up(self, number: int) -> str:
        return "sent"

class Scripted(Model):
    async def respond(self, request):
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            yield TextDelta(f"It is {last.result}.")
        else:
            yield ToolRequest("1", "look_up", {"number": 17})
        yield ModelEnd()

class Desk(ThinkingAgent):
    tools = (Orders,)

async def main():
    async with open_node() as node:
        for agent in (Scripted, Orders):
            await node.start(agent)
        desk = await node.start(Desk)
        async with desk.stream(ChatAgent.chat, "Where is order seventeen?") as items:
            said = [item.text async for item in items if isinstance(item, TextChunk)]
        assert said == ["It is sent."], said

trio.run(main)
"""
DEPLOYMENT = """
from pathlib import Path
from lmos_actors.deployment.files import load_deployment

Path("cast.py").write_text("from lmos_actors import Agent\\nclass Actor(Agent):\\n    '''Acts.'''\\n")
Path("small.yaml").write_text(
    "lmos: deployment/v1\\nname: small\\nagents: {actor: {from: agent, use: 'cast.py:Actor'}}\\n"
    "groups: {all: {agents: [actor]}}\\n"
)
assert not load_deployment(Path("small.yaml")).document.mistakes
"""
LAB = """
import trio
from lmos_actors import Agent, action, open_node, simulate

class Sleeper(Agent):
    @action
    async def sleep(self) -> float:
        await trio.sleep(3600)
        return trio.current_time()

async def main():
    async with open_node() as node:
        await (await node.start(Sleeper)).invoke(Sleeper.sleep)

simulate(main, seed=1)
"""
RECORDING = """
from lmos_actors.recording import RecordRequest, as_scenario, record
assert callable(record) and callable(as_scenario) and RecordRequest
"""
KIT = """
import trio
from lmos_actors import Agent, Property, open_node, prop
from lmos_actors.conformance import ConformOptions, Level, conform
from lmos_actors.transport import MemoryNetwork

class Lamp(Agent):
    level: Property[int] = prop(default=3)

async def main():
    network = MemoryNetwork()
    async with open_node(listen="ws://lamp.example", network=network) as node:
        await node.start(Lamp)
        options = ConformOptions(cases=["handshake.*"])
        card = await conform(network, "http://lamp.example/agents/lamp", options)
        assert card.results

trio.run(main)
"""
COMMAND = """
from lmos_actors.cli import main
main(["--help"])
"""
STORIES = {
    "runtime": PLAIN,
    "consent": CONSENT,
    "services": SERVICES,
    "minds": MINDS,
    "deployment": DEPLOYMENT,
    "lab": LAB,
    "recording": RECORDING,
    "kit": KIT,
    "command": COMMAND,
}
NEEDED = {
    "minds": ("from lmos_actors.llm import Model", "lmos_actors.llm"),
    "services": ("from lmos_actors.facades import ChatAgent", "lmos_actors.facades"),
    "lab": ("from lmos_actors import simulate", "lmos_actors.simulation"),
}
"""What fails without a wing, and the package that the error names."""

WORDS = {
    "deployment": ["up", "small.yaml"],
    "lab": ["run", "small.yaml"],
    "recording": ["record", "--to", "ws://127.0.0.1:9", "--out", "log.jsonl"],
    "kit": ["conform", "http://127.0.0.1:9/agents/lamp"],
}
"""A command that needs the wing."""


@cache
def uses() -> dict[str, set[str]]:
    """The wings that each wing imports when it runs."""
    found: dict[str, set[str]] = {wing: set() for wing in WINGS}
    for module in package_modules():
        if module.name in (PACKAGE, f"{PACKAGE}.types") or layer_of(module.name) == ASSEMBLY:
            continue  # each wing is imported when it is used
        for each in module.imports(NAMES):
            if each.target.partition(".")[0] == PACKAGE and not each.types_only:
                found[wing_of(module.name)].add(wing_of(each.target))
    return found


def gone_with(wing: str) -> set[str]:
    """The wing and those that use it; the command stays, as each of its commands says what it needs."""
    gone = {wing}
    for other in WINGS:  # a wing uses those before it
        if other != "command" and gone & uses()[other]:
            gone.add(other)
    return gone


def run(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the package that lies in the folder; a port of its text is a free one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{free.getsockname()[1]}")
    (folder / "story.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "story.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def readme() -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert ast.parse(found[1])
    return found[1]


@pytest.mark.parametrize("wing", [wing for wing in WINGS if wing != "runtime"])
def test_a_wing_can_be_taken_away(tmp_path: Path, wing: str) -> None:
    gone = gone_with(wing)
    rooms = {room for each in gone for room in WINGS[each]}

    def leave_out(folder: str, names: list[str]) -> set[str]:
        top = folder == str(ROOT / PACKAGE)
        return {n for n in names if n == "__pycache__" or (top and n.removesuffix(".py") in rooms)}

    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=leave_out)
    done = run(tmp_path, IMPORT_ALL, *gone)
    assert done.returncode == 0, done.stderr[-2000:]
    done = run(tmp_path, readme())
    assert done.returncode == 0, done.stderr[-2000:]
    for other in WINGS:
        if other not in gone:
            done = run(tmp_path, STORIES[other])
            assert done.returncode == 0, f"{other}: {done.stderr[-2000:]}"
    for each in gone & NEEDED.keys():
        text, room = NEEDED[each]
        done = run(tmp_path, text)
        # CPython 3.15 goes on with a name that is like it
        assert re.search(rf"{re.escape(room)} is not installed: it is part of the wing {each}\b", done.stderr)
    for each in gone & WORDS.keys() if wing != "command" else ():
        done = run(tmp_path, f"from lmos_actors.cli import main\nmain({WORDS[each]!r})")
        assert done.returncode == 2
        assert "is part of the wing" in done.stderr.splitlines()[0]
