"""`directory serve`, as a process: killed with a client attached, started again, and nothing is missing."""

from __future__ import annotations

import http.client
import json
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.commands import RunningCommand, started
from tests.directory.web import td

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@contextmanager
def served(database: Path) -> Iterator[tuple[RunningCommand, str]]:
    """Run the command; give the process and where it listens."""
    words = ("directory", "serve", "--database", str(database), "--listen", "ws://127.0.0.1:0", "--json")
    with started(words, ROOT, stderr=2) as process:
        try:
            assert process.stdout is not None
            told: dict[str, Any] = {}
            while "ready" not in told:
                event = json.loads(process.stdout.readline())
                told[event["event"]] = event
            yield process, urlsplit(told["listening"]["url"]).netloc
        finally:
            process.kill()


def put(place: str, id: str) -> None:
    connection = http.client.HTTPConnection(place, timeout=20)
    body, headers = json.dumps(td(id)), {"Content-Type": "application/td+json"}
    connection.request("PUT", f"/things/{id}", body, headers)
    assert connection.getresponse().status == 201
    connection.close()


def events(place: str, last: str | None = None) -> tuple[Any, http.client.HTTPConnection]:
    """Attach a client."""
    connection = http.client.HTTPConnection(place, timeout=20)
    connection.request("GET", "/events", headers={} if last is None else {"Last-Event-ID": last})
    return connection.getresponse(), connection


def next_event(stream: Any) -> tuple[str, str]:
    """Give the data and the id of the next event."""
    data = ""
    while True:
        line = stream.readline().decode().strip()
        name, _, value = line.partition(": ")
        if name == "data":
            data = value
        elif name == "id" and data:
            return data, value


@pytest.mark.slow
def test_a_client_that_was_attached_when_it_was_killed_misses_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "directory.db") as (process, place):
        stream, connection = events(place)
        put(place, "urn:1")
        data, last = next_event(stream)
        assert json.loads(data) == {"id": "urn:1"}
        put(place, "urn:2")
        process.send_signal(signal.SIGKILL)
        process.wait()
        connection.close()
        stream.close()
    with served(tmp_path / "directory.db") as (process, place):
        put(place, "urn:3")
        stream, connection = events(place, last)
        assert [json.loads(next_event(stream)[0])["id"] for _ in range(2)] == ["urn:2", "urn:3"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, "whoever listens does not hold up the end"
        assert stream.read().strip() in (b"", b":")
        stream.close()
        connection.close()
