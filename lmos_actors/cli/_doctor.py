"""Checks of this machine for problems: the execution of `doctor`."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
import sysconfig
import time
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from lmos_actors._versions import NEWEST, OLDEST, TESTED

from ._app import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Verdict: TypeAlias = Literal["ok", "warn", "fail"]

FEW_FILES: Final = 1024
SYSTEMS: Final = ("Linux", "Darwin")
PACKAGE: Final = "lmos-actors"


@attrs.frozen
class Finding:
    """The result of one check; `remedy` is the advice for a check that has failed."""

    name: str
    verdict: Verdict
    saw: str
    remedy: str = ""


def diagnose(port: int, *, json: bool) -> int:
    """Check, print the findings, and return the exit code: 1 if there is a problem."""
    return report([finding for look in LOOKS for finding in look(port)], json=json)


def report(findings: Sequence[Finding], *, json: bool) -> int:
    """Print findings, and return the exit code: 1 if one is a problem."""
    failed = any(finding.verdict == "fail" for finding in findings)
    if json:
        data: dict[str, Any] = {"findings": [attrs.asdict(finding) for finding in findings]}
        print(json_text({**data, "exit_code": int(failed)}))
        return int(failed)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.verdict:4}  {finding.name:{width}}  {finding.saw}")
        if finding.remedy:
            print(f"      {'':{width}}  {finding.remedy}")
    return int(failed)


def _python(_: int) -> Iterator[Finding]:
    saw = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] < OLDEST or sys.implementation.name != "cpython":
        yield Finding("python", "fail", saw, f"use CPython {TESTED}")
    elif sys.version_info[:2] > NEWEST:
        yield Finding("python", "warn", saw, f"tested with CPython {TESTED}")
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        remedy = "free-threaded builds are not tested, and a node is no faster in one: use an ordinary build"
        yield Finding("python", "warn", f"{saw}, free-threaded", remedy)
    else:
        yield Finding("python", "ok", saw)


def _platform(_: int) -> Iterator[Finding]:
    saw = f"{platform.system()} {platform.release()} on {platform.machine()}, {os.cpu_count()} processors"
    if platform.system() == "Windows":
        yield Finding("platform", "fail", saw, "use Linux or macOS: Windows is not supported, and not tested")
    elif platform.system() in SYSTEMS:
        yield Finding("platform", "ok", saw)
    else:
        yield Finding("platform", "warn", saw, "tested on Linux and macOS")


def _packages(_: int) -> Iterator[Finding]:
    try:
        needed = [text for text in requires(PACKAGE) or () if "extra ==" not in text]
    except PackageNotFoundError:
        remedy = "install it, with pip install -e . in its folder"
        yield Finding("packages", "fail", f"{PACKAGE} is not installed", remedy)
        return
    wrong = [problem for text in needed if (problem := requirement_problem(text))]
    if wrong:
        yield Finding("packages", "fail", "; ".join(wrong), f"pip install --upgrade {PACKAGE}")
    else:
        saw = f"{PACKAGE} {version(PACKAGE)}, all {len(needed)} that it needs are installed"
        yield Finding("packages", "ok", saw)


def requirement_problem(text: str) -> str | None:
    """Return the problem with the installed version of a requirement such as `trio<0.36,>=0.35`, or None."""
    found = re.match(r"([A-Za-z0-9._-]+)([^;]*)", text)
    if found is None:
        return None
    name, bounds = found[1], found[2].strip(" ()")
    try:
        installed = version(name)
    except PackageNotFoundError:
        return f"{name} is missing"
    if all(_fits(installed, bound.strip()) for bound in bounds.split(",") if bound.strip()):
        return None
    return f"{name} {installed} is there, {bounds} is needed"


def _fits(installed: str, bound: str) -> bool:
    """Return whether a version meets a bound of `>=` or `<`; any other bound counts as met."""
    have = _numbers(installed)
    if bound.startswith(">="):
        return have >= _numbers(bound[2:])
    return have < _numbers(bound[1:]) if bound.startswith("<") and bound[1:2] != "=" else True


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"[\d.]*", text.strip())
    numbers = [int(part) for part in (found[0] if found else "").split(".") if part]
    return (*numbers, 0, 0, 0, 0)[:4]


def _clock(_: int) -> Iterator[Finding]:
    resolution = time.get_clock_info("monotonic").resolution
    zone = time.strftime("%Z %z")
    saw = f"monotonic to {resolution:.0e} s, time zone {zone}"
    coarse = resolution > 1e-3
    yield Finding(
        "clock", "warn" if coarse else "ok", saw, "real time limits will be coarse" if coarse else ""
    )


def _open_files(_: int) -> Iterator[Finding]:
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 0 <= soft < FEW_FILES
    saw = f"{'no limit' if soft < 0 else soft} now, {'no limit' if hard < 0 else hard} at most"
    yield Finding("open files", "warn" if few else "ok", saw, f"ulimit -n {FEW_FILES}" if few else "")


def _port(port: int) -> Iterator[Finding]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", port))
        except OSError as error:
            remedy = "end what listens there, or look at another with --port"
            yield Finding("port", "warn", f"{port} cannot be had: {error.strerror}", remedy)
            return
    yield Finding("port", "ok", f"{port} is free")


def _folders(_: int) -> Iterator[Finding]:
    for name, folder in (("working folder", "."), ("temporary folder", gettempdir())):
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            saw = f"{Path(folder).resolve()}: {error.strerror}"
            yield Finding(name, "fail", saw, "use another folder, or allow writing there")
        else:
            yield Finding(name, "ok", "can be written")


def _hash_seed(_: int) -> Iterator[Finding]:
    own = os.environ.get("PYTHONHASHSEED", "random")
    fixed = own != "random"
    saw = f"PYTHONHASHSEED is {own}" if fixed else "left to chance"
    yield Finding("hash seed", "ok", f"{saw}; second runs have another")


def _terminal(_: int) -> Iterator[Finding]:
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    kind = f"TERM={os.environ.get('TERM', '')}" if sys.stdout.isatty() else "none, the output is plain text"
    colours = ", no colours (NO_COLOR)" if os.environ.get("NO_COLOR") else ""
    saw = f"{kind}{colours}, {sys.stdout.encoding}"
    yield Finding(
        "terminal", "ok" if utf8 else "warn", saw, "" if utf8 else "set PYTHONUTF8=1 for all characters"
    )


LOOKS: tuple[Callable[[int], Iterator[Finding]], ...] = (
    _python, _platform, _packages, _clock, _open_files, _port, _folders, _hash_seed, _terminal,
)  # fmt: skip
