"""`lmos-actors approvals`: what it lists, what it decides, and its exit codes."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, action, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.cli import main
from lmos_actors.transport import TcpNetwork
from tests.commands import called

if TYPE_CHECKING:
    from pathlib import Path


class Desk(Agent):
    """Asks."""

    @action
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}", {"order": order}, key=order)


@attrs.frozen
class Ran:
    code: int
    approvals: list[dict[str, Any]]
    errors: list[str]


@pytest.mark.slow
async def test_it_lists_and_decides(tmp_path: Path) -> None:
    async def approvals(*words: str) -> Ran:
        ended = await trio.to_thread.run_sync(
            partial(called, ("approvals", place, *words), tmp_path, timeout=50)
        )
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        found = [line["approval"] for line in lines if "approval" in line]
        return Ran(ended.returncode, found, ended.stderr.splitlines())

    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await desk.invoke(Desk.refund, "o-1"))

    network = TcpNetwork()
    async with open_node(listen="ws://127.0.0.1:0", network=network, allow_operations=True) as node:
        desk = await node.start(Desk)
        place = node.urls[0].replace("ws://", "http://")
        ran = await approvals()
        assert (ran.code, ran.approvals) == (0, [])
        assert "nothing waits" in ran.errors[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            async with node.find(Approvals).observe(Approvals.waiting) as numbers:
                async for number in numbers:
                    if number:
                        break
            (found,) = (await approvals("list")).approvals
            assert (found["agent"], found["text"], found["state"]) == ("desk", "Refund o-1", "waiting")
            ran = await approvals("approve", found["id"], "--note", "as agreed")
            assert (ran.code, ran.approvals[0]["note"]) == (0, "as agreed")
        assert answers == [True]
        ran = await approvals("refuse", found["id"])
        assert ran.code == 1
        assert "somebody has approved it already" in ran.errors[0]
        (kept,) = (await approvals("--all")).approvals
        assert kept["state"] == "approved"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["approve"], "Give the id"),
        (["list", "7f0c"], "goes with approve or refuse"),
        (["--note", "fine"], "goes with approve or refuse"),
        (["refuse", "7f0c", "--all"], "goes with list"),
        (["accept", "7f0c"], "accept"),
    ],
)
def test_wrong_usage(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["approvals", "http://127.0.0.1:1", *words])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_a_deployment_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["approvals", "nothing.yaml"])
    assert ended.value.code == 2
    assert "URL: there is no file 'nothing.yaml'" in capsys.readouterr().err
