"""What thinking spends: no more tokens than the budget, and all of them counted, however a request ends."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors import ActionFailed, open_node, simulate
from lmos_actors.llm import ModelEnd, TextDelta, ToolMessage, Usage, estimated_tokens, model_failure
from lmos_actors.testing import settle
from lmos_actors.thinking import Account, Budget, ThinkingAgent, think
from tests.thinking.models import Log, Script, said, wants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.llm import ModelItem, ModelRequest


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def spending(
    *answers: Any, prompt: str = "x" * 400, max_tokens: int | None = None, **budget: Any
) -> tuple[Log, int, str]:
    """Have a model think; return the log, the tokens that it has spent, and the code of its failure."""
    log = Log()

    async def main() -> tuple[int, str]:
        async with open_node() as node:
            model = await node.start(Script, answers=answers, heard=log)
            account, code = Account(Budget(**budget)), ""
            try:
                await think(model, prompt, tools=[add], budget=account, max_tokens=max_tokens)
            except ActionFailed as error:
                code = error.code or ""
            return account.spent.tokens, code

    return log, *simulate(main)


async def broken(request: ModelRequest) -> AsyncGenerator[ModelItem]:
    yield TextDelta("y" * 400)
    raise model_failure("MODEL_CUT", "the connection broke off")


async def silent(request: ModelRequest) -> AsyncGenerator[ModelItem]:
    yield TextDelta("y" * 400)
    await trio.sleep_forever()


async def dumb(request: ModelRequest) -> AsyncGenerator[ModelItem]:
    await trio.sleep_forever()
    yield ModelEnd()


FIRST = [wants("add", a=1, b=2), ModelEnd("tools", Usage(1_000, 10))]
REFUSED = model_failure("MODEL_BUSY", "not now")


@pytest.mark.parametrize(
    ("answers", "least", "code"),
    [
        ([[TextDelta("y" * 400), ModelEnd()]], 200, ""),
        ([[TextDelta("早" * 100), ModelEnd()]], 200, ""),
        ([[TextDelta("y" * 400), ModelEnd(usage=Usage(0, 300))]], 400, ""),
        ([broken], 200, "MODEL_CUT"),
        ([silent], 200, "BUDGET_EXCEEDED"),
        ([dumb], 100, "BUDGET_EXCEEDED"),
        ([RuntimeError("bug")], 300, "MODEL_UNAVAILABLE"),  # it was asked three times
        ([FIRST, REFUSED], 1_010, "MODEL_BUSY"),
        ([FIRST, broken], 1_210, "MODEL_CUT"),
        ([REFUSED], 0, "MODEL_BUSY"),
    ],
)
def test_what_is_spent_is_counted_however_it_ends(answers: list[Any], least: int, code: str) -> None:
    _, spent, failed = spending(*answers)
    assert failed == code
    assert least <= spent <= least * 2, "what is beyond it are the tools"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3_000), st.integers(0, 64), st.integers(0, 8), st.integers(1, 900))
def test_no_more_is_spent_than_the_budget(tokens: int, added: int, calls: int, wanted: int) -> None:
    """The provider adds to the input, and the model writes as much as it may; so 120 do not become 160."""

    def answer(request: ModelRequest) -> list[ModelItem]:
        assert request.max_tokens is not None
        output = min(wanted, request.max_tokens)
        usage = Usage(ceil(estimated_tokens(request)) + added, output)
        done = sum(isinstance(each, ToolMessage) for each in request.messages)
        if done < calls and request.max_tokens > 40:
            return [wants("add", a=1, b=2), ModelEnd("tools", usage)]
        return [TextDelta("y" * output), ModelEnd(usage=usage)]

    log, spent, code = spending(answer, prompt="hello", tokens=tokens, calls=None)
    assert spent <= tokens
    assert code == "BUDGET_EXCEEDED" or (log.asked and not code)


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "bounds"),
    [
        (160, None, [44]),
        (8_200, None, [8_084]),
        (60_000, None, [None]),
        (60_000, 50, [50]),
        (125, 5, [5]),  # who wants little needs little
        (125, None, []),
    ],
)
def test_a_request_asks_for_no_more_output_than_is_left(
    tokens: int, max_tokens: int | None, bounds: list[int | None]
) -> None:
    log, _, code = spending("Yes.", prompt="hello", max_tokens=max_tokens, tokens=tokens)
    assert [request.max_tokens for request in log.asked] == bounds
    assert code == ("" if bounds else "BUDGET_EXCEEDED")


def test_an_answer_that_ends_at_its_bound_is_no_failure_where_it_is_longer_than_estimated() -> None:
    def answer(request: ModelRequest) -> list[ModelItem]:
        most = request.max_tokens or 0
        return [TextDelta("wordy" * most), ModelEnd("length", Usage(100, most))]

    log, spent, code = spending(answer, tokens=400)
    assert (spent, code) == (100 + (log.asked[0].max_tokens or 0), "")


def test_turns_of_a_session_that_fail_or_are_left_have_spent() -> None:
    async def main() -> int:
        async with open_node() as node:
            await node.start(Script, answers=(FIRST, broken, silent, "Yes."))
            agent = await node.start(ThinkingAgent, tools=(add,), session_budget=Budget(tokens=2_500))
            with pytest.raises(ActionFailed, match="MODEL_CUT"):
                await said(agent, session="s", new=True)
            with trio.move_on_after(1):
                await said(agent, session="s")
            await settle()
            with pytest.raises(ActionFailed, match="BUDGET_EXCEEDED"):
                await said(agent, "x" * 6_000, session="s")
            return (await agent.read(ThinkingAgent.spent)).tokens

    assert 1_300 <= simulate(main) <= 1_600
