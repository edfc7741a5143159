"""Recorded answers over HTTP that are more than one value: streams of items, of values, of events; runs."""

from __future__ import annotations

import http.client
import json
import signal
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.recording.test_record import PATIENCE, call, ended, recording, records, serving

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

AGENTS = '''
from collections.abc import AsyncIterator

import trio

from lmos_actors import ActionFailed, Agent, Event, Property, Secret, action, event, prop


class Store(Agent):
    """Holds goods."""

    stock: Property[int] = prop(default=10)
    sold: Event[int] = event()

    @action
    def take(self, count: int) -> int:
        """Take goods out."""
        self.stock -= count
        self.sold.emit(count)
        return self.stock

    @action
    async def rows(self, count: int, word: Secret[str] = "") -> AsyncIterator[Secret[str]]:
        """Yield words that are secret."""
        for number in range(count):
            yield f"{word}{number}"
        if word == "bad":
            raise ActionFailed({"code": "WORN", "message": "no more"})

    @action
    async def numbers(self, count: int) -> AsyncIterator[int]:
        """Yield numbers."""
        for number in range(count):
            yield number

    @action
    async def endless(self) -> AsyncIterator[int]:
        """Yield one number, and no more."""
        yield 1
        await trio.sleep_forever()

    @action(synchronous=False)
    async def bake(self, cakes: int) -> str:
        """Bake for a while."""
        await trio.sleep(0.2)
        if cakes > 5:
            raise ActionFailed({"code": "OVEN", "message": "too many"})
        return f"{cakes} baked"

    @action(synchronous=False)
    async def rest(self) -> None:
        """Do nothing for ever."""
        await trio.sleep_forever()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "things.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


@contextmanager
def asked(
    url: str, method: str, data: Any = None, accept: str = "*/*"
) -> Generator[http.client.HTTPResponse]:
    """Ask for something, and yield the answer, whose connection is closed at the end."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", "Accept": accept, "Authorization": "Bearer t0psecret-b"}
    try:
        connection.request(method, parts.path, None if data is None else json.dumps(data), headers)
        yield connection.getresponse()
    finally:
        connection.close()


def answer(url: str, method: str, data: Any = None, accept: str = "*/*") -> bytes:
    with asked(url, method, data, accept) as found:
        return found.read()


def until(found: http.client.HTTPResponse, part: bytes) -> None:
    text = b""
    while part not in text:
        text += found.read1(1)


def run_at(url: str, data: Any, last: str | None) -> list[str]:
    """Begin a run, and return what its status was at each query, up to the last."""
    with asked(url, "POST", data) as found:
        assert found.status == 201
        place = found.headers["Location"]
    place = place if place.startswith("http") else url.partition("/agents/")[0] + place
    seen: list[str] = []
    while last is not None and last not in seen:
        seen.append(json.loads(answer(place, "GET"))["status"])
    if last is None:
        answer(place, "DELETE")
    return seen


@pytest.mark.slow
def test_streams_and_runs_over_http_are_played_again(folder: Path) -> None:
    with (
        serving(folder, "serve", "store=things.py:Store") as server,
        recording(folder, f"http://{server}/agents/store") as (process, url),
    ):
        answer(url, "GET")
        actions, events = f"{url}/actions", "text/event-stream"
        with (
            asked(f"{url}/properties/stock/observable", "GET", accept=events) as stock,
            asked(f"{url}/events/sold", "GET", accept=events) as sold,
            asked(f"{url}/events/sold", "GET", accept=events) as sold_too,
        ):
            until(stock, b"data: 10\n\n")
            assert answer(f"{actions}/take", "POST", {"count": 3}) == b"7"
            until(stock, b"data: 7\n\n")
            until(sold, b"data: 3\n\n")
            until(sold_too, b"data: 3\n\n")
        assert answer(f"{actions}/numbers", "POST", {"count": 2}, events).count(b"event: item") == 2
        assert answer(f"{actions}/numbers", "POST", {"count": 3}, "application/x-ndjson") == b"0\n1\n2\n"
        answer(f"{actions}/rows", "POST", {"count": 1, "word": "hunter22"}, events)
        answer(f"{actions}/rows", "POST", {"count": 2, "word": "bad"}, "application/x-ndjson")
        with asked(f"{actions}/endless", "POST", None, events) as found:
            until(found, b"data: 1\n\n")
        assert run_at(f"{actions}/bake", {"cakes": 2}, "completed")
        assert run_at(f"{actions}/bake", {"cakes": 9}, "failed")
        run_at(f"{actions}/rest", None, None)
        code, out, err = ended(process, signal.SIGTERM)
    assert (code, err) == (0, ""), out
    assert "not understood" not in out
    path = folder / "log.jsonl"
    text = path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "hunter22" not in text
    assert "t0psecret" not in text
    sent = {data["id"]: data for data in records(folder) if data.get("kind") == "sent"}
    ends = {
        data["id"]: (data["kind"], data.get("value"), data.get("output"))
        for data in records(folder)
        if data.get("kind") in ("answered", "cancelled")
    }
    items: dict[int, list[Any]] = {number: [] for number in sent}
    for data in records(folder):
        if data.get("kind") == "item":
            items[data["id"]].append(data["value"])
    found_all = [(each["affordance"], items[number], ends.get(number)) for number, each in sent.items()]
    oven = {"code": "OVEN", "message": "too many"}
    assert found_all == [
        ("stock", [], ("answered", 10, None)),
        ("sold", [], ("answered", None, None)),
        ("sold", [], ("answered", None, None)),
        ("take", [], ("answered", 7, None)),
        ("numbers", [0, 1], ("answered", None, None)),
        ("numbers", [0, 1, 2], ("answered", None, None)),
        ("rows", ["***"], ("answered", None, None)),
        ("rows", ["***", "***"], ("answered", None, "***")),
        ("endless", [1], ("cancelled", None, None)),
        ("bake", [], ("answered", "2 baked", None)),
        ("bake", [], ("answered", None, oven)),
        ("rest", [], ("cancelled", None, None)),
    ]
    assert [data["data"] for data in records(folder) if data.get("kind") == "event"] == [3]
    assert [data["value"] for data in records(folder) if data.get("kind") == "changed"] == [7]
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")
    assert code == 0, said
    code, said = call(folder, "run", "recorded.yaml")
    assert code == 0, said + (folder / "recorded.yaml").read_text(encoding="utf-8")
