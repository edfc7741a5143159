"""What every place does with processes: one table of behaviours over this machine and a cluster of Ray."""

from __future__ import annotations

import json
import re
import sys
from contextlib import aclosing, asynccontextmanager, nullcontext
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.cli import main
from lmos_actors.deployment.files import launch_plan, load_deployment
from lmos_actors.deployment.processes import LineSplitter, LocalPlace, Order, RayPlace
from lmos_actors.errors import ConfigError, StartFailed
from tests.ray_cluster import cluster, needs_ray

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from pathlib import Path

    from lmos_actors.deployment.processes import Place, Process

FILE = """
lmos: deployment/v1
name: {name}
agents:
  weather: {{from: agent, use: "weather.py:Weather"}}
groups:
  registry: {{agents: [weather]}}
"""

AGENT = """
from lmos_actors import Agent


class Weather(Agent):
    pass
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
    ),
]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with cluster(2) as running:
        yield running


@pytest.fixture(scope="module")
def ray_of_two() -> Iterator[Any]:
    with cluster(2, 2) as running:
        yield running


KINDS = ["local", *(pytest.param(kind, marks=[needs_ray, pytest.mark.matrix]) for kind in ("ray", "ray://"))]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return made(request.param, request, tmp_path)


def made(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    """Return a place for the deployment in a folder."""
    name = folder.name.replace("_", "-")
    file = folder / "desk.yaml"
    (folder / "weather.py").write_text(AGENT, encoding="utf-8")
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    file.write_text(FILE.format(name=name), encoding="utf-8")
    if kind == "local":
        return LocalPlace(folder / "records")
    ray = request.getfixturevalue("ray")
    return RayPlace(ray.address if kind == "ray" else ray.outside, folder, file, name, command=main)


def order(folder: Path, *words: str) -> Order:
    """Return the order for the group of the file."""
    words = words or ("serve", str(folder / "desk.yaml"), "--group", "registry", "--launched")
    return Order(name="registry/1", arguments=words)


class Seen:
    """What a process has printed."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.errors = ""
        self.changed = trio.Event()
        self.has_ended = False

    async def read(self) -> None:
        splitter = LineSplitter()
        async with aclosing(self.process.output()) as pieces:
            async for piece in pieces:
                self.lines += splitter.lines(piece)
                self.changed.set()
                self.changed = trio.Event()
        self.has_ended = True
        self.changed.set()

    async def read_errors(self) -> None:
        async with aclosing(self.process.errors()) as pieces:
            async for piece in pieces:
                self.errors += piece.decode()

    async def event(self, name: str) -> dict[str, Any]:
        """Wait for an event."""
        while True:
            for line in self.lines:
                if json.loads(line)["event"] == name:
                    return dict(json.loads(line))
            assert not self.has_ended, self.errors
            await self.changed.wait()


@asynccontextmanager
async def started(place: Place, order: Order) -> AsyncGenerator[Seen]:
    """Run a process, which has to end inside the block, with all that it prints."""
    process = await place.start(order)
    seen = Seen(process)
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seen.read)
            nursery.start_soon(seen.read_errors)
            try:
                yield seen
            except BaseException:
                process.kill()
                raise


async def test_a_process_says_where_it_is_and_drains(place: Place, tmp_path: Path) -> None:
    async with place.opened():
        assert list(await place.left()) == []
        async with started(place, order(tmp_path)) as seen:
            assert (await seen.event("listening"))["url"].startswith("ws://")
            await seen.event("ready")
            seen.process.stop()
            seen.process.stop()
            assert await seen.process.wait() == 0
            seen.process.stop()
            seen.process.kill()
        assert [json.loads(line)["event"] for line in seen.lines][-2:] == ["draining", "stopped"]


async def test_a_process_is_killed(place: Place, tmp_path: Path) -> None:
    async with place.opened(), started(place, order(tmp_path)) as seen:
        await seen.event("ready")
        seen.process.kill()
        assert await seen.process.wait() in (-9, None)


async def test_a_process_ends_by_itself(place: Place, tmp_path: Path) -> None:
    words = ("serve", str(tmp_path / "desk.yaml"), "--group", "registr", "--launched")
    async with place.opened(), started(place, order(tmp_path, *words)) as seen:
        assert await seen.process.wait() == 2
    assert 'no group "registr", did you mean "registry"?' in seen.errors


async def test_what_comes_with_an_order_is_there(place: Place, tmp_path: Path) -> None:
    """The copy of the file, which is not in the project."""
    copies = tmp_path.parent / f"{tmp_path.name}-copies"
    copies.mkdir()
    (copies / "copy.yaml").write_text(
        FILE.format(name="copied").replace("registry", "other"), encoding="utf-8"
    )
    words = ("serve", str(tmp_path / "desk.yaml"), "--group", "other", "--launched", "--snapshot",
             str(copies / "copy.yaml"))  # fmt: skip
    async with place.opened(), started(place, order(tmp_path, *words)) as seen:
        await seen.event("ready")
        seen.process.stop()
        assert await seen.process.wait() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_the_next_launcher_waits_for_what_is_left(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    first, second = (made(kind, request, tmp_path) for _ in range(2))
    async with first.opened():
        process = await first.start(order(tmp_path))
        seen = Seen(process)
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(seen.read)
                await seen.event("ready")
                nursery.cancel_scope.cancel()
    async with second.opened():
        assert len(await second.left()) == 1
        await second.wait_left(0.0)
        assert list(await second.left()) == []


@needs_ray
@pytest.mark.matrix
async def test_a_cluster_has_one_launcher_of_a_name(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with made("ray", request, tmp_path).opened():
        done = await trio.run_process(
            [sys.executable, "-c", OTHER, request.getfixturevalue("ray").address, str(tmp_path)],
            capture_stdout=True,
            check=False,
        )
        assert b"AlreadyRunning" in done.stdout


@needs_ray
@pytest.mark.matrix
async def test_a_cluster_without_room(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    address = request.getfixturevalue("ray").address
    place = RayPlace(address, tmp_path, tmp_path / "desk.yaml", "crowded", command=main, placed=2.0)
    missing = (
        r"no room for 2 s: it wants 64 processors of one machine \(`limits`\); the largest has 2, and 2 are"
    )
    async with place.opened():
        with pytest.raises(StartFailed, match=missing):
            await place.start(Order(name="a/1", arguments=("serve",), processors=64))
        assert list(await place.left()) == []


@needs_ray
@pytest.mark.matrix
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
@pytest.mark.parametrize("is_variable", [False, True])
async def test_no_cluster_at_an_address(
    address: str, is_variable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address if is_variable else "")
    named = "auto" if is_variable else address
    place = RayPlace(named, tmp_path, tmp_path / "desk.yaml", "desk", command=main)
    with pytest.raises(
        ConfigError, match=f"no Ray answers at '{address}' .*: start it by `ray start --head`"
    ):
        async with place.opened():
            pass


def test_ray_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'lmos-actors[ray]'")):
        RayPlace("auto", tmp_path, tmp_path / "desk.yaml", "desk", command=main)


@needs_ray
@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["ray", "ray://"])
async def test_another_version_of_ray(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own check, as it comes out where this process says that it has another version."""
    with monkeypatch.context() as patch:
        place = made(kind, request, tmp_path)
        patch.setattr("ray.__version__", "2.0.0")
        with pytest.raises(ConfigError, match=r"ersion mismatch.* Ray: 2\.0\.0 .*: install the same version"):
            async with place.opened():
                pass
    # a client of `ray://` that could not connect does not take the calls of the next place
    async with made("ray", request, tmp_path).opened():
        pass


@needs_ray
@pytest.mark.matrix
@pytest.mark.parametrize("failures", [2, 3])
async def test_a_client_that_ray_could_not_start_is_started_again(
    failures: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, left = import_module("ray"), [ConnectionError("Starting Ray client server failed.")] * failures
    init = ray.init

    def init_at_last(**options: Any) -> None:
        if left:
            raise left.pop()
        init(**options)

    monkeypatch.setattr(ray, "init", init_at_last)
    place = made("ray", request, tmp_path)
    refused = pytest.raises(ConfigError, match=r"no Ray answers at .*server failed")
    with refused if failures == 3 else nullcontext():
        async with place.opened():
            assert list(await place.left()) == []
    assert not left


@needs_ray
@pytest.mark.matrix
async def test_another_version_of_the_package_on_a_worker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = made("ray", request, tmp_path)
    async with place.opened():
        monkeypatch.setattr(metadata, "version", lambda _: "99.0")
        with pytest.raises(StartFailed, match=r"the launcher has 99\.0: install the same version on all"):
            await place.start(order(tmp_path))
        with trio.fail_after(20):  # it is ended aside
            while await place.left():  # noqa: ASYNC110 -- Ray tells nobody
                await trio.sleep(0.05)


@needs_ray
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("key", "value", "refusal"),
    [
        ("listen", "ws://127.0.0.1:7000", 'listens at "ws://127.0.0.1:7000", which no other machine reaches'),
        ("store", "sqlite:kept.db", "keeps its state in a file of one machine"),
        ("directory", "names.db", "keeps its directory in a file of one machine"),
    ],
)
async def test_a_group_of_one_machine_is_refused_on_several(
    key: str, value: str, refusal: str, tmp_path: Path, ray_of_two: Any
) -> None:
    group = {"listen": "ws://0.0.0.0:0", "insecure": True, "agents": ["weather"], key: value}
    file = tmp_path / "desk.json"
    agents = {"weather": {"from": "agent", "use": "weather.py:Weather"}}
    (tmp_path / "weather.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    text = {"lmos": "deployment/v1", "name": "desk", "agents": agents, "groups": {"desk": group}}
    file.write_text(json.dumps(text), encoding="utf-8")
    plan = launch_plan(load_deployment(str(file), classes=False).deployment, str(file))
    place = RayPlace(ray_of_two.address, tmp_path, file, "desk", command=main)
    async with place.opened():
        with pytest.raises(ConfigError, match=f'the group "desk" {refusal}.*and Ray runs it on any machine'):
            place.check(plan)


OTHER = """
import sys, trio
from pathlib import Path
from lmos_actors.cli import main as command
from lmos_actors.deployment.processes import RayPlace
async def main():
    folder = Path(sys.argv[2])
    name = folder.name.replace("_", "-")
    place = RayPlace(sys.argv[1], folder, folder / "desk.yaml", name, command=command, gone=1.0)
    try:
        async with place.opened():
            print("opened")
    except Exception as error:
        print(type(error).__name__, error)
trio.run(main)
"""
