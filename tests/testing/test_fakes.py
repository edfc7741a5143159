"""`fake`: a class that answers what the test has written down, and is otherwise the class it stands for."""

from __future__ import annotations

from functools import partial
from unittest.mock import Mock

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    AgentDied,
    ChildSpec,
    NotAllowed,
    SupervisorSpec,
)
from lmos_actors.testing import fake, in_turn, open_test_node, run_test
from tests.testing.classes import Concierge, Counter, Everything, Weather


async def test_a_fake_stands_for_the_class_and_nothing_of_the_original_runs(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(fake(Weather, forecast="rain"))
        assert weather.path == "weather"
        assert await node.find(Weather).invoke(Weather.forecast, "Bonn") == "rain"
        concierge = await node.start(Concierge)
        assert await concierge.invoke(Concierge.advise, "Bonn") == "umbrella"
        await trio.sleep(3)
        stats = weather.statistics()
        assert (stats.accepted, stats.handled, stats.restarts) == (2, 2, 0)


async def test_what_an_answer_may_be(virtual_clock) -> None:
    async def measured(*, place: str) -> float:
        await trio.sleep(5)
        return float(len(place))

    async with open_test_node() as node:
        weather = await node.start(
            fake(
                Weather,
                forecast=lambda city, days: f"{city} {days}",
                measure=measured,
                report=(3, 4),
                note=ActionFailed("full"),
            )
        )
        assert await weather.invoke(Weather.forecast, "Bonn", days=2) == "Bonn 2"
        assert await weather.invoke(Weather.measure, place="Bonn") == 4.0
        assert trio.current_time() == 5
        async with weather.stream(Weather.report, 3) as items:
            assert [item async for item in items] == [3, 4]
        with pytest.raises(ActionFailed, match="full"):
            await weather.invoke(Weather.note, "x")
        assert weather.statistics().restarts == 0


async def test_an_async_callable_makes_a_step_take_time(virtual_clock) -> None:
    async def slow(city: str, days: int) -> str:
        await trio.sleep(2)
        return city

    async with open_test_node() as node:
        weather = await node.start(fake(Weather, forecast=slow))
        assert await weather.invoke(Weather.forecast, "Bonn") == "Bonn"
        assert trio.current_time() == 2


async def test_a_stream_may_come_from_a_generator(virtual_clock) -> None:
    async def generated(first: int):
        for item in range(first, first + 2):
            await trio.sleep(1)
            yield item

    async with open_test_node() as node:
        for answer in (generated, lambda first: [first, first + 1]):
            weather = await node.start(fake(Weather, report=answer))
            async with weather.stream(Weather.report, 7) as items:
                assert [item async for item in items] == [7, 8]


async def test_answers_in_turn_are_counted_over_incarnations(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(fake(Weather, forecast=in_turn("a", KeyError("b"), "c")))
        assert await weather.invoke(Weather.forecast, "x") == "a"
        with pytest.raises(AgentDied, match="KeyError: 'b'"):
            await weather.invoke(Weather.forecast, "x")
        await weather.ready()
        assert await weather.invoke(Weather.forecast, "x") == "c"
        assert weather.statistics().restarts == 1


async def test_properties_have_their_values_and_events_can_be_subscribed_to(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(fake(Weather, units="kelvin"))
        assert await weather.read(Weather.units) == "kelvin"
        with pytest.raises(NotAllowed, match="'station' of this double of Weather has no value"):
            await weather.read(Weather.station)
        with pytest.raises(NotAllowed, match="station"):
            await weather.read_all()
        with pytest.raises(NotAllowed, match="station"):
            async with weather.observe(Weather.station):
                pass
        await weather.write(Weather.station, "Bonn")
        assert await weather.read_all() == {"units": "kelvin", "station": "Bonn"}
        async with weather.subscribe(Weather.asked), weather.observe(Weather.units) as units:
            assert await units.receive() == "kelvin"
        assert weather.statistics().restarts == 0


async def test_constructor_arguments_are_not_needed_but_used_for_properties(virtual_clock) -> None:
    tree = SupervisorSpec(
        "root", [ChildSpec("w", partial(Weather, key="secret", units="kelvin", station="Bonn"))]
    )
    async with open_test_node(tree, replace={Weather: fake(Weather, station="Ulm")}) as node:
        assert await node.find(Weather).read_all() == {"units": "kelvin", "station": "Ulm"}


def test_an_action_without_an_answer_fails_the_test_even_if_nobody_looks() -> None:
    async def ask(node) -> None:
        weather = await node.start(fake(Weather, note=None))
        weather.tell_nowait(Weather.forecast, "Bonn")
        await trio.sleep(1)

    with pytest.raises(
        AssertionError, match=r"fake of Weather was asked forecast\('Bonn', 1\) and has no answer"
    ):
        run_test(ask)


def test_one_call_more_than_answers_fails_the_test_and_says_so() -> None:
    async def ask(node) -> None:
        weather = await node.start(fake(Weather, forecast=in_turn("a")))
        await weather.invoke(Weather.forecast, "Bonn")
        await weather.invoke(Weather.forecast, "Bonn")

    with pytest.raises(AgentDied, match="no more answers") as caught:
        run_test(ask)
    assert any("has no more answers" in note for note in caught.value.__notes__)


async def outputs(node, answer: object) -> list[int]:
    weather = await node.start(fake(Weather, report=answer))
    async with weather.stream(Weather.report, 0) as items:
        return [item async for item in items]


async def test_many_outputs_may_need_time(virtual_clock) -> None:
    async def late(first: int) -> list[int]:
        await trio.sleep(2)
        return [first, 1]

    async with open_test_node() as node:
        assert await outputs(node, late) == [0, 1]
        assert trio.current_time() == 2


async def test_many_outputs_are_there_for_every_call(virtual_clock) -> None:
    async with open_test_node() as node:
        assert await outputs(node, lambda first: iter([first, 2])) == [0, 2]
        for once in (iter([1, 2]), (number for number in (1, 2)), in_turn([1], iter([2]))):
            with pytest.raises(TypeError, match="gone through once only"):
                await outputs(node, once)


def test_a_run_whose_root_ends_before_the_test_fails() -> None:
    async def main(node) -> None:
        await node.root.stop()
        await trio.sleep(1)

    with pytest.raises(AssertionError, match="has not come to its end"):
        run_test(main)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"forcast": "x"}, "no action or property 'forcast' to fake, did you mean 'forecast'"),
        ({"asked": "x"}, "Weather.asked is an event"),
        ({"lived": 3}, "no action or property 'lived'"),
        ({"forecast": 3}, "the answer 3 is not of its declared type"),
        ({"forecast": in_turn("a", 3)}, "the answer 3"),
        ({"forecast": lambda town: town}, "cannot take the arguments"),
        ({"measure": lambda place: 1.0}, None),
        ({"measure": lambda where: 1.0}, "cannot take the arguments"),
        ({"forecast": Mock(return_value="x")}, None),
        ({"report": 3}, "an iterable"),
        ({"report": "ab"}, "an iterable"),
        ({"report": ["x"]}, "the answer 'x'"),
        ({"units": 3}, "units"),
        ({"note": KeyError}, None),
    ],
)
def test_a_wrong_fake_is_refused_when_it_is_written(answers, words) -> None:
    if words is None:
        assert issubclass(fake(Weather, **answers), Weather)
        return
    with pytest.raises(TypeError, match=words):
        fake(Weather, **answers)


def test_in_turn_needs_answers() -> None:
    with pytest.raises(ValueError, match="at least one"):
        in_turn()


async def test_a_callable_that_answers_another_type_is_a_bug_of_the_fake(virtual_clock) -> None:
    async with open_test_node() as node:
        counter = await node.start(fake(Counter, add=lambda n: "x", add_slowly=lambda n: "x"))
        for handle in (Counter.add, Counter.add_slowly):
            with pytest.raises(AgentDied, match=r"TypeError: Counter\.add"):
                await counter.invoke(handle)
            await counter.ready()


def test_the_original_is_left_as_it_is() -> None:
    fake(Weather, forecast="x")
    assert Weather.__contract__.has_started
    assert Weather.__contract__.has_lifespan
    assert Weather.__contract__.table["forecast"].fn is Weather.forecast.__wrapped__


async def test_what_else_a_class_may_use_is_not_in_a_stand_in(virtual_clock) -> None:
    async with open_test_node() as node:
        it = await node.start(fake(Everything, enter=1, wait=KeyError("x"), level=3))
        assert await it.invoke(Everything.enter) == 1
        with pytest.raises(AgentDied, match="KeyError"):
            await it.invoke(Everything.wait)
        await it.ready()
        await it.write(Everything.level, 4)
        assert await it.read_all() == {"level": 4}
        assert it.statistics().restarts == 1


def test_what_is_secret_is_not_shown() -> None:
    async def main(node) -> None:
        it = await node.start(fake(Everything))
        await it.invoke(Everything.login, "hunter2")

    with pytest.raises(AgentDied) as caught:
        run_test(main)
    (note,) = [note for note in caught.value.__notes__ if "was asked login" in note]
    assert "***" in note
    assert "hunter2" not in note + str(caught.value)
