"""`lmos_actors.testing`: virtual time, seeds told on failure, and a report instead of a hang."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import Agent, ChildSpec, ConfigError, action, current_request, open_node, simulate
from lmos_actors._core import current_environment
from lmos_actors.errors import Deadlocked
from lmos_actors.persistence import MemoryStore
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import SEED_VARIABLE, open_test_node, settle


class Dice(Agent):
    rolled: tuple[int, ...] = ()

    def started(self) -> None:
        self.after(3600, self.roll)

    def roll(self) -> None:
        self.rolled += (self.random.randint(1, 1_000_000),)

    @action
    def rolls(self) -> tuple[int, ...]:
        return self.rolled

    @action
    async def wait_for_ever(self) -> None:
        await trio.sleep_forever()


def clocks() -> list[trio.abc.Clock]:
    return [VirtualClock(), MockClock(autojump_threshold=0)]


async def throw_dice(seed: int | None = None) -> tuple[int, ...]:
    async with open_test_node(seed=seed) as node:
        dice = await node.start(Dice)
        await trio.sleep(3601)
        return await dice.invoke(Dice.rolls)


@pytest.mark.parametrize("clock", clocks(), ids=["ours", "MockClock"])
def test_time_is_virtual_and_the_world_is_left_again(clock: trio.abc.Clock) -> None:
    async def main() -> None:
        assert len(await throw_dice()) == 1
        assert trio.current_time() >= 3601
        assert current_environment() is None

    trio.run(main, clock=clock)


@pytest.mark.parametrize(
    "clock", [None, MockClock(rate=1000)], ids=["real time", "MockClock that does not jump"]
)
def test_real_time_is_refused_with_the_remedy(clock: trio.abc.Clock | None) -> None:
    with pytest.raises(RuntimeError, match="virtual_clock"):
        trio.run(throw_dice, clock=clock)
    with pytest.raises(RuntimeError, match=r"VirtualClock\(\)"):
        trio.run(settle, clock=None if clock is None else MockClock())


def test_the_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def thrown(seed: int | None = None) -> tuple[int, ...]:
        return trio.run(throw_dice, seed, clock=VirtualClock())

    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    assert thrown() == thrown(0) != thrown(1)
    monkeypatch.setenv(SEED_VARIABLE, "1")
    assert thrown() == thrown(1)
    assert thrown(0) != thrown(1), "the argument goes before the environment"
    monkeypatch.setenv(SEED_VARIABLE, "one")
    with pytest.raises(ConfigError, match=f"{SEED_VARIABLE}: must be a whole number, not 'one'"):
        thrown()


def test_the_order_of_tasks_follows_from_the_seed() -> None:
    async def order(seed: int) -> list[int]:
        seen: list[int] = []

        async def one(n: int) -> None:
            for _ in range(5):
                await trio.sleep(1)
                seen.append(n)

        async with open_test_node(seed=seed), trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(one, n)
        return seen

    first, again, *others = [trio.run(order, seed, clock=VirtualClock()) for seed in (3, 3, 4, 5, 6, 7)]
    assert again == first
    assert any(other != first for other in others)


def test_an_exception_leaving_the_block_tells_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "17")

    async def main() -> None:
        async with open_test_node() as node:
            await node.start(Dice)
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        trio.run(main, clock=VirtualClock())
    assert caught.value.__notes__ == ["seed 17: rerun with LMOS_ACTORS_SEED=17"]


async def ask_for_ever() -> None:
    async with open_test_node() as node:
        dice = await node.start(Dice)
        await dice.invoke(Dice.wait_for_ever)


async def ask_for_ever_behind_a_shield() -> None:
    async with open_test_node() as node:
        dice = await node.start(Dice)
        with trio.CancelScope(shield=True):
            await dice.invoke(Dice.wait_for_ever)


async def wait_for_a_child_task() -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        dice = await node.start(Dice)
        nursery.start_soon(dice.invoke, Dice.wait_for_ever)


@pytest.mark.parametrize("main", [ask_for_ever, ask_for_ever_behind_a_shield, wait_for_a_child_task])
@pytest.mark.parametrize("kind", [0, 1], ids=["ours", "MockClock"])
def test_a_deadlock_ends_with_its_name(main, kind: int) -> None:
    with pytest.raises(Deadlocked) as caught:
        trio.run(main, clock=clocks()[kind])
    assert "test_a_deadlock_ends_with_its_name" in str(caught.value)
    assert "nothing can ever happen again" in str(caught.value)
    assert any("LMOS_ACTORS_SEED" in note for note in caught.value.__notes__)


async def test_the_fixture_gives_virtual_time(virtual_clock: VirtualClock) -> None:
    assert trio.lowlevel.current_clock() is virtual_clock
    assert len(await throw_dice()) == 1


class Till(Agent, durable=True):
    """Keeps what it has taken."""

    taken: int = 0

    @action
    def take(self, amount: int) -> int:
        self.taken += amount
        return self.taken


@pytest.mark.parametrize("clock", clocks(), ids=["ours", "MockClock"])
def test_a_node_of_any_run_on_virtual_time_has_its_store_and_its_network(clock: trio.abc.Clock) -> None:
    """Not just that of `open_test_node`: no thread and no socket is waited for."""

    async def main() -> None:
        store = MemoryStore()
        for taken in (5, 10):
            async with open_node(store=store, listen="ws://127.0.0.1:1") as node:
                await node.start_child(ChildSpec("till", Till))
                await trio.sleep(600)
                till = await node.consume(Till, "ws://127.0.0.1:1/agents/till")
                assert await till.invoke(Till.take, 5) == taken
        assert 1200 <= trio.current_time() < 1300

    trio.run(main, clock=clock)


def test_outside_the_block_the_fixtures_clock_crashes_trio_rather_than_hang(
    virtual_clock: VirtualClock,
) -> None:
    with pytest.raises(trio.TrioInternalError) as caught:
        trio.run(trio.sleep_forever, clock=virtual_clock)
    cause = caught.value.__cause__
    while isinstance(cause, BaseExceptionGroup):
        (cause,) = cause.exceptions
    assert isinstance(cause, Deadlocked)
    assert "test_outside_the_block" in str(cause)


def test_inside_a_simulation_the_world_is_the_simulations() -> None:
    async def main() -> tuple[tuple[int, ...], str]:
        found = current_environment()
        thrown = await throw_dice(seed=99)
        assert current_environment() is found
        try:
            async with open_test_node():
                raise KeyError("mine")
        except KeyError as exc:
            return thrown, exc.__notes__[0]
        raise AssertionError

    assert simulate(main, seed=4) == (
        trio.run(throw_dice, 4, clock=VirtualClock()),
        "seed 4: rerun with LMOS_ACTORS_SEED=4",
    )


@pytest.mark.parametrize("kind", [0, 1], ids=["ours", "MockClock"])
def test_settle_waits_for_the_present_instant_only(kind: int) -> None:
    async def main() -> None:
        seen: list[float] = []

        async def one() -> None:
            for seconds in (0, 0, 0, 1):
                await trio.sleep(seconds)
                seen.append(trio.current_time() - start)

        async with trio.open_nursery() as nursery:
            start = trio.current_time()
            nursery.start_soon(one)
            await settle()
            assert len(seen) == 3
            assert trio.current_time() == start

    trio.run(main, clock=clocks()[kind])


def test_outside_any_agent_there_is_no_current_request() -> None:
    with pytest.raises(LookupError):
        current_request()


@pytest.mark.slow
def test_it_needs_no_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None; import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pytest' else find(name, *rest)\n"
        "import lmos_actors.testing as testing\n"
        "print(testing.open_test_node.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "open_test_node\n"
