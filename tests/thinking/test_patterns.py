"""The patterns of `agents/patterns.py` do what the guide says of them, in thirty lines each."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from agents import patterns
from agents.patterns import Front, Jury, Library, Planner, Reader, Refunds, Router, Worker, Writer
from lmos_actors import Pool, open_node, simulate
from lmos_actors.llm import ModelEnd, UserMessage
from tests.source import ROOT
from tests.thinking.models import Log, Script, answered, said, wants

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors import Node
    from lmos_actors.llm import ModelRequest


def play(
    answer: Callable[[str, ModelRequest], Any], act: Callable[[Node], Awaitable[Any]]
) -> tuple[Log, Any]:
    """Have a node whose model answers by the last text of the user."""
    log = Log()

    def by_text(request: ModelRequest) -> Any:
        texts = [each.text for each in request.messages if isinstance(each, UserMessage)]
        return answer(texts[-1], request)

    async def main() -> Any:
        async with open_node() as node:
            await node.start(Script, answers=(by_text,), heard=log)
            return await act(node)

    return log, simulate(main)


def test_the_router() -> None:
    def answer(text: str, request: ModelRequest) -> Any:
        return '{"desk": "billing"}' if request.answer else request.instructions[:14]

    async def act(node: Node) -> Any:
        return await answered(await node.start(Router), "my bill?")

    assert play(answer, act)[1] == "You know bills"


def test_the_planner_with_workers() -> None:
    def answer(text: str, request: ModelRequest) -> Any:
        if request.answer:
            return '{"steps": ["buy", "cook"]}'
        return f"{text}!" if "step" in request.instructions else text.replace("\n", " ")

    async def act(node: Node) -> Any:
        workers = await node.start_pool(Pool(Worker, 2, name="workers"))
        return await (await node.start(Planner, workers=workers)).invoke(Planner.solve, "dinner")

    assert play(answer, act)[1] == "dinner  buy: buy! cook: cook!"


def test_the_writer_and_the_critic() -> None:
    def answer(text: str, request: ModelRequest) -> Any:
        if request.answer:
            return '{"is_good": true}' if text == "better" else '{"is_good": false, "remarks": "too dull"}'
        return "better" if "too dull" in text else "a text"

    async def act(node: Node) -> Any:
        return await (await node.start(Writer)).invoke(Writer.write, "cats")

    log, text = play(answer, act)
    assert (text, len(log.asked)) == ("better", 4)
    log, text = play(lambda text, request: '{"is_good": false}' if request.answer else "bad", act)
    assert (text, len(log.asked)) == ("bad", 6)


@pytest.mark.parametrize(
    ("votes", "verdict"), [("yes no yes no yes", "yes"), ("yes no unclear no yes", "unclear")]
)
def test_the_vote(votes: str, verdict: str) -> None:
    left = votes.split()

    async def act(node: Node) -> Any:
        return await (await node.start(Jury)).invoke(Jury.decide, "Is it?")

    log, found = play(lambda text, request: f'{{"answer": "{left.pop()}"}}', act)
    assert found == verdict
    assert {request.temperature for request in log.asked} == {1.0}


def test_map_and_reduce_over_a_pool() -> None:
    def answer(text: str, request: ModelRequest) -> Any:
        return f"note of {text}" if "Note" in request.instructions else text.replace("\n", ", ")

    async def act(node: Node) -> Any:
        readers = await node.start_pool(Pool(Reader, 2, name="readers"))
        library = await node.start(Library, readers=readers)
        return await library.invoke(Library.answer, [f"p{n}" for n in range(5)], "who?")

    log, found = play(answer, act)
    assert found == "note of p0, note of p1, note of p2, note of p3, note of p4"
    assert len(log.asked) == 6


def test_the_hand_over() -> None:
    def answer(text: str, request: ModelRequest) -> Any:
        front = "welcome" in request.instructions
        if "money" in text and front:
            return [wants("refunds", reason="money"), ModelEnd("tools")]
        if "thanks" in text and not front:
            return [wants("hand_back"), ModelEnd("tools")]
        return "front" if front else "refunds"

    async def act(node: Node) -> Any:
        await node.start(Refunds)
        front = await node.start(Front)
        session, items = await said(front, "hello")
        texts = [items[-1].text]
        for text in ("my money", "and now?", "thanks", "hello"):
            texts.append(await answered(front, text, session))
        return texts

    assert play(answer, act)[1] == ["front", "refunds", "refunds", "front", "front"]


def test_each_pattern_has_thirty_lines() -> None:
    text = (ROOT / "agents/patterns.py").read_text(encoding="utf-8")
    parts = text.split("# ---- ")[1:]
    assert len(parts) == 6
    for part in parts:
        ast.parse(f"# {part}")
        assert len([line for line in part.splitlines() if line.strip()]) <= 30, part.splitlines()[0]
    assert patterns.__doc__ is not None
