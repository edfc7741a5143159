"""How commands find a launcher: its lock, its socket, and whom they let in."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors.assembly import open_node
from lmos_actors.cli import main
from lmos_actors.deployment.processes import (
    AlreadyRunning,
    Controls,
    Launcher,
    LauncherAgent,
    LocalPlace,
    Order,
    UnixNetwork,
    controls_of,
    launcher_url,
    open_launcher,
    running_controls,
)
from lmos_actors.errors import ConfigError, ConnectFailed, StartFailed
from lmos_actors.persistence import LockFile
from lmos_actors.transport import endpoint_of
from tests.deployment.places import NoFiles, group, plan_of
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DESK = """
lmos: deployment/v1
name: desk
agents: {clerk: {from: agent, use: "clerks_of_controls.py:Clerk"}}
groups: {front: {agents: [clerk]}}
"""

CLERK = """
from lmos_actors import Agent

class Clerk(Agent):
    pass
"""

HOLD = """
import sys, time
from lmos_actors.deployment.processes import controls_of
controls_of(sys.argv[1], sys.argv[2]).prepare()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controls]:
    with TemporaryDirectory() as folder:  # of a short name: the path of a socket cannot be long
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield controls_of(str(tmp_path / "desk.yaml"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def holder(controls: Controls) -> subprocess.Popen[str]:
    """Start another process that has the lock."""
    words = [sys.executable, "-c", HOLD, controls.file, str(controls.folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.stdout.close()
    return process


def test_places_follow_from_the_file_or_from_the_option(controls: Controls, tmp_path: Path) -> None:
    assert controls.folder == tmp_path / ".lmos" / "desk"
    other = controls_of(str(tmp_path / "desk.yaml"), str(tmp_path / "state"))
    assert (other.folder, other.socket) == (tmp_path / "state", controls.socket)
    assert controls_of(str(tmp_path / "more.yaml")).socket != controls.socket
    os.symlink(tmp_path / "desk.yaml", tmp_path / "link.yaml")
    assert controls_of(str(tmp_path / "link.yaml")).socket == controls.socket


def test_the_folder_of_the_sockets_is_its_owners_alone(controls: Controls) -> None:
    lock = controls.prepare()
    assert mode(controls.socket.parent) == 0o700
    lock.release()
    controls.socket.parent.chmod(0o755)
    with pytest.raises(ConfigError, match="a folder of your own that nobody else can enter"):
        controls.prepare()


def test_a_token_is_kept_for_its_owner_alone_until_the_end(controls: Controls) -> None:
    """It outlives `kill -9`; what others could have read or written is not taken."""
    lock, path = controls.prepare(), controls.socket.with_suffix(".token")
    token = controls.token()
    assert mode(path) == 0o600
    assert controls.token() == token
    lock.release()  # as at the end of a process that was killed
    lock = controls.prepare()
    assert controls.token() == token
    for spoil in (lambda: path.chmod(0o640), lambda: path.write_text("x" * 64), lambda: path.write_text("")):
        spoil()
        before, token = token, controls.token()
        assert token != before
        assert mode(path) == 0o600
    elsewhere = controls.folder / "elsewhere"
    elsewhere.write_text(token)
    elsewhere.chmod(0o600)
    path.unlink()
    path.symlink_to(elsewhere)
    assert controls.token() != token
    assert elsewhere.read_text() == token
    path.unlink()
    os.mkfifo(path, 0o600)
    assert len(controls.token()) == len(token)
    controls.remove()
    assert not path.exists()
    lock.release()


def test_a_folder_that_is_none_or_a_link_is_refused(controls: Controls, tmp_path: Path) -> None:
    folder = controls.socket.parent
    folder.write_text("")
    with pytest.raises(ConfigError):
        controls.prepare()
    folder.unlink()
    (tmp_path / "theirs").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="a folder of your own"):
        controls.prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_of_somebody_else_is_refused(controls: Controls) -> None:
    controls.socket.parent.mkdir(mode=0o700)
    os.chown(controls.socket.parent, 65_534, 65_534)
    with pytest.raises(ConfigError, match="a folder of your own"):
        controls.prepare()
    assert not controls.is_running()


def test_a_folder_for_the_state_that_cannot_be_made_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    controls = controls_of(str(tmp_path / "desk.yaml"), str(tmp_path / "file" / "state"))
    assert not controls.is_running()
    with pytest.raises(ConfigError, match="--state FOLDER names another"):
        controls.prepare()


def test_a_file_that_runs_with_another_folder_is_not_planned_anew(
    controls: Controls, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "desk.yaml").write_text(DESK)
    (tmp_path / "clerks_of_controls.py").write_text(CLERK)
    other = str(tmp_path / "other")
    lock = controls.prepare()
    for words in (["--dry-run"], ["--detach"], []):
        with pytest.raises(SystemExit) as ended:
            main(["up", controls.file, "--state", other, *words])
        assert ended.value.code == 3
        assert (
            f"this process runs it already with --state {controls.folder}: `status`"
            in capsys.readouterr().err
        )
    assert not (tmp_path / "other").exists()
    lock.release()
    with pytest.raises(SystemExit) as ended:
        main(["up", controls.file, "--state", other, "--dry-run"])
    assert (ended.value.code, capsys.readouterr().out.splitlines()[0]) == (0, "desk: 1 groups, in this order")


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EMFILE, "`ulimit -n` allows more"),
        (errno.EAGAIN, "`ulimit -u` allows more"),
        (errno.ENOMEM, "python"),
    ],
)
async def test_a_process_that_the_system_does_not_start_names_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    async def refused(*words: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(trio.lowlevel, "open_process", refused)
    with pytest.raises(StartFailed, match=why):
        await LocalPlace(tmp_path / "records").start(Order(name="a/1", arguments=()))


@pytest.mark.parametrize("limit", ["descriptors: 4096", "memory: 2GiB"])
def test_a_limit_that_the_system_does_not_allow_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    def refused(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr("resource.setrlimit", refused)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.yaml").write_text(DESK.replace("[clerk]", f"[clerk], limits: {{{limit}}}"))
    with pytest.raises(SystemExit) as ended:
        main(["serve", "desk.yaml", "--group", "front"])
    name, _, wanted = limit.partition(": ")
    assert ended.value.code == 2
    assert f"limits.{name}: {wanted} cannot be set: not allowed" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["1001", "2000", "9" * 5_000])
def test_no_group_has_more_than_a_thousand_processes(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scale", f"weather={count}"])
    assert ended.value.code == 2
    assert "a group has at most 1000 processes" in capsys.readouterr().err


@pytest.mark.slow
def test_copies_of_an_earlier_launcher_are_gone_once_there_is_another(controls: Controls) -> None:
    for _ in range(2):
        lock = controls.prepare()
        assert not controls.copies.exists()
        controls.copies.mkdir()
        (controls.copies / "0a1b2c3d.yaml").write_text("lmos: deployment/v1\n")
        lock.release()


def test_a_second_launcher_says_where_the_first_is(controls: Controls) -> None:
    assert not controls.is_running()
    first = holder(controls)
    try:
        assert controls.is_running()
        assert [each.file for each in running_controls()] == [controls.file]
        with pytest.raises(AlreadyRunning, match=rf"process {first.pid} runs it already") as caught:
            controls.prepare()
        assert caught.value.process == f"process {first.pid}"
    finally:
        first.kill()
        assert first.wait() == -signal.SIGKILL
    assert not controls.is_running()
    assert running_controls() == []
    lock = controls.prepare()  # what the one that was killed has left is no obstacle
    assert controls.is_running()
    lock.release()
    controls.remove()
    assert [path.name for path in controls.socket.parent.iterdir()] == []


@pytest.mark.slow
def test_a_second_launcher_with_another_folder_takes_nothing_from_the_first(
    controls: Controls, tmp_path: Path
) -> None:
    other = controls_of(controls.file, str(tmp_path / "other"))
    first = holder(other)
    try:
        with pytest.raises(AlreadyRunning, match=rf"{first.pid} runs it already with --state {other.folder}"):
            controls.prepare()
        assert not controls.is_running()
        assert controls.running() == other  # which the commands find without the option
    finally:
        first.kill()
        first.wait()
    controls.prepare().release()


@pytest.mark.slow
def test_a_launcher_that_does_not_answer_is_named_with_a_remedy(
    controls: Controls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lmos_actors.cli.deploy._requests.CONNECT", 0.2)
    first = holder(controls)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["status", controls.file])
        assert ended.value.code == 3
        said = capsys.readouterr().err
        assert f"{controls.file}, process {first.pid}, does not answer within 0.2 s" in said
        assert "`kill -CONT` lets it go on" in said
    finally:
        first.kill()
        first.wait()


def test_a_command_that_looks_at_the_lock_just_then_keeps_no_launcher_away(
    controls: Controls, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls.folder.mkdir(parents=True)
    lock = LockFile(str(controls.folder / "launcher"))
    assert lock.acquire()

    def release(_: float) -> None:
        lock.release()

    monkeypatch.setattr("lmos_actors.deployment.processes._control.time.sleep", release)
    controls.prepare().release()


def test_odd_files_among_the_sockets_are_no_deployments(controls: Controls) -> None:
    controls.prepare().release()
    for name, text in {"a": "", "b": "[]", "c": "{}", "d": '{"file": 7, "folder": 8}'}.items():
        (controls.socket.parent / f"{name}.json").write_text(text)
    assert running_controls() == []


# ---- the socket


async def test_the_socket_is_its_owners_alone_and_leads_to_the_launcher(
    controls: Controls, tmp_path: Path
) -> None:
    lock = controls.prepare()
    network = UnixNetwork(controls.socket)
    launcher = Launcher(plan_of(group("a", 0)), LocalPlace(controls.records), NoFiles(tmp_path))
    async with open_launcher(launcher, network):
        assert mode(controls.socket) == 0o600
        async with open_node(network=network) as node:
            ref = await node.consume(LauncherAgent, launcher_url())
            status = await ref.invoke(LauncherAgent.status)
            assert (status.launcher_pid, status.groups[0].wanted) == (os.getpid(), 0)
            await ref.invoke(LauncherAgent.down)
        assert launcher.ending.is_set()
    lock.release()


async def test_where_no_launcher_is_the_socket_says_so(controls: Controls) -> None:
    network, there = UnixNetwork(controls.socket), endpoint_of(launcher_url())
    with pytest.raises(ConnectFailed, match="no launcher is there: No such file"):
        await network.connect(there, None)
    lock = controls.prepare()
    await (await network.listen(there)).aclose()  # which leaves the file, as one that is killed
    with pytest.raises(ConnectFailed, match="no launcher is there: Connection refused"):
        await network.connect(there, None)
    lock.release()
    controls.prepare().release()
    listener = await network.listen(there)
    await listener.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await listener.accept()


def test_a_folder_for_sockets_that_is_too_deep_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert deep not in controls_of(str(tmp_path / "desk.yaml")).socket.parents


async def test_a_path_that_is_too_long_for_a_socket_is_an_error_of_its_own(tmp_path: Path) -> None:
    network, there = UnixNetwork(tmp_path / ("x" * 120)), endpoint_of(launcher_url())
    with pytest.raises(ConnectFailed, match="path too long"):
        await network.connect(there, None)
    with pytest.raises(ConfigError, match="path too long"):
        await network.listen(there)
