"""The contract of models, with models of the tests: limits on virtual time, counts, spans, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator  # noqa: TC003 -- types of actions are read
from functools import partial
from typing import Any

import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lmos_actors import Agent, ChildSpec, DeadlineExceeded, Ref, StartFailed, action, open_node, simulate
from lmos_actors.llm import (
    AnthropicModel,
    Model,
    ModelEnd,
    ModelFile,
    ModelItem,
    ModelRequest,
    OpenAIModel,
    TextDelta,
    ToolMessage,
    ToolOffer,
    ToolRequest,
    Usage,
    UserMessage,
    model_failure,
)
from tests.llm.asking import items, shown

SEEN: list[tuple[str, float]] = []
"""What the model of the tests was asked, and when; emptied by each test that looks."""


class Slow(Model):
    """Answers after some seconds, with as many tokens as it is told."""

    seconds: float = 1.0
    tokens: int = 10

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        text = request.messages[-1].text  # type: ignore[union-attr]
        SEEN.append((text, trio.current_time()))
        await trio.sleep(self.seconds)
        yield TextDelta(text)
        yield ModelEnd("stop", Usage(self.tokens, 0), "slow-1")


def asked(number: int) -> list[UserMessage]:
    return [UserMessage(f"{number}")]


def times(run: Any) -> list[tuple[str, int]]:
    """Run on virtual time, and return what was asked, and after how many seconds."""
    SEEN.clear()
    began: list[float] = []

    async def body() -> None:
        began.append(trio.current_time())
        await run()

    simulate(body, seed=1)
    return [(text, round(at - began[0])) for text, at in SEEN]


def ask_all(number: int, **options: Any) -> Any:
    async def run() -> None:
        async with open_node() as node:
            model = await node.start(Slow, **options)
            async with trio.open_nursery() as nursery:
                for each in range(number):
                    nursery.start_soon(items, model, asked(each))
                    await trio.sleep(0.001)

    return run


def test_so_many_at_once_the_others_in_order() -> None:
    assert times(ask_all(5, concurrency=2)) == [("0", 0), ("1", 0), ("2", 1), ("3", 1), ("4", 2)]


def test_so_many_in_any_minute() -> None:
    begun = times(ask_all(7, requests_per_minute=3, seconds=0.0))
    assert begun == [("0", 0), ("1", 0), ("2", 0), ("3", 60), ("4", 60), ("5", 60), ("6", 120)]


def test_tokens_count_as_the_provider_counts_them() -> None:
    begun = times(ask_all(5, tokens_per_minute=250, tokens=100, seconds=1.0, concurrency=1))
    assert begun == [("0", 0), ("1", 1), ("2", 2), ("3", 60), ("4", 61)], (
        "the third one's are known at its end"
    )


def test_a_request_above_the_limit_of_tokens_waits_for_a_free_minute() -> None:
    begun = times(ask_all(2, tokens_per_minute=5, tokens=1_000, seconds=1.0))
    assert begun == [("0", 0), ("1", 60)]


def test_an_estimate_that_was_too_high_delays_nobody_after_the_end() -> None:
    async def run() -> None:
        async with open_node() as node:
            model = await node.start(Slow, tokens_per_minute=1_500, tokens=10)
            async with trio.open_nursery() as nursery:
                for number in range(3):
                    with_picture = UserMessage(f"{number}", [ModelFile("image/png", b"x" * 100_000)])
                    nursery.start_soon(items, model, [with_picture])
                    await trio.sleep(0.001)

    assert times(run) == [("0", 0), ("1", 1), ("2", 2)]


def test_a_wait_past_the_deadline_is_refused_at_once() -> None:
    found: list[Any] = []

    async def run() -> None:
        async with open_node() as node:
            model = await node.start(Slow, requests_per_minute=1, seconds=0.0)
            await items(model)
            began = trio.current_time()
            (failed,) = await items(model.within(30))
            found.extend([failed.code, failed.data, trio.current_time() - began])
            found.append(shown(await items(model.within(90))))

    times(run)
    assert found == ["MODEL_BUSY", {"retry_after": 60.0}, 0, "hi|stop"]


def test_one_that_gives_up_in_the_line_leaves_no_gap() -> None:
    async def run() -> None:
        async with open_node() as node:
            model = await node.start(Slow, concurrency=1, seconds=10.0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(items, model, asked(0))
                await trio.sleep(0.001)
                for number in (1, 2, 3):
                    nursery.start_soon(_give_up, model.within(number), number)
                    await trio.sleep(0.001)
                nursery.start_soon(items, model, asked(4))

    assert times(run) == [("0", 0), ("4", 10)]


async def _give_up(model: Ref[Slow], number: int) -> None:
    with pytest.raises(DeadlineExceeded):
        await items(model, asked(number))


def test_more_than_can_wait_are_refused() -> None:
    found: list[str] = []

    async def run() -> None:
        async with open_node() as node:
            model = await node.start(Slow, concurrency=4_090, seconds=10.0)

            async def ask() -> None:
                found.append(shown(await items(model)))

            async with trio.open_nursery() as nursery:
                for _ in range(4_200):
                    nursery.start_soon(ask)

    times(run)
    assert sorted(set(found)) == ["hi|stop", "|MODEL_BUSY"]
    assert found.count("hi|stop") == 4_090 + 4 + 1


# ---- live models where there is no network


@pytest.mark.parametrize("cls", [OpenAIModel, AnthropicModel])
def test_a_live_model_is_refused_on_virtual_time(cls: type[Model]) -> None:
    async def run() -> None:
        async with open_node() as node:
            with pytest.raises(StartFailed) as failed:
                await node.start_child(ChildSpec("thinker", partial(cls, model="m", key=None)))
            said.append(str(failed.value))

    said: list[str] = []
    simulate(run, seed=1)
    assert f"{cls.__name__}, agent 'thinker', is a live model: it asks a provider over the network" in said[0]
    assert "`from: mock`" in said[0]
    assert "`from: replay`" in said[0]


def test_models_that_are_not_used_cost_no_import() -> None:
    code = (
        "import sys, lmos_actors; lmos_actors.open_node; assert 'lmos_actors.llm' not in sys.modules\n"
        "import lmos_actors.llm; assert 'lmos_actors.security' not in sys.modules\n"
        "lmos_actors.llm.OpenAIModel(model='m'); print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("openai", "anthropic", "httpx2", "pydantic", "opentelemetry"):
        assert f"'{name}'" not in done.stdout


async def test_the_contract_itself_is_no_model() -> None:
    async with open_node() as node:
        (failed,) = await items(await node.start(Model))
        assert failed.output == {"code": "NO_MODEL", "message": "Model has no respond: it is no model"}


# ---- counts and spans


class Told(Model):
    """Asks for a tool, or fails, or breaks."""

    model: str = "told-2"

    def __attrs_post_init__(self) -> None:
        """Do without that of `Model`: it only checks."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        match request.messages[-1]:
            case UserMessage("fail"):
                raise model_failure("MODEL_BUSY", "not now")
            case UserMessage("wait"):
                yield TextDelta("...")
                await trio.sleep_forever()
            case _:
                yield TextDelta("I look.")
                yield ToolRequest("1", "look", {"n": 1})
                yield ModelEnd("tools", Usage(20, 5, 8), "told-2-of-may")


class Asker(Agent):
    """Asks a model."""

    model: Ref[Told]

    @action
    async def ask(self) -> int:
        """Ask."""
        return len(await items(self.model))


async def test_requests_and_tokens_are_counted() -> None:
    async with open_node(metrics=True) as node:
        model = await node.start(Told)
        for text in ("hi", "hi", "fail"):
            await items(model, [UserMessage(text)])
        async with model.stream(Model.generate, [UserMessage("wait")]) as answer:
            async for _ in answer:
                break
        await trio.testing.wait_all_tasks_blocked()
        lines = set((await node.metrics()).splitlines())
    assert lines >= {
        'lmos_actors_model_requests_total{model="told-2",outcome="tools"} 2',
        'lmos_actors_model_requests_total{model="told-2",outcome="MODEL_BUSY"} 1',
        'lmos_actors_model_requests_total{model="told-2",outcome="cancelled"} 1',
        'lmos_actors_model_tokens_total{model="told-2",kind="input"} 45',
        'lmos_actors_model_tokens_total{model="told-2",kind="output"} 11',
        'lmos_actors_model_tokens_total{model="told-2",kind="cached"} 16',
        'lmos_actors_model_request_duration_seconds_count{model="told-2"} 4',
    }


class Recorder:
    """A provider of OpenTelemetry, and the spans that came of it."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))

    def of_models(self) -> list[Any]:
        return [span for span in self.spans.get_finished_spans() if span.name.startswith("chat ")]


async def test_a_span_for_each_request_without_what_is_said() -> None:
    recorder = Recorder()
    tracer = recorder.provider.get_tracer("tests")
    async with open_node(tracing=recorder.provider) as node:
        model = await node.start(Told)
        asker = await node.start(Asker, model=model)
        with tracer.start_as_current_span("outermost") as outermost:
            assert await asker.invoke(Asker.ask) == 3
        await items(model, [UserMessage("fail")], max_tokens=7, temperature=0.5, answer={"type": "object"})
    first, second = recorder.of_models()
    assert first.parent.span_id == outermost.get_span_context().span_id
    found = dict(first.attributes)
    assert 0 <= found.pop("gen_ai.response.time_to_first_chunk") < 10
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "Told",
        "gen_ai.request.model": "told-2",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.response.model": "told-2-of-may",
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 8,
    }
    assert (first.name, first.kind.name, first.status.status_code.name) == ("chat told-2", "CLIENT", "UNSET")
    assert (
        dict(second.attributes).items()
        >= {
            "gen_ai.request.max_tokens": 7,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.output.type": "json",
            "error.type": "MODEL_BUSY",
        }.items()
    )
    assert second.status.status_code.name == "ERROR"


async def test_what_is_said_is_in_spans_where_that_is_asked_for() -> None:
    recorder = Recorder()
    async with open_node(tracing=recorder.provider) as node:
        model = await node.start(Told, record_prompts=True)
        messages = [ToolMessage("0", "look", {"found": 1}), UserMessage("And now?")]
        await items(model, messages, instructions="Be brief.", tools=[ToolOffer("look", "Look.")])
        await items(model, [UserMessage("x" * 200_000)])
    first, long = (span.attributes for span in recorder.of_models())
    said = {name: json.loads(value) for name, value in first.items() if str(value)[:1] == "["}
    assert said == {
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
        "gen_ai.input.messages": [
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "0", "response": {"found": 1}}]},
            {"role": "user", "parts": [{"type": "text", "content": "And now?"}]},
        ],
        "gen_ai.tool.definitions": [
            {"type": "function", "name": "look", "description": "Look.", "parameters": {}}
        ],
        "gen_ai.output.messages": [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "I look."},
                    {"type": "tool_call", "id": "1", "name": "look", "arguments": {"n": 1}},
                ],
                "finish_reason": "tool_call",
            }
        ],
    }
    assert len(long["gen_ai.input.messages"]) < 132_000
