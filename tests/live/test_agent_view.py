"""One agent in full: its state without secrets, its messages, its runs, whatever its values are."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import (
    Agent,
    ChildSpec,
    Event,
    Pool,
    Property,
    Secret,
    SupervisorSpec,
    action,
    event,
    open_node,
    prop,
)
from lmos_actors.actors import hold, release
from lmos_actors.errors import AgentDied
from lmos_actors.persistence import MemoryStore
from lmos_actors.security import Access, Security
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.live.watching import SECURITY, as_viewer, watching
from tests.matrix import some

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

PLACE = "ws://here"


@attrs.frozen
class Card:
    holder: str
    number: Secret[str]


class Till(Agent):
    """Takes money."""

    units: Property[str] = prop(default="euro")
    paid: Event[str] = event()
    code: Secret[str] = "top-secret-code"
    note: str = "the code is top-secret-code"
    card: Card = Card("Ann", "4111-1111-1111-1111")
    key: str = attrs.field(default="hidden-by-repr", repr=False)
    count: int = 0

    @action
    def pay(self, amount: int, pin: Secret[str]) -> int:
        self.count += amount
        return self.count

    @action
    async def wait(self, minutes: int) -> None:
        await trio.sleep(60 * minutes)

    @action
    def fail(self, why: str) -> None:
        raise RuntimeError(f"{why}: {self.code}")


class Clerk(Agent):
    """Has relations."""

    def started(self) -> None:
        self.link(self.find(Till, "till"))
        self.monitor(self.find(Till, "till"), self.on_down)
        self.join_group("clerks")
        self.after(30.0, self.look)

    def on_down(self, down: Any) -> None: ...

    def look(self) -> None: ...


TREE = SupervisorSpec("root", [ChildSpec("till", Till), ChildSpec("clerk", Clerk, restart="temporary")])


async def test_all_of_an_agent_is_there_without_its_secrets(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
        trio.open_nursery() as nursery,
    ):
        till = node.find(Till, "till")
        await till.invoke(Till.pay, 7, "pin-1234")
        nursery.start_soon(till.invoke, Till.wait, 3)
        await trio.sleep(1)
        nursery.start_soon(till.within(500).invoke, Till.wait, 4)
        await trio.sleep(1)
        hold(till)
        await till.tell(Till.pay, 1, "pin-5678")
        watcher.look("agent", path="till")
        await watcher.until(lambda: watcher.views.get("it"))
        view = watcher.views["it"]
        assert view["class"] == "Till"
        assert view["kind"] == "agent"
        assert view["held"] is True
        assert view["fields"]["count"] == "7"
        assert view["fields"]["code"] == "***"
        assert view["fields"]["key"] == "***"
        assert view["fields"]["note"] == "'the code is ***'"
        assert view["fields"]["card"] == "Card(holder='Ann', number=***)"
        assert [(run["affordance"], run["arguments"]) for run in view["runs"]] == [("wait", {"minutes": "3"})]
        assert any("await trio.sleep(60 * minutes)" in line for line in view["runs"][0]["stack"])
        waiting = view["mailbox"]["messages"]
        assert [each["place"] for each in waiting] == ["queued", "in line"]
        assert waiting[0]["arguments"] == {"amount": "1", "pin": "***"}
        assert waiting[1]["deadline"] > trio.current_time()
        assert view["statistics"]["accepted"] == 4
        assert view["statistics"]["waiting"] == 2
        assert set(view["contract"]["actions"]) == {"pay", "wait", "fail"}
        assert view["listeners"] == {"monitors": 1}
        assert view["links"] == ["clerk"]
        text = json.dumps(watcher.changes)
        for secret in ("top-secret", "4111", "pin-1234", "pin-5678", "hidden-by"):
            assert secret not in text
        watcher.look("agent", path="clerk")
        await watcher.until(lambda: watcher.views["it"]["class"] == "Clerk")
        view = watcher.views["it"]
        assert view["links"] == view["monitors"] == ["till"]
        assert view["groups"] == ["clerks"]
        assert [timer["turn"] for timer in view["timers"]] == ["Clerk.look"]
        nursery.cancel_scope.cancel()


async def test_crashes_of_an_agent_and_of_the_node(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        till = node.find(Till, "till")
        with pytest.raises(AgentDied):
            await till.invoke(Till.fail, "oh <b>")
        watcher.look("agent", path="till")
        watcher.look("crashes", "all")
        await watcher.until(lambda: watcher.views.get("it", {}).get("crashes"))
        (crash,) = watcher.views["it"]["crashes"]
        assert crash["number"] == 1
        assert crash["reason"] == "RuntimeError: oh <b>: ***"
        assert "message in hand: invoke fail(why='oh <b>')" in crash["text"]
        await watcher.until(lambda: watcher.views.get("all", {}).get("order") == ["1"])
        assert "text" not in watcher.views["all"]["rows"]["1"]
        watcher.look("crashes", "all", open=[1])
        await watcher.until(lambda: watcher.views["all"]["rows"]["1"].get("text") == crash["text"])
        assert "top-secret" not in json.dumps(watcher.changes)


class Slow:
    def __repr__(self) -> str:
        time.sleep(5)
        return "slow"


class Endless:
    def __repr__(self) -> str:
        while True:
            pass


class Raises:
    __slots__ = ("a",)

    def __repr__(self) -> str:
        raise SystemExit("a look at an agent ends nothing")

    def __getattr__(self, name: str) -> Any:
        raise SystemExit


@attrs.frozen
class Lazy:
    value: int

    def __getattribute__(self, name: str) -> Any:
        time.sleep(5)


def circle() -> Any:
    one: list[Any] = [1]
    one += [one] * 64
    return one


def shared_sets() -> Any:
    level: list[Any] = [frozenset((n,)) for n in range(900)]
    for _ in range(2):
        level = [frozenset(level[:n] + level[n + 1 :]) for n in range(900)]
    return level[0]


MAKERS: dict[str, Callable[[], Any]] = {
    "ten megabytes": lambda: "x" * 10_000_000,
    "many items": lambda: list(range(1_500_000)),
    "a large dict": lambda: dict.fromkeys(range(500000), "y" * 10),
    "a circle": circle,
    "deep": lambda: _deep(50_000),
    "sets of sets": shared_sets,
    "slow": Slow,
    "endless": Endless,
    "raises": Raises,
    "lazy": lambda: Lazy(1),
    "in a list": lambda: [Slow(), {"a": Endless()}, (Raises(),)],
    "bytes": lambda: b"\x00\xff" * 2_000_000,
    "a huge number": lambda: 1 << 10_000_000,
    "a script": lambda: "<script>alert(1)</script>\x1b[2J",
    "halves of characters": lambda: "\ud800 \udfff",
}


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


class Keeper(Agent):
    """Keeps anything."""

    thing: Any = None

    def started(self) -> None:
        self.after(1.0, self.take, self.thing)

    def take(self, thing: Any) -> None: ...

    @action
    def keep(self) -> None: ...


@pytest.mark.parametrize("kind", some(MAKERS, of=2, besides=lambda kind: kind == "a circle"))
async def test_no_value_holds_up_a_look(virtual_clock: MockClock, kind: str) -> None:
    network = MemoryNetwork()
    value = MAKERS[kind]()
    tree = SupervisorSpec("root", [ChildSpec("keeper", partial(Keeper, thing=value))])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        keeper = node.find(Keeper)
        hold(keeper)
        began = time.thread_time()
        watcher.look("agent", path="keeper")
        await watcher.until(lambda: watcher.views.get("it", {}).get("mailbox", {}).get("messages"))
        view = watcher.views["it"]
        assert len(view["fields"]["thing"]) <= 512
        assert len(view["mailbox"]["messages"][0]["arguments"]["thing"]) <= 512
        assert len(json.dumps(watcher.changes)) < 20_000
        assert time.thread_time() - began < 1.0


class Code(str):
    def __repr__(self) -> str:
        return "***"


SHOWN: list[tuple[Any, str]] = [
    (Slow(), "<Slow>"),
    ([Slow(), 1], "[<Slow>, 1]"),
    (Lazy(1), "Lazy(value=1)"),
    (Code("abcdefgh"), "<Code>"),
    (True, "True"),
    (1.5, "1.5"),
    (None, "None"),
    (Keeper.keep, "<action keep>"),
    (len, "<builtin_function_or_method>"),
    (int, "<class int>"),
    ({"a": {1, 2}}, "{'a': {1, 2}}"),
]


@pytest.mark.parametrize("number", range(len(SHOWN)))
async def test_values_are_shown_as_far_as_no_foreign_code_is_needed(
    virtual_clock: MockClock, number: int
) -> None:
    network = MemoryNetwork()
    value, text = SHOWN[number]
    tree = SupervisorSpec("root", [ChildSpec("keeper", partial(Keeper, thing=value))])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        watcher.look("agent", path="keeper")
        view = await watcher.until(lambda: watcher.views.get("it"))
        assert view["fields"]["thing"] == text


async def test_places_that_are_no_agents(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec(
        "root", [SupervisorSpec("shop", [ChildSpec("till", Till)]), Pool(Keeper, 2, name="many")]
    )
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
    ):
        for path, kind, name in (
            ("", "supervisor", "root"),
            ("shop", "supervisor", "shop"),
            ("many", "supervisor", "many"),
            ("shop/till", "agent", "till"),
            ("many/many-1", "agent", "many-1"),
        ):
            watcher.look("agent", "one", path=path)
            await watcher.until(lambda name=name: watcher.views.get("one", {}).get("name") == name)
            assert watcher.views["one"]["kind"] == kind
        for path in ("no", "shop/no", "shop/till/no", "/", "shop//till", "<script>", "shop/till/"):
            watcher.look("agent", path, path=path)
            await watcher.until(lambda path=path: path in watcher.views)
            assert watcher.views[path] == {"kind": "gone"}
        watcher.look("agent", "later", path="later")
        await watcher.until(lambda: "later" in watcher.views)
        await node.start_child(ChildSpec("later", Keeper))
        await watcher.until(lambda: watcher.views["later"]["kind"] == "agent")


async def test_what_is_lost_and_what_waits_in_circles(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()

    class Loop(Agent):
        @action
        async def ask(self, other: str) -> None:
            with trio.CancelScope():  # that might end it: else the run would end in Deadlocked
                await self.find(Loop, other).invoke(Loop.ask, "a" if other == "b" else "b")

    tree = SupervisorSpec("root", [ChildSpec("a", Loop), ChildSpec("b", Loop), ChildSpec("till", Till)])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY) as node,
        watching(PLACE, network) as watcher,
        trio.open_nursery() as nursery,
    ):
        watcher.look("waiting")
        watcher.look("dead letters", "lost")
        nursery.start_soon(node.find(Loop, "a").invoke, Loop.ask, "b")
        await watcher.until(lambda: watcher.views.get("it", {}).get("circles"))
        ((first, second),) = watcher.views["it"]["circles"]
        assert {first["waiter"], second["waiter"]} == {"a", "b"}
        till = node.find(Till, "till")
        hold(till)
        await till.tell(Till.fail, "x")
        await till.tell(Till.pay, 1, "pin-9999")
        release(till)
        await watcher.until(lambda: watcher.views.get("lost", {}).get("order") == ["1"])
        row = watcher.views["lost"]["rows"]["1"]
        assert (row["agent"], row["affordance"], row["message"]) == ("till", "pay", "(1, '***')")
        nursery.cancel_scope.cancel()


async def test_on_an_open_node_the_inside_takes_allow_operations(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with open_node(TREE, listen=PLACE, network=network), watching(PLACE, network, ()) as watcher:
        assert watcher.hello["views"] == ["approvals", "chats", "find", "rights", "top", "tree"]
        for view in ("agent", "crashes", "waiting", "dead letters"):
            watcher.look(view, view, **({"path": "till"} if view == "agent" else {}))
        await watcher.until(lambda: len(watcher.errors) == 4)
        assert {error["code"] for error in watcher.errors} == {"FORBIDDEN"}
        assert "--allow-operations" in watcher.errors[0]["message"]


async def test_an_agent_is_seen_by_those_with_the_right_over_it(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec(
        "root", [ChildSpec("till", Till), ChildSpec("vault", Till), Pool(Till, 2, name="vaults")]
    )
    async with open_node(tree, listen=PLACE, network=network, security=SECURITY):
        with pytest.raises(ConnectFailed, match="inspect, operate or approve for some agent"):
            async with watching(PLACE, network, as_viewer("eve")):
                raise AssertionError
        with pytest.raises(ConnectFailed, match="401"):
            async with watching(PLACE, network, ()):
                raise AssertionError
        async with watching(PLACE, network, as_viewer("bob")) as watcher:
            assert watcher.hello["rights"] == ["inspect"]
            for path in ("till", "vault", "vaults", "vaults/vaults-1", "vault/", "vault/none"):
                watcher.look("agent", path, path=path)
            await watcher.until(lambda: len(watcher.errors) == 5 and watcher.views)
            assert list(watcher.views) == ["till"]
            assert {error["code"] for error in watcher.errors} == {"FORBIDDEN"}


async def test_node_wide_views_leave_out_what_is_inside_agents_of_others(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("till", Till), ChildSpec("vault", Till)])
    async with open_node(tree, listen=PLACE, network=network, security=SECURITY) as node:
        for path in ("till", "vault"):
            agent = node.find(Till, path)
            hold(agent)
            await agent.tell(Till.fail, f"inside {path}")
            await agent.tell(Till.pay, 1, "pin")
            release(agent)
            await trio.sleep(1)
        for viewer, texts in (("ann", ["inside vault", "inside till"]), ("bob", ["inside till"])):
            async with watching(PLACE, network, as_viewer(viewer)) as watcher:
                watcher.look("crashes", "crashes", open=[1, 2])
                watcher.look("dead letters", "lost")
                watcher.look("flow", "flow")
                await watcher.until(lambda watcher=watcher: len(watcher.views) == 3)
                await watcher.until(lambda watcher=watcher: len(watcher.views["crashes"]["order"]) == 2)
                for path in ("till", "vault"):
                    await node.find(Till, path).invoke(Till.pay, 5, "pin")
                await watcher.until(lambda watcher=watcher: watcher.views["flow"]["records"])
                await trio.sleep(5)
                shown = json.dumps([watcher.changes, watcher.views])
                assert [text for text in ("inside vault", "inside till") if text in shown] == texts
                agents = {row["agent"] for row in watcher.views["flow"]["records"].values()}
                assert agents == {text.removeprefix("inside ") for text in texts}
                rows = watcher.views["lost"]["rows"].values()
                assert [row["agent"] for row in rows if "hidden" not in row] == [
                    text.removeprefix("inside ") for text in texts
                ]


class Ledger(Agent, durable=True):
    """Keeps its state."""

    total: int = 0

    @action
    def add(self, amount: int) -> None:
        self.total += amount
        self.after(60.0, self.close, durable=True)

    def close(self) -> None: ...


async def test_the_stored_state_of_a_durable_agent() -> None:
    network, store = MemoryNetwork(), MemoryStore()
    tree = SupervisorSpec("root", [ChildSpec("ledger", Ledger)])
    kept: list[float] = []
    for restored in (False, True):
        async with (
            open_node(tree, listen=PLACE, network=network, security=SECURITY, store=store) as node,
            watching(PLACE, network) as watcher,
        ):
            if not restored:
                await node.find(Ledger).invoke(Ledger.add, 5)
            watcher.look("agent", path="ledger")
            view = await watcher.until(lambda: watcher.views.get("it"))
            assert view["fields"]["total"] == "5"
            assert [timer["turn"] for timer in view["timers"]] == ["close (durable)"]
            durable = view["durable"]
            assert (durable["restored"], durable["kept"], durable["pending"]) == (restored, True, False)
            kept.append(durable["at"])
    assert kept[1] == pytest.approx(kept[0], abs=1)


async def test_a_member_of_a_pool_is_seen_by_those_who_see_the_pool(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    security = Security(
        schemes=SECURITY.schemes,
        access={"pool": Access(inspect=("ann",)), "*": Access(inspect=("ann", "bob"))},
    )
    tree = SupervisorSpec("root", [Pool(Till, 2, name="pool")])
    async with open_node(tree, listen=PLACE, network=network, security=security):
        async with watching(PLACE, network, as_viewer("bob")) as watcher:
            watcher.look("agent", path="pool/pool-1")
            await watcher.until(lambda: watcher.errors)
            assert watcher.errors[0]["code"] == "FORBIDDEN"
        async with watching(PLACE, network) as watcher:
            watcher.look("agent", path="pool/pool-1")
            await watcher.until(lambda: watcher.views.get("it"))


class Recipe(Agent, private=True):
    """An inner part of another agent."""

    @action
    def cook(self) -> None: ...


async def test_a_private_agent_is_seen_and_not_used(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", [ChildSpec("recipe", Recipe), Pool(Recipe, 2, name="pool")])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        watcher.look("agent", path="recipe")
        assert (await watcher.until(lambda: watcher.views.get("it")))["private"]
        watcher.look("agent", "members", path="pool")
        members = await watcher.until(lambda: watcher.views.get("members"))
        assert (members["class"], list(members["contract"]["actions"])) == ("Recipe", ["cook"])
        for path in ("recipe", "pool", "pool/pool-1"):
            watcher.look("rights", path, path=path)
            rights = await watcher.until(lambda path=path: watcher.views.get(path))
            assert (rights["there"], rights["may"]) == (False, [])
            assert "restart" in rights["operations"]


async def test_an_agent_that_another_node_runs() -> None:
    network, store = MemoryNetwork(), MemoryStore(shared=True)
    tree = SupervisorSpec("root", [ChildSpec("ledger", Ledger, key="l-1", standby=True)])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY, store=store) as first,
        open_node(tree, listen="ws://there", network=network, security=SECURITY, store=store),
        watching(PLACE, network) as here,
        watching("ws://there", network) as there,
    ):
        for watcher in (here, there):
            watcher.look("agent", path="ledger")
            await watcher.until(lambda watcher=watcher: watcher.views.get("it"))
        assert here.views["it"]["durable"].items() >= {"key": "l-1", "epoch": 1}.items()
        assert "suspended" not in here.views["it"]
        assert there.views["it"]["durable"] == {"key": "l-1"}
        assert "holds the lease of the key 'l-1'" in there.views["it"]["suspended"]
        await first.root.terminate_child("ledger")
        await there.until(lambda: there.views["it"]["durable"].get("epoch") == 2)
        assert "suspended" not in there.views["it"]
