"""`up`, `status`, `logs`, `restart`, `scale`, `drain` and `down`, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.commands import RunningCommand, called, started, surroundings
from tests.processes import command_lines, has_ended, soon

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

AGENTS = '''
import os
import sys
from contextlib import asynccontextmanager

import trio
from lmos_actors import Agent, ConfigError, action

if "BREAK" in os.environ:
    raise (TypeError if os.environ["BREAK"] == "wrongly" else RuntimeError)("no licence")


class Weather(Agent):
    """Answers, some time later if it is asked to."""

    def started(self) -> None:
        if "FLOOD" in os.environ:
            self.nursery.start_soon(self.flood)
        if "END" in os.environ:
            self.nursery.start_soon(self.end)

    async def end(self) -> None:
        await trio.sleep(0.5)
        print("the licence has expired", file=sys.stderr, flush=True)
        os._exit(7)

    async def flood(self) -> None:
        await trio.sleep(0.5)
        for _ in range(1_000):
            print("noise " * 200, "noise", flush=True)
        open("flooded", "w").close()

    @action(concurrency=100)
    async def forecast(self, city: str, seconds: float = 0.0) -> str:
        print("asked for", city, flush=True)
        open(f"asked-{city}", "w").close()
        await trio.sleep(seconds)
        print("answered", flush=True)
        return f"{city}: sun"


class Slow(Agent):
    """Starts once there is a file."""

    @asynccontextmanager
    async def lifespan(self):
        open("starting", "a").close()
        while not os.path.exists("go"):
            await trio.sleep(0.02)
        yield


class Unlicensed(Agent):
    """Wants a file that somebody has to put there."""

    @asynccontextmanager
    async def lifespan(self):
        if not os.path.exists("licence.txt"):
            raise ConfigError("no licence; put one into licence.txt", "LICENCE")
        yield


class Deaf(Agent):
    """Has a turn that does not end."""

    @action
    def hang(self) -> None:
        open("hangs", "w").close()
        while True:
            pass
'''

DESK = """
lmos: deployment/v1
name: desk
agents:
  weather: {from: agent, use: "desk.py:AGENT"}
groups:
  weather:
    agents: [weather]
"""

WAIT = 40.0

pytestmark = pytest.mark.slow


def written(folder: Path, agent: str = "Weather", group: str = "", more: str = "") -> None:
    """Write a deployment of one group, with further keys of the group and of the file."""
    indented = "".join(f"    {line.strip()}\n" for line in group.splitlines() if line.strip())
    text = DESK.replace("AGENT", agent) + indented + more
    (folder / "desk.yaml").write_text(text, encoding="utf-8")


@pytest.fixture
def project(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator[Path]:
    """Return a folder with agents; no process of a launcher of its file is left after the test."""
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "desk.py").write_text(AGENTS, encoding="utf-8")
    written(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    yield tmp_path
    left = processes_of(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def processes_of(folder: Path) -> list[int]:
    """Return the processes that were begun with a path in a folder."""
    path = os.fsencode(folder)
    return [pid for pid, words in command_lines().items() if path in words and not has_ended(pid)]


class Up:
    """`up` in the foreground, and what it prints."""

    def __init__(self, command: RunningCommand) -> None:
        self.command = command
        self.seen: list[dict[str, Any]] = []
        assert command.stdout is not None
        self._lines: Iterator[str] = iter(command.stdout)

    def until(self, event: str, **members: Any) -> dict[str, Any]:
        """Read on until something is printed."""
        wanted = {"event": event, **members}
        for line in self._lines:
            found: dict[str, Any] = json.loads(line)
            self.seen.append(found)
            if wanted.items() <= found.items():
                return found
        raise AssertionError(f"no {wanted} in {self.seen}")

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and the errors."""
        self.seen += [json.loads(line) for line in self._lines]
        return self.command.wait(WAIT), self.command.communicate()[1]

    def states(self) -> list[str]:
        """Return the states of processes as they were printed."""
        return [f"{each['name']} {each['state']}" for each in self.seen if each["event"] == "process"]

    def interrupt(self) -> None:
        self.command.send_signal(signal.SIGINT)


@contextmanager
def up(folder: Path, *words: str) -> Generator[Up]:
    with started(["up", "desk.yaml", *words], folder) as command:
        yield Up(command)


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """Call a command; return its exit code and what it printed."""
    result = called(words, folder, timeout=WAIT)
    return result.returncode, result.stdout, result.stderr


def status(folder: Path) -> dict[str, Any]:
    code, out, errors = run(folder, "status", "desk.yaml", "--json")
    assert code == 0, errors
    found: dict[str, Any] = json.loads(out)
    return found


def forecast(folder: Path, url: str, **args: Any) -> RunningCommand:
    """Begin a call of the agent."""
    http = url.replace("ws://", "http://")
    return started(
        ["call", f"{http}/agents/weather", "forecast", json.dumps({"city": "Bonn", **args})], folder
    )


# ---- one life


def test_a_deployment_in_the_background_from_up_to_down(project: Path) -> None:
    written(project, group="replicas: 2")
    ours, theirs = os.pipe()
    words = [sys.executable, "-m", "lmos_actors", "up", "desk.yaml", "--detach"]
    begun = subprocess.run(
        words, cwd=project, env=surroundings(), stdout=theirs, stderr=theirs, pass_fds=[theirs], check=False
    )
    os.close(theirs)
    with open(ours, encoding="utf-8") as said:
        text = said.read()  # which ends only if nothing that runs on has the other end of the pipe
    assert begun.returncode == 0, text
    assert "weather/2" in text
    found = status(project)
    first, second = found["groups"]["weather"]["replicas"]
    assert {first["state"], second["state"]} == {"ready"}
    assert found["launcher_pid"] in processes_of(project)
    for pid in (found["launcher_pid"], first["pid"]):
        files = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert not any("/dev/pts" in file or "/dev/tty" in file for file in files)
    (project / "desk.yaml").write_text("lmos: [broken", encoding="utf-8")  # the file as it was is used
    os.kill(first["pid"], signal.SIGKILL)

    def back() -> Any:
        now = status(project)["groups"]["weather"]["replicas"][0]
        return now if now["state"] == "ready" and now["pid"] != first["pid"] else None

    again = soon(back)
    assert (again["generation"], again["restarts"], again["why"]) == (2, 1, "was killed by SIGKILL")
    with forecast(project, again["urls"][0]) as call:
        assert "Bonn: sun" in call.communicate(WAIT)[0]
    code, out, _ = run(project, "logs", "weather", "-n", "1")
    assert code == 0
    assert re.search(r"weather/1        \| \S+Z answered", out)
    assert "answered" not in (project / ".lmos/desk/launcher.log").read_text()  # which has no bounds
    assert run(project, "logs", "wether")[0] == 1
    assert run(project, "restart", "wether")[2] == 'lmos-actors: no group "wether", did you mean "weather"?\n'
    assert run(project, "down") == (0, f"{project}/desk.yaml: stopped\n", "")
    assert run(project, "down", "desk.yaml") == (0, f"{project}/desk.yaml does not run\n", "")
    assert run(project, "status", "desk.yaml")[0] == 3
    said = f"desk.yaml does not run; what its processes printed is in {project}/.lmos/desk/logs\n"
    assert run(project, "logs", "--file", "desk.yaml") == (3, "", f"lmos-actors: {project}/{said}")
    assert run(project, "status")[:2] == (3, "nothing runs\n")


def test_a_folder_of_state_that_cannot_be_made_is_named_in_the_background_too(project: Path) -> None:
    for words in (["--detach"], []):
        code, _, errors = run(project, "up", "desk.yaml", *words, "--state", "desk.py/state")
        assert code == 2
        assert f"{project}/desk.py/state: Not a directory: --state FOLDER names another" in errors


def test_an_interrupt_while_the_background_becomes_ready_ends_it_again(project: Path) -> None:
    written(project, "Slow")
    with started(["up", "desk.yaml", "--detach"], project) as command:
        soon(lambda: Path("/proc/net/unix").read_text().count(os.environ["XDG_RUNTIME_DIR"]) > 1)  # connected
        command.send_signal(signal.SIGINT)
        errors = command.communicate(WAIT)[1]
    assert (command.returncode, errors) == (130, "interrupted\n")
    assert processes_of(project) == []


def test_what_is_not_ready_yet_is_said_on_a_terminal(project: Path) -> None:
    written(project, "Slow", group="replicas: 5")
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "lmos_actors", "up", "desk.yaml", "--detach"]
    with subprocess.Popen(
        words, cwd=project, env=surroundings(), stdout=subprocess.DEVNULL, stderr=theirs
    ) as command:
        os.close(theirs)
        said = b""
        while b"more\r\n" not in said:
            said += os.read(ours, 4096)
        (project / "go").touch()
        assert command.wait(WAIT) == 0
    os.close(ours)
    assert said.startswith(b"not ready yet: weather/1 ")
    assert b" and 2 more" in said
    assert run(project, "down")[0] == 0


def test_of_several_that_are_begun_at_once_one_runs_and_the_others_leave_it_as_it_is(project: Path) -> None:
    words = ["up", "desk.yaml", "--detach", "--reload"]
    with started(words, project) as first, started(words, project) as second:
        ended = [(each.communicate(WAIT), each.returncode) for each in (first, second)]
    assert [code for _, code in ended] == [0, 0], ended
    shown = sorted(out for (out, _), _ in ended)
    assert shown[0] == f"{project}/desk.yaml runs as it is\n"
    assert "weather/1" in shown[1]
    launcher = status(project)["launcher_pid"]
    assert b"--reload" in Path(f"/proc/{launcher}/cmdline").read_bytes().split(b"\0")
    assert run(project, "down")[0] == 0


def test_down_waits_for_the_process_of_the_launcher(project: Path) -> None:
    agents = AGENTS + "\nimport atexit, time\natexit.register(time.sleep, 0.5)\n"
    (project / "desk.py").write_text(agents, encoding="utf-8")
    assert run(project, "up", "desk.yaml", "--detach")[0] == 0
    launcher = status(project)["launcher_pid"]
    assert run(project, "down")[0] == 0
    assert has_ended(launcher)


def test_an_interrupt_drains_and_a_running_request_is_answered(project: Path) -> None:
    with up(project) as running:
        ready = running.until("process", state="ready")
        running.until("ready")
        with forecast(project, ready["urls"][0], seconds=1.0) as call:
            soon((project / "asked-Bonn").exists)
            running.interrupt()
            assert "Bonn: sun" in call.communicate(WAIT)[0]
        assert running.ended() == (0, "")
        assert running.states()[-2:] == ["weather/1 draining", "weather/1 stopped"]
        assert running.seen[-1] == {"event": "stopped"}


def test_a_second_interrupt_ends_all_at_once(project: Path) -> None:
    with up(project) as running:
        ready = running.until("process", state="ready")
        with forecast(project, ready["urls"][0], seconds=60.0) as call:
            soon((project / "asked-Bonn").exists)
            running.interrupt()
            running.until("process", state="draining")
            time.sleep(0.2)  # a second one that comes at once is the same
            running.interrupt()
            assert running.ended()[0] == 130
            call.communicate(WAIT)
        assert running.seen[-1] == {"event": "ended"}


def test_an_interrupt_while_groups_start_leaves_nothing(project: Path) -> None:
    written(project, "Slow", "ready: 60s", "  late:\n    directory: true\n    needs: {weather: ready}\n")
    with up(project) as running:
        soon((project / "starting").exists)
        running.interrupt()
        assert running.ended() == (0, "")
        assert running.states()[-2:] == ["weather/1 draining", "weather/1 stopped"]


BATCHES = "replicas: 3\nmax_restarts: 99\nupdate: {pause: 60s}"
BROKEN = f'{BATCHES}\nenv: {{BREAK: "yes"}}'


def test_an_interrupt_of_the_launcher_in_a_rolling_restart_leaves_nothing(project: Path) -> None:
    written(project, group=BATCHES)
    with up(project) as running:
        running.until("ready")
        with started(["restart", "--rolling", "weather"], project) as restart:
            running.until("rollout", step="pausing")
            running.interrupt()
            assert running.ended() == (0, "")
            out, errors = restart.communicate(WAIT)
        assert (restart.returncode, out) == (1, "weather: 1 replaced by 1\n")
        assert errors == "lmos-actors: the launcher is ending\n"


def test_an_interrupt_of_the_launcher_in_a_rollback_leaves_nothing(project: Path) -> None:
    written(project, group=BATCHES)
    with up(project) as running:
        running.until("ready")
        written(project, group=BROKEN)
        with started(["up", "desk.yaml"], project) as again:
            running.until("rollout", step="rolling_back")
            running.until("rollout", step="pausing")
            running.interrupt()
            assert running.ended() == (0, "")
            errors = again.communicate(WAIT)[1]
        assert again.returncode == 1
        assert errors == "lmos-actors: the launcher is ending\n"


GOES_ON = "lmos-actors: the launcher finishes its step, and begins no other; see `status`\n"


def test_an_interrupt_of_a_command_in_a_rolling_restart_is_the_commands_alone(project: Path) -> None:
    written(project, group=BATCHES)
    with up(project) as running:
        running.until("ready")
        before = [each["pid"] for each in status(project)["groups"]["weather"]["replicas"]]
        with started(["restart", "--rolling", "weather"], project) as restart:
            running.until("rollout", step="pausing")
            restart.send_signal(signal.SIGINT)
            errors = restart.communicate(WAIT)[1]
        assert restart.returncode == 130, errors
        assert errors == f"{GOES_ON}interrupted\n"
        found = soon(lambda: (now := status(project))["doing"] == "" and now)["groups"]["weather"]
        assert {each["state"] for each in found["replicas"]} == {"ready"}
        assert [each["pid"] in before for each in found["replicas"]] == [False, True, True]
        running.interrupt()
        assert running.ended() == (0, "")


def test_an_interrupt_of_a_command_in_a_rollback_does_not_end_the_rollback(project: Path) -> None:
    written(project, group="replicas: 2\nmax_restarts: 99")
    with up(project) as running:
        running.until("ready")
        written(project, group='replicas: 2\nmax_restarts: 99\nenv: {BREAK: "yes"}')
        with started(["up", "desk.yaml"], project) as again:
            running.until("rollout", step="rolling_back")
            again.send_signal(signal.SIGINT)
            errors = again.communicate(WAIT)[1]
        assert again.returncode == 130
        assert errors == f"{GOES_ON}interrupted\n"
        assert running.until("rollout", step="replaced")["processes"] == [1]
        assert running.until("rollout", step="replaced")["processes"] == [2]
        found = soon(lambda: (now := status(project))["doing"] == "" and now)["groups"]["weather"]
        assert [each["state"] for each in found["replicas"]] == ["ready", "ready"]
        running.interrupt()
        assert running.ended() == (0, "")


def test_a_process_that_is_killed_before_it_is_ready_is_started_again(project: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    written(project, "Slow", f"listen: ws://127.0.0.1:{port}")
    with up(project) as running:
        begun = running.until("process", state="starting")
        soon((project / "starting").exists)  # it listens, and is not ready
        os.kill(begun["pid"], signal.SIGKILL)
        (project / "go").touch()
        assert running.until("process", state="ready")["urls"] == [f"ws://127.0.0.1:{port}"]
        running.interrupt()
        assert running.ended() == (0, "")


# ---- the launcher is killed


def test_processes_of_a_killed_launcher_drain_and_the_next_one_waits_for_them(project: Path) -> None:
    with up(project) as running:
        ready = running.until("process", state="ready")
        running.until("ready")
        with forecast(project, ready["urls"][0], seconds=3.0) as call:
            soon((project / "asked-Bonn").exists)
            running.command.kill()
            running.command.wait(WAIT)
            assert run(project, "status", "desk.yaml")[0] == 3
            with up(project) as second:
                assert second.until("waiting")["processes"] == [ready["pid"]]
                assert second.until("process", state="starting")["pid"] != ready["pid"]
                assert (
                    "Bonn: sun" in call.communicate(WAIT)[0]
                )  # it was printing into a pipe without a reader
                second.until("ready")
                second.interrupt()
                assert second.ended() == (0, "")


def test_a_process_whose_turn_does_not_end_ends_without_its_launcher_too(project: Path) -> None:
    written(project, "Deaf", "drain: {timeout: 0s}")
    with up(project) as running:
        ready = running.until("process", state="ready")
        http = ready["urls"][0].replace("ws://", "http://")
        with started(["call", f"{http}/agents/weather", "hang"], project) as call:
            soon((project / "hangs").exists)
            running.command.kill()
            running.command.wait(WAIT)
            soon(lambda: ready["pid"] not in processes_of(project))
            call.communicate(WAIT)


def test_an_interrupt_ends_the_wait_for_processes_of_a_killed_launcher(project: Path) -> None:
    with up(project) as running:
        ready = running.until("process", state="ready")
        with forecast(project, ready["urls"][0], seconds=5.0) as call:
            soon((project / "asked-Bonn").exists)
            running.command.kill()
            running.command.wait(WAIT)
            with up(project) as second:
                second.until("waiting")
                second.interrupt()
                assert second.ended() == (0, "")
            call.communicate(WAIT)
            soon(lambda: processes_of(project) == [])


# ---- processes that fail


def test_a_process_that_is_stopped_by_a_signal_is_killed_in_the_end(project: Path) -> None:
    written(project, group="drain: {timeout: 0s}")
    with up(project) as running:
        ready = running.until("process", state="ready")
        os.kill(ready["pid"], signal.SIGSTOP)
        running.interrupt()
        assert running.ended() == (0, "")
        assert running.states()[-2:] == ["weather/1 draining", "weather/1 stopped"]


FOREVER = "\nlauncher: {max_restarts: 0}\n"


def test_an_import_that_fails_in_a_process_names_the_file_and_the_line(project: Path) -> None:
    written(project, group="env: {BREAK: yes}\nmax_restarts: 0", more=FOREVER)
    with up(project) as running:
        code, errors = running.ended()
    assert code == 3
    assert "weather/1 ended with exit code 3" in errors
    assert "desk.py:10" in errors
    assert "no licence" in errors


def test_a_module_that_is_wrong_stops_its_group_at_once(project: Path) -> None:
    written(project, group="env: {BREAK: wrongly}")
    with up(project) as running:
        failed = running.until("process", name="weather/1", state="failed")
        running.interrupt()
        assert running.ended()[0] == 0
    assert failed["why"].startswith("cannot start: ")
    assert failed["why"].endswith('importing "desk" failed at desk.py:10: TypeError: no licence')
    assert running.states().count("weather/1 starting") == 1


def test_a_class_that_is_wrong_stops_its_group_alone_and_at_once(project: Path) -> None:
    other = "  other:\n    directory: true\n"
    written(project, "Unlicensed", more=other)
    code, out, errors = run(project, "up", "desk.yaml", "--detach")
    why = "weather could not start: ConfigError: LICENCE: no licence; put one into licence.txt"
    assert (code, errors) == (
        1,
        f"lmos-actors: weather/1 cannot start: lmos-actors: {why}; correct it, and `up` again starts it\n",
    )
    assert "weather/1  failed" in out
    soon(lambda: status(project)["groups"]["other"]["replicas"][0]["state"] == "ready")
    (weather,) = status(project)["groups"]["weather"]["replicas"]
    assert (weather["state"], weather["generation"], weather["restarts"]) == ("failed", 1, 0)
    (project / "licence.txt").touch()
    code, out, _ = run(project, "up", "desk.yaml")
    assert (code, out) == (0, "weather: stopped, to be started again\nweather: ready\n")
    assert run(project, "down")[0] == 0


def test_an_import_that_fails_here_already_starts_nothing(project: Path) -> None:
    (project / "desk.py").write_text("import weathr\n", encoding="utf-8")
    code, out, errors = run(project, "up", "desk.yaml")
    assert (code, out) == (3, "")
    assert "desk.py" in errors
    assert "weathr" in errors


def test_a_port_that_is_taken_ends_its_group_alone(project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = "  other:\n    directory: true\n"
        written(project, group=f"listen: ws://127.0.0.1:{port}\nmax_restarts: 1", more=other + FOREVER)
        with up(project) as running:
            code, errors = running.ended()
    assert code == 3
    why = f"cannot listen at 127.0.0.1:{port}: Address already in use; end what listens there"
    assert errors.splitlines()[-3].startswith(f"lmos-actors: weather/1 ended with exit code 3: {why}")
    assert errors.splitlines()[-2:] == [
        "  groups/weather: more than 1 restarts in 60 s",
        "  groups: more than 0 restarts in 600 s",
    ]
    assert running.states().count("weather/1 restarting") == 2
    assert running.states().count("other/1 waiting") == 1


def test_a_process_that_ends_right_after_it_is_ready_is_a_crash_loop(project: Path) -> None:
    """The group ends, and begins anew, as often as the launcher allows; the other one is left as it is."""
    other = "  other:\n    directory: true\n\nlauncher: {max_restarts: 1}\n"
    written(project, group="env: {END: yes}\nmax_restarts: 1", more=other)
    with up(project) as running:
        running.until("process", name="weather/1", state="ready")
        running.until("process", name="weather/1", state="restarting")
        found = status(project)["groups"]
        code, errors = running.ended()
    assert [each["state"] for each in found["other"]["replicas"]] == ["ready"]
    assert found["weather"]["replicas"][0]["why"] == "ended with exit code 7: the licence has expired"
    assert code == 3
    assert "groups: more than 1 restarts in 600 s" in errors
    assert "groups/weather: more than 1 restarts in 60 s" in errors
    assert "weather/1 ended with exit code 7: the licence has expired" in errors
    assert running.states().count("weather/1 ready") == running.states().count("weather/1 restarting") == 4
    assert running.states().count("other/1 waiting") == 1
    assert running.states()[-2:] == ["other/1 draining", "other/1 stopped"]
    assert run(project, "status", "desk.yaml")[0] == 3


def test_a_group_that_never_becomes_ready_says_so(project: Path) -> None:
    written(project, "Slow", "ready: 1s\nmax_restarts: 0", FOREVER)
    with up(project) as running:
        code, errors = running.ended()
    assert code == 3
    assert "weather/1 was not ready within 1 s" in errors


# ---- one process, tried by hand


def test_a_process_of_a_group_drains_once_its_standard_input_is_closed(project: Path) -> None:
    words = [sys.executable, "-m", "lmos_actors", "serve", "desk.yaml", "--group", "weather", "--launched"]
    process = subprocess.Popen(
        words, cwd=project, env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        events = (json.loads(line) for line in process.stdout)
        url = next(each for each in events if each["event"] == "listening")["url"].removesuffix("/ws")
        with forecast(project, url, seconds=1.0) as call:
            soon((project / "asked-Bonn").exists)
            process.stdin.close()
            assert "Bonn: sun" in call.communicate(WAIT)[0]
        assert process.wait(WAIT) == 0


# ---- output


def test_a_terminal_that_stands_still_holds_up_neither_the_launcher_nor_the_group(project: Path) -> None:
    """Nothing is read of what `up` prints, and a process prints more than any pipe holds."""
    written(project, group="env: {FLOOD: yes}")
    with started(["up", "desk.yaml"], project) as command:
        soon((project / "flooded").exists)
        found = status(project)
        assert found["groups"]["weather"]["replicas"][0]["state"] == "ready"
        assert run(project, "logs", "-n", "1")[1].endswith("noise\n")
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(WAIT)
        assert command.wait(WAIT) == 0
        assert json.loads(out.splitlines()[-1]) == {"event": "stopped"}
