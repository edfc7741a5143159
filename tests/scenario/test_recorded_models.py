"""Models that ask a provider, recorded in real time by `run --update-recordings`, and played without it."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.llm.provider_server import Reply, Tool, open_provider
from tests.scenario.project import Project, Ran, story
from tests.scenario.thinkers import mistakes, passes, write_desk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.llm.provider_server import ProviderServer, Received

KEY = "sk-live-0123456789"
PROMPT = 'My "PIN" is 4711-0815, where is order 17?'

DESK = '''\
from __future__ import annotations

from lmos_actors import Agent, Ref, Secret, action
from lmos_actors.llm import Model
from lmos_actors.thinking import ThinkingAgent, think
from thinking_desk import Orders


class Desk(ThinkingAgent):
    """You answer questions about orders."""

    tools = (Orders,)


class Quiet(Agent):
    """Asks for others, what nobody else is to know."""

    model: Ref[Model]
    orders: Ref[Orders]

    @action(concurrency=8)
    async def ask(self, prompt: Secret[str]) -> str:
        return (await think(self.model, prompt, tools=[self.orders])).answer
'''
CHAT = {"do": "stream", "id": "chat", "target": "desk", "action": "chat", "input": {"content": "Order 17?"}}
QUIET = {"do": "invoke", "id": "quiet", "target": "quiet", "action": "ask", "input": {"prompt": PROMPT}}
CHECKS = [
    {"check": "tools", "of": "chat", "in_order": ["look_up"], "never": ["refund"]},
    {"check": "answer", "of": "chat", "words": ["on its way"]},
    {"check": "budget", "of": "model", "calls": {"equals": 4}, "tokens": {"le": 200}},
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("models"))
    write_desk(made)
    made.write("recorded_desk.py", DESK)
    yield made
    sys.path[:] = path
    for name in ("thinking_desk", "recorded_desk"):
        sys.modules.pop(name, None)


def cast(url: str, **model: Any) -> dict[str, Any]:
    """Return the agents of a file whose model is a recording of a live one."""
    refs = {"model": "$(agents.model)"}
    args = {"model": "m-1", "url": url, "key": "env:TEST_MODEL_KEY"}
    live = {"from": "replay", "log": "tapes/model.jsonl", "use": "lmos_actors.llm:OpenAIModel", "args": args}
    return {
        "orders": {"from": "agent", "use": "thinking_desk.py:Orders"},
        "desk": {"from": "agent", "use": "recorded_desk.py:Desk", "args": refs},
        "quiet": {
            "from": "agent",
            "use": "recorded_desk.py:Quiet",
            "args": {**refs, "orders": "$(agents.orders)"},
        },
        "model": {**live, **model},
    }


def reply(received: Received) -> Reply:
    """Call the tool, and answer when it has answered."""
    if received.body["messages"][-1]["role"] == "tool":
        return Reply(text=("It is ", "on its way."), wait=0.02)
    return Reply(text=(), tools=(Tool("look_up", ('{"numb', 'er": 17}')),), wait=0.02)


async def command(project: Project, *words: str, **environment: str) -> Ran:
    return await trio.to_thread.run_sync(partial(project.command, *words, timeout=50, **environment))


async def recorded(project: Project, server: ProviderServer, *words: str) -> Ran:
    file = project.write("live.yaml", story(CHAT, QUIET, agents=cast(server.openai_url), checks=CHECKS))
    return await command(project, "run", file, "--update-recordings", *words, TEST_MODEL_KEY=KEY)


@pytest.mark.slow
async def test_a_live_model_is_recorded_in_real_time_and_played_without_it(project: Project) -> None:
    async with open_provider(reply) as server:
        ran = await recorded(project, server)
        assert ran.code == 0, ran.text
        assert "recorded in real time, as model asks a provider (world: websocket)" in ran.text
        assert len(server.requests) == 4
        assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {KEY}"}
    tape = (project.root / "tapes/model.jsonl").read_text(encoding="utf-8")
    assert KEY not in tape
    assert "4711-0815" not in tape  # the prompt is declared as secret, and the model was asked it
    assert '"label":"seed=1"' in tape
    for world in ("memory", "wire"):
        ran = await command(project, "run", "live.yaml", "--set", f"world={world}")
        assert ran.code == 0, ran.text
    took = re.search(r"virtual ([\d.]+) s", ran.out)
    assert took is not None
    assert float(took[1]) > 0.1  # as it was recorded


@pytest.mark.slow
async def test_what_has_changed_since_is_named(project: Project) -> None:
    async with open_provider(reply) as server:
        assert (await recorded(project, server)).code == 0
    project.write(
        "reworded_desk.py",
        "from lmos_actors import action\n"
        "import thinking_desk, recorded_desk\n"
        "class Orders(thinking_desk.Orders):\n"
        "    @action\n"
        "    def look_up(self, number: int) -> dict[str, str]:\n"
        '        """Find an order by its number."""\n'
        "        return {'state': 'shipped'}\n"
        "class Desk(recorded_desk.Desk):\n"
        '    """You answer questions about orders."""\n'
        "    tools = (Orders,)\n",
    )
    agents = cast("http://127.0.0.1:9", unused="allowed")
    del agents["quiet"]
    agents["orders"]["use"] = "reworded_desk.py:Orders"
    agents["desk"]["use"] = "reworded_desk.py:Desk"
    ran = await command(project, "run", project.write("reworded.yaml", story(CHAT, agents=agents)))
    assert ran.code == 1
    assert 'a recorded invoke generate {"text": "Order 17?"} from desk' in ran.text
    assert "the nearest is at tapes/model.jsonl:" in ran.text
    assert "at $.tools[look_up].description" in ran.text
    assert 'asked was "Find an order by its number."; if that is wanted: lmos-actors run ' in ran.text
    assert ran.text.count("--update-recordings") == 1


@pytest.mark.slow
async def test_what_fails_is_not_recorded(project: Project) -> None:
    async with open_provider(reply) as server:
        assert (await recorded(project, server)).code == 0
        before = (project.root / "tapes/model.jsonl").read_bytes()
        server.default = Reply(status=401)
        ran = await recorded(project, server)
        assert ran.code == 1
        assert "nothing is recorded" in ran.text
        assert "env:TEST_MODEL_KEY" in ran.text
        assert KEY not in ran.text
    assert (project.root / "tapes/model.jsonl").read_bytes() == before


@pytest.mark.slow  # its lines run in processes alone; test_provider.py has keys that are not there
async def test_without_a_key_it_is_said_which_one_is_missing(project: Project) -> None:
    async with open_provider(reply) as server:
        file = project.write("live.yaml", story(CHAT, QUIET, agents=cast(server.openai_url)))
        ran = await command(project, "run", file, "--update-recordings", TEST_MODEL_KEY="")
    assert ran.code == 1
    assert "env:TEST_MODEL_KEY" in ran.text


def test_a_world_that_is_a_key_of_the_matrix_is_not_changed(project: Project) -> None:
    matrix = {"world": ["memory", "wire"]}
    whole = story(CHAT, QUIET, agents=cast("http://127.0.0.1:9"), matrix=matrix)
    ran = project.command("run", project.write("matrix.yaml", whole), "--update-recordings")
    assert ran.code == 2
    assert "world is a key of the matrix: --set world=websocket records model" in ran.text


def test_a_live_model_on_virtual_time_is_a_mistake_with_the_way_out(project: Project) -> None:
    live = {"from": "agent", "use": "lmos_actors.llm:AnthropicModel", "args": {"model": "m"}}
    agents = cast("http://127.0.0.1:9")
    agents["model"] = live
    (found,) = mistakes(project, [CHAT, QUIET], agents)
    assert found.startswith('"model" is AnthropicModel, a live model: it asks a provider over the network')
    assert "from: replay" in found
    assert mistakes(project, [CHAT, QUIET], agents, world="websocket") == []
    project.write(
        "tree_of_live.py",
        "from functools import partial\n"
        "from lmos_actors import ChildSpec, SupervisorSpec, sibling\n"
        "from lmos_actors.llm import OpenAIModel\n"
        "from recorded_desk import Desk, Orders\n"
        "tree = SupervisorSpec('root', children=(\n"
        "    ChildSpec('orders', Orders), ChildSpec('model', partial(OpenAIModel, model='m')),\n"
        "    ChildSpec('desk', partial(Desk, model=sibling('model'))),\n"
        "))\n",
    )
    (found,) = mistakes(project, [CHAT], {}, tree={"use": "tree_of_live.py:tree"})
    assert found.startswith('"model" of the tree is OpenAIModel, a live model')
    rule = {"when": {"any": True}, "output": "It is on its way."}
    mock = {"model": {"from": "mock", "speaks": "model", "rules": [rule]}}
    passes(project, [CHAT], mock, tree={"use": "tree_of_live.py:tree"}, checks=[CHECKS[1]])


@pytest.mark.slow
async def test_trials_tell_how_often_a_live_model_passes(project: Project) -> None:
    asked = 0

    def moody(received: Received) -> Reply:
        nonlocal asked
        asked += 1
        return Reply(text=("It is lost.",) if asked % 4 == 0 else ("It is on its way.",))

    agents = cast("")
    async with open_provider(moody) as server:
        agents["model"] = {
            "from": "agent",
            "use": "lmos_actors.llm:OpenAIModel",
            "args": {"model": "m", "key": None, "url": server.openai_url},
        }
        del agents["quiet"]
        for rate, code in ((0.7, 0), (0.9, 5)):
            trials = {"count": 8, "pass_rate": rate}
            whole = story(CHAT, agents=agents, world="websocket", trials=trials, checks=[CHECKS[1]])
            ran = await command(project, "run", project.write("trials.yaml", whole))
            assert ran.code == code, ran.text
        assert len(server.requests) == 16
