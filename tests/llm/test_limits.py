"""Tokens: estimated by script; and those of a request as the provider counts them, else as estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import open_node, simulate
from lmos_actors.llm import (
    Model,
    ModelEnd,
    ModelFile,
    ModelMessage,
    ModelRequest,
    Reasoning,
    Tally,
    TextDelta,
    ToolMessage,
    ToolRequest,
    Usage,
    UserMessage,
    estimated_tokens,
    model_failure,
)
from lmos_actors.testing import settle
from tests.llm.asking import items

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.llm import ModelItem


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("Good day to you.", 4),
        ("Добрый день.", 10 / 1.5 + 2 / 4),
        ("καλημέρα", 8 / 1.5),
        ("صباح الخير", 9 / 1.5 + 1 / 4),
        ("早上好。", 4),
        ("おはよう", 4),
        ("좋은 아침", 4 + 1 / 4),
    ],
)
def test_tokens_are_estimated_by_script(text: str, tokens: float) -> None:
    assert estimated_tokens(text) == pytest.approx(tokens)


@given(st.text(st.characters(exclude_categories=[])), st.text())
def test_a_text_has_the_tokens_of_its_parts(one: str, other: str) -> None:
    assert estimated_tokens(one + other) == pytest.approx(estimated_tokens(one) + estimated_tokens(other))
    assert len(one) / 4 <= estimated_tokens(one) <= len(one) * 4 / 3


LONG = "x" * 4_000
CALL = ToolRequest("1", "look", {"what": LONG})


@pytest.mark.parametrize(
    ("said", "least"),
    [
        (TextDelta(LONG), 1_000),
        (Reasoning(LONG), 1_000),
        (CALL, 1_000),
        (ToolRequest("1", "look", unreadable=LONG), 1_000),
        (ModelMessage(LONG, [CALL], [Reasoning(LONG)]), 3_000),
        (ToolMessage("1", "look", {"found": LONG}), 1_000),
        (ToolMessage("1", "look", error=LONG), 1_000),
        (UserMessage(LONG, [ModelFile("image/png", b"x" * 90_000)]), 2_000),
        (UserMessage("", [ModelFile("text/plain", LONG.encode())]), 2_000),
        (ModelRequest([UserMessage(LONG)], LONG, answer={"title": LONG}), 3_000),
    ],
)
def test_all_that_is_said_has_tokens(said: Any, least: int) -> None:
    assert least < estimated_tokens(said) + 1 < least + 40


REQUEST = ModelRequest([UserMessage("x" * 400)])  # 104 tokens
CAME = [TextDelta("y" * 40)]  # 10 tokens


@pytest.mark.parametrize(
    ("said", "error", "spent"),
    [
        ([*CAME, ModelEnd(usage=Usage(50, 7, 3))], None, Usage(50, 7, 3)),
        ([*CAME, ModelEnd()], None, Usage(104, 10)),
        ([*CAME, ModelEnd(usage=Usage(50, 0))], None, Usage(50, 10)),
        ([*CAME, ModelEnd(usage=Usage(-1, -1))], None, Usage(104, 10)),
        (CAME, model_failure("MODEL_CUT", "no"), Usage(104, 10)),
        (CAME, model_failure("MODEL_BUSY", "no"), Usage(104, 10)),
        ([], GeneratorExit(), Usage(104, 0)),
        ([], model_failure("MODEL_MALFORMED", "no"), Usage(104, 0)),
        ([], model_failure("MODEL_BUSY", "no"), Usage()),
        ([], model_failure("MODEL_KEY_REFUSED", "no"), Usage()),
    ],
)
def test_a_request_has_spent_what_is_counted_or_else_estimated(
    said: list[ModelItem], error: BaseException | None, spent: Usage
) -> None:
    tally = Tally(REQUEST)
    for item in said:
        tally.take(item)
    assert tally.spent(error) == spent


class Uncounted(Model):
    """Counts nothing, and waits before the end where it is told so."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        yield TextDelta("y" * 400)
        if request.messages[-1] == UserMessage("wait"):
            await trio.sleep_forever()
        yield ModelEnd()


async def test_metrics_have_what_no_provider_counts() -> None:
    async with open_node(metrics=True) as node:
        await items(await node.start(Uncounted), REQUEST.messages)
        lines = set((await node.metrics()).splitlines())
    assert lines >= {
        'lmos_actors_model_tokens_total{model="Uncounted",kind="input"} 104',
        'lmos_actors_model_tokens_total{model="Uncounted",kind="output"} 100',
    }


@pytest.mark.parametrize("text", ["hello", "wait"])
def test_a_limit_of_tokens_counts_what_is_not_counted_or_cancelled(text: str) -> None:
    async def main() -> float:
        async with open_node() as node:
            model = await node.start(Uncounted, tokens_per_minute=109)
            with trio.move_on_after(1):
                await items(model, [UserMessage(text)])
            await settle()
            await items(model)
            return trio.current_time()

    assert simulate(main) == 60
