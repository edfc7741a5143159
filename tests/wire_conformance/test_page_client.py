"""A consumer in 60 lines, written from the page of the extensions alone, talks with an agent of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trio

from lmos_actors import Agent, action, open_node
from tests.wire_conformance import page_client


class Mirror(Agent):
    @action
    async def reverse(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in parts:
            yield part[::-1]

    @action
    async def refuse(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        yield await anext(parts)
        raise KeyError("bug")


def test_it_has_60_lines_at_most_and_nothing_of_ours() -> None:
    text = Path(page_client.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert "lmos_actors." not in text


async def test_a_consumer_in_60_lines_streams_both_ways() -> None:
    talk: Any = page_client.talk
    parts = [number.to_bytes(2, "big") * (1 + 997 * number % 40_000) for number in range(200)]
    with trio.fail_after(30):
        async with open_node(listen="ws://127.0.0.1:0") as node:
            await node.start(Mirror)
            url = f"{node.urls[0]}/ws"
            answers, final = await talk(url, "mirror", "reverse", "parts", parts)
            assert final["status"] == "completed"
            assert answers == [part[::-1] for part in parts]
            answers, final = await talk(url, "mirror", "refuse", "parts", parts)
            assert answers == [parts[0]]
            assert final["type"] == "urn:lmos-actors:errors#agent-died"
