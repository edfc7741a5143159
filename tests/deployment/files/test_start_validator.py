"""What a deployment file shows that its groups cannot start, or that a ref between them leads nowhere."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.deployment.files import load_deployment
from lmos_actors.files import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENTS = """\
from functools import partial

from lmos_actors import Agent, ChildSpec, Ref, SupervisorSpec, action, sibling
from lmos_actors.supervision import BulkSpec, Pool


class Books(Agent, durable=True):
    sold: int = 0


class Weather(Agent):
    unit: str = "celsius"

    @action
    def forecast(self) -> str:
        return "sun"


class Hidden(Agent, private=True):
    pass


class Desk(Agent):
    books: Ref[Books]
    limit: int = 3


class Window(Agent):
    weather: Ref[Weather]


class Chief(Agent):
    hidden: Ref[Hidden]


class Clerks(Agent):
    weather: Ref[Weather] | None = None


class Party(Agent):
    guests: tuple[Ref[Weather], ...] = ()


def made(city: str) -> Weather:
    return Weather()


def child(name, factory, **given):
    return ChildSpec(name, partial(factory, **given), key=given.pop("key", None))


def root(*children):
    return SupervisorSpec("root", children)


books = ChildSpec("books", Books)
weather = ChildSpec("weather", Weather)
desk = ChildSpec("desk", partial(Desk, books=sibling("books")))
window = ChildSpec("window", partial(Window, weather=sibling("weather")))

shop = root(books, desk)
office = root(weather, window)
keyed = root(ChildSpec("books", Books, key="42"), desk)
hidden = root(ChildSpec("hidden", Hidden), ChildSpec("chief", partial(Chief, hidden=sibling("hidden"))))
pool = root(Pool(Weather, 2, name="weather"), window)
pool_asks = root(weather, Pool(partial(Window, weather=sibling("weather")), 2, name="window"))
party = root(weather, ChildSpec("window", partial(Party, guests=(sibling("weather"),))))
deep = root(
    SupervisorSpec("back", [SupervisorSpec("attic", [weather])]),
    SupervisorSpec("front", [ChildSpec("window", partial(Window, weather=sibling("../back/attic/weather")))]),
)
clerk = ChildSpec("clerk", partial(Clerks, weather=sibling("../../weather")))
crowd = BulkSpec("crowd", member=clerk, count=3)
bulk = root(weather, SupervisorSpec("hall", [crowd]))
bulk_at_top = root(weather, BulkSpec("crowd", member=ChildSpec("each", Clerks), count=3))
bulk_of_books = root(SupervisorSpec("hall", [BulkSpec("crowd", member=ChildSpec("each", Books), count=3)]))
lacking = root(ChildSpec("desk", Desk))
misspelt = root(ChildSpec("weather", partial(Weather, units="kelvin")))
mistyped = root(ChildSpec("weather", partial(Weather, unit=7)))
no_ref = root(ChildSpec("window", partial(Window, weather="weather")))
no_agent = root(ChildSpec("weather", dict))
by_function = root(ChildSpec("weather", made))
by_right_function = root(ChildSpec("weather", partial(made, city="Bonn")))
positional = root(ChildSpec("weather", partial(Weather, "kelvin")))
"""

SECURITY = "schemes: [{scheme: bearer, tokens: {alice: env:ALICE}}]\n"
SPELT_OUT = {
    "weather": {"from": "agent", "use": "starting:Weather"},
    "books": {"from": "agent", "use": "starting:Books"},
    "window": {"from": "agent", "use": "starting:Window", "args": {"weather": "$(agents.weather)"}},
    "desk": {"from": "agent", "use": "starting:Desk", "args": {"books": "$(agents.books)"}},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = list(sys.path)
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text("")
    (folder / "starting.py").write_text(AGENTS)
    (folder / "guarded.yaml").write_text(SECURITY)
    (folder / "open.yaml").write_text(f"{SECURITY}access: {{weather: {{invoke: anyone}}}}\n")
    (folder / "typo.yaml").write_text(f"{SECURITY}access: {{wether: {{invoke: anyone}}}}\n")
    yield folder
    sys.path[:] = path
    sys.modules.pop("starting", None)


def checked(project: Path, tree: str, **groups: Any) -> list[str]:
    """Return what is wrong with a deployment of a tree, or of agents that are spelt out."""
    named = [name for group in groups.values() for name in group.get("agents", ())]
    whole: dict[str, Any] = {"lmos": "deployment/v1", "name": "case", "groups": groups}
    if tree:
        whole["tree"] = {"use": f"starting:{tree}"}
    else:
        whole["agents"] = {name: SPELT_OUT[name] for name in named}
    (project / "case.json").write_text(json.dumps(whole, indent=1))
    try:
        return [note.message for note in load_deployment(project / "case.json").notes]
    except FileError as error:
        return [f"error: {each.message}" for each in error.mistakes]


def two(first: str, second: str, **more: Any) -> dict[str, Any]:
    """Return two groups, with an agent in each, or with a supervisor."""
    one, other = more.pop("one", {}), more.pop("two", {})
    return {"one": {"agents": [first], **one}, "two": {"agents": [second], **other}, **more}


def one(*agents: str, **more: Any) -> dict[str, Any]:
    """Return a group."""
    return {"one": {"agents": list(agents), **more}}


HOST = {"registry": {"directory": True}}
AT = {"register": "registry"}
FOUND = {"one": AT, "two": {"lookup": "registry"}, **HOST}
STORE = {"store": "memory:"}
SHARED = {"store": "redis://store"}
NO_DIRECTORY = 'in the group "one", and "two" finds it in a directory: "one" needs "register: NAME"'
IN_ATTIC = '"back/attic/weather" is in the group "one"'


def found_but(**group: Any) -> dict[str, Any]:
    """Return two groups the second of which finds the first, which has more keys."""
    return two("weather", "window", **{**FOUND, "one": {**AT, **group}})


WRONG: list[tuple[str, dict[str, Any], str]] = [
    # stores
    ("shop", one("books", "desk"), '"books" is durable, and its group "one" has no store'),
    ("", one("books", "desk"), '"store: sqlite:state/one.db" makes one'),
    ("bulk_of_books", one("hall"), '"hall/crowd" is durable'),
    ("shop", one("books", "desk", **SHARED), 'needs a key: give it a key, as in "key: books"'),
    ("", one("books", "desk", **SHARED), 'or "?writers=one" to the store'),
    # a directory
    ("office", two("weather", "window"), NO_DIRECTORY),
    ("", two("weather", "window"), NO_DIRECTORY),
    ("office", two("weather", "window"), 'NAME is a group with "directory: true"'),
    ("office", two("weather", "window", **HOST), '"one" needs "register: registry", and "two" needs'),
    ("office", two("weather", "window", one=AT, **HOST), '"two" needs "register: registry" or "lookup:'),
    ("office", two("weather", "window", two=AT, **HOST), '"one" needs "register: registry"'),
    ("office", two("weather", "window", one={"register": "http://d.example"}), "register: http://d.example"),
    ("pool", two("weather", "window"), NO_DIRECTORY),
    ("pool_asks", two("weather", "window"), "window.factory(weather=sibling('weather')): \"weather\" is in"),
    ("party", two("weather", "window"), NO_DIRECTORY),
    ("deep", two("back", "front"), IN_ATTIC),
    ("deep", two("attic", "front/window"), IN_ATTIC),
    ("office", two("weather", "window", one={"replicas": 3}), NO_DIRECTORY),
    ("keyed", one("books", "desk", replicas=2, **SHARED), '"books" has a key, and is in one of the 2 proc'),
    # who is reached by other groups
    ("hidden", two("hidden", "chief", **FOUND), "Hidden is private, so only its own process reaches it"),
    ("bulk", two("weather", "hall", **FOUND), "a BulkSpec has refs to agents of its own group alone"),
    ("office", found_but(security="guarded.yaml"), "it is for clients with credentials alone"),
    ("", found_but(security="guarded.yaml"), 'a list "anyone" for "weather", or put both in one group'),
    ("office", found_but(cert="c.pem", client_ca="a.pem"), "it is for clients with a certificate alone"),
    ("office", one("weather", "window", security="typo.yaml"), "'weather'?"),
    # the arguments of a tree
    ("bulk_at_top", one("weather"), '"crowd" is in no group, so nothing runs it: put it below a supervisor'),
    ("lacking", one("desk"), "cannot be made by Desk(...): missing a required"),  # Python's words differ
    ("misspelt", one("weather"), "Weather(...): got an unexpected keyword argument 'units'"),
    ("positional", one("weather"), "Weather(...): too many positional arguments"),
    ("mistyped", one("weather"), '"weather": "unit" is to be str'),
    ("no_ref", one("window"), '"weather" is a ref to an agent, which sibling("...") stands for'),
    ("no_agent", one("weather"), "dict is not an agent"),
    ("by_function", one("weather"), "made(...): missing a required argument: 'city'"),
]

ELSEWHERE = {"one": {"register": "http://a.example"}, "two": {"lookup": "http://b.example"}}

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("shop", one("books", "desk", **STORE)),
    ("", one("books", "desk", **STORE)),
    ("shop", one("books", "desk", store="redis://store?writers=one")),
    ("keyed", one("books", "desk", **SHARED)),
    ("keyed", {**one("books", "desk", replicas=2, **AT, **SHARED), **HOST}),
    ("office", two("weather", "window", **FOUND)),
    ("", two("weather", "window", **FOUND)),
    ("office", two("weather", "window", one={"register": "two"}, two={"directory": True})),
    ("office", two("weather", "window", **ELSEWHERE)),
    ("office", two("window", "weather", one=AT, two=AT, **HOST)),
    ("pool", two("weather", "window", **FOUND)),
    ("deep", two("back", "front", **FOUND)),
    ("hidden", one("hidden", "chief")),
    ("bulk", one("weather", "hall")),
    ("office", found_but(security="open.yaml")),
    ("office", found_but(security="of-another-machine.yaml")),
    ("by_right_function", one("weather")),
]


@pytest.mark.parametrize(("tree", "groups", "why"), WRONG)
def test_what_cannot_start_is_refused(project: Path, tree: str, groups: dict[str, Any], why: str) -> None:
    found = checked(project, tree, **groups)
    assert any(why in each for each in found), found


@pytest.mark.parametrize(("tree", "groups"), RIGHT)
def test_what_can_start_is_not_doubted(project: Path, tree: str, groups: dict[str, Any]) -> None:
    assert checked(project, tree, **groups) == []


def test_a_replaced_agent_of_a_tree_has_the_refs_that_are_left(project: Path) -> None:
    """Its own argument leads to the agent beside it, and the tree's to another group."""
    data = {
        "lmos": "deployment/v1",
        "name": "case",
        "tree": {"use": "starting:office", "children": ["near"]},
        "agents": {
            "near": {"from": "agent", "use": "starting:Weather"},
            "window": {"from": "agent", "use": "starting:Window"},
        },
        "groups": {"one": {"agents": ["weather"]}, "two": {"agents": ["window", "near"]}},
    }
    file = project / "case.json"
    file.write_text(json.dumps(data))
    with pytest.raises(FileError, match='"weather" is in the group "one"'):
        load_deployment(file)
    data["agents"]["window"]["args"] = {"weather": "$(agents.near)"}  # type: ignore[index]
    file.write_text(json.dumps(data))
    load_deployment(file)
