"""From an agent class to its description: every hint and option, what is inherited, what is kept secret."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, TypeAlias

import attrs
import msgspec
import pytest
from msgspec import Meta, Struct

from agents import booking, concierge, echo, flaky, pipeline, weather
from lmos_actors import (
    About,
    Agent,
    Event,
    ModelInfo,
    Progress,
    Property,
    Secret,
    Unit,
    Vendor,
    action,
    describe,
    event,
    prop,
)
from lmos_actors.protocol.td import (
    AGENT_TYPE,
    SECRET_MARK,
    TOOL_TYPE,
    DescriptionError,
    Link,
    Metadata,
    check,
    check_for_kotlin_wot,
    default_context,
    differences,
    dump,
    dump_text,
    load,
    with_forms,
)
from tests.source import ROOT as CHECKOUT

SAMPLES = [
    booking.Room,
    concierge.ConciergeAgent,
    echo.Echo,
    flaky.FlakyWorker,
    pipeline.Consumer,
    pipeline.Producer,
    weather.WeatherAgent,
]
WHOLE = "Sent as it is, also beyond 2^53."  # of an int without both limits


class Place(Struct, frozen=True):
    """Where it is measured."""

    town: str
    floor: int = msgspec.field(default=0, name="storey")


ROME = Place("Rome")


class Degree(enum.Enum):
    """How warm it is."""

    COLD = "cold"
    WARM = "warm"


Celsius: TypeAlias = Annotated[float, Meta(ge=-273.15, description="As the sensor says."), Unit("celsius")]

Wav: TypeAlias = Annotated[bytes, Meta(extra_json_schema={"contentMediaType": "audio/wav"})]


class Station(Agent):
    """Measures the temperature.

    Once a minute.
    """

    bare: Property[str] = prop()
    warmth: Property[Celsius] = prop(default=20.0, read_only=True)
    limit: Property[Celsius] = prop(default=30.0, doc="Where it warns.")
    pin: Property[str] = prop(default="", write_only=True)
    place: Property[Place] = prop(default=Place("Bonn"), observable=False, name="where")
    many: Property[tuple[Degree, ...]] = prop(default=())
    private: int = 0

    warned: Event[Celsius] = event()
    moved: Event[Place] = event(doc="It stands somewhere else now.")
    ticked: Event[None] = event(name="tick")

    @action
    def reset(self) -> None: ...

    @action(safe=True, idempotent=True)
    def mean(self, hours: Annotated[int, Meta(ge=1, le=24, description="How far back.")] = 1) -> Celsius:
        """Give the mean of some hours.

        Of the sensor alone.
        """
        return 0.0

    @action
    async def move(self, place: Place, degree: Degree = Degree.WARM, *, soon: bool) -> bool:
        """Move."""
        return soon

    @action
    async def measure(self, progress: Progress[Annotated[float, Meta(ge=0, le=1)]], place: str) -> Any:
        """Measure for a while."""

    @action(name="set-up")
    def set_up(self, place: Place, /) -> None:
        """Set it up."""

    @action
    def set_down(self, place: Place = ROME, /) -> None:
        """Set it down."""

    @action
    async def readings(self, hours: int) -> AsyncIterator[Celsius]:
        """Give one reading after the other."""
        yield 0.0

    @action
    async def listen(self) -> AsyncIterator[bytes]:
        """Give what the microphone hears."""
        yield b""

    @action
    async def sing(
        self,
    ) -> AsyncIterator[Wav]:
        """Give a song."""
        yield b""


CELSIUS = {"description": "As the sensor says.", "type": "number", "minimum": -273.15, "unit": "celsius"}
PLACE = {
    "title": "Place",
    "description": "Where it is measured.",
    "type": "object",
    "properties": {
        "town": {"type": "string"},
        "storey": {"description": WHOLE, "type": "integer", "default": 0},
    },
    "required": ["town"],
}
DEGREE = {
    "title": "Degree",
    "description": "How warm it is.",
    "type": "string",
    "enum": ["cold", "warm"],
}
UNSAFE = {"safe": False, "idempotent": False}


def plain(cls: type[Agent]) -> dict[str, Any]:
    return dump(describe(cls))


# --- the parts of a class


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bare", {"type": "string", "observable": True}),
        ("warmth", {**CELSIUS, "readOnly": True, "observable": True}),
        ("limit", {**CELSIUS, "description": "Where it warns.", "observable": True}),
        ("pin", {"type": "string", "writeOnly": True}),
        ("where", PLACE),
        ("many", {"type": "array", "items": DEGREE, "observable": True}),
    ],
)
def test_a_property(name: str, wanted: dict[str, Any]) -> None:
    assert plain(Station)["properties"][name] == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("warned", {"description": "As the sensor says.", "data": CELSIUS}),
        ("moved", {"description": "It stands somewhere else now.", "data": PLACE}),
        ("tick", {"data": {"type": "null"}}),
    ],
)
def test_an_event(name: str, wanted: dict[str, Any]) -> None:
    assert plain(Station)["events"][name] == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("reset", {**UNSAFE, "synchronous": True}),
        (
            "mean",
            {
                "description": "Give the mean of some hours.\n\nOf the sensor alone.",
                "input": {
                    "type": "object",
                    "properties": {
                        "hours": {
                            "description": "How far back.",
                            "type": "integer",
                            "minimum": 1,
                            "maximum": 24,
                            "default": 1,
                        }
                    },
                },
                "output": CELSIUS,
                "safe": True,
                "idempotent": True,
                "synchronous": True,
            },
        ),
        (
            "move",
            {
                "description": "Move.",
                "input": {
                    "type": "object",
                    "properties": {
                        "place": PLACE,
                        "degree": {**DEGREE, "default": "warm"},
                        "soon": {"type": "boolean"},
                    },
                    "required": ["place", "soon"],
                },
                "output": {"type": "boolean"},
                **UNSAFE,
            },
        ),
        (
            "measure",
            {
                "description": "Measure for a while.",
                "input": {
                    "type": "object",
                    "properties": {"place": {"type": "string"}},
                    "required": ["place"],
                },
                "output": {},
                **UNSAFE,
            },
        ),
        ("set-up", {"description": "Set it up.", "input": PLACE, **UNSAFE, "synchronous": True}),
        (
            "set_down",
            {
                "description": "Set it down.",
                "input": {**PLACE, "default": {"town": "Rome", "storey": 0}},
                **UNSAFE,
                "synchronous": True,
            },
        ),
        (
            "readings",
            {
                "description": "Give one reading after the other.",
                "input": {
                    "type": "object",
                    "properties": {"hours": {"description": WHOLE, "type": "integer"}},
                    "required": ["hours"],
                },
                **UNSAFE,
            },
        ),
        (
            "listen",
            {
                "description": "Give what the microphone hears.",
                **UNSAFE,
            },
        ),
        (
            "sing",
            {
                "description": "Give a song.",
                **UNSAFE,
            },
        ),
    ],
)
def test_an_action(name: str, wanted: dict[str, Any]) -> None:
    assert plain(Station)["actions"][name] == wanted


def test_progress_and_streams_are_members_of_the_thing() -> None:
    assert plain(Station)["lmosx:progress"] == {"measure": {"type": "number", "minimum": 0, "maximum": 1}}
    assert plain(Station)["lmosx:streams"] == {
        "readings": {"output": {"contentType": "application/json", "schema": CELSIUS}},
        "listen": {"output": {"contentType": "application/octet-stream"}},
        "sing": {"output": {"contentType": "audio/wav"}},
    }


def test_the_whole() -> None:
    found = describe(Station, id="urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77")
    assert found.context == default_context()
    assert found.type == AGENT_TYPE
    assert found.id == "urn:uuid:6f1d3a7a-1f97-4e6b-b45f-f3c2e1c84c77"
    assert (found.title, found.description) == ("Station", "Measures the temperature.\n\nOnce a minute.")
    assert found.offers == ("streams",)
    assert dump(found)["securityDefinitions"] == {"nosec_sc": {"scheme": "nosec"}}
    assert found.security == "nosec_sc"
    assert list(found.properties or ()) == ["bare", "warmth", "limit", "pin", "where", "many"]
    assert list(found.events or ()) == ["warned", "moved", "tick"]


def test_nothing_to_tell_is_nothing_told() -> None:
    class Bare(Agent):
        pass

    found = plain(Bare)
    assert list(found) == ["@context", "@type", "title", "securityDefinitions", "security"]


def test_a_description_shares_nothing_with_the_class() -> None:
    first = describe(Station)
    assert first.properties is not None
    first.properties["limit"].schema["minimum"] = 99
    assert plain(Station)["properties"]["limit"]["minimum"] == -273.15


@pytest.mark.parametrize("wrong", [Agent, int, "Station", Station(bare="x"), describe])
def test_only_an_agent_class_is_described(wrong: Any) -> None:
    with pytest.raises(TypeError, match="describe takes an agent class"):
        describe(wrong)


class Contrary(Agent):
    limit: Property[Annotated[int, Meta(extra_json_schema={"readOnly": "perhaps"})]] = prop(default=0)


def test_what_cannot_stand_in_a_description() -> None:
    with pytest.raises(DescriptionError, match="/properties/limit/readOnly: must be true or false"):
        describe(Contrary)
    with pytest.raises(DescriptionError, match="/id: must be a text"):
        describe(Station, id=7)  # type: ignore[arg-type]


class Defaults(Agent):
    @action
    def take(
        self,
        names: frozenset[str] = frozenset("cab"),
        data: bytes = b"x",
        at: datetime.timedelta = datetime.timedelta(days=1),
        anything: object = None,
        own: Place = ROME,
    ) -> None: ...


def test_a_default_is_told_as_it_is_sent() -> None:
    members = plain(Defaults)["actions"]["take"]["input"]["properties"]
    assert {name: schema["default"] for name, schema in members.items()} == {
        "names": ["a", "b", "c"],
        "data": "eA==",
        "at": "P1D",
        "anything": None,
        "own": {"town": "Rome", "storey": 0},
    }


# --- synchronous


class Waits(Agent, behaviours=("open", "closed")):
    @action
    def turn(self) -> None: ...
    @action(when="open")
    def gated(self) -> None: ...
    @action(when="open", postpone=True)
    def postponed(self) -> None: ...
    @action
    async def run(self) -> None: ...
    @action(synchronous=True)
    async def sure(self) -> None: ...
    @action(synchronous=False)
    async def later(self) -> None: ...
    @action(synchronous=False)
    def slow(self) -> None: ...


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("turn", True),
        ("gated", True),
        ("postponed", None),
        ("run", None),
        ("sure", True),
        ("later", False),
        ("slow", False),
    ],
)
def test_synchronous_says_whether_the_answer_is_the_result(name: str, wanted: bool | None) -> None:
    actions = describe(Waits).actions or {}
    assert actions[name].synchronous is wanted


# --- names


class Renamed(Agent, rename="camel"):
    warm_enough: Property[bool] = prop(default=True)
    got_warm: Event[bool] = event()

    @action
    def set_both(self, first_one: int, second_one: int) -> None: ...

    @action(name="other-name")
    def other(self) -> None: ...


def test_names_are_those_of_the_wire() -> None:
    found = plain(Renamed)
    assert (list(found["properties"]), list(found["events"])) == (["warmEnough"], ["gotWarm"])
    assert list(found["actions"]) == ["setBoth", "other-name"]
    assert found["actions"]["setBoth"]["input"]["required"] == ["firstOne", "secondOne"]


# --- inheritance


class Roof(Station, rename="camel"):
    sun_hours: Property[float] = prop(default=0.0)

    @action
    async def move(self, place: Place, degree: Degree = Degree.COLD, *, soon: bool = True) -> bool:
        return soon


def test_a_subclass_tells_what_its_base_tells_and_more() -> None:
    base, found = plain(Station), plain(Roof)
    assert (found["title"], found["description"]) == ("Roof", base["description"])
    assert found["properties"] == {**base["properties"], "sunHours": {"type": "number", "observable": True}}
    assert found["events"] == base["events"]
    changed = found["actions"]["move"]
    assert {**found["actions"], "move": None} == {**base["actions"], "move": None}
    assert changed["description"] == "Move."
    assert changed["input"]["required"] == ["place"]
    assert changed["input"]["properties"]["degree"]["default"] == "cold"


ACME = Vendor(name="Acme", url="https://acme.example")


class Told(
    Agent,
    about=About(
        vendor=ACME,
        version="1.2.0",
        support="mailto:help@acme.example",
        links=[Link(rel="service-doc", href="https://acme.example/manual")],
        more={"lmos:interaction": {"lmos:supportedLanguages": ["en"]}, "lmos:compliance": "A"},
    ),
):
    """Says who made it."""


class Other(
    Told, about=About(model=ModelInfo(name="gpt-4o", provider="OpenAI"), more={"lmos:compliance": "B"})
):
    """Says what it thinks with."""


class Silent(Other):
    pass


class Hammer(Told, tool=True):
    """Hits."""


class Mallet(Hammer):
    """Hits softly."""


class NoTool(Hammer, tool=False):
    """Hits nothing."""


def test_what_is_told_about_a_class() -> None:
    found = plain(Told)
    assert found["version"] == {"instance": "1.2.0"}
    assert found["support"] == "mailto:help@acme.example"
    assert found["links"] == [{"rel": "service-doc", "href": "https://acme.example/manual"}]
    assert found["lmos:metadata"] == {
        "lmos:vendor": {"lmos:name": "Acme", "lmos:url": "https://acme.example"},
        "lmos:interaction": {"lmos:supportedLanguages": ["en"]},
        "lmos:compliance": "A",
    }


def test_a_subclass_adds_to_what_is_told() -> None:
    found = plain(Other)
    assert found["lmos:metadata"] == {
        "lmos:vendor": {"lmos:name": "Acme", "lmos:url": "https://acme.example"},
        "lmos:model": {"lmos:name": "gpt-4o", "lmos:provider": "OpenAI"},
        "lmos:interaction": {"lmos:supportedLanguages": ["en"]},
        "lmos:compliance": "B",
    }
    assert (found["version"], found["links"]) == (plain(Told)["version"], plain(Told)["links"])
    assert describe(Silent).metadata == describe(Other).metadata


def test_without_vendor_and_the_like_there_is_no_metadata() -> None:
    class Versioned(Agent, about=About(version="1.2.0")):
        pass

    assert plain(Versioned)["version"] == {"instance": "1.2.0"}
    assert "lmos:metadata" not in plain(Versioned)


@pytest.mark.parametrize(
    ("cls", "wanted"),
    [(Told, AGENT_TYPE), (Hammer, TOOL_TYPE), (Mallet, TOOL_TYPE), (NoTool, AGENT_TYPE)],
)
def test_agents_and_tools(cls: type[Agent], wanted: str) -> None:
    found = describe(cls)
    assert found.type == wanted
    assert found.is_tool == (wanted == TOOL_TYPE)
    assert found.metadata == Metadata(
        vendor=ACME, extra={"lmos:interaction": {"lmos:supportedLanguages": ["en"]}, "lmos:compliance": "A"}
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: About(vendor="Acme"), "About: vendor must be Vendor | None, not 'Acme'"),  # type: ignore[arg-type]
        (lambda: About(version=1), "About: version must be str | None, not 1"),  # type: ignore[arg-type]
        (lambda: About(more={"lmos:x": object()}), "About: .*not plain data"),
        (lambda: About(more={"lmos:x": float("nan")}), "About: .*finite"),
        (lambda: type("X", (Agent,), {}, about="Acme"), "X: about must be an About, not 'Acme'"),
        (lambda: type("X", (Agent,), {"about": About()}), "X.about: it belongs in the head, class X"),
        (lambda: type("X", (Agent,), {}, tool="yes"), "X: tool must be True or False, not 'yes'"),
    ],
)
def test_what_cannot_be_told(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()


# --- secrets


class Login(Struct, frozen=True):
    user: str = "root"
    password: Secret[str] = "hunter2"
    codes: Secret[tuple[str, ...]] = ("hunter2",)


ROOT = Login()


class Envelope(Struct, frozen=True):
    """Says nothing about what is in it."""

    content: Any = None


SEALED = Envelope(ROOT)


@dataclasses.dataclass(frozen=True)
class Account:
    login: Login = ROOT
    number: int = dataclasses.field(default=4711_0815, repr=False)
    open: Any = ROOT
    sealed: Envelope = SEALED
    several: tuple[Any, ...] = ("x", ROOT)


@attrs.frozen
class Bank:
    account: Account | None = Account()
    kind: Literal["a", "b"] = "a"
    codes: Secret[list[str]] = attrs.Factory(list)
    names: list[str] = attrs.Factory(list)


class Keeper(Agent):
    login: Property[Login] = prop(default=ROOT)
    again: Property[Login | None] = prop(default=None)
    leaked: Event[Bank] = event()

    @action
    def enter(self, password: Secret[str] = "hunter2", login: Login = ROOT) -> Secret[str]:
        return password

    @action
    def whole(self, bank: Bank, /) -> None: ...

    @action
    def open(self, user: str = "hunter") -> None: ...


def test_no_secret_default_is_told() -> None:
    text = dump_text(describe(Keeper))
    assert "hunter2" not in text
    assert "47110815" not in text
    actions = plain(Keeper)["actions"]
    assert actions["open"]["input"]["properties"]["user"] == {"type": "string", "default": "hunter"}
    assert "required" not in actions["enter"]["input"]
    login = actions["enter"]["input"]["properties"]["login"]
    assert "default" not in login
    assert login["properties"]["user"] == {"type": "string", "default": "root"}
    assert login["properties"]["password"] == {"type": "string", SECRET_MARK: True}
    bank = actions["whole"]["input"]["properties"]
    assert bank["kind"] == {"type": "string", "enum": ["a", "b"], "default": "a"}
    assert bank["codes"] == {"type": "array", "items": {"type": "string"}, SECRET_MARK: True}
    assert bank["names"] == {"type": "array", "items": {"type": "string"}, "default": []}


class Vault(Agent):
    pin: Property[Secret[str]] = prop(default="0000")
    opened: Event[list[Secret[str]]] = event()

    @action
    def enter(self, password: Secret[str], user: str) -> Account | None: ...

    @action
    async def pins(self) -> AsyncIterator[Secret[int]]:
        yield 1


def test_what_is_secret_is_marked_and_only_that() -> None:
    described = plain(Vault)
    assert described["properties"]["pin"][SECRET_MARK] is True
    assert described["events"]["opened"]["data"][SECRET_MARK] is True
    assert described["lmosx:streams"]["pins"]["output"]["schema"][SECRET_MARK] is True
    given = described["actions"]["enter"]["input"]["properties"]
    assert {name: SECRET_MARK in each for name, each in given.items()} == {"password": True, "user": False}
    account = described["actions"]["enter"]["output"]["oneOf"][0]["properties"]
    assert {name for name, each in account.items() if SECRET_MARK in each} == {"number"}
    assert [name for name, each in account["login"]["properties"].items() if SECRET_MARK in each] == [
        "password",
        "codes",
    ]


def test_a_mark_survives_the_way_over_a_network() -> None:
    again = load(dump_text(describe(Vault)))
    assert again == describe(Vault)
    assert (again.properties or {})["pin"].schema[SECRET_MARK] is True
    assert check_for_kotlin_wot(again) == ()


def test_only_a_function_lends_an_action_its_docstring() -> None:
    """Any other value answers `__doc__` with that of its class: an `int`, or from Python 3.13 on `None`."""

    class Plain:
        tick: Any = 3
        tock: Any = None

    class Written:
        def tell(self) -> None:
            """Tell the time."""

    class Clock(Plain, Written, Agent):
        @action
        def tick(self) -> None: ...

        @action
        def tock(self) -> None: ...

        @action
        def tell(self) -> None: ...

    actions = describe(Clock).actions or {}
    assert {name: each.description for name, each in actions.items()} == {
        "tick": None,
        "tock": None,
        "tell": "Tell the time.",
    }


# --- the shipped agents


@pytest.mark.parametrize("cls", SAMPLES, ids=lambda cls: cls.__name__)
def test_the_description_of_a_sample_can_be_read_again(cls: type[Agent]) -> None:
    found = describe(cls)
    assert load(dump_text(found)) == found


# --- the weather agent of the LMOS specification


SPEC = json.loads((CHECKOUT / "tests/wire/td/spec-002-full.repaired.json").read_text(encoding="utf-8"))
ELSEWHERE = ("@context", "forms", "security", "securityDefinitions")
"""What a class does not say: whoever serves it does; and the context has the prefix of our extensions too."""


def held_against(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Say what of theirs is missing or other in ours, and what is more in ours."""
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        if ours != theirs:
            yield "other", path
        return
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        if name in ELSEWHERE:
            continue
        if name not in ours or name not in theirs:
            yield ("missing" if name not in ours else "more"), f"{path}/{name}"
        else:
            yield from held_against(ours[name], theirs[name], f"{path}/{name}")


def test_the_weather_agent_is_that_of_the_specification() -> None:
    """Its words, but for the language of a link: an array says the same, and kotlin-wot reads only that."""
    found = list(held_against(dump(describe(weather.WeatherAgent, id=SPEC["id"])), SPEC))
    assert found.pop(0) == ("other", "/links")
    links = [{**each, "hreflang": [each["hreflang"]]} for each in SPEC["links"]]
    assert dump(describe(weather.WeatherAgent))["links"] == links
    assert found == [
        ("more", "/properties/modelConfiguration/title"),
        ("more", "/properties/modelConfiguration/required"),
        ("more", "/properties/modelConfiguration/observable"),
        ("more", "/properties/units"),
        ("more", "/actions/giveFeedback"),
        ("more", "/events/userFeedbackReceived/data/title"),
        ("more", "/events/userFeedbackReceived/data/description"),
        ("more", "/description"),
    ]


def test_a_consumer_written_for_the_specification_can_use_the_weather_agent() -> None:
    found = differences(describe(weather.WeatherAgent), load(SPEC))
    assert [each for each in found if each.breaks] == []
    kept = dict.fromkeys(each.path for each in found if each.weight == "differs")
    assert sorted(kept) == [
        "/actions/giveFeedback",
        "/properties/modelConfiguration/observable",
        "/properties/modelConfiguration/required",
        "/properties/units",
    ]


# --- checked


@pytest.mark.parametrize(
    "cls", [*SAMPLES, Station, Waits, Renamed, Roof, Other, Mallet, Keeper], ids=lambda cls: cls.__name__
)
def test_a_description_that_is_served_stands_a_strict_check(cls: type[Agent]) -> None:
    served = with_forms(describe(cls, id="urn:uuid:0"), "desk", ["ws://127.0.0.1:8080"])
    assert check(served, strict=True) == ()


def test_a_description_does_not_differ_from_itself() -> None:
    assert differences(describe(Station), describe(Station)) == ()
