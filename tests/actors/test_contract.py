"""Agent classes and what consumers may ask of them (DECISIONS V1 to V5; typed errors at every entry)."""

from __future__ import annotations

import enum
import math
import re
from collections import deque
from functools import partial
from typing import Annotated, Any, ClassVar

import attrs
import msgspec
import pytest
import trio
import trio.lowlevel

import lmos_actors
from lmos_actors import (
    Agent,
    AgentDied,
    AgentUnavailable,
    ChildSpec,
    ConfigError,
    Event,
    InvalidInput,
    MailboxOptions,
    NotAllowed,
    NotFound,
    Progress,
    Property,
    Ref,
    StartFailed,
    SupervisorSpec,
    action,
    event,
    every,
    prop,
)
from lmos_actors.errors import NameTaken, WrongState
from lmos_actors.testing import open_test_node, settle


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float = 0.0


class Box(msgspec.Struct, frozen=True):
    items: list[int]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(msgspec.Struct, frozen=True):
    next: Node | None = None


class Weather(Agent):
    units: Property[str] = prop(default="celsius")
    limit: Property[Annotated[int, msgspec.Meta(ge=0, le=10)]] = prop(default=3)
    corner: Property[Point] = prop(default=Point(0.0))
    tags: Property[tuple[str, ...]] = prop(default=())
    station: Property[str] = prop(default="K", read_only=True)
    key: Property[str] = prop(default="k", write_only=True)
    asked: Event[str] = event()
    questions: int = 0

    @action
    def turn(self, city: str, days: int = 1) -> str:
        return f"{city} {days}"

    @action
    async def run(self, city: str, *, days: int = 1) -> str:
        await trio.lowlevel.checkpoint()
        return f"{city} {days}"

    @action
    def nothing(self) -> None:
        self.questions += 1

    @action
    def whole(self, point: Point, /) -> float:
        return point.x

    @action
    def mix(self, color: Color, points: list[Point], by: dict[str, float] | None = None) -> list[str]:
        points.append(Point(9.0))
        return [color.value, *(str(p.x) for p in points)]

    @action
    def anything(self, value: Any) -> Any:
        return value

    @action
    def infinite(self) -> float:
        return math.inf

    @action
    def show_key(self) -> str:
        return self.key


# ---- refused when the class is made


def refused(text: str):
    return pytest.raises(TypeError, match=text)


def test_self_is_missing() -> None:
    with refused(r"Wrong\.greet: self is missing"):

        class Wrong(Agent):
            @action
            def greet(name: str) -> str:
                return name

    with refused(r"Wrong\.greet: self is missing"):

        class Wrong(Agent):
            @action
            async def greet() -> None: ...


def test_an_affordance_that_is_only_declared() -> None:
    with refused(r"Wrong\.heard is declared but not made: write `= event\(\)`"):

        class Wrong(Agent):
            heard: Event[str]

    with refused(r"Wrong\.units is declared but not made: write `= prop\("):

        class Wrong(Agent):
            units: Property[str] = "celsius"


def test_an_event_of_trio_is_a_field_as_others_are() -> None:
    class Waiting(Agent):
        may: trio.Event

    assert not Waiting(may=trio.Event()).may.is_set()


@pytest.mark.parametrize(
    "name",
    ["find", "stop", "nursery", "send", "log", "start", "become", "link", "random", "now", "ref", "path"],
)
def test_names_that_are_the_agents_own(name: str) -> None:
    with refused(rf"Bad\.{name}: the name is the agent's own"):
        type("Bad", (Agent,), {name: action(lambda self: None)})
    with refused(rf"Bad\.{name}: the name is the agent's own"):
        type("Bad", (Agent,), {"__annotations__": {name: int}, name: 0})


@pytest.mark.parametrize(
    "tp", [list[int], dict[str, int], set[int], Box, tuple[list[int], ...], Any, bytearray]
)
def test_v1_property_types_must_be_immutable_deeply(tp: Any) -> None:
    with refused(r"Bad\.value: the type of a property must be immutable") as caught:
        type("Bad", (Agent,), {"__annotations__": {"value": Property[tp]}, "value": prop()})
    if tp == list[int]:
        assert "tuple" in str(caught.value)


@pytest.mark.parametrize("tp", [int, str, tuple[int, ...], frozenset[int], Point, Color, int | None, bytes])
def test_v1_immutable_types_are_accepted(tp: Any) -> None:
    type("Good", (Agent,), {"__annotations__": {"value": Property[tp]}, "value": prop()})


@pytest.mark.parametrize("default", [[], {}, set(), bytearray()])
def test_v1_mutable_defaults_are_refused(default: object) -> None:
    with refused(r"Bad\.value: .*factory"):
        type("Bad", (Agent,), {"__annotations__": {"value": object}, "value": default})
    with refused(r"Bad\.do: the default of 'value' can be changed"):

        class Bad(Agent):
            @action
            def do(self, value: Any = default) -> None:
                pass


def test_v5_recursive_types_are_refused() -> None:
    with refused("recursive|refers to itself|itself"):

        class Bad(Agent):
            @action
            def do(self, node: Node) -> None:
                pass


def test_v4_signatures_that_cannot_be_described() -> None:
    with refused(r"Bad\.do: parameter 'city' needs a type"):

        class Bad(Agent):
            @action
            def do(self, city) -> None:  # type: ignore[no-untyped-def]
                pass

    with refused(r"\*cities cannot be described"):

        class Bad(Agent):  # type: ignore[no-redef]
            @action
            def do(self, *cities: str) -> None:
                pass

    with refused(r"\*options cannot be described"):

        class Bad(Agent):  # type: ignore[no-redef]
            @action
            def do(self, **options: str) -> None:
                pass

    with refused("only a single positional-only parameter"):

        class Bad(Agent):  # type: ignore[no-redef]
            @action
            def do(self, a: int, b: int, /) -> None:
                pass

    with refused("Progress goes first"):

        class Bad(Agent):  # type: ignore[no-redef]
            @action
            async def do(self, a: int, progress: Progress[float]) -> None:
                pass

    with refused("default of 'days' is not of its type"):

        class Bad(Agent):  # type: ignore[no-redef]
            @action
            def do(self, days: int = "one") -> None:  # type: ignore[assignment]
                pass

    with refused(r"Bad\.do: CancelScope"):

        class Bad(Agent):  # type: ignore[no-redef]
            @action
            def do(self, a: trio.CancelScope) -> None:
                pass


def test_declarations_that_say_too_little_or_too_much() -> None:
    with refused(r"Bad\.units needs its type: `units: Property\[...\] = ...`"):

        class Bad(Agent):
            units = prop(default="celsius")

    with refused(r"Bad\.asked needs its type"):

        class Bad(Agent):  # type: ignore[no-redef]
            asked: Property[str] = event()  # type: ignore[assignment]

    with refused("another affordance is named 'units'"):

        class Bad(Agent):  # type: ignore[no-redef]
            units: Property[str] = prop(default="celsius")
            other: Event[str] = event(name="units")

    with refused("rename must be 'camel', not 'snake'"):

        class Bad(Agent, rename="snake"):  # type: ignore[no-redef]
            pass

    for concurrency in (0, -1, 1.5, True, "2"):
        with refused("concurrency must be a whole number of at least 1"):
            action(concurrency=concurrency)  # type: ignore[call-overload]
    with refused("@action goes on a function"):
        action(7)  # type: ignore[call-overload]
    with refused("mailbox|MailboxOptions"):

        class Bad(Agent, mailbox=64):  # type: ignore[no-redef, arg-type]
            pass


@pytest.mark.parametrize("name", ["find", "stop", "send", "ref", "behaviour", "_slot"])
def test_plain_methods_do_not_shadow_the_agents_own_either(name: str) -> None:
    with refused(rf"Bad\.{name}: the name is the agent's own"):
        type("Bad", (Agent,), {name: lambda self: None})


@pytest.mark.parametrize("value", [[], {}, set(), bytearray(), deque()])
def test_class_attributes_that_can_be_changed_say_what_they_are(value: object) -> None:
    kind = type(value).__name__
    with refused(rf"Bad\.shared can be changed.*attrs\.field\(factory={kind}\).*ClassVar"):
        type("Bad", (Agent,), {"shared": value})
    with refused(rf"Bad\.own: a default that can be changed.*attrs\.field\(factory={kind}\)"):
        type("Bad", (Agent,), {"__annotations__": {"own": object}, "own": attrs.field(default=value)})


def test_constants_that_cannot_be_changed_need_no_annotation() -> None:
    class Good(Agent):
        NAMES = ("a", "b")
        limit = 3

    assert Good().limit == 3


def test_hooks_take_what_they_are_called_with() -> None:
    for name in ("started", "lifespan", "supervises"):
        with refused(rf"Bad\.{name} is called with nothing beside self: missing a required argument: 'x'"):
            type("Bad", (Agent,), {name: lambda self, x: None})
    with refused(r"Bad\.on_exit is called with the Down beside self: too many positional"):
        type("Bad", (Agent,), {"on_exit": lambda self: None}, trap_exits=True)
    with refused(r"Bad\.tick is called with nothing beside self"):
        type("Bad", (Agent,), {"tick": every(1.0)(lambda self, x: None)})
    type("Good", (Agent,), {"started": lambda self, x=1: None})


def test_a_generator_written_def_is_refused() -> None:
    with refused(r"Bad\.numbers: a generator written def"):

        class Bad(Agent):
            @action
            def numbers(self) -> Any:
                yield 1


def test_a_class_that_was_refused_leaves_its_base_as_it_was() -> None:
    table = dict(Weather.__contract__.table)
    with refused("the name is the agent's own"):
        type("Bad", (Weather,), {"stop": action(lambda self: None)})
    assert Weather.__contract__.table == table
    assert "turn" in table


# ---- state and construction


def test_fields_are_keyword_only_and_checked() -> None:
    assert Weather(units="kelvin").units == "kelvin"
    with pytest.raises(TypeError):
        Weather("kelvin")  # type: ignore[misc]
    with pytest.raises(TypeError):
        Weather(unit="kelvin")  # type: ignore[call-arg]
    for wrong in ({"units": 7}, {"limit": 11}, {"tags": "abc"}):
        with pytest.raises(TypeError, match=r"Weather\.\w+ was given a value that is not of its type"):
            Weather(**wrong)  # type: ignore[arg-type]


def test_class_variables_are_no_state() -> None:
    class Counted(Agent):
        shared: ClassVar[list[int]] = []
        many: list[int] = attrs.field(factory=list)

    first, second = Counted(), Counted()
    first.many.append(1)
    assert second.many == []
    assert first.shared is second.shared


def test_before_its_start_an_agent_is_nowhere() -> None:
    weather = Weather()
    weather.units = "kelvin"
    assert weather.units == "kelvin"
    for use in (
        lambda: weather.path,
        lambda: weather.ref,
        lambda: weather.now(),
        lambda: weather.new_id(),
        lambda: weather.random,
        lambda: weather.stop(),
        lambda: weather.after(1, weather.nothing),
        lambda: weather.asked.emit("Bonn"),
        lambda: weather.find(Weather),
        lambda: weather.nursery,
    ):
        with pytest.raises(AgentUnavailable, match=r"started|start"):
            use()


async def test_subclasses_inherit_and_override(virtual_clock) -> None:
    class Storm(Weather):
        wind: Property[float] = prop(default=0.0)

        @action
        def turn(self, city: str, days: int = 1) -> str:
            return f"storm in {city}"

    async with open_test_node() as node:
        storm: Ref[Storm] = await node.start(Storm, units="kelvin", wind=9.0)
        weather: Ref[Weather] = storm
        assert await weather.invoke(Weather.turn, "Bonn") == "storm in Bonn"
        assert await weather.read(Weather.units) == "kelvin"
        assert await storm.read(Storm.wind) == 9.0
        plain = await node.start(Weather)
        with pytest.raises(NotFound, match="'wind'"):
            await plain.read(Storm.wind)  # type: ignore[misc]


async def test_wire_names(virtual_clock) -> None:
    class Camel(Agent, rename="camel"):
        max_tokens: Property[int] = prop(default=1)
        other_one: Property[int] = prop(default=2, name="asItIs")

        @action
        def get_weather(self, interaction_mode: str) -> str:
            return interaction_mode

    async with open_test_node() as node:
        camel = await node.start(Camel)
        assert await camel.read_all() == {"maxTokens": 1, "asItIs": 2}
        assert Camel.get_weather.name == "getWeather"
        assert await camel.invoke(Camel.get_weather, interaction_mode="text") == "text"
        with pytest.raises(InvalidInput) as caught:
            await camel.invoke(Camel.get_weather, 7)  # type: ignore[arg-type]
        assert caught.value.path == "$.interactionMode"


async def test_a_subclass_with_other_wire_names_leaves_the_inherited_ones(virtual_clock) -> None:
    class Base(Agent):
        max_tokens: Property[int] = prop(default=1)
        was_asked: Event[str] = event()

        @action
        def get_it(self, some_name: str) -> str:
            return some_name

    class Camel(Base, rename="camel"):
        min_tokens: Property[int] = prop(default=0)

    class Plain(Camel):
        mid_tokens: Property[int] = prop(default=0)

    async with open_test_node() as node:
        for cls in (Base, Camel, Plain):
            ref: Ref[Base] = await node.start(cls)
            assert await ref.read(Base.max_tokens) == 1
            assert await ref.invoke(Base.get_it, some_name="a") == "a"
            async with ref.subscribe(Base.was_asked):
                pass
        assert await ref.read_all() == {"max_tokens": 1, "minTokens": 0, "mid_tokens": 0}


# ---- values that cross


WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (Weather.turn, (7,), {}, "$.city"),
    (Weather.turn, (None,), {}, "$.city"),
    (Weather.turn, (b"Bonn",), {}, "$.city"),
    (Weather.turn, ("\ud800",), {}, "$.city"),
    (Weather.turn, (), {}, "$.city"),
    (Weather.turn, ("Bonn", "two"), {}, "$.days"),
    (Weather.turn, ("Bonn", True), {}, "$.days"),
    (Weather.turn, ("Bonn", 1.5), {}, "$.days"),
    (Weather.turn, ("Bonn", 1, 2), {}, "$"),
    (Weather.turn, ("Bonn",), {"city": "Köln"}, "$.city"),
    (Weather.turn, ("Bonn",), {"day": 2}, "$.day"),
    (Weather.run, ("Bonn", 2), {}, "$"),
    (Weather.run, (), {}, "$.city"),
    (Weather.run, ("Bonn",), {"days": "2"}, "$.days"),
    (Weather.nothing, (1,), {}, "$"),
    (Weather.whole, ("x",), {}, "$"),
    (Weather.whole, ({"x": "a"},), {}, "$.x"),
    (Weather.whole, (Point(math.nan),), {}, "$.x"),
    (Weather.mix, ("green", []), {}, "$.color"),
    (Weather.mix, (Color.RED, [Point(1.0), "p"]), {}, "$.points[1]"),
    (Weather.mix, (Color.RED, [Point(math.inf)]), {}, "$.points[0].x"),
    (Weather.mix, (Color.RED, []), {"by": {"a": -math.inf}}, "$.by.a"),
    (Weather.mix, (Color.RED, []), {"by": {7: 1.0}}, "$.by"),
    (Weather.anything, (object(),), {}, "$.value"),
    (Weather.anything, ({1: 2},), {}, "$.value"),
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(("handle", "args", "kwargs", "path"), WRONG)
async def test_wrong_input_is_refused_at_every_verb(virtual_clock, handle, args, kwargs, path) -> None:
    """V2, V4: InvalidInput says where; the agent does not hear of it and counts it as handled (M1)."""
    async with open_test_node() as node:
        weather = await node.start(Weather)

        async def begin() -> None:
            async with weather.begin(handle, *args, **kwargs):
                raise AssertionError

        async def tell_nowait() -> None:
            weather.tell_nowait(handle, *args, **kwargs)

        verbs = (
            partial(weather.invoke, handle, *args, **kwargs),
            partial(weather.within(1).invoke, handle, *args, **kwargs),
            partial(weather.tell, handle, *args, **kwargs),
            tell_nowait,
            begin,
        )
        for verb in verbs:
            with pytest.raises(InvalidInput) as caught:
                await verb()
            assert caught.value.path.startswith(path)
        counts = weather.statistics()
        assert counts.accepted == counts.handled == len(verbs)
        assert counts.restarts == 0
        assert node.dead_letters == ()


async def test_v3_nesting_and_long_numbers(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        deep = await weather.invoke(Weather.anything, nested(60))
        assert deep == nested(60)
        for value in (nested(66), nested(100_000), 10**1001):
            with pytest.raises(InvalidInput):
                await weather.invoke(Weather.anything, value)


async def test_v1_values_share_nothing(virtual_clock) -> None:
    """V1: what can change is made anew on the way in and out, and what cannot passes as it is."""
    async with open_test_node() as node:
        weather = await node.start(Weather)
        points = [Point(1.0)]
        assert await weather.invoke(Weather.mix, Color.RED, points) == ["red", "1.0", "9.0"]
        assert points == [Point(1.0)]
        tree = {"a": [1, {"b": [2]}]}
        back = await weather.invoke(Weather.anything, tree)
        assert back == tree
        assert back is not tree
        assert back["a"] is not tree["a"]


async def test_plain_data_stands_for_its_type(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        assert await weather.invoke(Weather.whole, {"x": 2}) == 2.0  # type: ignore[arg-type]
        assert await weather.invoke(Weather.mix, "blue", [{"x": 1}]) == ["blue", "1.0", "9.0"]  # type: ignore[arg-type]


async def test_v2_results_are_checked_as_inputs_are(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        with pytest.raises(
            AgentDied, match=r"Weather\.infinite returned a result that is not its declared float"
        ):
            await weather.invoke(Weather.infinite)


# ---- properties


async def test_properties_are_read_and_written_one_by_one_and_all_together(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        await weather.write(Weather.units, "kelvin")
        assert await weather.read(Weather.units) == "kelvin"
        await weather.write_many(Weather.units.to("celsius"), Weather.limit.to(7), Weather.key.to("new"))
        assert await weather.read_all() == {
            "units": "celsius",
            "limit": 7,
            "corner": Point(0.0),
            "tags": (),
            "station": "K",
        }
        assert await weather.invoke(Weather.show_key) == "new"
        for verb in (
            lambda: weather.write(Weather.station, "L"),
            lambda: weather.read(Weather.key),
            lambda: weather.write_many(Weather.units.to("kelvin"), Weather.station.to("L")),
        ):
            with pytest.raises(NotAllowed):
                await verb()
        for verb in (
            lambda: weather.write(Weather.units, 7),  # type: ignore[arg-type]
            lambda: weather.write(Weather.limit, 11),
            lambda: weather.write(Weather.tags, [1]),  # type: ignore[arg-type]
            lambda: weather.write_many(Weather.units.to("kelvin"), Weather.limit.to(11)),
        ):
            with pytest.raises(InvalidInput):
                await verb()
        assert await weather.read(Weather.units) == "celsius", "all or none"
        await weather.write(Weather.tags, ["a", "b"])  # type: ignore[arg-type]
        assert await weather.read(Weather.tags) == ("a", "b")
        counts = weather.statistics()
        assert counts.accepted == counts.handled
        assert counts.restarts == 0


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "queued"])
async def test_write_many_is_refused_alike_queued_or_not(virtual_clock, busy: bool) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        if busy:
            weather.tell_nowait(Weather.nothing)
        with pytest.raises(InvalidInput) as caught:
            await weather.write_many(Weather.limit.to(11))
        assert caught.value.path == "$.limit"
        if busy:
            weather.tell_nowait(Weather.nothing)
        with pytest.raises(NotAllowed):
            await weather.write(Weather.station, "L")
        assert weather.statistics().restarts == 0


# ---- what is not there


async def test_unknown_affordances_name_the_nearest(virtual_clock) -> None:
    class Wether(Agent):
        unit: Property[str] = prop(default="celsius")
        askd: Event[str] = event()

        @action
        def tern(self, city: str) -> str:
            return city

    async with open_test_node() as node:
        weather: Any = await node.start(Weather)

        async def begin() -> None:
            async with weather.begin(Wether.tern, "Bonn"):
                raise AssertionError

        async def tell_nowait() -> None:
            weather.tell_nowait(Wether.tern, "Bonn")

        for verb in (
            partial(weather.invoke, Wether.tern, "Bonn"),
            partial(weather.within(1).invoke, Wether.tern, "Bonn"),
            partial(weather.tell, Wether.tern, "Bonn"),
            begin,
            tell_nowait,
        ):
            with pytest.raises(NotFound, match=r"'tern' on weather, did you mean 'turn'\?") as caught:
                await verb()
            assert caught.value.nearest == "turn"
        for verb in (
            partial(weather.read, Wether.unit),
            partial(weather.write, Wether.unit, "x"),
            partial(weather.write_many, Wether.unit.to("x")),
        ):
            with pytest.raises(NotFound, match=r"'unit' on .*did you mean 'units'\?"):
                await verb()
        for block, near in (
            (weather.observe(Wether.unit), "units"),
            (weather.subscribe(Wether.askd), "asked"),
        ):
            with pytest.raises(NotFound, match=rf"did you mean '{near}'\?"):
                async with block:
                    pass
        assert weather.statistics().restarts == 0


HANDLES: dict[str, Any] = {
    "a property": Weather.units,
    "an event": Weather.asked,
    "a name": "turn",
    "nothing": None,
    "a bound method": Weather().turn,
}


@pytest.mark.parametrize("kind", HANDLES)
async def test_what_is_no_handle_for_the_verb_is_refused(virtual_clock, kind: str) -> None:
    """Wrong types at every entry: TypeError, or NotAllowed that names the right verb; counted nowhere."""
    handle = HANDLES[kind]
    named = kind in ("a property", "an event")
    async with open_test_node() as node:
        weather: Any = await node.start(Weather)

        async def entered(block: Any) -> None:
            async with block:
                raise AssertionError

        async def told() -> None:
            weather.tell_nowait(handle, "Bonn")

        error = NotAllowed if named else TypeError
        for verb in (
            lambda: weather.invoke(handle, "Bonn"),
            lambda: weather.tell(handle, "Bonn"),
            lambda: entered(weather.begin(handle, "Bonn")),
            lambda: entered(weather.stream(handle, "Bonn")),
            told,
        ):
            with pytest.raises(error, match=r"read it|subscribe|takes the handle"):
                await verb()
        if kind != "a property":
            for verb in (weather.read, lambda it: weather.write(it, "x"), weather.observe):
                with pytest.raises(TypeError, match="takes the handle of a property"):
                    verb(handle)
        if kind != "an event":
            with pytest.raises(TypeError, match="takes the handle of an event"):
                weather.subscribe(handle)
        assert weather.statistics().accepted == 0


async def test_find_resolves_on_first_use(virtual_clock) -> None:
    """L2, L3: by class in start order, by name, by path; sync; `ready` waits for what is not there yet."""
    async with open_test_node() as node, trio.open_nursery() as nursery:
        early = node.find(Weather)
        with pytest.raises(NotFound, match="Weather"):
            await early.invoke(Weather.nothing)
        with pytest.raises(NotFound):
            early.tell_nowait(Weather.nothing)
        waited: list[float] = []

        async def wait() -> None:
            await early.ready()
            waited.append(trio.current_time())

        nursery.start_soon(wait)
        await trio.sleep(1)
        first = await node.start(Weather)
        second = await node.start(Weather)
        await settle()
        assert waited == [1]
        assert early == first
        assert early.path == "weather"
        assert node.find(Weather) == first != second
        assert node.find(Weather, "weather-2") == second
        desk = await node.start_supervisor(SupervisorSpec("desk", [ChildSpec("weather", Weather)]))
        (third,) = [ref for ref in node.agents() if ref.path == "desk/weather"]
        assert node.find(Weather, "desk/weather") == third
        assert desk.path == "desk"
        for missing in ("desk/wether", "desc/weather", "weather/desk", "nobody"):
            with pytest.raises(NotFound):
                await node.find(Weather, missing).invoke(Weather.nothing)

        class Other(Agent):
            pass

        with pytest.raises(NotFound):
            await node.find(Other, "weather").read_all()


async def test_l2_refs_are_equal_and_hashable_by_what_they_point_to(virtual_clock) -> None:
    async with open_test_node() as node:
        first, second = await node.start(Weather), await node.start(Weather)
        same = node.find(Weather, "weather")
        await same.ready()
        assert first == same == first.within(5)
        assert hash(first) == hash(same) == hash(first.within(5))
        assert first != second
        assert first != "weather"
        assert len({first, same, second, first.within(1)}) == 2
        before = hash(first)
        with pytest.raises(AgentDied):
            await first.invoke(Weather.infinite)
        await first.ready()
        assert hash(first) == before, "a ref survives restarts"
        await node.root.terminate_child("weather")
        await node.root.delete_child("weather")
        again = await node.start_child(ChildSpec("weather", Weather))
        assert again != first, "a new child of that name is a new slot"
        with pytest.raises(NotFound):
            await first.invoke(Weather.nothing)
        assert await node.find(Weather, "weather").invoke(Weather.turn, "Bonn") == "Bonn 1"
        assert repr(again) == "<Ref weather>"


async def test_l2_incarnations_count_from_one(virtual_clock) -> None:
    async with open_test_node() as node:
        weather = await node.start(Weather)
        for incarnation in (1, 2, 3):
            assert weather.statistics().incarnation == incarnation
            with pytest.raises(AgentDied):
                await weather.invoke(Weather.infinite)
            await weather.ready()


# ---- starting


async def test_constructors_that_raise(virtual_clock) -> None:
    class Broken(Agent):
        value: int = 0

        def __attrs_post_init__(self) -> None:
            if self.value:
                raise OSError("no disk")

    async with open_test_node() as node:
        for factory, cause in (
            (partial(Broken, value=1), OSError),
            (partial(Weather, units=7), TypeError),
            (partial(Weather, nonsense=7), TypeError),
            (lambda: "no agent", Exception),
            (lambda: None, Exception),
        ):
            with pytest.raises(StartFailed) as caught:
                await node.start_child(ChildSpec("broken", factory))  # type: ignore[arg-type]
            assert caught.value.path == "broken"
            assert isinstance(caught.value.__cause__, cause)
        assert node.agents() == []
        assert await (await node.start_child(ChildSpec("broken", Broken))).read_all() == {}
        with pytest.raises(NameTaken):
            await node.start_child(ChildSpec("broken", Broken))
        with pytest.raises(WrongState):
            await node.root.delete_child("broken")
        with pytest.raises(NotFound, match="did you mean 'broken'"):
            await node.root.terminate_child("borken")


async def test_a_misspelt_field_is_named_with_the_one_that_is_like_it(virtual_clock) -> None:
    class Client(Agent):
        url: str = ""
        retries: int = 2

        def __attrs_post_init__(self) -> None:
            if self.url == "inner":
                dict.fromkeys([1], colour=2)  # type: ignore[call-overload]

    async with open_test_node() as node:
        for field, hint in (("retires", ", did you mean 'retries'?"), ("base_url", ", did you mean 'url'?")):
            with pytest.raises(StartFailed, match=f"unexpected keyword argument '{field}'{re.escape(hint)}$"):
                await node.start(partial(Client, **{field: "x"}))  # type: ignore[arg-type]
        for factory in (partial(Client, colour="x"), partial(Client, url="inner")):  # type: ignore[call-arg]
            with pytest.raises(StartFailed) as found:
                await node.start(factory)
            assert "did you mean" not in str(found.value)


async def test_started_that_raises(virtual_clock) -> None:
    class Unwilling(Agent):
        def started(self) -> None:
            self.send(self.ref, Unwilling.note)
            self.after(1, self.note)
            self.nursery.start_soon(trio.sleep_forever)
            raise OSError("no")

        @action
        def note(self) -> None:
            raise AssertionError("it never lived")

    async with open_test_node() as node:
        tasks = trio.lowlevel.current_statistics().tasks_living
        with pytest.raises(StartFailed, match="unwilling could not start: no"):
            await node.start(Unwilling)
        await trio.sleep(5)
        assert node.agents() == []
        assert trio.lowlevel.current_statistics().tasks_living == tasks


@pytest.mark.parametrize("name", ["", "a/b", None, 7])
def test_names_of_children(name) -> None:
    with pytest.raises(ConfigError):
        ChildSpec(name, Weather)


def test_every_error_is_one_of_ours() -> None:
    errors = [
        value
        for value in vars(lmos_actors.errors).values()
        if isinstance(value, type) and issubclass(value, BaseException) and not issubclass(value, Warning)
    ]
    assert len(errors) > 15
    assert all(issubclass(error, lmos_actors.LmosActorsError) for error in errors)


def test_a_subclass_has_serial_and_mailbox_of_its_base() -> None:
    options = MailboxOptions(size=3, when_full="reject")

    class Base(Agent, serial=True, mailbox=options):
        pass

    class Below(Base):
        pass

    class Other(Base, serial=False, mailbox=MailboxOptions(size=9)):
        pass

    assert (Below.__contract__.serial, Below.__contract__.mailbox) == (True, options)
    assert (Other.__contract__.serial, Other.__contract__.mailbox.size) == (False, 9)


async def test_an_affordance_is_no_attribute_of_a_ref(virtual_clock) -> None:
    async with open_test_node() as node:
        weather: Any = await node.start(Weather)
        with pytest.raises(AttributeError, match=r"a ref has no 'turn': .* ref\.invoke"):
            weather.turn("Bonn")


def test_every_without_its_seconds() -> None:
    with refused("@every needs a finite number of seconds above 0, not <function"):

        class Wrong(Agent):
            @every
            def tick(self) -> None: ...
