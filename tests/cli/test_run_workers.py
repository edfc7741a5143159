"""Runs in several processes: the same logs, in the same order, whatever becomes of a process."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main
from lmos_actors.cli.options._run import RunOptions
from lmos_actors.cli.run._run import run_files
from lmos_actors.scenario.cells import Pool
from tests.commands import started
from tests.processes import has_ended
from tests.scenario.project import CAST, DYING, Project, Ran, die, dying, story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
SLOWLY = {"do": "invoke", "target": "actor", "action": "slowly"}
PATIENCE = 40.0  # seconds after which a process is taken to hang; none needs a tenth of it

KEEPING = """
import itertools
from lmos_actors import Agent, action

NUMBERS = itertools.count()

class Keeping(Agent):
    @action
    def count(self) -> int:
        return next(NUMBERS)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path, modules = list(sys.path), set(sys.modules)
    made = Project(tmp_path_factory.mktemp("workers"))
    made.write("pyproject.toml", "")
    made.write("cast.py", CAST)
    made.write("dying.py", DYING)
    yield made
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("cast", "dying", "keeping"):
            del sys.modules[name]


@pytest.fixture
def call(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Call the command in this process, in the project's folder: its workers are processes all the same."""
    monkeypatch.chdir(project.root)

    def call(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return call


def runs_of(out: str) -> list[dict[str, Any]]:
    (file,) = json.loads(out)["files"]
    return file["runs"]


# --- the command


@pytest.mark.slow
def test_fifty_runs_at_once_give_the_logs_that_they_give_alone(
    project: Project, call: Callable[..., Ran]
) -> None:
    file = project.write("fifty.yaml", story(NOTE, SLOWLY, seeds={"from": 1, "count": 50}))
    ran = call("run", file, "-j", "50", "--check-determinism", "off", "--json")
    assert ran.code == 0, ran.text
    alone = call("run", file, "--check-determinism", "off", "--json")
    ours, theirs = ([(run["label"], run["digest"]) for run in runs_of(each.out)] for each in (ran, alone))
    assert ours == theirs
    assert len(dict.fromkeys(ours)) == 50


@pytest.mark.slow
def test_results_are_shown_in_file_order(project: Project, call: Callable[..., Ran]) -> None:
    waits = {"do": "wait", "for": "$(matrix.pause)"}
    matrix = {"pause": ["9s", "1s"], "size": [1, 2, 3]}
    text = story(NOTE, waits, matrix=matrix).replace(
        '"use": "cast.py:Actor"', '"use": "cast.py:Actor", "mailbox": {"size": "$(matrix.size)"}'
    )
    file = project.write("order.yaml", text)
    one = call("run", file, "--check-determinism", "off", "--log", "one.jsonl", "--json")
    many = call("run", file, "-j", "3", "--check-determinism", "off", "--log", "many.jsonl", "--json")
    assert (one.code, many.code) == (0, 0)
    assert [r["label"] for r in runs_of(one.out)] == [r["label"] for r in runs_of(many.out)]
    assert (project.root / "one.jsonl").read_text() == (project.root / "many.jsonl").read_text()


@pytest.mark.slow
def test_a_log_that_depends_on_the_hash_seed_is_seen_in_several_processes_too(
    project: Project, call: Callable[..., Ran]
) -> None:
    step = {"do": "invoke", "target": "actor", "action": "hashed"}
    file = project.write("hashed.yaml", story(step, seeds=[1, 2, 3]))
    ran = call("run", file, "-j", "2", "--check-determinism", "all")
    assert ran.code == 4
    assert ran.out.count("NOT DETERMINISTIC") == 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_one_run_leaves_for_the_next_is_seen(project: Project, workers: str) -> None:
    step = {"do": "invoke", "target": "actor", "action": "count"}
    agents = {"actor": {"from": "agent", "use": "keeping.py:Keeping"}}
    file = project.write("keeping.yaml", story(step, agents=agents, seeds=[1, 2]))
    project.write("keeping.py", KEEPING)
    ran = project.command("run", file, "-j", workers, "--check-determinism", "all")
    assert ran.code == 4, ran.text
    assert "NOT DETERMINISTIC" in ran.out


@pytest.mark.slow
def test_what_a_worker_prints_goes_to_the_error_output(project: Project, call: Callable[..., Ran]) -> None:
    step = {"do": "invoke", "target": "actor", "action": "speak"}
    ran = call("run", project.write("speak.yaml", story(step)), "-j", "2", "--json")
    assert (ran.code, ran.err) == (0, "spoken by an agent\n")
    assert json.loads(ran.out)["exit_code"] == 0


@pytest.mark.slow
def test_a_process_that_dies_is_an_outcome_and_is_replaced(
    project: Project, call: Callable[..., Ran]
) -> None:
    text = dying(die(signal.SIGKILL), seeds=[1, 2])
    dies, good = project.write("dies.yaml", text), project.write("good.yaml", story(NOTE, seeds=[1, 2]))
    ran = call("run", dies, good, "-j", "2", "--check-determinism", "off", "--json")
    assert ran.code == 3
    first, second = json.loads(ran.out)["files"]
    assert {(run["ended"], run["failures"][0]["saw"]) for run in first["runs"]} == {
        ("could not run", "its process ended by signal SIGKILL")
    }
    assert (len(first["runs"]), second["exit_code"], second["passed"]) == (2, 0, 2)


@pytest.mark.slow
def test_a_second_process_that_dies_has_given_no_log(project: Project) -> None:
    text = dying(die(signal.SIGTERM), seeds=[1])
    cast = project.write("dies.yaml", text)
    module = (project.root / "dying.py").read_text()
    here = module.replace("os.kill(", "os.environ.get('PYTHONHASHSEED') == '1' and os.kill(")
    project.write("dying.py", here)
    ran = project.command("run", cast)
    project.write("dying.py", module)
    assert ran.code == 3, ran.text
    assert (
        "could not be repeated: the second process wrote no log: its process ended by signal SIGTERM"
        in ran.out
    )


@pytest.mark.slow
def test_a_worker_that_cannot_be_ended_keeps_the_time_limit(project: Project) -> None:
    step = {"do": "invoke", "target": "actor", "action": "spin_hard"}
    file = project.write("hard.yaml", story(step))
    ran = project.command("run", file, "-j", "2", "--time-limit", "300ms", "--check-determinism", "off")
    assert ran.code == 124
    assert "time limit, and it cannot be ended, it hangs at" in ran.out
    assert "in spin_hard" in ran.out


@pytest.mark.slow
def test_fail_fast_hands_out_no_more(project: Project, call: Callable[..., Ran]) -> None:
    wrong = {"do": "expect", "that": "output", "of": "note", "equals": "ho"}
    file = project.write("fast.yaml", story(NOTE, wrong, seeds={"from": 1, "count": 40}))
    ran = call("run", file, "-j", "2", "--fail-fast", "--json", "--check-determinism", "off")
    assert ran.code == 1
    assert 1 <= len(runs_of(ran.out)) < 10


def test_ctrl_c_ends_every_process(project: Project) -> None:
    ready = [project.root / f"ready{seed}" for seed in (1, 2)]
    step = {"do": "invoke", "target": "actor", "action": "ready", "input": {"path": "$(vars.path)"}}
    paths = {"path": {"type": "string"}}
    text = dying(step, vars=paths, matrix={"path": [str(path) for path in ready]})
    file = project.write("busy.yaml", text)
    with started(("run", file, "-j", "2", "--check-determinism", "off"), project.root) as process:
        pids = [wait_for(path) for path in ready]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert all(map(has_ended, pids))


@pytest.mark.slow
def test_a_worker_does_not_outlive_its_parent(project: Project) -> None:
    ready = project.root / "orphan"
    step = {"do": "invoke", "target": "actor", "action": "ready", "input": {"path": str(ready)}}
    file = project.write("orphan.yaml", dying(step))
    with started(("run", file, "-j", "2", "--check-determinism", "off"), project.root) as process:
        pid = wait_for(ready)
        process.kill()
        process.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while not has_ended(pid):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.02)


def wait_for(path: Any) -> int:
    """Give the number of the process that has written to a file, once it has."""
    deadline = time.monotonic() + PATIENCE
    while not (path.exists() and path.read_text().endswith(" ")):
        assert time.monotonic() < deadline, f"nothing in {path}"
        time.sleep(0.02)
    return int(path.read_text())


@pytest.mark.parametrize(("determinism", "started"), [("off", 0), ("first", 1), ("all", 1)])
def test_the_process_of_second_runs_is_started_first_and_ended_though_a_file_is_wrong(
    monkeypatch: pytest.MonkeyPatch, determinism: Any, started: int
) -> None:
    seats: list[Any] = []
    start = Pool._start

    def kept(self: Pool, second: bool) -> Any:
        seats.append(start(self, second))
        return seats[-1]

    monkeypatch.setattr(Pool, "_start", kept)
    assert run_files(["nothing.yaml"], RunOptions(check_determinism=determinism)) == 2
    assert [seat.second for seat in seats] == [True] * started
    assert [seat.worker._process.poll() for seat in seats] == [-signal.SIGKILL] * started
