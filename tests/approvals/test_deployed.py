"""Approvals of deployments: who may decide by the file, and the list of all processes."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.deployment.files import load_deployment
from lmos_actors.errors import ConfigError
from lmos_actors.scenario.format import load_scenario
from lmos_actors.scenario.run import run_cell
from tests.commands import called

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors.reports import RunResult

DESKS = '''
import trio
from lmos_actors import Agent


class Desk(Agent):
    """Asks when it starts."""

    def started(self) -> None:
        self.nursery.start_soon(self.ask)

    async def ask(self) -> None:
        approved = await self.approve(f"Open {self.path}", key="open")
        print(f"{self.path} is approved: {approved}", flush=True)
        await trio.sleep_forever()
'''

FILE = """
lmos: deployment/v1
name: desk
agents:
  desk: {from: agent, use: "desks.py:Desk"}
  guarded: {from: agent, use: "desks.py:Desk"}
  quiet: {from: agent, use: "desks.py:Desk"}
groups:
  front: {agents: [desk], allow_operations: true, replicas: 2}
  back: {agents: [guarded], security: security.yaml}
  shut: {agents: [quiet]}
"""

SECURITY = """
schemes:
  - {scheme: bearer, tokens: {alice: "file:alice", app: "file:app"}}
access:
  guarded: {approve: [alice]}
"""


@pytest.fixture
def project(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    files = {"desks.py": DESKS, "desk.yaml": FILE, "security.yaml": SECURITY, "pyproject.toml": ""}
    for name, text in {**files, "alice": "token-alice", "app": "token-app"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    return tmp_path


@pytest.mark.slow
def test_the_approvals_of_all_processes_are_listed_and_decided(project: Path) -> None:
    call = partial(called, folder=project, timeout=50)

    def approvals(*words: str) -> tuple[int, list[Any], str]:
        ended = call(("approvals", "desk.yaml", *words))
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr

    assert call(("up", "desk.yaml", "--detach")).returncode == 0
    try:
        code, found, said = approvals()
        assert (code, [each["process"] for each in found]) == (0, ["front/1", "front/2"])
        assert "back/1: " in said  # it needs credentials
        by_process = {each["process"]: each["approval"]["id"] for each in found}
        code, found, _ = approvals("approve", by_process["front/2"], "--note", "fine")
        assert (code, found[0]["process"], found[0]["approval"]["note"]) == (0, "front/2", "fine")
        code, found, said = approvals("refuse", by_process["front/2"])
        assert (code, found[0]["process"]) == (1, "front/2")
        assert "somebody has approved it already" in said
        code, found, said = approvals("approve", "nonsense")
        assert code == 1
        assert "no approval 'nonsense' waits for this client" in said
        (back,) = [each for each in approvals("--bearer", "file:alice")[1] if each["process"] == "back/1"]
        id = back["approval"]["id"]
        assert approvals("approve", id, "--bearer", "file:app")[0] == 1
        assert approvals("approve", id)[0] == 1
        code, found, _ = approvals("approve", id, "--bearer", "file:alice")
        assert (code, found[0]["approval"]["by"]) == (0, "alice")
        assert "desk is approved: True" in call(("logs", "front")).stdout
    finally:
        call(("down", "desk.yaml"))
    code, _, said = approvals()
    assert code == 3
    assert "`up` runs it" in said


STORY_DESKS = """
from lmos_actors import Agent, action


class Desk(Agent):
    @action(concurrency=9)
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}", key=order, expires=30.0)
"""

STORY_FILE = """
lmos: deployment/v1
name: desk
agents: {desk: {from: agent, use: "stories_of_desks.py:Desk"}}
groups: {front: {agents: [desk], allow_operations: true}}
"""


@pytest.mark.slow
def test_a_story_of_processes_answers(project: Path) -> None:
    def asks(id: str) -> dict[str, Any]:
        given = {"target": "desk", "action": "refund", "input": {"order": id}}
        return {"do": "invoke", "id": id, "wait": False, **given}

    def is_answered(id: str, value: bool) -> dict[str, Any]:
        return {"do": "expect", "that": "output", "of": id, "equals": value}

    def ended(*steps: dict[str, Any]) -> RunResult:
        head = {"lmos": "scenario/v1", "name": "s", "system": "desk.yaml", "world": "process"}
        (project / "story.json").write_text(json.dumps({**head, "steps": steps}), encoding="utf-8")
        resolved = load_scenario(project / "story.json")
        (cell,) = resolved.cells
        return run_cell(resolved, cell, 1, real_limit=100.0)

    (project / "stories_of_desks.py").write_text(STORY_DESKS, encoding="utf-8")
    (project / "desk.yaml").write_text(STORY_FILE, encoding="utf-8")
    approved = {"do": "approve", "target": "desk", "key": "o-1", "note": "fine"}
    refused = {"do": "refuse", "target": "desk"}
    wrong = {"do": "approve", "target": "desk", "key": "o-9", "within": "1s"}
    result = ended(
        asks("o-1"),
        approved,
        is_answered("o-1", True),
        asks("o-2"),
        refused,
        is_answered("o-2", False),
        wrong,
    )
    (failure,) = result.failures
    assert "desk asks for an approval" in failure.expected
    assert '(key "o-1", approved)' in failure.saw


@pytest.mark.parametrize("key", ["security: security.yaml", "public_url: https://agents.example"])
def test_a_group_that_others_reach_has_access_lists(project: Path, key: str) -> None:
    text = FILE.replace("allow_operations: true,", f"allow_operations: true, {key},")
    (project / "desk.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="leave it out"):
        load_deployment(str(project / "desk.yaml"), settings={})
