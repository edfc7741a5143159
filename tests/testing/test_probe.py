"""Probes: what they receive waits for the test, in order; what the test leaves open fails it."""

from __future__ import annotations

import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    SupervisorSpec,
    action,
    current_request,
)
from lmos_actors.errors import Deadlocked, NameTaken
from lmos_actors.testing import Probe, in_turn, open_test_node, run_test, settle
from tests.testing.classes import Concierge, Counter, Everything, Weather


class Asker(Agent):
    """Says who asked."""

    @action
    def who(self) -> str:
        return str(current_request().consumer)

    @action
    def leave(self) -> None:
        self.stop()

    @action
    def burn(self) -> None:
        raise KeyError("fire")


async def test_a_message_waits_for_the_test_and_gets_its_answer(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.probe(Weather)
        concierge = await node.start(Concierge)
        said: list[str] = []

        async def ask() -> None:
            said.append(await concierge.invoke(Concierge.advise, "Bonn"))

        nursery.start_soon(ask)
        asked = await weather.expect(Weather.forecast, city="Bonn")
        assert (asked.affordance, asked.args) == ("forecast", {"city": "Bonn", "days": 1})
        assert (asked.sender, asked.at, asked.one_way, asked.answered) == ("concierge", 0.0, False, False)
        await settle()
        assert said == []
        asked.answer("rain")
        await settle()
        assert said == ["umbrella"]
        assert asked.answered
        with pytest.raises(RuntimeError, match="has its answer"):
            asked.answer("sun")
        stats = weather.ref.statistics()
        assert (stats.accepted, stats.handled, stats.running, stats.waiting) == (1, 1, 0, 0)


async def test_messages_come_in_order_and_wait_beside_each_other(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.probe(Weather)
        for city in ("Bonn", "Ulm"):
            nursery.start_soon(weather.ref.invoke, Weather.forecast, city)
            await settle()
        weather.ref.tell_nowait(Weather.note, "x")
        first = await weather.expect(Weather.forecast, "Bonn")
        second = await weather.expect(Weather.forecast)
        assert second.args["city"] == "Ulm"
        last = await weather.expect(Weather.note, text=lambda text: text == "x")
        assert last.one_way
        assert last.answered
        with pytest.raises(RuntimeError, match="needs no answer"):
            last.answer(None)
        second.answer("b")
        first.answer("a")
        assert [m.affordance for m in weather.received] == ["forecast", "forecast", "note"]


async def test_what_is_told_by_a_turn_has_its_sender(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        concierge = await node.start(Concierge)
        await concierge.invoke(Concierge.remark, "cold")
        assert (await weather.expect(Weather.note, "cold")).sender == "concierge"


async def test_pick_leaves_what_came_before(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        for text in ("a", "b"):
            weather.ref.tell_nowait(Weather.note, text)
        assert (await weather.pick(Weather.note, "b")).args == {"text": "b"}
        assert (await weather.expect(Weather.note)).args == {"text": "a"}


def test_a_probe_that_has_no_more_answers_fails_the_test_even_if_nobody_looks() -> None:
    async def ask(node) -> None:
        weather = await node.probe(Weather)
        weather.always(Weather.forecast, in_turn("a"))
        for _ in range(2):
            weather.ref.tell_nowait(Weather.forecast, "Bonn")
        await trio.sleep(1)

    with pytest.raises(AssertionError, match=r"probe of Weather was asked .*Bonn.* and has no more"):
        run_test(ask)


async def test_many_outputs_that_need_time_without_the_test(virtual_clock) -> None:
    async def late(first: int) -> list[int]:
        await trio.sleep(2)
        return [first, 1]

    async with open_test_node() as node:
        weather = await node.probe(Weather)
        weather.always(Weather.report, late)
        async with weather.ref.stream(Weather.report, 5) as items:
            assert [item async for item in items] == [5, 1]


async def expect_the_wrong_argument(node) -> None:
    weather = await node.probe(Weather)
    weather.ref.tell_nowait(Weather.note, "a")
    await weather.expect(Weather.note, "b")


async def expect_the_wrong_action(node) -> None:
    weather = await node.probe(Weather)
    weather.ref.tell_nowait(Weather.note, "a")
    await weather.expect(Weather.forecast)


async def expect_too_long(node) -> None:
    weather = await node.probe(Weather)
    try:
        await weather.within(7).expect(Weather.forecast, "Bonn")
    finally:
        assert trio.current_time() == 7


async def expect_silence_in_vain(node) -> None:
    weather = await node.probe(Weather)
    weather.ref.tell_nowait(Weather.note, "a")
    await weather.expect_no_message()


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (
            expect_the_wrong_argument,
            r"expected note\(text='b'\), but next came note\(text='a'\) at 0 s\n  received note",
        ),
        (expect_the_wrong_action, r"expected forecast\(\), but next came note"),
        (
            expect_too_long,
            r"expected forecast\(city='Bonn'\), but it did not come within 7 s\n  nothing was received",
        ),
        (expect_silence_in_vain, r"expected no message, but there is note\(text='a'\)"),
    ],
)
def test_an_expectation_that_is_not_met_says_what_came(main, words) -> None:
    with pytest.raises(AssertionError, match=words):
        run_test(main)


async def test_no_message_for_a_while(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.probe(Weather)

        async def later() -> None:
            await trio.sleep(5)
            weather.ref.tell_nowait(Weather.note, "a")

        nursery.start_soon(later)
        await weather.expect_no_message()
        assert trio.current_time() == 0
        await weather.expect_no_message(4.5)
        assert trio.current_time() == 4.5
        with pytest.raises(AssertionError, match="expected no message"):
            await weather.expect_no_message(0.5)
        await weather.expect(Weather.note)


async def leave_unexpected(node) -> None:
    (await node.probe(Weather)).ref.tell_nowait(Weather.note, "a")
    await settle()


def test_what_nobody_expected_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"received an unexpected message: note\(text='a'\) at 0 s"):
        run_test(leave_unexpected)


def test_a_probe_that_is_not_strict_lets_it_pass() -> None:
    async def main(node) -> None:
        probe = await node.probe(Weather, strict=False)
        probe.ref.tell_nowait(Weather.note, "a")
        await settle()
        assert len(probe.received) == 1

    run_test(main)


def test_what_nobody_answered_fails_the_test() -> None:
    async def main(node) -> None:
        weather, concierge = await node.probe(Weather), await node.start(Concierge)
        concierge.tell_nowait(Concierge.advise, "Bonn")
        await weather.expect(Weather.forecast)

    with pytest.raises(
        AssertionError, match=r"without an answer to forecast\(city='Bonn', days=1\) from concierge"
    ):
        run_test(main)


async def test_a_sender_that_gave_up_needs_no_answer(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        with pytest.raises(DeadlineExceeded):
            await weather.ref.within(1).invoke(Weather.forecast, "Bonn")
        asked = await weather.expect(Weather.forecast)
        assert asked.cancelled
        with pytest.raises(DeadlineExceeded):
            await weather.ref.within(1).invoke(Weather.forecast, "Ulm")
        (await weather.expect(Weather.forecast)).answer("late")
        assert weather.ref.statistics().cancelled == 2


async def test_answers_are_checked_when_they_are_given(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.probe(Weather)
        with pytest.raises(InvalidInput):
            await weather.ref.invoke(Weather.forecast, 3)
        nursery.start_soon(weather.ref.invoke, Weather.forecast, "Bonn")
        asked = await weather.expect(Weather.forecast)
        with pytest.raises(TypeError, match="the answer 3"):
            asked.answer(3)
        assert not asked.answered
        asked.answer("x")


async def test_a_failure_is_the_actions_own_any_other_crashes_the_probe(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.probe(Weather)
        errors: list[Exception] = []

        async def ask() -> None:
            try:
                await weather.ref.invoke(Weather.forecast, "Bonn")
            except Exception as exc:
                errors.append(exc)

        for error in (ActionFailed("no"), KeyError("bug")):
            nursery.start_soon(ask)
            (await weather.expect(Weather.forecast)).fail(error)
            await settle()
        assert [type(error) for error in errors] == [ActionFailed, AgentDied]
        assert weather.ref.statistics().restarts == 1
        nursery.start_soon(ask)  # the next incarnation answers to the same probe
        (await weather.expect(Weather.forecast)).answer("x")


async def test_outputs_of_a_stream_are_answered_together(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        weather = await node.probe(Weather)
        got: list[int] = []

        async def listen() -> None:
            async with weather.ref.stream(Weather.report, 1) as items:
                async for item in items:
                    got.append(item)

        nursery.start_soon(listen)
        asked = await weather.expect(Weather.report, first=1)
        with pytest.raises(TypeError, match="the answer 'x'"):
            asked.answer(["x"])
        asked.answer([1, 2])
        await settle()
        assert got == [1, 2]


async def test_some_actions_may_answer_by_themselves(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        weather.always(Weather.forecast, lambda city, days: city.upper())
        assert await weather.ref.invoke(Weather.forecast, "Bonn") == "BONN"
        await weather.expect_no_message()
        assert [message.answered for message in weather.received] == [True]
        with pytest.raises(TypeError, match="the answer 3"):
            weather.always(Weather.forecast, 3)


async def test_properties_are_set_by_the_test_and_writes_are_messages(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        weather.set(Weather.station, "Bonn")
        async with weather.ref.observe(Weather.station) as station:
            assert await station.receive() == "Bonn"
            weather.set(Weather.station, "Ulm")
            assert await station.receive() == "Ulm"
            weather.crash(KeyError("bug"))
            await weather.ref.ready()
            assert await station.receive() == "Ulm"
        await weather.ref.write(Weather.units, "kelvin")
        assert await weather.ref.read(Weather.units) == "kelvin"
        assert (await weather.expect(Weather.units, "kelvin")).answered
        await weather.ref.write_many(Weather.units.to("a"), Weather.station.to("b"))
        await weather.expect(Weather.units, "a")
        await weather.expect(Weather.station, "b")


async def test_a_probe_emits_events(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        async with weather.ref.subscribe(Weather.asked) as asked:
            weather.emit(Weather.asked, "Bonn")
            assert await asked.receive() == "Bonn"
        with pytest.raises(TypeError, match="another type"):
            weather.emit(Weather.asked, 3)


async def test_a_probe_acts(virtual_clock) -> None:
    async with open_test_node() as node:
        weather, other = await node.probe(Weather), await node.probe(Weather, "other")
        asker = await node.start(Asker)
        with weather.acting():
            assert await asker.invoke(Asker.who) == "weather"
        assert await asker.invoke(Asker.who) == "None"
        weather.send(other.ref, Weather.note, "x")
        assert (await other.expect(Weather.note)).sender == "weather"


async def test_ends_of_watched_agents(virtual_clock) -> None:
    async with open_test_node() as node:
        probe = await node.probe(Weather)
        asker = await node.start(Asker)
        with pytest.raises(RuntimeError, match="does not watch 'asker'"):
            await probe.expect_down(asker)
        probe.watch(asker)
        asker.tell_nowait(Asker.burn)
        await settle()
        probe.watch(asker)
        down = await probe.expect_down(asker, KeyError)
        assert (down.agent, down.incarnation) == ("asker", 1)
        await asker.ready()
        asker.tell_nowait(Asker.leave)
        assert (await probe.expect_down(asker, "normal")).incarnation == 2
        await asker.ready()
        node.crash(asker, ValueError("x"))
        with pytest.raises(AssertionError, match="to end for normal, but it ended for ValueError: x"):
            await probe.expect_down(asker, "normal")
        with pytest.raises(AssertionError, match="did not within 3 s"):
            await probe.expect_down(asker)
        assert asker.statistics().restarts == 3


async def test_a_probe_takes_a_place_in_a_tree(virtual_clock) -> None:
    weather: Probe[Weather] = Probe(Weather)
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = weather.ref
    tree = SupervisorSpec(
        "root", [SupervisorSpec("desk", [ChildSpec("w", Weather)]), ChildSpec("c", Concierge)]
    )
    async with open_test_node(tree, replace={Weather: weather}) as node:
        assert weather.ref.path == "desk/w"
        await node.find(Concierge).invoke(Concierge.remark, "x")
        await weather.expect(Weather.note, "x")


async def test_wrong_uses_say_so(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.probe(Weather)
        with pytest.raises(NameTaken):
            await node.probe(Weather, "weather")
        with pytest.raises(TypeError, match="no action or property of Weather"):
            await weather.expect(Counter.add)
        with pytest.raises(TypeError, match="no action or property of Weather"):
            await weather.expect(Weather.asked)
        with pytest.raises(TypeError, match="no parameter 'citty', did you mean 'city'"):
            await weather.expect(Weather.forecast, citty="Bonn")
        with pytest.raises(TypeError, match="got 'city' twice"):
            await weather.expect(Weather.forecast, "Bonn", city="Bonn")
        with pytest.raises(TypeError, match="has 2 parameters, not 3"):
            await weather.expect(Weather.forecast, 1, 2, 3)
        with pytest.raises(NotFound):
            weather.watch(node.find(Counter))
        await node.root.terminate_child("weather")
        with pytest.raises(RuntimeError, match="is not running"):
            weather.emit(Weather.asked, "x")


async def test_messages_to_a_serial_class_wait_beside_each_other_too(virtual_clock) -> None:
    async with open_test_node() as node, trio.open_nursery() as nursery:
        probe = await node.probe(Everything)
        assert Everything.__contract__.serial
        for handle in (Everything.enter, Everything.wait):
            nursery.start_soon(probe.ref.invoke, handle)
            await settle()
        first, second = await probe.expect(Everything.enter), await probe.expect(Everything.wait)
        second.answer(2)
        first.answer(1)


async def test_what_is_secret_is_for_the_test_alone(virtual_clock) -> None:
    async with open_test_node() as node:
        probe = await node.probe(Everything)
        probe.ref.tell_nowait(Everything.login, "hunter2")
        login = await probe.expect(Everything.login)
        assert login.args == {"password": "hunter2"}
        assert repr(login) == "login(password='***') at 0 s"


def test_a_test_that_waits_for_its_own_answer_is_told_what_waits_for_it() -> None:
    async def main(node) -> None:
        weather = await node.probe(Weather)
        await weather.ref.invoke(Weather.forecast, "Bonn")

    with pytest.raises(
        Deadlocked, match=r"<Probe of Weather at weather> waits for the test: forecast\(city='Bonn'"
    ):
        run_test(main)
