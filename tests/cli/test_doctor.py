"""`doctor`: each look finds what it looks for, and says what to do."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import sysconfig
import tempfile
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def looked(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json", *words])
    data = json.loads(capfd.readouterr().out)
    assert data["exit_code"] == ended.value.code
    return data["exit_code"], {finding["name"]: finding for finding in data["findings"]}


def test_a_machine_on_which_the_tests_run_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    out = capfd.readouterr().out
    assert ended.value.code == 0, out
    names = ("python", "platform", "packages", "clock", "open files", "port", "working folder", "hash seed")
    assert [name for name in names if f"  {name} " not in out] == []
    assert all(line.split()[0] in ("ok", "warn") for line in out.splitlines() if not line.startswith(" "))


def test_a_port_that_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, found = looked(capfd, "--port", str(port))
    assert (code, found["port"]["verdict"]) == (0, "warn")
    assert found["port"]["saw"].startswith(f"{port} cannot be had: ")
    assert "--port" in found["port"]["remedy"]


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:  # pytest itself wants temporary files later
        patch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        code, found = looked(capfd)
    assert (code, found["temporary folder"]["verdict"]) == (1, "fail")
    assert found["working folder"]["verdict"] == "ok"


def test_few_open_files(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, -1))
    code, found = looked(capfd)
    assert (code, found["open files"]["verdict"]) == (0, "warn")
    assert found["open files"]["saw"] == "256 now, no limit at most"


def test_a_coarse_clock(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(time, "get_clock_info", lambda _: SimpleNamespace(resolution=0.0156))
    assert looked(capfd)[1]["clock"]["verdict"] == "warn"


@pytest.mark.parametrize(
    ("version", "verdict", "remedy"),
    [
        ((3, 10, 14), "fail", "use CPython 3.11 to 3.15"),
        ((3, 11, 0), "ok", ""),
        ((3, 15, 7), "ok", ""),
        ((3, 16, 0), "warn", "tested with CPython 3.11 to 3.15"),
    ],
)
def test_a_python_that_is_too_old_or_too_new(
    version: tuple[int, int, int],
    verdict: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, "final", 0))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: 0)
    code, found = looked(capfd)
    assert (code, found["python"]["verdict"]) == (int(verdict == "fail"), verdict)
    assert found["python"]["remedy"] == remedy


def test_another_python(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert looked(capfd)[1]["python"]["verdict"] == "fail"


def test_a_free_threaded_build(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    code, found = looked(capfd)
    assert (code, found["python"]["verdict"]) == (0, "warn")
    assert found["python"]["saw"].endswith(", free-threaded")
    assert found["python"]["remedy"].startswith("free-threaded builds are not tested")


@pytest.mark.parametrize(
    ("system", "verdict", "remedy"),
    [
        ("Linux", "ok", ""),
        ("Darwin", "ok", ""),
        ("FreeBSD", "warn", "tested on Linux and macOS"),
        ("Windows", "fail", "use Linux or macOS: Windows is not supported, and not tested"),
    ],
)
def test_another_system(
    system: str,
    verdict: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    code, found = looked(capfd)
    assert (code, found["platform"]["verdict"]) == (int(verdict == "fail"), verdict)
    assert found["platform"]["remedy"] == remedy


def test_a_fixed_hash_seed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(os.environ, "PYTHONHASHSEED", "7")
    assert "PYTHONHASHSEED is 7" in looked(capfd)[1]["hash seed"]["saw"]


def install(folder: Path, name: str, version: str, *needed: str) -> None:
    """Write into a folder that this version of a package is installed there, and what it requires."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in needed]
    (place / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_packages_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    needed = ("trio<0.36,>=0.35", "attrs>=999", "nothing-of-the-kind>=1", 'pytest>=999; extra == "dev"')
    install(tmp_path, "lmos-actors", "7", *needed)
    monkeypatch.syspath_prepend(tmp_path)
    code, found = looked(capfd)
    assert code == 1
    saw = found["packages"]["saw"]
    assert saw.startswith("attrs ")
    assert saw.endswith(" is there, >=999 is needed; nothing-of-the-kind is missing")
    assert "pip install" in found["packages"]["remedy"]


@pytest.mark.parametrize(
    ("bounds", "fits"),
    [
        ("", True),
        (">=1.2", True),
        (">=1.2.3", True),
        (">=1.2.4", False),
        (">=1.10", False),
        ("<1.3,>=1.2", True),
        ("<1.2.3", False),
        ("<1.2.10", True),
        (">=2", False),
    ],
)
def test_a_version_is_compared_with_the_bounds_of_a_requirement(
    bounds: str,
    fits: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    install(tmp_path, "some-thing", "1.2.3")
    install(tmp_path, "lmos-actors", "7", f"some-thing{bounds}")
    monkeypatch.syspath_prepend(tmp_path)
    found = looked(capfd)[1]["packages"]
    whole = "lmos-actors 7, all 1 that it needs are installed"
    assert found["saw"] == (whole if fits else f"some-thing 1.2.3 is there, {bounds} is needed")
    assert found["verdict"] == ("ok" if fits else "fail")


@pytest.mark.parametrize("port", ["0", "70000", "x"])
def test_wrong_ports(port: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--port", port])
    assert ended.value.code == 2
    assert "--port" in capfd.readouterr().err
