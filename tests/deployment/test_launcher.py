"""The launcher on virtual time: its processes are scripted."""

from __future__ import annotations

import json
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
import trio

from lmos_actors import ActionFailed, Backoff
from lmos_actors.deployment.processes import CANNOT_START, LauncherAgent, changes_between
from lmos_actors.errors import RestartIntensityExceeded
from tests.deployment.places import KILL, Script, World, deployed, group, plan_of
from tests.matrix import few_or_all
from tests.supervision.world import run, settled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STUBBORN = Script(drains=None)


def on_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in a simulated world."""

    def test_run() -> None:
        run(test)

    test_run.__name__, test_run.__doc__ = test.__name__, test.__doc__
    return test_run


async def until(seconds: float) -> None:
    """Sleep until an instant, and let all happen that happens then."""
    await trio.sleep_until(seconds)
    await settled()


def ended(error: BaseException) -> str:
    """Return why the launcher has ended, down to the process."""
    texts: list[str] = []
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop(0)
        if each is not None:
            texts.append(str(each))
            todo += [*getattr(each, "exceptions", ()), each.__cause__]
    return "\n".join(texts)


# ---- start and end


class Steps(trio.abc.Instrument):
    """Counts the steps of tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


def steps_of_a_start(count: int) -> int:
    """Return the steps of a launcher until two groups of so many processes are ready, one after another."""
    steps = Steps()

    async def main() -> None:
        names = [f"{name}/{number + 1}" for name in ("one", "two") for number in range(count)]
        scripts = {name: [Script(ready=1.0 + number / 8)] for number, name in enumerate(names)}
        two = group("two", count, needs={"one": "ready"}, ready=600.0)
        async with deployed(group("one", count, ready=600.0), two, scripts=scripts) as world:
            trio.lowlevel.add_instrument(steps)
            await world.launcher.wait_ready()
            trio.lowlevel.remove_instrument(steps)

    run(main)
    return steps.count


def test_the_work_of_a_start_grows_with_the_processes_and_not_with_their_square() -> None:
    assert steps_of_a_start(80) < 2.5 * steps_of_a_start(40)


@on_virtual_time
async def test_groups_start_as_they_need_each_other_and_end_in_reverse() -> None:
    front = group("front", needs={"weather": "ready", "store": "started"})
    weather = group("weather", 2, needs={"registry": "ready"})
    async with deployed(front, weather, group("registry"), group("store")) as world:
        await world.launcher.wait_ready()
        assert world.place.take() == [
            *("0 start registry/1", "0 start store/1", "1 ready registry/1", "1 ready store/1"),
            *("1 start weather/1", "1 start weather/2", "2 ready weather/1", "2 ready weather/2"),
            *("2 start front/1", "3 ready front/1"),
        ]
    assert world.place.take() == [
        *("3 stop front/1", "4 end front/1"),
        *("4 stop store/1", "5 end store/1"),
        *("5 stop weather/1", "5 stop weather/2", "6 end weather/1", "6 end weather/2"),
        *("6 stop registry/1", "7 end registry/1"),
    ]


@on_virtual_time
async def test_ready_needs_wait_for_ready_and_started_ones_for_a_start() -> None:
    early, late = group("early", needs={"slow": "started"}), group("late", needs={"slow": "ready"})
    async with deployed(
        early, late, group("slow"), scripts={"slow/1": [Script(ready=9, starting=2)]}
    ) as world:
        await until(2)
        assert world.states() == {"slow/1": "starting", "early/1": "starting", "late/1": "waiting"}
        await until(11)
        assert world.states() == {"slow/1": "ready", "early/1": "ready", "late/1": "starting"}


@on_virtual_time
async def test_groups_that_use_a_directory_wait_until_it_listens_and_not_for_the_agents_beside_it() -> None:
    scripts = {"host/1": [Script(ready=20.0, bound="ws://127.0.0.1:7100")]}
    guest = group("guest", needs={"host": "listening"})
    async with deployed(guest, group("host"), scripts=scripts) as world:
        await until(5)
        assert world.states() == {"host/1": "starting", "guest/1": "ready"}
        await world.launcher.wait_ready()


@on_virtual_time
async def test_a_process_that_does_not_drain_is_killed_with_all_of_its_group_at_one_instant() -> None:
    async with deployed(group("weather", 3, drain=4.0), group("front"), usual=STUBBORN) as world:
        await world.launcher.wait_ready()
        world.place.take()
    assert world.place.take() == [
        *("1 stop front/1", "17 end front/1", "17 kill front/1"),
        *(f"17 stop weather/{number}" for number in (1, 2, 3)),
        *(f"27 {what} weather/{number}" for what in ("end", "kill") for number in (1, 2, 3)),
    ]


@on_virtual_time
async def test_an_end_while_groups_start_leaves_no_process() -> None:
    slow = Script(ready=None, starting=3)
    async with deployed(group("a"), group("b", needs={"a": "ready"}), scripts={"a/1": [slow]}) as world:
        await until(1)
    assert world.place.take() == ["3 start a/1", "3 stop a/1", "4 end a/1"]
    node: Any = world.launcher._node
    assert not node.crash_reports


@on_virtual_time
async def test_a_force_stop_kills_all_at_once() -> None:
    async with deployed(group("a", 2), group("b"), usual=STUBBORN) as world:
        await world.launcher.wait_ready()
        world.place.take()
        node: Any = world.launcher._node
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.launcher.stop)
            await until(3)
            node.force_stop()
    assert [line for line in world.place.take() if "kill" in line] == [
        *("3 kill a/1", "3 kill a/2", "3 kill b/1"),
    ]


# ---- processes that end by themselves


@on_virtual_time
async def test_a_process_that_ends_is_started_again_and_its_status_says_why() -> None:
    scripts = {"a/1": [Script(ends=5, code=3, says="KeyError: 'city'"), Script()]}
    async with deployed(group("a", 2), scripts=scripts) as world:
        await until(5.01)
        assert world.states() == {"a/1": "ready", "a/2": "ready"}  # its last words may still come
        await until(6)
        assert world.states() == {"a/1": "starting", "a/2": "ready"}
        await until(7)
        found = world.replica("a/1")
        assert (found.state, found.generation, found.restarts) == ("ready", 2, 1)
        assert found.why == "ended with exit code 3: KeyError: 'city'"
        assert world.seen[-3:] == ["5.05 a/1 waiting", "5.05 a/1 starting", "6.05 a/1 ready"]


@on_virtual_time
async def test_a_process_is_started_again_with_the_store_that_its_number_has_used() -> None:
    """Not with that of another number, nor where nothing was said of one."""
    store = "redis://10.0.0.5?prefix=a-$(replica)"
    async with deployed(group("a", 2, store=store), group("b"), group("c", store=store)) as world:
        await until(2)
        for name, id in (("a/1", "1" * 16), ("b/1", "2" * 16)):
            await world.place.last(name).say("store", id=id)
        await until(3)
        for name in ("a/1", "a/2", "b/1", "c/1"):
            world.place.last(name).end(KILL)
        await until(5)
        given = {
            order.name: order.arguments[order.arguments.index("--store-id") + 1]
            for order in world.place.orders[4:]
            if "--store-id" in order.arguments
        }
        assert given == {"a/1": "1" * 16, "c/1": "1" * 16}, "the group c has the same store"


@on_virtual_time
async def test_a_process_says_which_of_its_agents_are_down_and_is_ready_all_the_same() -> None:
    down = json.dumps({"event": "degraded", "agents": ["tools", *map(str, range(20))]})
    none = json.dumps({"event": "degraded", "agents": []})
    scripts = {"one/1": [Script(prints=(down,))], "two/1": [Script(prints=(down, none))]}
    async with deployed(group("one"), group("two"), scripts=scripts) as world:
        await world.launcher.wait_ready()
        await settled()
        assert world.states() == {"one/1": "ready", "two/1": "ready"}
        assert world.replica("one/1").degraded == ("tools", "0", "1", "2", "3", "4", "5", "6")
        assert world.replica("two/1").degraded == ()


@on_virtual_time
async def test_a_process_that_is_killed_by_somebody_else_is_started_again() -> None:
    async with deployed(group("a")) as world:
        await until(2)
        world.place.last("a/1").end(KILL)
        await until(4)
        assert world.states() == {"a/1": "ready"}
        assert world.replica("a/1").why == "was killed by SIGKILL"


@on_virtual_time
async def test_a_process_that_is_not_ready_in_time_is_replaced_even_if_it_does_not_heed_signals() -> None:
    never = Script(ready=None, drains=None)
    async with deployed(group("a", ready=10.0, drain=60.0), scripts={"a/1": [never, Script()]}) as world:
        await until(30)
        assert world.place.take() == [
            *("0 start a/1", "10 stop a/1", "16 end a/1", "16 kill a/1", "16 start a/1", "17 ready a/1"),
        ]
        why = "was not ready within 10 s, `ready` of its group, did not heed SIGTERM for 6 s, and was killed"
        assert world.replica("a/1").why == why


@on_virtual_time
async def test_a_process_that_ends_while_it_starts_counts_as_one_that_ends() -> None:
    early = Script(ready=None, ends=1, says="OSError: [Errno 98] Address already in use")
    with pytest.raises(RestartIntensityExceeded) as caught:
        async with deployed(group("a"), usual=early, max_restarts=0) as world:
            await trio.sleep_forever()
    assert len(world.place.processes) == 4
    assert "a/1 ended with exit code 1: OSError: [Errno 98] Address already in use" in ended(caught.value)


UNABLE = Script(ends=0.5, ready=None, code=CANNOT_START, says="lmos-actors: Books is durable")


@on_virtual_time
async def test_a_process_that_cannot_start_is_not_started_again_and_says_why() -> None:
    scripts = {"books/1": [UNABLE, Script()]}
    front = group("front", needs={"books": "ready"})
    async with deployed(group("books"), group("other"), front, scripts=scripts) as world:
        await world.launcher.wait_ready()
        await until(60)
        assert world.states() == {"books/1": "failed", "other/1": "ready", "front/1": "waiting"}
        assert world.replica("books/1").why == "cannot start: lmos-actors: Books is durable"
        assert world.replica("front/1").why == "waits for books to be ready"
        assert [line for line in world.place.take() if "start books" in line] == ["0 start books/1"]
        done = await world.asked(world.ref.stream(LauncherAgent.restart, ["books"], False))
        assert done[-1] == "books: ready"
        await until(70)
        assert set(world.states().values()) == {"ready"}


@on_virtual_time
async def test_up_again_starts_what_could_not_start() -> None:
    plan = plan_of(group("books"))
    async with deployed(*plan.groups, scripts={"books/1": [UNABLE, Script()]}) as world:
        await world.launcher.wait_ready()
        assert world.launcher.changes_to(plan).lines() == ["books: stopped, to be started again"]
        async with aclosing(world.launcher.apply(plan)) as texts:
            assert [text async for text in texts] == ["books: ready"]


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (attrs.evolve(UNABLE, ready=0.2), {}),
        (attrs.evolve(UNABLE, code=3), {}),
        (UNABLE, {"is_patient": True}),
    ],
)
def test_what_may_start_later_is_started_again(script: Script, options: Any) -> None:
    """It was ready before, says that it could not run, or its code is being written."""

    async def main() -> None:
        async with deployed(group("books", **options), scripts={"books/1": [script, Script()]}) as world:
            await until(10)
            assert world.states() == {"books/1": "ready"}
            assert world.replica("books/1").restarts == 1

    run(main)


@on_virtual_time
async def test_a_replacement_that_cannot_start_leaves_the_other_processes() -> None:
    scripts = {"books/1": [Script(), UNABLE]}
    async with deployed(group("books", 2), scripts=scripts) as world:
        await world.launcher.wait_ready()
        with pytest.raises(ActionFailed, match="books/1 did not become ready: it cannot start"):
            await world.asked(world.ref.stream(LauncherAgent.restart, ["books"], True))
        assert world.states() == {"books/1": "stopped", "books/2": "ready"}


@on_virtual_time
async def test_what_a_place_cannot_start_counts_as_one_that_ends() -> None:
    with pytest.raises(RestartIntensityExceeded) as caught:
        async with deployed(group("a"), usual=Script(fails="no room"), max_restarts=0):
            await trio.sleep_forever()
    assert "no room" in ended(caught.value)


@on_virtual_time
async def test_a_backoff_spreads_the_starts() -> None:
    backoff = Backoff(initial=1.0, max=8.0, jitter=0.0)
    options: dict[str, Any] = {"max_restarts": 9, "max_seconds": 60.0, "backoff": backoff}
    async with deployed(group("a", **options), usual=Script(ready=None, ends=1)) as world:
        await until(1.5)
        assert world.states() == {"a/1": "restarting"}
        await until(13)
        starts = [float(line.split()[0]) for line in world.place.take() if "start" in line]
        assert starts == pytest.approx([0, 2.05, 5.10, 10.15])


# ---- groups that fail too often, and the others


STRATEGIES = {
    "one_for_one": ["a/1", "b/1", "c/1"],
    "one_for_all": [],
    "rest_for_one": ["a/1"],
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_that_fails_too_often_takes_others_with_it_as_the_file_says(strategy: str) -> None:
    async def main() -> None:
        crash = Script(ends=2)
        scripts = {"b/1": [crash, crash, Script()]}
        groups = group("a"), group("b", max_restarts=1, max_seconds=60.0), group("c")
        async with deployed(*groups, scripts=scripts, strategy=strategy) as world:
            await until(1)
            before = {name: world.place.last(name) for name in ("a/1", "c/1")}
            await until(20)
            kept = [name for name, process in before.items() if process is world.place.last(name)]
            assert kept == [name for name in STRATEGIES[strategy] if name != "b/1"]
            assert set(world.states().values()) == {"ready"}
            if strategy == "one_for_all":
                ends = [line for line in world.place.take() if line.startswith(("4.1 stop", "5.1 stop"))]
                assert ends == ["4.1 stop c/1", "5.1 stop a/1"]

    run(main)


@on_virtual_time
async def test_a_group_whose_supervisor_gives_up_drains_at_once_too() -> None:
    scripts = {"a/1": [Script(ends=2)]}
    with pytest.raises(RestartIntensityExceeded):
        async with deployed(group("a", 4, max_restarts=0), scripts=scripts, max_restarts=0) as world:
            await trio.sleep_forever()
    lines = world.place.take()
    assert [line for line in lines if "stop" in line] == [f"2.05 stop a/{number}" for number in (2, 3, 4)]


@on_virtual_time
async def test_the_launcher_ends_once_groups_fail_too_often_together() -> None:
    with pytest.raises(RestartIntensityExceeded) as caught:
        async with deployed(group("a", 2), group("b"), scripts={"a/1": [Script(ends=1, says="no")]}) as world:
            await trio.sleep_forever()
    assert world.place.running() == []
    text = ended(caught.value)
    assert "a/1 ended with exit code 1: no" in text


# ---- what is asked of it


@on_virtual_time
async def test_a_restart_replaces_all_processes_of_a_group_at_once() -> None:
    async with deployed(group("a", 2), group("b")) as world:
        await until(2)
        world.place.take()
        lines = await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], False))
        assert lines == ["a: stopped, and started again", "a: ready"]
        assert world.place.take() == [
            *("2 stop a/1", "2 stop a/2", "3 end a/1", "3 end a/2", "3 start a/1", "3 start a/2"),
            *("4 ready a/1", "4 ready a/2"),
        ]


@on_virtual_time
async def test_a_rolling_restart_stops_first_in_batches_with_pauses() -> None:
    async with deployed(group("a", 3, batch=2, pause=5.0)) as world:
        await until(2)
        world.place.take()
        lines = await world.asked(world.ref.stream(LauncherAgent.restart, [], True))
        assert lines == ["a: 1, 2 replaced by 1, 2", "a: 3 replaced by 3"]
        assert world.place.take() == [
            *("2 stop a/1", "2 stop a/2", "3 end a/1", "3 end a/2", "3 start a/1", "3 start a/2"),
            *("4 ready a/1", "4 ready a/2", "9 stop a/3", "10 end a/3", "10 start a/3", "11 ready a/3"),
        ]


@on_virtual_time
async def test_a_rolling_restart_that_starts_first_never_has_fewer_than_it_had() -> None:
    async with deployed(group("a", 2, order="start_first")) as world:
        await until(2)
        world.place.take()
        lines = await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], True))
        assert lines == ["a: 1 replaced by 3", "a: 2 replaced by 1"]
        assert world.place.take() == [
            *("2 start a/3", "3 ready a/3", "3 stop a/1", "4 end a/1"),
            *("4 start a/1", "5 ready a/1", "5 stop a/2", "6 end a/2"),
        ]
        assert world.states() == {"a/1": "ready", "a/3": "ready"}


@on_virtual_time
async def test_a_failure_in_the_middle_of_a_rolling_restart_leaves_the_rest() -> None:
    scripts = {"a/2": [Script(), Script(ready=None, ends=1, says="SyntaxError")]}
    async with deployed(group("a", 3, max_restarts=99), scripts=scripts) as world:
        await until(2)
        third = world.place.last("a/3")
        with pytest.raises(ActionFailed, match="a/2 did not become ready: it ended with exit code 1: Synt"):
            await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], True))
        assert world.place.last("a/3") is third
        assert world.launcher.status().doing == ""


@on_virtual_time
async def test_code_that_is_broken_ends_one_process_of_a_rolling_restart_and_not_the_deployment() -> None:
    broken = [Script(), *[Script(ready=None, ends=1, says="SyntaxError")] * 9, Script()]
    scripts: dict[str, list[Script]] = {"a/1": broken, "a/2": [Script()]}
    async with deployed(group("a", 2), group("b"), scripts=scripts) as world:
        await until(2)
        with pytest.raises(ActionFailed, match="a/1 did not become ready: it ended with exit code 1: Synt"):
            await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], True))
        await until(100)
        assert world.states() == {"a/1": "stopped", "a/2": "ready", "b/1": "ready"}
        assert world.launcher.status().groups[0].replicas[0].why == "ended with exit code 1: SyntaxError"


@on_virtual_time
async def test_a_failed_replacement_that_was_started_first_goes_and_the_old_one_stays() -> None:
    scripts = {"a/3": [Script(ready=None, drains=None)]}
    async with deployed(group("a", 2, order="start_first", ready=10.0), scripts=scripts) as world:
        await until(2)
        before = [world.place.last("a/1"), world.place.last("a/2")]
        with pytest.raises(ActionFailed, match="a/3 did not become ready"):
            await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], True))
        assert world.states() == {"a/1": "ready", "a/2": "ready"}
        assert [process for process in world.place.processes if process.code is None] == before


@on_virtual_time
async def test_a_restart_of_what_waits_says_what_it_waits_for() -> None:
    late = group("b", needs={"a": "ready"}, ready=5.0)
    async with deployed(group("a", ready=99.0), late, usual=Script(ready=None)) as world:
        await until(2)
        with pytest.raises(ActionFailed, match="b/1 did not become ready: it waits for a to be ready"):
            await world.asked(world.ref.stream(LauncherAgent.restart, ["b"], False))


@on_virtual_time
async def test_scale_starts_the_first_free_numbers_and_stops_the_last() -> None:
    async with deployed(group("a", 2)) as world:
        await until(2)
        scale = LauncherAgent.scale
        assert await world.asked(world.ref.stream(scale, "a", 4)) == ["a: 3, 4 ready"]
        assert sorted(world.states()) == ["a/1", "a/2", "a/3", "a/4"]
        world.place.take()
        assert await world.asked(world.ref.stream(scale, "a", 1)) == ["a: 2, 3, 4 stopped"]
        assert [line for line in world.place.take() if "stop" in line] == [
            "3 stop a/2",
            "3 stop a/3",
            "3 stop a/4",
        ]
        assert await world.asked(world.ref.stream(scale, "a", 1)) == []
        assert await world.asked(world.ref.stream(scale, "a", 0)) == ["a: 1 stopped"]
        assert (world.states(), world.launcher.status().groups[0].wanted) == ({}, 0)
        await world.launcher.wait_ready()
        assert await world.asked(world.ref.stream(scale, "a", 1)) == ["a: 1 ready"]


COUNTS = {
    ("a", 3): '"a" can have 0 to 2 processes, not 3: that is the most',
    ("a", -1): '"a" can have 0 to 2 processes, not -1: that is the most',
    ("alone", 2): '"alone" can have 0 to 1 processes, not 2: they would have one port or one file',
    ("aloen", 1): 'no group "aloen", did you mean "alone"?',
    ("xyz", 1): 'no group "xyz" (there are: a, alone)',
}


@on_virtual_time
async def test_a_count_or_a_group_that_cannot_be_is_refused_by_name() -> None:
    async with deployed(group("a", most=2), group("alone", most=1)) as world:
        await until(2)
        for (name, count), text in COUNTS.items():
            with pytest.raises(ActionFailed) as caught:
                await world.asked(world.ref.stream(LauncherAgent.scale, name, count))
            assert caught.value.output == text
        assert world.states() == {"a/1": "ready", "alone/1": "ready"}


@on_virtual_time
async def test_a_group_stays_drained_until_it_is_restarted() -> None:
    async with deployed(group("a", 2)) as world:
        await until(2)
        assert await world.asked(world.ref.stream(LauncherAgent.drain, "a")) == ["a: stopped"]
        await until(50)
        assert world.states() == {"a/1": "stopped", "a/2": "stopped"}
        assert world.place.running() == []
        await world.asked(world.ref.stream(LauncherAgent.drain, "a"))
        await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], False))
        assert world.states() == {"a/1": "ready", "a/2": "ready"}


@on_virtual_time
async def test_a_process_that_is_killed_while_it_drains_is_no_failure() -> None:
    async with deployed(group("a"), usual=Script(drains=5)) as world:
        await until(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.asked, world.ref.stream(LauncherAgent.restart, ["a"], True))
            await until(3)
            assert world.states() == {"a/1": "draining"}
            world.place.last("a/1").end(KILL)
        assert world.place.take()[-2:] == ["3 start a/1", "4 ready a/1"]
        assert world.replica("a/1").restarts == 0


@on_virtual_time
async def test_two_requests_at_once_wait_for_each_other() -> None:
    async with deployed(group("a", 2)) as world:
        await until(2)
        world.place.take()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.asked, world.ref.stream(LauncherAgent.restart, ["a"], True))
            await until(2.5)
            assert (await world.ref.invoke(LauncherAgent.status)).doing == "restart --rolling a"
            nursery.start_soon(world.asked, world.ref.stream(LauncherAgent.scale, "a", 1))
        stops = [line for line in world.place.take() if "stop" in line]
        assert stops == ["2 stop a/1", "4 stop a/2", "6 stop a/2"]


REQUESTS: dict[str, tuple[Callable[[World], Any], set[str]]] = {
    "restart": (lambda world: world.ref.stream(LauncherAgent.restart, ["a"], False), {"a/1", "a/2", "a/3"}),
    "rolling": (lambda world: world.ref.stream(LauncherAgent.restart, ["a"], True), {"a/1", "a/2", "a/3"}),
    "up": (lambda world: world.ref.stream(LauncherAgent.scale, "a", 6), {f"a/{n}" for n in range(1, 7)}),
    "down": (lambda world: world.ref.stream(LauncherAgent.scale, "a", 1), {"a/1"}),
}


@pytest.mark.parametrize("order", ["start_first", "stop_first"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_is_cut_off_leaves_its_group_whole(name: str, order: Any) -> None:
    """Each request is cut off at each half second of its life."""
    request, numbers = REQUESTS[name]

    async def main(after: float) -> None:
        async with deployed(group("a", 3, order=order, batch=2)) as world:
            await until(2)
            with trio.move_on_after(after):
                await world.asked(request(world))
            await until(30)
            assert world.launcher.status().doing == ""
            assert set(world.states().values()) == {"ready"}, after
            assert sorted(world.states()) == world.place.running()
            if name in ("restart", "up", "down") or order == "stop_first":
                assert set(world.states()) == numbers, after
            else:
                assert len(world.states()) == len(numbers), after

    for half in range(1, 12, few_or_all(4, 1)):
        run(partial(main, half / 2 - 0.25))


@pytest.mark.parametrize("order", ["start_first", "stop_first"])
def test_an_end_during_a_rolling_restart_ends_it_after_its_step(order: Any) -> None:
    async def main(after: float) -> None:
        refused = None
        async with deployed(group("a", 2, order=order), group("b")) as world:
            await until(2)
            async with trio.open_nursery() as nursery:

                async def restart() -> None:
                    nonlocal refused
                    try:
                        await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], True))
                    except ActionFailed as error:
                        refused = error.output

                nursery.start_soon(restart)
                await trio.sleep(after)
                await world.ref.invoke(LauncherAgent.down)
                assert world.launcher.ending.is_set()
        done = order == "start_first" and after > 3  # in its last step
        assert refused == (None if done else "the launcher is ending")
        assert trio.current_time() <= 2 + after + 3

    for half in range(1, 8):
        run(partial(main, half / 2 - 0.25))


@on_virtual_time
async def test_those_who_wait_and_follow_end_with_the_launcher() -> None:
    ends: list[str] = []
    async with trio.open_nursery() as nursery:

        async def follow(world: World) -> None:
            lines = await world.asked(world.ref.stream(LauncherAgent.logs, [], 0, True))
            ends.append(f"{trio.current_time():g} logs {lines[-1].text}")

        async def ready(world: World) -> None:
            with pytest.raises(ActionFailed, match="is ending"):
                await world.ref.invoke(LauncherAgent.ready)
            ends.append(f"{trio.current_time():g} ready")

        async with deployed(group("a"), usual=Script(ready=None)) as world:
            nursery.start_soon(follow, world)
            nursery.start_soon(ready, world)
            await until(3)
    assert ends == ["3 ready", '4 logs {"event": "draining"}']


# ---- a group that was scaled, and fails too often


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_group_that_begins_anew_has_the_count_it_was_scaled_to(count: int) -> None:
    async def main() -> None:
        async with deployed(group("a", 3, max_restarts=0)) as world:
            await until(2)
            await world.asked(world.ref.stream(LauncherAgent.scale, "a", count))
            world.place.last("a/1").end(KILL)
            await until(30)
            assert set(world.states().values()) == {"ready"}
            assert len(world.place.running()) == len(world.states()) == count
            await world.launcher.wait_ready()

    run(main)


@on_virtual_time
async def test_a_replaced_group_that_begins_anew_has_its_count() -> None:
    async with deployed(group("a", 2, max_restarts=0, order="start_first")) as world:
        await until(2)
        await world.asked(world.ref.stream(LauncherAgent.restart, ["a"], True))
        world.place.last("a/3").end(KILL)
        await until(40)
        assert world.states() == {"a/1": "ready", "a/2": "ready"}
        assert world.place.running() == ["a/1", "a/2"]


# ---- what processes say


@on_virtual_time
async def test_addresses_are_known_and_a_directory_is_found_where_it_was() -> None:
    registry = group("registry", tells_address=True)
    front = group("front", needs={"registry": "ready"}, hosts=("registry",))
    scripts = {"registry/1": [Script(url="ws://127.0.0.1:4711")]}
    async with deployed(registry, front, scripts=scripts) as world:
        await world.launcher.wait_ready()
        assert world.replica("registry/1").urls == ("ws://127.0.0.1:4711",)
        at = ("--at", "registry=http://127.0.0.1:4711")
        assert world.place.orders[0].arguments[-3:] == ("--replica", "1", "--launched")
        assert world.place.orders[1].arguments[-5:] == ("--replica", "1", *at, "--launched")
        await world.asked(world.ref.stream(LauncherAgent.restart, ["registry"], False))
        assert world.place.orders[2].arguments[-5:] == ("--replica", "1", *at, "--launched")


@on_virtual_time
async def test_processes_follow_a_directory_that_has_moved_to_another_machine() -> None:
    registry = group("registry", tells_address=True)
    front = group("front", 2, needs={"registry": "ready"}, hosts=("registry",))
    first, second = "ws://192.0.2.1:4711", "ws://192.0.2.2:4711"
    scripts = {"registry/1": [Script(url=first, ends=5), Script(url=second)]}
    async with deployed(registry, front, group("other"), scripts=scripts) as world:
        await until(20)
        at = [(order.name, order.arguments[-2:-1]) for order in world.place.orders[4:]]
        assert at == [
            ("registry/1", ("registry=http://192.0.2.1:4711",)),
            ("front/1", ("registry=http://192.0.2.2:4711",)),
            ("front/2", ("registry=http://192.0.2.2:4711",)),
        ]
        world.place.take()
        world.place.last("registry/1").end(1)  # and is there again where it was
        await until(30)
        assert [order.name for order in world.place.orders[7:]] == ["registry/1"]


@on_virtual_time
async def test_why_processes_do_not_follow_a_directory_is_said() -> None:
    registry = group("registry", tells_address=True)
    front = group("front", needs={"registry": "ready"}, hosts=("registry",))
    first, second = (Script(url=f"ws://192.0.2.{number}:4711") for number in (1, 2))
    broken = Script(ready=None, ends=1, says="no module")
    scripts = {"registry/1": [first, second], "front/1": [Script(), broken]}
    async with deployed(registry, front, scripts=scripts) as world:
        await until(3)
        world.place.last("registry/1").end(1)
        await until(20)
        doing = "restart --rolling front, as a directory has moved"
        failure = f"{doing}: front/1 did not become ready: it ended with exit code 1: no module"
        assert world.said == [doing, f"{failure}; `restart front` tries it again"]


@on_virtual_time
async def test_states_at_each_instant_as_they_are_noticed() -> None:
    async with deployed(group("a"), scripts={"a/1": [Script(ends=3), Script()]}) as world:
        await until(6)
    assert world.seen == [
        *("0 a/1 waiting", "0 a/1 starting", "1 a/1 ready", "3.05 a/1 restarting"),
        *("3.05 a/1 waiting", "3.05 a/1 starting", "4.05 a/1 ready"),
        *("6 a/1 draining", "7 a/1 stopped"),
    ]


ODD = [b'{"event"', b'{"event": 7}', b'{"event": "ready"', b'{"event": "listening"}', b"\xff\xfe", b"\0", b""]


@on_virtual_time
async def test_odd_output_is_no_event() -> None:
    async with deployed(group("a"), usual=Script(ready=None)) as world:
        await until(1)
        for line in ODD:
            await world.place.last("a/1")._pieces[0].send(line + b"\n")
        await until(2)
        assert world.states() == {"a/1": "starting"}


@pytest.mark.slow  # its lines: the tests around it, test_log_files.py
@on_virtual_time
async def test_a_flood_slows_the_process_that_floods_alone() -> None:
    async with deployed(group("a"), group("b"), scripts={"a/1": [Script(floods=1_000)]}) as world:
        with world.launcher.logs.follow(patience=10.0):  # one who never takes a line
            await until(3)
            printed = world.place.last("a/1").printed
            await until(10)
            assert world.place.last("a/1").printed == printed
            assert 0 < printed < 1_000
            assert world.states() == {"a/1": "ready", "b/1": "ready"}


# ---- another plan


async def applied(world: World, *groups: Any, **options: Any) -> list[str]:
    """Have a launcher run another plan; return what it has done."""
    async with world.launcher.at_work("up"):
        return await world.asked(aclosing(world.launcher.apply(plan_of(*groups, **options))))


@on_virtual_time
async def test_another_plan_gives_supervisors_other_limits_at_once() -> None:
    scripts = {"a/1": [*([Script(ends=2)] * 4), Script()]}
    async with deployed(group("a", max_restarts=0), scripts=scripts, max_restarts=0) as world:
        await until(1)
        after = group("a", max_restarts=4, max_seconds=600.0)
        assert await applied(world, after, max_restarts=1, strategy="one_for_all") == []
        running = world.launcher.running
        assert changes_between(running, plan_of(after, max_restarts=1)).lines() == []
        other = changes_between(running, plan_of(after, max_restarts=1, strategy="one_for_all"))
        assert other.at_next_start == ("launcher.strategy",), "which is said as long as it is so"
        await until(20)
        assert world.states() == {"a/1": "ready"}
        assert world.launcher.groups["a"].members[1].restarts == 4


@on_virtual_time
async def test_another_plan_starts_replaces_scales_and_stops_groups() -> None:
    async with deployed(group("a", 2), group("b"), group("c", 2), group("d")) as world:
        await until(2)
        kept = world.place.last("b/1")
        after = group("a", 2, content="new"), group("b"), group("c", 3), group("e", needs={"b": "ready"})
        assert await applied(world, *after) == [
            "e: ready",
            *("a: 1 replaced by 1", "a: 2 replaced by 2"),
            "c: 3 ready",
            "d: stopped",
        ]
        assert world.place.running() == ["a/1", "a/2", "b/1", "c/1", "c/2", "c/3", "e/1"]
        assert world.place.last("b/1") is kept
        assert set(world.states().values()) == {"ready"}
        assert await applied(world, *after) == []


def reads(world: World, *plans: Any) -> None:
    """Have the file of a launcher be so at its first reading, and so at its next ones."""

    async def read(settings: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return left.pop(0) if left[1:] else left[0]

    left, launcher = list(plans), cast("Any", world.launcher)
    launcher.read = read


@on_virtual_time
async def test_a_file_is_read_once_for_what_is_said_and_what_is_done() -> None:
    async with deployed(group("a")) as world:
        reads(world, plan_of(group("a", 2)), plan_of())
        await until(2)
        said = await world.asked(world.ref.stream(LauncherAgent.apply, {}))
        assert said == ["a: 2 processes from now on", "a: 2 ready"]


@on_virtual_time
async def test_groups_that_were_drained_are_started_by_the_same_plan() -> None:
    groups = group("a", 2), group("b", needs={"a": "ready"})
    async with deployed(*groups) as world:
        reads(world, plan_of(*groups))
        await until(3)
        assert await world.ref.invoke(LauncherAgent.changes, {}) == []
        for name in ("b", "a"):
            await world.asked(world.ref.stream(LauncherAgent.drain, name))
        planned = ["a: stopped, to be started again", "b: stopped, to be started again"]
        assert await world.ref.invoke(LauncherAgent.changes, {}) == planned
        said = await world.asked(world.ref.stream(LauncherAgent.apply, {}))
        assert said == [*planned, "a: ready", "b: ready"]
        assert world.states() == {"a/1": "ready", "a/2": "ready", "b/1": "ready"}


@on_virtual_time
async def test_a_drained_group_that_changes_runs_as_the_new_plan_says() -> None:
    async with deployed(group("a", 2), group("b", 3), group("c", 2), group("d")) as world:
        await until(2)
        for name in ("a", "b", "c", "d"):
            await world.asked(world.ref.stream(LauncherAgent.drain, name))
        await applied(world, group("a", 3), group("b"), group("c", 2, content="new"), group("d", 0))
        assert world.states() == dict.fromkeys(("a/1", "a/2", "a/3", "b/1", "c/1", "c/2"), "ready")


@on_virtual_time
async def test_a_changed_group_is_made_smaller_before_its_processes_are_replaced() -> None:
    new = [group("a", 1, content="new"), group("b", 2)]
    async with deployed(group("a", 3), group("b")) as world:
        await until(2)
        world.place.take()
        assert changes_between(world.launcher.running, plan_of(*new)).lines() == [
            "a: 1 process from now on",
            "a: changed, its processes are replaced in turn",
            "b: 2 processes from now on",
        ]
        assert await applied(world, *new) == ["a: 2, 3 stopped", "a: 1 replaced by 1", "b: 2 ready"]
        starts = [line for line in world.place.take() if "start" in line]
        assert starts == ["4 start a/1", "5 start b/2"]
        assert await applied(world, *new) == []


@on_virtual_time
async def test_a_directory_that_is_given_a_port_is_not_started_where_it_was() -> None:
    registry, front = group("registry", tells_address=True), group("front", hosts=("registry",))
    scripts = {"registry/1": [Script(url="ws://127.0.0.1:4711")]}
    async with deployed(registry, front, scripts=scripts) as world:
        await world.launcher.wait_ready()
        moved = group("registry", content="new"), group("front", hosts=("registry",), content="new")
        assert await applied(world, *moved) == ["registry: 1 replaced by 1", "front: 1 replaced by 1"]
        assert [order.arguments[-3:] for order in world.place.orders[2:]] == [
            ("--replica", "1", "--launched")
        ] * 2


@on_virtual_time
async def test_a_group_of_another_number_has_the_rest_of_its_new_plan_too() -> None:
    async with deployed(group("a"), group("b", ready=99.0), scripts={"b/1": [Script(ready=20)]}) as world:
        assert await applied(world, group("a", 2, needs={"b": "ready"}), group("b", ready=99.0)) == [
            "a: 2 ready"
        ]
        assert trio.current_time() == 21


@on_virtual_time
async def test_a_group_whose_new_plan_does_not_become_ready_is_rolled_back() -> None:
    scripts = {"a/1": [Script(), Script(ready=None, ends=1, says="no module"), Script()]}
    async with deployed(group("a", 2, max_restarts=9), scripts=scripts) as world:
        await until(2)
        with pytest.raises(ActionFailed, match=r"a/1 did not become ready: .*no module; a was rolled back"):
            await applied(world, group("a", 2, max_restarts=9, content="new"))
        await until(30)
        assert world.states() == {"a/1": "ready", "a/2": "ready"}
        assert world.launcher.groups["a"].plan.content == ""


@on_virtual_time
async def test_a_new_group_that_does_not_become_ready_is_no_part_of_it() -> None:
    scripts = {"new/1": [Script(ready=None, drains=0.0)]}
    async with deployed(group("a"), scripts=scripts) as world:
        await until(2)
        with pytest.raises(ActionFailed, match="new/1 did not become ready"):
            await applied(world, group("a"), group("new", ready=5.0))
        assert world.states() == {"a/1": "ready"}
        assert world.place.running() == ["a/1"]
        await world.launcher.wait_ready()


@on_virtual_time
async def test_an_end_while_another_plan_is_applied_leaves_no_process() -> None:
    async with deployed(group("a", 2), scripts={"new/1": [Script(ready=None)]}) as world:
        await until(2)
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await trio.sleep(1)
                world.launcher.end()

            nursery.start_soon(end)
            with pytest.raises(ActionFailed, match="the launcher is ending"):
                await applied(world, group("a", 2), group("new"))


def test_a_plan_that_is_cut_off_is_applied_by_the_next_request() -> None:
    async def main(after: float) -> None:
        async with deployed(group("a", 3)) as world:
            await until(2)
            new = attrs.evolve(group("a", 3, content="new"), arguments=("new",))
            with trio.move_on_after(after):
                await applied(world, new)
            await applied(world, new)
            running = [process.number for process in world.place.processes if process.code is None]
            assert [world.place.orders[number - 1].arguments[0] for number in running] == ["new"] * 3
            assert set(world.states().values()) == {"ready"}

    for half in range(1, 15):
        run(partial(main, half / 2 - 0.25))
