"""The loop of a thinking agent over each oddity of an endpoint, which refuses then what strict ones refuse.

The rows are those of the tests of models. A turn has one final answer: by what came, or by the next request,
whose history has the calls as they came.
"""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors import ActionFailed, open_node
from lmos_actors.thinking import ThinkingAgent
from tests.llm import test_fitting as trifles, test_reports as reports, test_tool_pieces as pieces
from tests.llm.asking import start
from tests.llm.provider_server import Reply, open_provider
from tests.llm.strict import strict
from tests.thinking.models import answered

called: list[tuple[str, int]] = []


def look(n: int = 0) -> str:
    """Look."""
    called.append(("look", n))
    return "seen"


def see(n: int = 0) -> str:
    """See."""
    called.append(("see", n))
    return "looked"


class Desk(ThinkingAgent):
    """You help."""

    tools = (look, see)


async def turns(provider: str, replies: dict[str, Reply]) -> dict[str, tuple[str, Any]]:
    """Return for each reply what a turn said, or the code of its failure, and the calls of tools."""
    got: dict[str, tuple[str, Any]] = {}
    async with open_provider(strict(provider)) as server, open_node() as node:
        desk = await node.start(Desk, model=await start(node, server, provider, retries=0))
        for name, reply in replies.items():
            called.clear()
            server.reply(reply)
            try:
                text = await answered(desk)
            except ActionFailed as failed:
                text = f"{failed.code}"
            got[name] = text, sorted(called)
        assert not node.crash_reports
    return got


@pytest.mark.parametrize(("provider", "rows"), [("openai", trifles.OPENAI), ("anthropic", trifles.ANTHROPIC)])
async def test_trifles(provider: str, rows: dict[str, tuple[bytes, str]]) -> None:
    got = await turns(provider, {name: Reply(raw=[data]) for name, (data, _) in rows.items()})
    for name, (_, wanted) in rows.items():
        text, _, end = wanted.partition("|")
        calls = [(tool, 0) for tool in ("look", "see") if f"{tool}(" in end]
        last = ["Hello there"] if calls or not text else []  # an answer without a word is asked for again
        assert got[name] == ("\n\n".join([text] * bool(text) + last), calls), name


@pytest.mark.parametrize(("provider", "rows"), [("openai", pieces.OPENAI), ("anthropic", pieces.ANTHROPIC)])
async def test_tools_in_pieces(provider: str, rows: dict[str, tuple[Reply, pieces.Calls | str]]) -> None:
    got = await turns(provider, {name: reply for name, (reply, _) in rows.items()})
    for name, (_, wanted) in rows.items():
        if isinstance(wanted, str):
            assert got[name] == ("MODEL_MALFORMED", []), name
        else:
            calls = sorted((tool, members["n"] if members else 0) for tool, members in readable(wanted))
            assert got[name] == ("Hello there", calls), name


def readable(calls: pieces.Calls) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that come about: no tool is called with what is no object."""
    return [(tool, members) for tool, members in calls if isinstance(members, dict)]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_failures(provider: str) -> None:
    rows = {**reports.REFUSALS, **(reports.OPENAI if provider == "openai" else reports.ANTHROPIC)}
    replies = {name: reply for name, (reply, _) in rows.items()}
    got = await turns(provider, {**replies, "nothing odd": Reply()})
    assert got.pop("nothing odd") == ("Hello there", []), "the history is acceptable still"
    assert got == {name: (rows[name][1].split()[0], []) for name in replies}
