"""pytest: fixtures, the same test on many seeds, and how a failure says how to run it again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import Agent, action
from lmos_actors.errors import Deadlocked
from lmos_actors.testing import TestNode, open_test_node, run_test
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = 'pytest_plugins = ["lmos_actors.testing"]\n'
TESTS = """
import os

import pytest
import trio
from lmos_actors import Agent, action
from lmos_actors.testing import open_test_node, run_test

class Dice(Agent):
    @action
    def roll(self) -> int:
        return self.random.randint(1, 6)

    @action
    async def never(self) -> None:
        await trio.sleep_forever()

@pytest.mark.parametrize("least", [1, 7])
async def test_roll(virtual_clock, least):
    async with open_test_node() as node:
        dice = await node.start(Dice)
        print("rolled", node.seed)
        assert await dice.invoke(Dice.roll) >= least

@pytest.mark.parametrize("own", ["seed5"])
async def test_ids(virtual_clock, own):
    async with open_test_node():
        assert not own

@pytest.fixture
def rolled():
    async def main(node):
        assert await (await node.start(Dice)).invoke(Dice.roll) > 6
    run_test(main)

def test_setup(rolled):
    pass

async def test_node(virtual_clock, node):
    dice = await node.start(Dice)
    print("given", node.seed)
    assert await dice.invoke(Dice.roll) > 6

async def test_blocked(virtual_clock, node):
    await (await node.start(Dice)).invoke(Dice.never)

async def test_left(virtual_clock, node):
    node.faults.on(Dice.roll, call=1, raises=KeyError)

def test_plain():
    print("plain", os.environ.get("LMOS_ACTORS_SEED"))
    assert False
"""


def run(folder: Path, *args: str, **environment: str) -> str:
    """What pytest says of the tests above."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\ntrio_mode = true\nfilterwarnings = error\n")
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", *args]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LMOS_"))}
    env = {**plain, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_fixtures_and_the_command_to_run_it_again(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "6 failed, 1 passed, 1 error" in said
    assert "LMOS_ACTORS_SEED=0 pytest 'test_it.py::test_ids[seed5]'" in said
    assert "LMOS_ACTORS_SEED=0 pytest test_it.py::test_setup" in said
    assert "LMOS_ACTORS_SEED=0 pytest 'test_it.py::test_roll[7]'" in said
    assert "LMOS_ACTORS_SEED=0 pytest test_it.py::test_node" in said
    assert "Deadlocked" in said
    assert "the test left something open" in said
    assert "fault on roll, call=[1] met no call at all" in said
    assert "pytest test_it.py::test_plain" not in said


@pytest.mark.slow
def test_many_seeds(tmp_path: Path) -> None:
    said = run(tmp_path, "--lmos-seeds", "3", "-k", "roll or test_node or plain", LMOS_ACTORS_SEED="5")
    assert "7 failed, 3 passed" in said
    assert "plain 5" in said
    assert re.findall(r"FAILED test_it.py::(\S+)", said) == [
        *(f"test_roll[seed{seed}-7]" for seed in (5, 6, 7)),
        *(f"test_node[seed{seed}]" for seed in (5, 6, 7)),
        "test_plain",
    ]
    assert re.findall(r"given (\d)", said) == ["5", "6", "7"]
    assert "LMOS_ACTORS_SEED=6 pytest 'test_it.py::test_roll[7]'" in said
    assert "LMOS_ACTORS_SEED=7 pytest test_it.py::test_node\n" in said


@pytest.mark.slow
def test_on_several_processes(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    said = run(tmp_path, "-n", "2", "--lmos-seeds", "2", "-k", "ids or setup")
    assert "2 failed, 1 error" in said
    assert "LMOS_ACTORS_SEED=1 pytest 'test_it.py::test_ids[seed5]'" in said
    assert "LMOS_ACTORS_SEED=0 pytest test_it.py::test_setup" in said


class Echo(Agent):
    """Answers."""

    @action
    def say(self, text: str) -> str:
        return text

    @action
    async def never(self) -> None:
        await trio.sleep_forever()


@given(text=st.text(max_size=3), seed=st.integers(0, 9))
def test_an_example_of_a_property_test_is_a_run_of_its_own(text: str, seed: int) -> None:
    async def main(node: TestNode, text: str) -> tuple[str, int | None, float]:
        echo = await node.start(Echo)
        await trio.sleep(60)
        return await echo.invoke(Echo.say, text), node.seed, trio.current_time()

    plain = text.encode("utf-8", "replace").decode()
    assert run_test(main, plain, seed=seed) == (plain, seed, 60.0)


def test_a_run_tells_its_seed_and_ends_when_it_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: TestNode) -> None:
        await (await node.start(Echo)).invoke(Echo.never)

    with pytest.raises(Deadlocked) as caught:
        run_test(main, seed=3)
    assert caught.value.__notes__ == ["seed 3: rerun with LMOS_ACTORS_SEED=3"]
    monkeypatch.setenv("LMOS_ACTORS_SEED", "8")

    async def seed(node: TestNode) -> int | None:
        return node.seed

    assert run_test(seed) == 8


async def test_a_test_node_is_a_node_in_all_else(virtual_clock) -> None:
    async with open_test_node() as node:
        echo = await node.start(Echo)
        assert node.agents() == [echo]
        assert "echo running #1" in node.tree()
        assert node.statistics().agents == 1
        assert not TestNode.__test__
