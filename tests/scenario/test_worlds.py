"""The shipped files in every world: the same file has the same verdict near, over frames and over sockets."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.matrix import few_or_all, slow, some
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmos_actors.reports import RunResult

FILES = sorted({*(ROOT / "scenarios").glob("*.yaml")} - {*(ROOT / "scenarios").glob("*.deployment.yaml")})

NOT_OVER_A_WIRE = {
    "backpressure": "a one-way message that the agent afar refuses or drops is a dead letter of its sender",
}
NOT_IN_REAL_TIME = NOT_OVER_A_WIRE | {
    "market": "both sides' books are compared while the message of a deal is under way between them",
    "bank": "its node and its disk are simulated",
    "desk": "its network is simulated; as processes it is in test_processes.py",
    "directory": "its network is simulated",
    "election": "its network is simulated",
    "gossip": "its network is simulated",
    "partner": "its network is simulated",
    "register": "its network is simulated",
    "two-centres": "its network is simulated",
}

PEERS = few_or_all(40, 100)  # one in twenty crashes: `lives` counts those by whole numbers
WIRE = {
    "gossip": {
        "peers": str(PEERS),
        "last": f"peer/{PEERS - 1}",
        "lives": str(PEERS + PEERS // 20),
        "delivery": "stream",
    }
}
"""Settings that make a run shorter, or possible over a wire."""

LIVE: dict[str, tuple[float, dict[str, str]]] = {
    "backpressure": (2.0, {"policy": "wait"}),
    "booking": (10_000.0, {"patience": "2300s"}),
    "council": (1.0, {}),  # the deadlines of votes are instants of the day
    "supervision": (100.0, {"aside": "1s", "after": "1s"}),
}
"""How much faster than real time a file is run, and settings for what is only exact on virtual time.

With any speed but 1 time stands still while somebody has something to do: no verdict depends on the machine.
"""


# the files that are left are run over the same wire, and these in memory by test_shipped.py
LONG_OVER_A_WIRE = ("gossip", "register", "bank", "election", "two-centres", "market", "helpdesk", "voting")


def runs(name: str, world: str, settings: dict[str, str], speed: float = 1.0) -> list[RunResult]:
    """Run the first seed of each cell."""
    file = ROOT / "scenarios" / f"{name}.yaml"
    resolved = load_scenario(file, settings={"world": world, **settings})
    first = [cell for cell in resolved.cells if cell.seed == resolved.cells[0].seed]
    return [run_cell(resolved, cell, 1, speed=speed, whole_log=False) for cell in first]


@cache
def near_runs(name: str, **settings: str) -> list[RunResult]:
    """Run the first seed of each cell in memory."""
    return runs(name, "memory", settings)


def verdicts(results: list[RunResult]) -> list[Any]:
    return [(run.ended, [(check.name, check.ok) for check in run.judged], run.failures) for run in results]


@pytest.mark.parametrize(
    "name",
    some(slow([file.stem for file in FILES if file.stem not in NOT_OVER_A_WIRE], LONG_OVER_A_WIRE), of=2),
)
def test_the_verdict_is_the_same_over_simulated_streams(name: str) -> None:
    """That each of them passes in memory, with all its checks, is shown by `test_shipped`."""
    for run in runs(name, "wire", WIRE.get(name, {})):
        assert (run.ended, run.failures, run.ok) == ("passed", (), True)
        assert run.checks_passed == run.checks > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.stem for file in FILES if file.stem not in NOT_IN_REAL_TIME])
def test_the_verdict_is_the_same_over_sockets(name: str) -> None:
    speed, settings = LIVE.get(name, (100.0, {}))
    near, far = near_runs(name, **settings), runs(name, "websocket", settings, speed)
    assert verdicts(far) == verdicts(near)
    assert all(run.ok and run.real_time for run in far)


@pytest.mark.parametrize("name", sorted(NOT_IN_REAL_TIME))
def test_each_exception_is_a_file(name: str) -> None:
    assert (ROOT / "scenarios" / f"{name}.yaml") in FILES


@pytest.mark.parametrize("world", ["wire", "websocket"])
def test_a_full_mailbox_holds_senders_back_over_a_wire_too(world: str) -> None:
    """A request would be refused while the mailbox is full, so the file reads what has come to an end."""
    speed, settings = LIVE["backpressure"]
    near = runs("backpressure", "memory", settings)
    far = runs("backpressure", world, settings, speed if world == "websocket" else 1.0)
    assert verdicts(far) == verdicts(near)
    assert all(run.ok for run in far)


def test_what_is_refused_over_a_wire_is_a_dead_letter() -> None:
    """The reason for the one exception: near the sender hears of a refusal, afar it does not wait for it."""
    (near,), (far,) = (runs("backpressure", world, {"policy": "drop_newest"}) for world in ("memory", "wire"))
    assert near.ok
    assert [failure.what for failure in far.failures] == ["check never dead_letter"]


# ---- what is different


MESSAGES = """\
lmos: scenario/v1
name: messages
agents:
  asker: {from: agent, use: "cast_of_worlds.py:Asker", args: {other: $(agents.other)}}
  other: {from: agent, use: "cast_of_worlds.py:Other"}
  third: {from: mock, rules: [{when: {action: hear, from: asker}, output: heard}]}
steps:
  - {do: invoke, target: asker, action: listen}
  - {do: invoke, id: ask, target: asker, action: ask}
  - {do: invoke, target: third, action: hear, as: asker, id: heard}
  - {do: expect, that: output, of: heard, equals: heard}
  - {do: invoke, target: other, action: die, error: {is: AgentDied}}
  - {do: wait, until: {agent: other, is: running}}
  - do: invoke
    id: slow
    target: other
    action: slow
    wait: false
    error: {is: ActionCancelled, contains: enough}
  - {do: query, of: slow, save: {status: $.status}}
  - {do: expect, that: value, of: $(saved.status), equals: in progress}
  - {do: cancel, of: slow, reason: enough}
  - {do: read, id: code, target: other, property: code}
  - {do: invoke, target: other, action: slow, input: {seconds: x}, error: {is: InvalidInput, path: $.seconds}}
checks:
  - {check: trace, single_trace: true}
  - {check: causal, before: {action: ask}, after: {from: asker, to: other, action: told}}
  - {check: never, when: {dead_letter: true}}
"""

CAST = '''
import trio
from lmos_actors import Agent, Event, Property, Ref, Secret, action, event, prop


class Other(Agent):
    """Tells what it is asked."""

    asked: Event[int] = event()
    code: Property[Secret[str]] = prop(default="not-for-logs")
    count: int = 0

    @action
    def answer(self) -> int:
        self.asked.emit(1)
        return 1

    @action
    def told(self) -> None:
        self.count += 1

    @action
    def die(self) -> None:
        raise RuntimeError("told to")

    @action
    async def slow(self, seconds: float = 60.0) -> None:
        await trio.sleep(seconds)


class Asker(Agent):
    """Asks, and follows."""

    other: Ref[Other]

    @action
    def listen(self) -> None:
        self.follow(self.other, Other.asked, self.on_asked)

    def on_asked(self, _: int) -> None:
        self.send(self.other, Other.told)

    @action
    async def ask(self) -> int:
        return await self.other.invoke(Other.answer)
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    root = tmp_path_factory.mktemp("worlds")
    (root / "pyproject.toml").write_text("")
    (root / "cast_of_worlds.py").write_text(CAST)
    (root / "messages.yaml").write_text(MESSAGES)
    yield root
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("cast_of_"):
            del sys.modules[name]


@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
def test_senders_traces_errors_and_calls_are_the_same(project: Path, world: str) -> None:
    resolved = load_scenario(project / "messages.yaml", settings={"world": world})
    result = run_cell(resolved, resolved.cells[0], 1)
    assert result.failures == ()
    log = [json.loads(line) for line in result.log]
    sent = [(line["from"], line["agent"], line["affordance"]) for line in log if line.get("kind") == "sent"]
    for one in [("user", "asker", "ask"), ("asker", "other", "answer"), ("asker", "other", "told")]:
        assert sent.count(one) == 1
    assert "not-for-logs" not in "".join(result.log)


def test_frames_carry_it(project: Path) -> None:
    """In `wire` a message takes the way of a message from afar: there is no other."""
    resolved = load_scenario(project / "messages.yaml", settings={"world": "wire"})
    near = load_scenario(project / "messages.yaml")
    far, here = run_cell(resolved, resolved.cells[0], 1), run_cell(near, near.cells[0], 1)
    assert far.digest != here.digest  # the observations of the connection itself are in it
    assert run_cell(resolved, resolved.cells[0], 1).digest == far.digest


def code_of(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_real_time_is_not_compared_and_not_replayed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, log = str(project / "messages.yaml"), str(project / "log.jsonl")
    assert code_of("run", file, "--set", "world=websocket", "--log", log) == 0
    said = capsys.readouterr().out
    assert "virtual" not in said
    assert "second process" not in said
    assert code_of("replay", log) == 2
    assert "its run was in real time (world: websocket)" in capsys.readouterr().err


def test_each_trial_is_another_run(project: Path) -> None:
    resolved = load_scenario(project / "messages.yaml", settings={"world": "websocket"})
    first, second = (run_cell(resolved, resolved.cells[0], trial) for trial in (1, 2))
    assert first.ok
    assert second.ok
    assert first.digest != second.digest


SECRET = """\
lmos: scenario/v1
name: secret
agents:
  other: {from: agent, use: "cast_of_worlds.py:Other"}
steps:
  - {do: read, id: code, target: other, property: code}
  - {do: expect, that: output, of: code, equals: "0815"}
"""


@pytest.mark.parametrize("world", ["memory", "wire"])
def test_what_is_secret_is_not_told_from_afar(project: Path, world: str) -> None:
    (project / "secret.yaml").write_text(SECRET)
    resolved = load_scenario(project / "secret.yaml", settings={"world": world})
    (failure,) = run_cell(resolved, resolved.cells[0], 1).failures
    assert failure.saw == "what is secret"
