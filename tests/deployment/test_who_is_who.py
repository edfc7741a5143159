"""Real processes of a deployment: they alone say in its directories where agents with a key are."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import trio

from lmos_actors import (
    Agent,
    AgentDied,
    AgentError,
    AgentUnavailable,
    ChildSpec,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.processes import (
    Launcher,
    LocalPlace,
    LogFiles,
    UnixNetwork,
    controls_of,
    open_launcher,
)
from lmos_actors.discovery import Registration
from lmos_actors.errors import StoreInUse
from lmos_actors.security import TOKEN_VARIABLE, SharedToken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

AGENTS = """
import os
from lmos_actors import Agent, action


class Till(Agent, durable=True):
    sold: int = 0

    @action
    def sell(self) -> int:
        self.sold += 1
        return self.sold

    @action(safe=True)
    def read_environment(self) -> list[str]:
        return list(os.environ)
"""

DEPLOYMENT = """
lmos: deployment/v1
name: shop
agents:
  till: {from: agent, use: "shop.py:Till", key: main}
groups:
  registry: {directory: true}
  guarded: {directory: true, security: rules.yaml}
  till:
    agents: [till]
    register: [registry, guarded]
    store: "sqlite:till.db"
"""

RULES = """
schemes:
  - {scheme: bearer, tokens: {ann: "env:ANN"}}
access:
  directory: {read: anyone, write: [ann]}
"""

ANN = "a-token-of-ann-that-is-long-enough"
MODULES = ("lmos_actors.cli.commands._serve", "lmos_actors.cli.serve._group", "lmos_actors.discovery")
WAIT = 50.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")]


class Till(Agent, durable=True):
    """The same, as it is known here."""

    sold: int = 0

    @action
    def sell(self) -> int:
        return -1

    @action(safe=True)
    def read_environment(self) -> list[str]:
        return []


@pytest.fixture(autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    monkeypatch.setenv("ANN", ANN)


@asynccontextmanager
async def launched(folder: Path) -> AsyncGenerator[Launcher]:
    """Run the deployment, and leave no process."""
    for name, text in (("shop.py", AGENTS), ("shop.yaml", DEPLOYMENT), ("rules.yaml", RULES)):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    controls = controls_of(str(folder / "shop.yaml"))
    plan = launch_plan(load_deployment(controls.file, classes=False).deployment, controls.file)
    lock, place, logs = controls.prepare(), LocalPlace(controls.records, MODULES), LogFiles(controls.logs)
    try:
        launcher = Launcher(plan, place, logs, token=controls.token())
        async with open_launcher(launcher, UnixNetwork(controls.socket)):
            await launcher.wait_ready()
            yield launcher
    finally:
        await place.aclose()
        controls.remove()
        lock.release()


async def asked(method: str, url: str, body: Any = None, **headers: str) -> int:
    """Ask as any program of this machine can; return the status."""

    def ask() -> int:
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/td+json"
        request = urllib.request.Request(url, data, {"Content-Type": kind, **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    return await trio.to_thread.run_sync(ask)


async def test_a_stranger_changes_nothing_and_a_restarted_process_does(tmp_path: Path) -> None:
    with trio.fail_after(WAIT):
        async with launched(tmp_path) as launcher:
            token = controls_of(str(tmp_path / "shop.yaml")).token()
            places = [launcher.groups[name].address for name in ("registry", "guarded")]
            async with open_node(lookup=places[0]) as node:
                till = node.find(Till, id="main")
                assert await till.invoke(Till.sell) == 1
                assert TOKEN_VARIABLE not in await till.invoke(Till.read_environment)
                for number, place in enumerate(places):
                    (entry,) = await node.search(Till, directory=place)
                    assert entry.key == "main"
                    await attacked(place, str(entry.id), guarded=number == 1)
                await forged(places)
                assert await node.find(Till, id="main").invoke(Till.sell) == 2

                (replica,) = launcher.groups["till"].status().replicas
                assert replica.pid is not None
                os.kill(replica.pid, signal.SIGKILL)
                assert await till.retrying(attempts=None).invoke(Till.sell) == 3
                for place in places:
                    assert 2 in [each.epoch for each in await node.search(Till, directory=place)]

            pids = [each.pid for group in launcher.status().groups for each in group.replicas]
            commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]  # noqa: ASYNC240 -- in memory
            assert not any(token.encode() in words for words in commands)
            assert token not in repr(launcher.status()) + repr(list(launcher.groups.values()))
        for file in (tmp_path / ".lmos").rglob("*"):
            assert not file.is_file() or token.encode() not in file.read_bytes()


async def test_what_a_stopped_process_does_after_another_has_taken_its_store_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGSTOP and SIGCONT, with a request that it has got and not begun.

    Its lock keeps others from its store. Here somebody removes the lock, and runs the agent elsewhere.
    """
    with trio.fail_after(WAIT):
        async with launched(tmp_path) as launcher:
            token = controls_of(str(tmp_path / "shop.yaml")).token()
            place, store = launcher.groups["registry"].address, tmp_path / "till.db"
            monkeypatch.syspath_prepend(tmp_path)
            taken: type[Any] = import_module("shop").Till  # the store names the module
            tree = SupervisorSpec("root", (ChildSpec("till", taken, key="main"),))
            register = Registration(place, token=SharedToken(token.encode(), [place]))
            (replica,) = launcher.groups["till"].status().replicas
            assert replica.pid is not None
            async with open_node(lookup=place) as node, trio.open_nursery() as nursery:
                till = node.find(Till, id="main")
                old = await node.consume(Till, f"{replica.urls[0].replace('ws', 'http', 1)}/agents/till")
                assert await old.invoke(Till.sell) == 1
                os.kill(replica.pid, signal.SIGSTOP)
                try:
                    outcome: list[object] = []

                    async def sell_there() -> None:
                        try:
                            outcome.append(await old.invoke(Till.sell))
                        except AgentError as error:
                            outcome.append(error)

                    nursery.start_soon(sell_there)
                    with pytest.raises(StoreInUse, match=f"process {replica.pid} has it open"):
                        async with open_node(tree, store=f"sqlite:{store}"):
                            pass
                    os.unlink(f"{store}-lock")
                    async with open_node(
                        tree, listen="ws://127.0.0.1:0", register=register, store=f"sqlite:{store}"
                    ) as other:
                        while not other.registrations[0].agents:  # noqa: ASYNC110 -- registrars wake nobody
                            await trio.sleep(0.02)
                        assert await till.invoke(Till.sell) == 2, "where the newest lease is"
                        os.kill(replica.pid, signal.SIGCONT)
                        while not outcome:  # noqa: ASYNC110
                            await trio.sleep(0.02)
                        assert isinstance(outcome[0], AgentDied)
                        assert "another writer has opened it since" in str(outcome[0])
                        with pytest.raises(AgentUnavailable):
                            await old.invoke(Till.sell)
                        assert await till.invoke(Till.sell) == 3
                finally:
                    with suppress(ProcessLookupError):  # its launcher may have ended it for not being ready
                        os.kill(replica.pid, signal.SIGKILL)
                assert await till.retrying(attempts=None).invoke(Till.sell) == 4, "by the next process"


async def attacked(place: str, id: str, *, guarded: bool) -> None:
    """Try to change an entry, as who knows nothing, something wrong, or a token of the file of rules."""
    url = f"{place}/things/{quote(id, safe='')}"
    td = {
        "@context": "https://www.w3.org/2022/wot/td/v1.1",
        "id": id,
        "title": "Till",
        "security": "nosec_sc",
        "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}},
        "lmosx:lease": {"key": "main", "epoch": 999},
    }
    shown = [{}, {"Authorization": f"Bearer {'0' * 64}"}, {"Authorization": f"Bearer {ANN}"}]
    refused = [401, 401, 403] if guarded else [403, 403, 403]
    for headers, status in zip(shown, refused, strict=True):
        for method, body in (("PUT", td), ("PATCH", {}), ("PATCH", {"title": "Other"}), ("DELETE", None)):
            assert await asked(method, url, body, **headers) == status
        other = {**td, "id": "urn:x:other"}
        assert await asked("PUT", f"{place}/things/urn:x:other", other, **headers) == status


async def forged(places: list[str]) -> None:
    """Have a node of a stranger register an agent of the same key."""
    tree = SupervisorSpec("root", (ChildSpec("till", Till, key="main"),))
    async with open_node(tree, listen="ws://127.0.0.1:0", register=places, store="memory:") as node:
        while not all(each.refused for each in node.registrations):  # noqa: ASYNC110 -- registrars wake nobody
            await trio.sleep(0.02)
