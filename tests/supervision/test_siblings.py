"""References between the children of a tree: checked when the spec is made, refs when an agent is."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    ConfigError,
    Event,
    NotFound,
    Pool,
    Ref,
    SupervisorSpec,
    action,
    check_portable,
    event,
    open_node,
    sibling,
)
from lmos_actors.testing import fake, open_test_node, run_test, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.testing import TestNode


class Weather(Agent):
    asked: Event[str] = event()
    town: str = "Bonn"

    @action
    def forecast(self) -> str:
        self.asked.emit(self.town)
        return f"sunny in {self.town}"

    @action
    def leave(self) -> None:
        self.stop()


class Concierge(Agent):
    weather: Ref[Weather]
    others: tuple[Ref[Weather], ...] = ()
    spare: Ref[Weather] | None = None
    anything: Any = None
    label: str = "Ada"

    @action
    async def ask(self) -> str:
        return await self.answer()

    async def answer(self) -> str:
        try:
            return await self.weather.invoke(Weather.forecast)
        except NotFound as error:
            return f"not found: {error}"

    @action
    async def ask_others(self) -> list[str]:
        return [await ref.invoke(Weather.forecast) for ref in self.others]

    @action
    def crash(self) -> None:
        raise RuntimeError("a bug")


class Listener(Agent):
    weather: Ref[Weather]
    heard: list[str] | None = None

    def started(self) -> None:
        self.heard = []
        self.follow(self.weather, Weather.asked, self.hear)

    def hear(self, town: str) -> None:
        assert self.heard is not None
        self.heard.append(town)

    @action
    def so_far(self) -> list[str]:
        return list(self.heard or ())


class Desk(Agent):
    """Has a child of its own that refers to another child, and to what is beside the desk."""

    def supervises(self) -> SupervisorSpec:
        return SupervisorSpec(
            "desk",
            [
                ChildSpec("near", partial(Concierge, weather=sibling("own"))),
                ChildSpec("far", partial(Concierge, weather=sibling("../weather"))),
                ChildSpec("own", partial(Weather, town="Rome")),
            ],
        )


def concierge(name: str = "concierge", **given: Any) -> ChildSpec[Concierge]:
    return ChildSpec(name, partial(Concierge, **given))


def nested() -> SupervisorSpec:
    return SupervisorSpec(
        "travel",
        [
            concierge(weather=sibling("weather")),
            concierge("of-paris", weather=sibling("stores/paris")),
            SupervisorSpec(
                "stores",
                [
                    concierge("up", weather=sibling("../weather")),
                    concierge("beside", weather=sibling("paris", Weather)),
                    ChildSpec("paris", partial(Weather, town="Paris")),
                    Pool(partial(Concierge, weather=sibling("../weather")), 2, name="many"),
                    SupervisorSpec("deep", [concierge("deepest", weather=sibling("../../weather"))]),
                ],
            ),
            ChildSpec("weather", Weather),
        ],
    )


ANSWERS = {
    "concierge": "Bonn",
    "of-paris": "Paris",
    "stores/up": "Bonn",
    "stores/beside": "Paris",
    "stores/many": "Bonn",
    "stores/deep/deepest": "Bonn",
}


@pytest.mark.parametrize("path", ANSWERS)
async def test_a_reference_leads_to_the_agent_at_its_path_in_every_life(
    autojump_clock: Any, path: str
) -> None:
    async with open_test_node(nested()) as node:
        ref = node.find(Concierge, path)
        assert await ref.invoke(Concierge.ask) == f"sunny in {ANSWERS[path]}"
        with pytest.raises(AgentDied):
            await ref.invoke(Concierge.crash)
        await ref.ready()
        assert await ref.invoke(Concierge.ask) == f"sunny in {ANSWERS[path]}"


async def test_one_tree_is_started_twice_and_each_node_has_refs_of_its_own(autojump_clock: Any) -> None:
    tree = nested()
    async with open_node(tree) as one, open_node(tree) as two:
        await one.root.terminate_child("weather")
        assert await two.find(Concierge, "concierge").invoke(Concierge.ask) == "sunny in Bonn"
        with pytest.raises(Exception, match="weather"):
            await one.find(Concierge, "concierge").invoke(Concierge.ask)


async def test_refs_survive_the_restart_of_the_supervisor_of_what_they_lead_to(autojump_clock: Any) -> None:
    async with open_test_node(nested()) as node:
        ref = node.find(Concierge, "of-paris")
        await node.root.terminate_child("stores")
        await node.root.restart_child("stores")
        assert await ref.invoke(Concierge.ask) == "sunny in Paris"
        assert await node.find(Concierge, "stores/up").invoke(Concierge.ask) == "sunny in Bonn"


async def test_two_agents_may_refer_to_each_other_and_one_may_follow_a_later_one(
    autojump_clock: Any,
) -> None:
    class Left(Agent):
        right: Ref[Any]

        @action
        def name_of_other(self) -> str:
            return self.right.path

    tree = SupervisorSpec(
        "root",
        [
            ChildSpec("left", partial(Left, right=sibling("right"))),
            ChildSpec("right", partial(Left, right=sibling("left"))),
            ChildSpec("listener", partial(Listener, weather=sibling("weather"))),
            ChildSpec("weather", Weather),
        ],
    )
    async with open_test_node(tree) as node:
        assert await node.find(Left, "left").invoke(Left.name_of_other) == "right"
        assert await node.find(Left, "right").invoke(Left.name_of_other) == "left"
        await node.find(Weather).invoke(Weather.forecast)
        await settle()
        assert await node.find(Listener).invoke(Listener.so_far) == ["Bonn"]


async def test_several_references_in_one_argument_and_a_pool_as_one(autojump_clock: Any) -> None:
    tree = SupervisorSpec(
        "root",
        [
            Pool(partial(Weather, town="Pisa"), 2, name="pool"),
            ChildSpec("weather", Weather),
            concierge(
                weather=sibling("pool"),
                others=(sibling("weather"), sibling("pool")),
                anything={"list": [sibling("weather")]},
            ),
        ],
    )
    async with open_test_node(tree) as node:
        ref = node.find(Concierge)
        assert await ref.invoke(Concierge.ask) == "sunny in Pisa"
        assert await ref.invoke(Concierge.ask_others) == ["sunny in Bonn", "sunny in Pisa"]


class Holder(Agent):
    by_name: dict[str, Ref[Weather]] = attrs.field(factory=dict[str, Ref[Weather]])
    some: Sequence[Ref[Weather]] = ()
    each: frozenset[Ref[Weather]] = frozenset()
    either: Ref[Weather] | Ref[Concierge] | None = None
    whatever: object = None

    @action
    async def towns(self) -> list[str]:
        refs = [*self.by_name.values(), *self.some, *self.each]
        if isinstance(self.whatever, dict):
            refs += self.whatever
        return [await ref.invoke(Weather.forecast) for ref in refs]


@pytest.mark.parametrize(
    "given",
    [
        {"by_name": {"a": sibling("weather")}},
        {"some": [sibling("weather", Weather)]},
        {"each": frozenset({sibling("weather")})},
        {"whatever": {sibling("weather"): 1}},
    ],
    ids=lambda given: next(iter(given)),
)
async def test_references_in_a_collection_of_any_kind_become_refs(given: Any, autojump_clock: Any) -> None:
    children = [ChildSpec("holder", partial(Holder, **given)), ChildSpec("weather", Weather)]
    async with open_test_node(SupervisorSpec("root", children)) as node:
        assert await node.find(Holder).invoke(Holder.towns) == ["sunny in Bonn"]


def test_a_field_of_one_ref_among_other_types_takes_one() -> None:
    for given in ({"either": sibling("weather")}, {"whatever": sibling("weather")}):
        SupervisorSpec("root", [ChildSpec("holder", partial(Holder, **given)), ChildSpec("weather", Weather)])


async def test_arguments_may_contain_themselves_and_be_nested_deeply(autojump_clock: Any) -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    for value in (endless, deep):
        tree = SupervisorSpec(
            "root", [ChildSpec("weather", Weather), concierge(weather=sibling("weather"), anything=value)]
        )
        async with open_test_node(tree) as node:
            assert await node.find(Concierge).invoke(Concierge.ask) == "sunny in Bonn"


async def test_an_agent_that_is_gone_for_good_is_not_found_and_the_holder_starts_again(
    autojump_clock: Any,
) -> None:
    tree = SupervisorSpec(
        "root",
        [
            ChildSpec("weather", Weather, restart="temporary"),
            concierge(weather=sibling("weather")),
        ],
    )
    async with open_test_node(tree) as node:
        ref = node.find(Concierge)
        await node.find(Weather).invoke(Weather.leave)
        await settle()
        with pytest.raises(AgentDied):
            await ref.invoke(Concierge.crash)
        await ref.ready()
        assert await ref.invoke(Concierge.ask) == "not found: no agent 'weather'"
        await node.start_child(ChildSpec("weather", partial(Weather, town="Rome")))
        assert await ref.invoke(Concierge.ask) == "sunny in Rome"


async def test_children_of_an_agent_refer_to_each_other_and_to_what_is_beside_it(
    autojump_clock: Any,
) -> None:
    tree = SupervisorSpec("root", [ChildSpec("weather", Weather), ChildSpec("desk", Desk)])
    async with open_test_node(tree) as node:
        assert await node.find(Concierge, "desk/near").invoke(Concierge.ask) == "sunny in Rome"
        assert await node.find(Concierge, "desk/far").invoke(Concierge.ask) == "sunny in Bonn"


async def test_children_that_are_added_refer_to_those_that_are_there(autojump_clock: Any) -> None:
    async with open_test_node() as node:
        with pytest.raises(ConfigError, match="no agent 'weather' in this node"):
            await node.start(Concierge, weather=sibling("weather"))
        with pytest.raises(ConfigError, match="no agent 'weather' in this node"):
            await node.start_pool(Pool(partial(Concierge, weather=sibling("weather")), 2))
        with pytest.raises(ConfigError, match="no agent 'weather' in this node"):
            await node.root.start_many(concierge(weather=sibling("weather")), 3)
        assert node.agents() == []
        await node.start(Weather)
        first = await node.start(Concierge, weather=sibling("weather"))
        pool = await node.start_pool(Pool(partial(Concierge, weather=sibling("weather")), 2, name="pool"))
        many = await node.root.start_many(concierge("many", weather=sibling("weather")), 2)
        above = await node.start_supervisor(
            SupervisorSpec("above", [concierge(weather=sibling("../weather"))])
        )
        for ref in (first, pool, *many, above.child("concierge")):
            assert await ref.invoke(Concierge.ask) == "sunny in Bonn"
        await pool.resize(3)
        assert await pool.members[2].invoke(Concierge.ask) == "sunny in Bonn"
        with pytest.raises(ConfigError, match="leads to a Concierge, a ref to a Weather is needed"):
            await node.start(Concierge, weather=sibling("concierge"))


def test_a_fake_in_the_place_of_a_class_is_given_the_same_refs() -> None:
    class Quick(Concierge):
        async def answer(self) -> str:
            return self.weather.path

    async def main(node: TestNode) -> str:
        return await node.find(Concierge, "concierge").invoke(Concierge.ask)

    assert run_test(main, tree=nested(), replace={Concierge: Quick}) == "weather"
    sunny = fake(Weather, forecast="snow")
    assert run_test(main, tree=nested(), replace={Weather: sunny}) == "snow"


def endless() -> list[Any]:
    found: list[Any] = [sibling("weather")]
    found.append((found,))
    return found


def deep() -> Any:
    found: Any = sibling("weather")
    for _ in range(10_000):
        found = [found]
    return found


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown": (
        lambda: [ChildSpec("weather", Weather), concierge(weather=sibling("wether"))],
        r"concierge.factory\(weather=sibling\('wether'\)\): no child 'wether' of 'root', "
        "did you mean 'weather'",
    ),
    "the argument": (
        lambda: [ChildSpec("weather", Weather), concierge(wether=sibling("weather"))],
        "Concierge has no argument 'wether', did you mean 'weather'",
    ),
    "the class": (
        lambda: [concierge("other", weather=sibling("concierge")), concierge(weather=sibling("concierge"))],
        "leads to a Concierge, a ref to a Weather is needed",
    ),
    "the class said": (
        lambda: [ChildSpec("weather", Weather), concierge(anything=sibling("weather", Concierge))],
        "leads to a Weather, a ref to a Concierge is needed",
    ),
    "the class of the field": (
        lambda: [concierge(weather=sibling("weather", Concierge)), ChildSpec("weather", Weather)],
        "leads to a Concierge, a ref to a Weather is needed",
    ),
    "no ref": (
        lambda: [ChildSpec("weather", Weather), concierge(label=sibling("weather"))],
        "Concierge.label takes no ref",
    ),
    "several": (
        lambda: [ChildSpec("weather", Weather), concierge(others=sibling("weather"))],
        "Concierge.others takes several refs",
    ),
    "one": (
        lambda: [ChildSpec("weather", Weather), concierge(weather=(sibling("weather"),))],
        "Concierge.weather takes one ref",
    ),
    "in itself": (
        lambda: [ChildSpec("weather", Weather), concierge(anything=endless())],
        r"concierge.factory\(anything=sibling\('weather'\)\): is in an argument that contains itself",
    ),
    "too deep": (
        lambda: [ChildSpec("weather", Weather), concierge(anything=deep())],
        "nested more than 100 levels deep",
    ),
    "a supervisor": (
        lambda: [SupervisorSpec("stores"), concierge(weather=sibling("stores"))],
        "'stores' is a supervisor, no agent",
    ),
    "below an agent": (
        lambda: [ChildSpec("weather", Weather), concierge(weather=sibling("weather/x"))],
        "'weather' is an agent, which has no children to refer to",
    ),
    "a member": (
        lambda: [Pool(Weather, 2, name="pool"), concierge(weather=sibling("pool/pool-1"))],
        "'pool' is a pool, which has no children to refer to",
    ),
    "of a pool": (
        lambda: [Pool(partial(Concierge, weather=sibling("wether")), 2), ChildSpec("weather", Weather)],
        r"concierge.factory\(weather=sibling\('wether'\)\): no child 'wether'",
    ),
    "beside the supervisor": (
        lambda: [SupervisorSpec("stores", [concierge(weather=sibling("weather"))])],
        "no child 'weather' of 'stores'; the one beside 'stores' is '../weather'",
    ),
    "below another": (
        lambda: [
            SupervisorSpec("stores", [ChildSpec("paris", Weather)]),
            concierge(weather=sibling("paris")),
        ],
        "no child 'paris' of 'root', did you mean 'stores/paris'",
    ),
    "upwards": (
        lambda: [
            SupervisorSpec("stores", [concierge(weather=sibling("../wether"))]),
            ChildSpec("weather", Weather),
        ],
        r"stores/concierge.factory\(weather=sibling\('../wether'\)\): no child 'wether' of 'root'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_when_the_spec_is_made(case: str) -> None:
    children, message = WRONG[case]
    with pytest.raises(ConfigError, match=message):
        SupervisorSpec("root", children())


async def test_a_reference_above_the_root_is_refused_before_anything_starts(autojump_clock: Any) -> None:
    tree = SupervisorSpec("root", [concierge(weather=sibling("../weather"))])
    with pytest.raises(ConfigError, match=r"concierge.factory.*leads above the root supervisor"):
        async with open_node(tree):
            raise AssertionError


@pytest.mark.parametrize("path", ["", "/weather", "a//b", "a/../b", "..", "./a", 7])
def test_a_path_that_cannot_be(path: Any) -> None:
    with pytest.raises(ConfigError, match="must be the name of a child"):
        sibling(path)


def test_a_class_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="must be an agent class"):
        sibling("weather", str)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


def test_a_reference_that_was_not_filled_in_says_where_it_belongs() -> None:
    with pytest.raises(AttributeError, match=r"sibling\('weather'\) is a reference in a child spec"):
        sibling("weather").invoke  # noqa: B018


def test_a_tree_with_references_travels_to_another_process() -> None:
    spec = concierge(weather=sibling("weather", Weather))
    check_portable(SupervisorSpec("root", [ChildSpec("weather", Weather), spec]))
    assert pickle.loads(pickle.dumps(sibling("weather", Weather))) == sibling("weather", Weather)


def test_specs_without_references_have_none() -> None:
    assert ChildSpec("a", Weather).references == ()
    assert SupervisorSpec("root", [ChildSpec("a", partial(Weather, town="Rome"))]).outward == ()
