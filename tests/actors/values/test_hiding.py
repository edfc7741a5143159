"""Ways round the marks, by which a secret came to be shown: each of these has been open once."""

from __future__ import annotations

import pickle
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest
import trio

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    Down,
    Node,
    Pool,
    Property,
    Secret,
    StartFailed,
    SupervisorSpec,
    TraceLog,
    action,
    prop,
)
from lmos_actors.actors.values import Secrets
from lmos_actors.testing import fake, open_test_node, settle

if TYPE_CHECKING:
    from lmos_actors.actors import ExitReason

CANARY = "canary-4711-bird"
PIN = "zq1"  # too short to be looked for in texts


class Login(msgspec.Struct, frozen=True):
    user: str
    token: Secret[str]


class Vault(Agent, history=4):
    token: Secret[str] = CANARY
    login: Property[Login | None] = prop(default=None)
    pin: Property[Secret[str]] = prop(default="")

    @action
    def crash(self) -> None:
        raise ValueError(f"bad {self.token}")

    @action
    def fail(self) -> None:
        raise ActionFailed(f"bad {self.token}")

    @action
    async def wait(self) -> None:
        try:
            await trio.sleep(100)
        finally:
            self.token = f"{CANARY} anew"
            raise ValueError(self.token)

    @action
    def later(self) -> None:
        self.after(1, partial(self.on_time, key=CANARY))

    def on_time(self, tries: int = 0, key: Secret[str] = "") -> None:
        raise ValueError(f"no such key: {key}")


class Taker(Agent):
    """Knows of no secrets."""

    box: Any = None

    @action
    def keep(self, how: str) -> None:
        login = Login("ada", CANARY)
        made: dict[str, Any] = {
            "list": Tokens([login]),
            "proxy": MappingProxyType({1: login}),
            "view": {1: login}.values(),
            "error": ValueError(login),
            "partial": partial(print, login, end=""),
        }
        self.box = made[how]
        raise RuntimeError

    @action
    def take(self, text: str) -> None:
        pass

    @action
    def refuse(self) -> None:
        raise ValueError(Login("ada", CANARY))


class Tokens(list[Login]):
    pass


def tree(*specs: ChildSpec) -> SupervisorSpec:
    return SupervisorSpec("root", specs, max_restarts=1000)


VAULT = ChildSpec("vault", partial(Vault, token=CANARY))


def shown(node: Node) -> list[str]:
    reports = node.crash_reports
    texts = [*map(str, reports), *map(repr, reports), *(repr(report.data()) for report in reports)]
    return [*texts, *map(repr, node.dead_letters), node.dump()]


def leaks(node: Node, secret: str = CANARY) -> list[str]:
    return [text for text in shown(node) if secret in text]


async def crash(node: Node) -> None:
    vault = node.find(Vault)
    await vault.ready()
    with pytest.raises(AgentDied):
        await vault.invoke(Vault.crash)
    await settle()


# ---- values


@pytest.mark.parametrize("how", ["list", "proxy", "view", "error", "partial"])
async def test_what_a_container_of_another_kind_holds(how: str, virtual_clock) -> None:
    async with open_test_node(tree(ChildSpec("taker", Taker))) as node:
        with pytest.raises(AgentDied):
            await node.find(Taker).invoke(Taker.keep, how)
        assert leaks(node) == []


async def test_what_an_exception_was_made_of(virtual_clock) -> None:
    async with open_test_node(tree(ChildSpec("taker", Taker))) as node:
        with pytest.raises(AgentDied):
            await node.find(Taker).invoke(Taker.refuse)
        assert leaks(node) == []


@pytest.mark.parametrize("secret", [CANARY, PIN])
async def test_properties_written_together(secret: str, virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(tree(ChildSpec("vault", partial(Vault, token=""))), instrument=log) as node:
        raw: Any = {"user": "ada", "token": secret}
        await node.find(Vault).write_many(Vault.login.to(raw), Vault.pin.to(secret))
        await crash(node)
        (report,) = node.crash_reports
        assert report.before[-1].verb == "write many"
        assert leaks(node, secret) == []
    assert [line for line in log.lines() if secret in line] == []


async def test_an_argument_of_a_type_that_was_never_checked(virtual_clock) -> None:
    class Early(Agent):
        def started(self) -> None:
            self.send(self.find(Taker), Taker.take, Login("ada", CANARY))  # type: ignore[arg-type]

    async with open_test_node(tree(ChildSpec("early", Early), ChildSpec("taker", Taker))) as node:
        (letter,) = node.dead_letters
        assert letter.message == "({'user': 'ada', 'token': '***'},)"


async def test_an_argument_given_by_name_to_a_turn_with_defaults(virtual_clock) -> None:
    async with open_test_node(tree(ChildSpec("vault", partial(Vault, token="")))) as node:
        await node.find(Vault).invoke(Vault.later)
        await trio.sleep(2)
        (report,) = node.crash_reports
        assert report.data()["message"]["arguments"] == {"tries": "0", "key": "***"}
        assert leaks(node) == []


async def test_what_a_cached_property_has_found(virtual_clock) -> None:
    class Lazy(Agent):
        @cached_property
        def token(self) -> Secret[str]:
            return CANARY

        @action
        def use(self) -> None:
            raise ValueError(self.token)

    async with open_test_node(tree(ChildSpec("lazy", Lazy))) as node:
        with pytest.raises(AgentDied) as died:
            await node.find(Lazy).invoke(Lazy.use)
        assert died.value.reason == "ValueError: ***"
        assert leaks(node) == []


# ---- agents that were never made


class Broken(Agent):
    token: Secret[str] = attrs.field(default="", alias="key")

    def __attrs_post_init__(self) -> None:
        raise ValueError("no such key")


def make(token: Secret[str]) -> Broken:
    raise ValueError(f"no such key: {token}")


@pytest.mark.parametrize("factory", [partial(Broken, key=CANARY), partial(make, token=CANARY)])
async def test_what_a_factory_was_given(factory: Any, virtual_clock) -> None:
    async with open_test_node(tree()) as node:
        with pytest.raises(StartFailed) as failed:
            await node.start(factory)
        assert CANARY not in str(failed.value)
        assert list(node.crash_reports[0].data()["state"].values()) == ["***"]
        assert leaks(node) == []


async def test_a_field_that_was_misspelt(virtual_clock) -> None:
    async with open_test_node(tree()) as node:
        with pytest.raises(StartFailed):
            await node.start(partial(Vault, tokn=CANARY))  # type: ignore[call-arg]
        assert node.crash_reports[0].data()["state"] == {"tokn": "***"}


# ---- texts


async def test_a_failure_that_quotes_the_state_is_recorded_without(virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(tree(VAULT), instrument=log) as node:
        with pytest.raises(ActionFailed, match=CANARY):  # it is meant for the asker
            await node.find(Vault).invoke(Vault.fail)
    assert any("ActionFailed: bad ***" in line for line in log.lines())
    assert [line for line in log.lines() if CANARY in line] == []


async def test_a_secret_that_came_while_it_unwound(virtual_clock) -> None:
    spec = ChildSpec("vault", partial(Vault, token="before"))
    async with open_test_node(tree(spec)) as node, node.find(Vault).begin(Vault.wait) as call:
        await settle()
        await crash(node)
        with pytest.raises(AgentDied):
            await call.result()
        (report,) = node.crash_reports
        assert report.data()["later"] == ["ValueError: ***"]
        assert leaks(node) == []


# ---- one agent's secrets in the reports of others


class Trapping(Agent, trap_exits=True):
    last: Any = None

    @action
    def tie(self) -> None:
        self.link(self.find(Vault))

    def on_exit(self, down: Down) -> None:
        self.last = down
        raise KeyError("trapped")


class Raising(Trapping, trap_exits=True):
    def on_exit(self, down: Down) -> None:
        assert down.reason.error is not None
        raise down.reason.error


class Tied(Agent):
    @action
    async def tie(self) -> None:
        async with self.find(Vault).link():
            await trio.sleep(100)


class Starting(Agent):
    @action
    async def tie(self) -> None:
        await self.start(partial(make, token=CANARY))


class Parent(Agent):
    def supervises(self) -> SupervisorSpec:
        return SupervisorSpec("children", (VAULT,), max_restarts=0)


@pytest.mark.parametrize("cls", [Trapping, Raising, Tied])
async def test_an_agent_linked_to_it(cls: Any, virtual_clock) -> None:
    async with open_test_node(tree(VAULT, ChildSpec("other", cls))) as node:
        await node.find(cls).tell(cls.tie)
        await settle()
        await crash(node)
        assert [report.agent for report in node.crash_reports] == ["vault", "other"]
        assert CANARY not in node.crash_reports[-1].reason
        assert leaks(node) == []


async def test_an_agent_that_could_not_start_it(virtual_clock) -> None:
    async with open_test_node(tree(ChildSpec("other", Starting))) as node:
        with pytest.raises(AgentDied) as died:
            await node.find(Starting).invoke(Starting.tie)
        assert CANARY not in died.value.reason
        assert node.crash_reports[-1].data()["causes"][0]["reason"] == "ValueError: no such key: ***"
        assert leaks(node) == []


async def test_an_agent_whose_child_it_was(virtual_clock) -> None:
    async with open_test_node(tree(ChildSpec("other", Parent))) as node:
        await crash(node)
        other = node.crash_reports[-1]
        assert other.agent == "other"
        assert {"ValueError: bad ***"} <= {cause["reason"] for cause in other.data()["causes"]}
        assert leaks(node) == []


async def test_a_reason_tells_none_and_can_be_pickled(virtual_clock) -> None:
    async with open_test_node(tree(VAULT)) as node, node.find(Vault).monitor() as downs:
        await crash(node)
        down = await downs.receive()
    assert repr(down.reason) == "ExitReason('error', error=<ValueError: bad ***>)"
    assert CANARY not in repr(down)
    again: ExitReason = pickle.loads(pickle.dumps(down.reason))
    assert (again.kind, str(again.error), again.report) == ("error", f"bad {CANARY}", None)
    told = pickle.loads(pickle.dumps(down.reason.report))
    assert told == str(down.reason.report)


# ---- specs


def test_a_spec_tells_not_what_it_gives_to_its_agents() -> None:
    pool = Pool(VAULT.factory, 2)
    assert CANARY not in repr(tree(VAULT)) + repr(pool)
    assert "test_hiding.Vault'>, token=...)" in repr(VAULT)


# ---- texts of tests


async def test_an_expectation_that_is_not_met(virtual_clock) -> None:
    class Door(Agent):
        @action
        def open(self, key: Secret[str], side: str = "front") -> Secret[str]:
            return key

    with pytest.raises(TypeError) as refused:
        fake(Door, open=[CANARY])
    assert str(refused.value).startswith("Door.open: the answer *** is not of its declared type")
    async with open_test_node(tree()) as node:
        door = await node.probe(Door)
        with pytest.raises(AssertionError) as unmet:
            await door.expect(Door.open, CANARY, side="back")
        assert "open(key='***', side='back')" in str(unmet.value)
        assert CANARY not in str(unmet.value)


HUGE: list[Any] = [list(range(300_000)), {n: [n] for n in range(20_000)}, [[[]] for _ in range(20_000)]]


@pytest.mark.parametrize("huge", HUGE, ids=["numbers", "lists", "nested"])
@pytest.mark.parametrize("first", [True, False])
def test_a_secret_beside_what_is_too_much_to_look_at(huge: Any, first: bool) -> None:
    found, login = Secrets(), {"deep": [{"deep": (Login("ada", CANARY),)}]}
    for value in (huge, login) if first else (login, huge):
        found.look(value)
    assert CANARY not in found.clean(f"bad {CANARY}", 100)


def test_a_secret_near_the_top_of_what_is_too_much_to_look_at() -> None:
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    ring: list[Any] = [deep]
    ring += [ring] * 1_000
    found = Secrets()
    found.look([ring, dict.fromkeys(range(60_000), "x"), Login("ada", CANARY)])
    assert CANARY not in found.clean(f"bad {CANARY}", 100)
    behind = Secrets()
    behind.look({**{str(n): [n] for n in range(20_000)}, "login": Login("ada", CANARY)})
    assert CANARY not in behind.clean(f"bad {CANARY}", 100)


def test_many_things_that_are_plain_or_the_same_are_all_looked_at() -> None:
    same, ring = [[1, "a"]], list[Any]()
    ring += [ring] * 3_000
    found = Secrets()
    found.look({"numbers": list(range(40_000)), "same": same * 9_000, "ring": ring})
    found.look(Login("ada", CANARY))
    assert found.clean(f"bad {CANARY}", 100) == "bad ***"


def test_an_agent_without_secret_records_shows_what_it_has_however_much_it_keeps() -> None:
    found = Secrets()
    found.look(CANARY, 3)
    found.look([{"n": [n]} for n in range(20_000)])
    assert found.clean(f"bad {CANARY}", 100) == "bad ***"


def test_only_what_is_in_it_is_looked_at() -> None:
    class Endless(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("called")

    found = Secrets()
    found.look(Endless([Login("ada", CANARY)]))
    assert found.clean(CANARY, 100) == "***"
