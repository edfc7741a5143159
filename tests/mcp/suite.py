"""The official conformance suite of MCP, which `tests/web/install.py` installs and its list pins."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

import msgspec

from tests.web.foreign import commands, installed

SECONDS: Final = 120.0
"""Seconds that a scenario may take, of real time."""


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """One check of a scenario, as the suite judges it."""

    id: str
    status: Literal["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"]
    description: str = ""
    error_message: str = ""


Side: TypeAlias = Literal["client", "server"]


def command() -> list[str]:
    """Return the command of the suite. Skip where it is not installed."""
    return [
        *commands()["node"],
        str(installed() / "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
    ]


def scenarios(side: Side) -> list[str]:
    """Return the names of all scenarios."""
    listed = subprocess.run(
        [*command(), "list", f"--{side}"], check=True, capture_output=True, text=True, timeout=SECONDS
    )
    return [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("  - ")]


def run_scenario(side: Side, name: str, *args: str, env: dict[str, str] | None = None) -> list[Check]:
    """Run a scenario against a client or a server; return its checks. Skip where the suite is not installed.

    Without a `name` all scenarios of the side are run.

    `args` are options of the suite: `--command`, `--url`. Where it fails by no check of its own, such as by
    the exit code of a client, a check `run` says so.
    """
    with TemporaryDirectory() as folder:
        which = ["--scenario", name] if name else ["--suite", "all"]
        words = [*command(), side, *which, "-o", folder, *args]
        done = subprocess.run(
            words, cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=SECONDS
        )
        found = [
            each
            for written in Path(folder).rglob("checks.json")
            for each in msgspec.json.decode(written.read_bytes(), type=list[Check])
        ]
    if done.returncode != 0 and all(each.status not in ("FAILURE", "WARNING") for each in found):
        found.append(Check("run", "FAILURE", error_message=done.stderr[-4_000:]))
    return found


def failed(checks: list[Check]) -> list[str]:
    """Return what is wrong, a line each; a scenario that has checked nothing is wrong, too."""
    wrong = [each for each in checks if each.status in ("FAILURE", "WARNING")]
    if all(each.status in ("SKIPPED", "INFO") for each in checks):
        wrong.append(Check("run", "FAILURE", "nothing was checked"))
    return [f"{each.id}: {each.description} {each.error_message}".strip() for each in wrong]
