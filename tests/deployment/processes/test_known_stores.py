"""Deployments whose Redis server is away, or comes back empty: they go on, or say that state is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.deployment.processes import KnownStores
from lmos_actors.errors import ConfigError
from tests.commands import called, started
from tests.redis_server import RedisServer, needs_redis

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.commands import RunningCommand

COUNTERS = '''
from lmos_actors import Agent, action


class Counter(Agent, durable=True):
    """Counts."""

    total: int = 0

    @action
    def add(self) -> int:
        self.total += 1
        return self.total
'''

SHOP = """
lmos: deployment/v1
name: shop
agents:
  counter: {from: agent, use: "counters.py:Counter", key: main}
groups:
  counters: {agents: [counter], store: "STORE", max_restarts: 1}
launcher: {max_restarts: 0}
"""

PATIENT = "max_restarts: 100, backoff: {initial: 0.5s, max: 1s}}"

WAIT = 40.0
KNOWN = Path(".lmos/shop/stores")


@pytest.fixture
def server(tmp_path: Path) -> Generator[RedisServer]:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis", "--appendfsync", "always")
    yield server
    server.kill()


@pytest.fixture
def project(
    tmp_path: Path,
    server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a folder with a deployment of one durable agent."""
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "counters.py").write_text(COUNTERS, encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(SHOP.replace("STORE", server.url("shop")), encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    return tmp_path


def emptied(server: RedisServer) -> None:
    """End a server, and start it without what it has kept."""
    server.kill()
    for entry in server.folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    server.start()


def until(command: RunningCommand, **wanted: Any) -> dict[str, Any]:
    """Read on until an event is printed, and return it."""
    assert command.stdout is not None
    for line in command.stdout:
        found: dict[str, Any] = json.loads(line)
        if wanted.items() <= found.items():
            return found
    raise AssertionError(f"no {wanted}: {command.communicate(WAIT)[1]}")


def added(project: Path, url: str) -> int:
    """Add one, and return the total; while the lease of a killed process lasts, or it starts, try again."""
    words = ["call", f"{url.replace('ws://', 'http://')}/agents/counter", "add"]
    end = time.monotonic() + WAIT
    while (call := called(words, project, timeout=WAIT)).returncode:
        assert any(why in call.stderr for why in ("holds the lease", "is unavailable: starting")), call.stderr
        assert time.monotonic() < end
    total: int = json.loads(call.stdout)["output"]
    return total


@needs_redis
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_state_that_is_lost_is_not_started_over_in_silence(project: Path, server: RedisServer) -> None:
    with started(["up", "shop.yaml"], project) as first:
        ready = until(first, event="process", state="ready")
        assert added(project, ready["urls"][0]) == 1
        emptied(server)  # under what runs: its processes end, and are not started over by the launcher
        _, errors = first.communicate(WAIT)
        assert first.returncode == 3
        assert "and nothing is there, as on an emptied server" in errors
        assert "up FILE --new-stores" in errors
    again = called(["up", "shop.yaml"], project, timeout=WAIT)  # and neither by the next one
    assert again.returncode == 3
    assert "and nothing is there, as on an emptied server" in again.stderr
    assert b"version" not in server.send("HGETALL", "{shop}:meta"), "nothing was made there"

    with started(["up", "shop.yaml", "--new-stores"], project) as anew:
        ready = until(anew, event="process", state="ready")
        assert added(project, ready["urls"][0]) == 1
        refused = called(["up", "shop.yaml", "--new-stores"], project, timeout=WAIT)
        assert refused.returncode == 2
        assert "end this one by `down` first" in refused.stderr
        assert called(["down"], project, timeout=WAIT).returncode == 0
        anew.communicate(WAIT)
    with started(["up", "shop.yaml"], project) as last:
        ready = until(last, event="process", state="ready")
        assert added(project, ready["urls"][0]) == 2
        assert called(["down"], project, timeout=WAIT).returncode == 0
        last.communicate(WAIT)


@needs_redis
@pytest.mark.slow
def test_another_server_at_the_address_is_refused(project: Path, server: RedisServer) -> None:
    with started(["up", "shop.yaml"], project) as first:
        until(first, event="process", state="ready")
        assert called(["down"], project, timeout=WAIT).returncode == 0
        first.communicate(WAIT)
    (name,) = json.loads((project / KNOWN).read_text(encoding="utf-8"))
    (project / KNOWN).write_text(json.dumps({name: "0123456789abcdef"}), encoding="utf-8")
    again = called(["up", "shop.yaml"], project, timeout=WAIT)
    assert again.returncode == 3
    assert "the store 0123456789abcdef, and it is another store" in again.stderr
    (project / KNOWN).write_text("{broken", encoding="utf-8")
    broken = called(["up", "shop.yaml"], project, timeout=WAIT)
    assert broken.returncode == 2
    assert "--new-stores forgets them" in broken.stderr


@needs_redis
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_deployment_with_pauses_rides_out_a_server_that_is_away(project: Path, server: RedisServer) -> None:
    """A process that is killed meanwhile cannot start either, as it finds no store."""
    text = SHOP.replace("STORE", server.url("shop")).replace("max_restarts: 1}", PATIENT)
    (project / "shop.yaml").write_text(text, encoding="utf-8")
    with started(["up", "shop.yaml"], project) as running:
        ready = until(running, event="process", state="ready")
        assert added(project, ready["urls"][0]) == 1
        server.kill()
        os.kill(pid_of(project), signal.SIGKILL)
        for _ in range(4):  # beyond the usual limit of restarts
            why = until(running, event="process", state="restarting")["why"]
        assert "it cannot be reached" in why
        server.start()
        ready = until(running, event="process", state="ready")
        assert added(project, ready["urls"][0]) == 2
        assert called(["down"], project, timeout=WAIT).returncode == 0
        running.communicate(WAIT)


def pid_of(project: Path) -> int:
    """Return the process of the group."""
    shown = called(["status", "shop.yaml", "--json"], project, timeout=WAIT)
    pid: int = json.loads(shown.stdout)["groups"]["counters"]["replicas"][0]["pid"]
    return pid


def test_known_stores_are_kept(tmp_path: Path) -> None:
    warnings: list[str] = []
    known = KnownStores(tmp_path / "stores", warnings.append)
    assert known.id_of("a") is None
    known.note("a", "1")
    known.note("b", "2")
    known.note("a", "3")
    again = KnownStores(tmp_path / "stores")
    assert (again.id_of("a"), again.id_of("b"), again.id_of("c")) == ("1", "2", None)
    assert warnings == []


def test_known_stores_of_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    warnings: list[str] = []
    known = KnownStores(tmp_path / "none" / "stores", warnings.append)
    known.note("a", "1")
    assert known.id_of("a") == "1"
    assert ["will not notice if a store is lost" in each for each in warnings] == [True]
    os.mkdir(tmp_path / "stores")
    with pytest.raises(ConfigError, match="--new-stores forgets them"):
        KnownStores(tmp_path / "stores")
