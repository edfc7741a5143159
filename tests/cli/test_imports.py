"""The command starts quickly: what takes long to import is imported late. No time is measured."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.scenario.project import CAST, Project, story
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# What nothing needs that only reads files and says so; each takes 20 ms and more.
LATE = (
    "hypothesis",
    "jinja2",
    "jsonpath",
    "jsonschema_rs",
    "networkx",
    "pytest",
    "rich",
    "structlog",
    "trio.testing",
)
# What a run does not need either; each takes 5 ms and more.
LATER = ("cyclopts.help", "email", "importlib.metadata", "importlib.resources", "xml.etree.ElementTree")
# What only those need that talk to agents elsewhere, or serve some.
FAR = (
    "h11",
    "httpx2",
    "lmos_actors.bindings",
    "lmos_actors.conformance",
    "lmos_actors.transport",
    "trio_websocket",
    "wsproto",
)
COMMANDS = tuple(
    f"lmos_actors.cli.commands.{path.stem}" for path in (ROOT / "lmos_actors/cli/commands").glob("_[a-z]*.py")
)
# What a process of a group does not need: it runs agents, and neither judges them nor starts processes.
NOT_SERVED = (
    "lmos_actors.conformance",
    "lmos_actors.deployment.export",
    "lmos_actors.deployment.faults",
    "lmos_actors.deployment.processes",
    "lmos_actors.facades",
    "lmos_actors.reports",
    "lmos_actors.scenario.doubles",
    "lmos_actors.scenario.explore",
    "lmos_actors.scenario.format",
    "lmos_actors.scenario.formulas",
    "lmos_actors.scenario.judge",
    "lmos_actors.scenario.run",
    "lmos_actors.simulation.network",
    "lmos_actors.testing",
)
# What only those need that run agents, or look at them.
ENGINE = ("lmos_actors.actors", "lmos_actors.files", "msgspec", "trio")
# What only those need that run agents, and not those that check files of them.
RUNNING = (
    "lmos_actors.approvals",
    "lmos_actors.node",
    "lmos_actors.observe",
    "lmos_actors.persistence",
    "lmos_actors.scenario.judge",
    "lmos_actors.scenario.run",
    "lmos_actors.simulation",
)
FORMAT = ("cattrs", "cyclopts", "yaml")
# The most modules of the package itself.
WEATHER = ["run", "scenarios/weather.yaml"]
SERVE = ["serve", "agents.weather:WeatherAgent", "--listen", "ws://127.0.0.1:0"]
MOST = {
    "--help": 12,
    "validate small.yaml": 220,
    "run small.yaml --check-determinism off": 280,
    " ".join(WEATHER): 280,
    " ".join(SERVE): 280,
}
NOTE = {"do": "invoke", "id": "note", "target": "actor", "action": "note", "input": {"text": "hi"}}
# A plain path needs no library.
SAVED = {**NOTE, "save": {"heard": "$.output"}}
GROUP = """
lmos: deployment/v1
name: small
agents: {actor: {from: agent, use: "cast.py:Actor"}}
groups: {all: {directory: true, register: all, agents: [actor]}}
"""
USED = {"do": "expect", "that": "value", "of": "$(saved.heard)", "match": {"$": {"ne": "other"}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "not_there"),
    [
        (
            ["--version"],
            (*LATE, *FAR, *FORMAT, *ENGINE, "attrs", "lmos_actors.cli.commands", "importlib.metadata"),
        ),
        (["rum"], (*LATE, *FAR, *FORMAT, *ENGINE, "attrs", "lmos_actors.cli.commands")),
        (["--help"], (*FAR, *ENGINE, *COMMANDS, "networkx", "jinja2", "pytest", "hypothesis", "structlog")),
        (["run", "--help"], (*FAR, *ENGINE, "networkx", "jinja2", "pytest", "hypothesis", "structlog")),
        (["call", "--help"], (*FAR, *ENGINE)),
        (["conform", "--help"], (*FAR, *ENGINE)),
        (["doctor"], (*LATE, "lmos_actors.scenario")),
        (["validate", "small.yaml"], (*LATE, *LATER, *RUNNING)),
        (["run", "small.yaml", "--check-determinism", "off"], (*LATE, *LATER)),
        (WEATHER, (*LATE, *LATER)),
        (SERVE, NOT_SERVED),
        (["serve", "group.yaml", "--group", "all", "--launched"], NOT_SERVED),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_imported(tmp_path: Path, words: list[str], not_there: tuple[str, ...]) -> None:
    project = Project(tmp_path)
    project.write("pyproject.toml", "")
    project.write("cast.py", CAST)
    project.write("small.yaml", story(SAVED, USED))
    project.write("group.yaml", GROUP)
    code = (
        "import sys; there = [*sys.modules]\n"
        "sys.path.insert(0, sys.argv[1]); from lmos_actors.cli import main\n"
        "try: main(sys.argv[3:])\n"
        "finally: open(sys.argv[2], 'w').write(' '.join(name for name in sys.modules if name not in there))\n"
    )
    command = [sys.executable, "-c", code, str(ROOT), str(tmp_path / "imported"), *words]
    folder = ROOT if words in (WEATHER, SERVE) else tmp_path
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=both, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if '"ready"' in line:
                process.stdin.close()  # as if its launcher had gone
            elif '"listening"' in line:
                process.terminate()
    imported = (tmp_path / "imported").read_text().split()
    assert "lmos_actors.cli._main" in imported, said
    assert process.returncode == (2 if words == ["rum"] else 0), said
    assert [name for name in not_there if name in imported] == []
    own = [name for name in imported if name.partition(".")[0] == "lmos_actors"]
    assert len(own) <= MOST.get(" ".join(words), len(own))
