"""Language models: what we add to the bare SDKs, against a provider in another process; and many at once.

Both sides ask the same provider for the same answers, and look at the text of each chunk. The imports of an
SDK are done before the clock runs, on both sides.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from functools import partial
from statistics import median
from time import perf_counter as clock, process_time
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import open_node
from lmos_actors.llm import AnthropicModel, Model, ModelEnd, OpenAIModel, TextDelta, UserMessage
from tests.benchmarks.limits_wire import other_process
from tests.benchmarks.wire import resident
from tests.llm.provider_server import Received, Reply, open_provider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from lmos_actors import Ref
    from lmos_actors.llm import ModelItem, ModelRequest

    Texts = Callable[[int], AsyncIterator[str]]

PIECE = "a few words, "
LONG = 1 << 17
"""Tokens that an answer may have: the limit is not what is measured."""


async def serve(tell: Callable[[object], None]) -> None:
    """Answer each request with as many chunks as its text says."""

    def answer(received: Received) -> Reply:
        said = received.body["messages"][-1]["content"]
        return Reply(text=(PIECE,) * int(said if isinstance(said, str) else said[0]["text"]))

    async with open_provider(answer) as server:
        tell(server.port)
        await trio.sleep_forever()


def _url(sdk: str, port: int) -> str:
    return f"http://127.0.0.1:{port}{'/v1' if sdk == 'openai' else ''}"


# ---- the two sides: texts of an answer of so many chunks


async def texts_of_ours(model: Ref[Model], count: int) -> AsyncIterator[str]:
    """By a model as an agent."""
    async with model.stream(Model.generate, [UserMessage(f"{count}")]) as items:
        async for item in items:
            if type(item) is TextDelta:
                yield item.text  # noqa: ASYNC119 -- all is read


async def texts_of_openai(client: Any, count: int) -> AsyncIterator[str]:
    """By the SDK of OpenAI."""
    said = [{"role": "user", "content": f"{count}"}]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async for chunk in await client.chat.completions.create(model="m", messages=said, **options):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def texts_of_anthropic(client: Any, count: int) -> AsyncIterator[str]:
    """By the SDK of Anthropic."""
    said = [{"role": "user", "content": f"{count}"}]
    async for event in await client.messages.create(model="m", messages=said, max_tokens=LONG, stream=True):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            yield event.delta.text


async def chunks(texts: Texts, n: int) -> float:
    """Microseconds of processor time a chunk, of an answer of `n`."""
    async for _ in texts(10):
        pass
    began, count = process_time(), 0
    async for _ in texts(n):
        count += 1
    assert count == n
    return 1e6 * (process_time() - began) / n


def ours(sdk: str, measure: Any, n: int) -> float:
    """Measure a model as an agent."""
    return _with_both(sdk, lambda ours, _: measure(ours, n))


def bare(sdk: str, measure: Any, n: int) -> float:
    """Measure the SDK alone."""
    return _with_both(sdk, lambda _, bare: measure(bare, n))


def first_chunks(sdk: str, n: int) -> float:
    """Time to the first chunk, as a multiple of that of the SDK alone: medians of `n`, taken in turns."""

    async def measure(ours: Texts, bare: Texts) -> float:
        took: tuple[list[float], list[float]] = [], []
        for number in range(2 * n + 2):
            began, first = clock(), 0.0
            async for _ in (ours, bare)[number % 2](2):
                first = first or clock()
            if number > 1:
                took[number % 2].append(first - began)
        return median(took[0]) / median(took[1])

    return _with_both(sdk, measure)


def _with_both(sdk: str, measure: Callable[[Texts, Texts], Awaitable[float]]) -> float:
    async def run() -> float:
        with other_process("provider") as port:
            url, cls = _url(sdk, port), OpenAIModel if sdk == "openai" else AnthropicModel
            client, texts = _bare_client(sdk, url)
            async with client, open_node() as node:
                # an SDK leaves generators to the garbage collector after each answer
                warnings.simplefilter("ignore", ResourceWarning)
                model = await node.start(cls, model="m", key=None, url=url, max_tokens=LONG)
                return await measure(partial(texts_of_ours, model), partial(texts, client))

    with warnings.catch_warnings():
        return trio.run(run)


def _bare_client(sdk: str, url: str) -> tuple[Any, Any]:
    if sdk == "openai":
        import openai

        client: Any = openai.AsyncOpenAI(api_key="none", base_url=url)
        client.chat.completions  # noqa: B018 -- imported now
        return client, texts_of_openai
    import anthropic

    client = anthropic.AsyncAnthropic(api_key="none", base_url=url)
    client.messages  # noqa: B018 -- imported now
    return client, texts_of_anthropic


# ---- many at once


class Scripted(Model):
    """Says as many pieces as it is asked for, with a checkpoint before each."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        for _ in range(int(request.messages[-1].text)):  # type: ignore[union-attr]
            await trio.lowlevel.checkpoint()
            yield TextDelta(PIECE)
        yield ModelEnd()


REQUESTS = 1_000


def crowd(n: int) -> float:
    """Chunks a second of 1,000 requests at once, of `n` chunks together."""

    async def run() -> float:
        async with open_node() as node:
            model = await node.start(Scripted, concurrency=REQUESTS)
            each = max(1, n // REQUESTS)

            async def ask() -> None:
                async for _ in texts_of_ours(model, each):
                    pass

            began = clock()
            async with trio.open_nursery() as nursery:
                for _ in range(REQUESTS):
                    nursery.start_soon(ask)
            return each * REQUESTS / (clock() - began)

    return trio.run(run)


def request_memory(n: int) -> float:
    """Bytes a request of `n` that are being answered at once, with the task that waits for each."""

    async def run() -> float:
        async with open_node() as node:
            model = await node.start(Waiting, concurrency=n)
            gc.collect()
            before = resident()
            async with trio.open_nursery() as nursery:
                for _ in range(n):
                    await nursery.start(_ask_and_wait, model)
                found = resident() - before
                nursery.cancel_scope.cancel()
            return found / n

    return trio.run(run)


class Waiting(Model):
    """Says one piece, and no more."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        yield TextDelta(PIECE)
        await trio.sleep_forever()


async def _ask_and_wait(model: Ref[Model], task_status: trio.TaskStatus[None]) -> None:
    async with model.stream(Model.generate, [UserMessage("1")]) as items:
        async for _ in items:
            task_status.started()


# ---- what an import costs


def import_time(code: str, n: int) -> float:
    """Milliseconds of processor time of an import in a fresh process, after lmos_actors; median of `n`."""
    program = (
        "import json, time, lmos_actors\nlmos_actors.open_node\nbegan = time.process_time()\n"
        f"{code}\nprint(json.dumps(time.process_time() - began))"
    )
    took: list[float] = []
    for _ in range(n):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        took.append(1_000 * json.loads(done.stdout))
    return median(took)
