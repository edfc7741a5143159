"""What a node shows of its network, of approvals, and of a deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from lmos_actors import Agent, ChildSpec, SupervisorSpec, action, open_node
from lmos_actors.actors import slot_of
from lmos_actors.approvals import Approvals
from lmos_actors.facades import ChatAgent, ChatTurn, open_chat, open_relay, register_on_relay
from lmos_actors.security import Access, BearerToken, Credentials, Security
from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.facades.relays import Shown
from tests.live.watching import SECURITY, as_viewer, watching

if TYPE_CHECKING:
    from trio.testing import MockClock

    from lmos_actors import Node

PLACE = "ws://here"


class Echo(Agent):
    """Says what it hears."""

    @action
    def say(self, text: str) -> str:
        return text

    @action
    async def wait(self) -> None:
        await trio.sleep_forever()

    @action(concurrency=9)
    async def buy(self, what: str) -> bool:
        return await self.approve(f"Buy {what}", {"what": what}, key=what)


TREE = SupervisorSpec("root", [ChildSpec("echo", Echo), ChildSpec("vault", Echo)])
INVOKED = Security(
    schemes=SECURITY.schemes,
    access={"*": Access(invoke=("ann", "eve"), read=("ann", "eve"), inspect=("ann",))},
)


def as_client(name: str) -> Credentials:
    return Credentials({PLACE: BearerToken(f"env:LIVE_{name.upper()}")}, allow_insecure=True)


async def test_connections_both_ways(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=INVOKED),
        open_node(
            listen="ws://there", network=network, security=SECURITY, credentials=as_client("eve")
        ) as other,
        trio.open_nursery() as nursery,
    ):
        echo = await other.consume(Echo, f"{PLACE}/agents/echo", thing="echo")
        nursery.start_soon(echo.invoke, Echo.wait)
        await trio.sleep(1)
        for _ in range(3):  # behind the one that waits: they do not begin
            await echo.tell(Echo.wait)
        await trio.sleep(1)
        async with watching(PLACE, network) as watcher:
            assert {"connections", "directories"} <= set(watcher.hello["views"])
            assert not {"relay", "omnia", "groups"} & set(watcher.hello["views"])
            watcher.look("connections")
            view = await watcher.until(lambda: watcher.views.get("it"))
            (client,) = view["clients"]
            assert (client["principal"], client["open"]) == ("eve", 4)
            assert client["credit"]["messages"] == 3 <= client["credit"]["of_messages"]
            assert 0 < client["credit"]["bytes"] <= client["credit"]["of_bytes"]
            assert view["doors"][0]["url"] == PLACE
            assert view["doors"][0]["open"] == 2  # that, and the viewer
            assert view["memory"]["limit"] > 0
            assert view["peers"] == []
        async with watching("ws://there", network) as watcher:
            watcher.look("connections")
            view = await watcher.until(lambda: watcher.views.get("it"))
            (peer,) = view["peers"]
            assert peer["connected"] is True
            assert peer["open"] == 1
            assert peer["credit"] == client["credit"]
        nursery.cancel_scope.cancel()


async def test_directories() -> None:
    network = MemoryNetwork()
    async with (
        open_node(TREE, listen=PLACE, network=network, security=SECURITY, directory=True, register=True),
        watching(PLACE, network) as watcher,
    ):
        watcher.look("directories")
        await watcher.until(lambda: watcher.views.get("it", {}).get("hosted", {}).get("total", 0) >= 2)
        await watcher.until(lambda: watcher.views["it"]["registrations"][0]["agents"] >= 2)


class Host(ChatAgent):
    """Answers."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        yield "hello"


async def test_a_relay_and_chat_clients() -> None:
    network = TcpNetwork()
    tree = SupervisorSpec("root", [ChildSpec("host", Host)])
    async with open_node(
        tree, listen="ws://127.0.0.1:0", network=network, relay=True, omnia=True, allow_operations=True
    ) as node:
        place = node.urls[0]
        made = await register_on_relay(f"{place}/arc", "weather-bot")
        token: Any = Shown(made.token)
        async with (
            open_relay(f"{place}/arc", credentials=token),
            open_chat(f"{place}/?agent=host") as chat,
            watching(place, network, ()) as watcher,
        ):
            assert (await chat.say("hi")).text == "hello"
            assert {"relay", "omnia"} <= set(watcher.hello["views"])
            watcher.look("relay", "hub")
            watcher.look("omnia")
            await watcher.until(lambda: watcher.views.get("hub") and watcher.views.get("it"))
            (member,) = watcher.views["hub"]["hub"]["members"]
            assert member["agent"] == "weather-bot"
            quotas = [(each["of_frames"], each["seconds"]) for each in member["quota"]]
            assert quotas == [(1_000, 60), (10_000, 3_600)]
            assert all(each["frames"] == each["of_frames"] for each in member["quota"])
            (client,) = watcher.views["it"]["clients"]
            assert (client["agent"], client["turns"]) == ("host", 0)


async def test_approvals_are_seen_by_those_who_may_decide() -> None:
    network = MemoryNetwork()
    security = Security(
        schemes=SECURITY.schemes,
        access={
            "vault": Access(approve=("ann",)),
            "*": Access(approve=("bob",), inspect=("ann", "bob")),
        },
    )
    async with (
        open_node(TREE, listen=PLACE, network=network, security=security, approvals=True) as node,
        trio.open_nursery() as nursery,
    ):
        for path in ("echo", "vault"):
            nursery.start_soon(node.find(Echo, path).invoke, Echo.buy, f"tea for {path}")
        for viewer, path in (("ann", "vault"), ("bob", "echo")):
            async with watching(PLACE, network, as_viewer(viewer)) as watcher:
                watcher.look("approvals")
                await watcher.until(lambda watcher=watcher: watcher.views.get("it", {}).get("waiting"))
                (row,) = watcher.views["it"]["rows"].values()
                assert (row["agent"], row["text"]) == (path, f"Buy tea for {path}")
                assert row["data"] == f'{{"what":"tea for {path}"}}'
        nursery.cancel_scope.cancel()


FORM = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"], "default": None}},
    "required": ["size"],
}


async def test_a_decision_is_in_the_audit_log_and_its_form_in_the_view() -> None:
    network = MemoryNetwork()
    security = Security(
        schemes=SECURITY.schemes,
        access={
            "vault": Access(approve=("ann",), inspect=("ann",)),
            "*": Access(approve=("ann",), inspect=("ann", "bob")),
        },
    )
    async with (
        open_node(TREE, listen=PLACE, network=network, security=security, approvals=True) as node,
        trio.open_nursery() as nursery,
    ):
        for path in ("echo", "vault"):
            nursery.start_soon(node.find(Echo, path).invoke, Echo.buy, f"tea for {path}")
        desk: Any = node.find(Approvals, "approvals")
        async with watching(PLACE, network, as_viewer("ann")) as watcher:
            watcher.look("approvals")
            await watcher.until(lambda: watcher.views.get("it", {}).get("waiting") == 2)
            for id, row in watcher.views["it"]["rows"].items():
                await desk.invoke(Approvals.accept if row["agent"] == "echo" else Approvals.refuse, id)
            nursery.start_soon(ask_with_a_form, node)
            rows = await watcher.until(
                lambda: [each for each in watcher.views["it"]["rows"].values() if "form" in each]
            )
            without_null = {"type": "string", "enum": ["small", "large"]}
            assert rows[0]["form"] == {**FORM, "properties": {"size": without_null}}
        seen = {}
        for name in ("ann", "bob"):
            async with watching(PLACE, network, as_viewer(name)) as watcher:
                watcher.look("audit")
                await watcher.until(lambda watcher=watcher: watcher.views.get("it", {}).get("order"))
                rows = watcher.views["it"]["rows"].values()
                seen[name] = {(row["what"], row["path"]): row["outcome"] for row in rows}
        assert seen["ann"] == {
            ("approve", "echo"): "Buy tea for echo",
            ("refuse", "vault"): "Buy tea for vault",
        }
        assert seen["bob"] == {("approve", "echo"): "Buy tea for echo", ("refuse", "vault"): ""}
        nursery.cancel_scope.cancel()


async def ask_with_a_form(node: Node) -> None:
    slot: Any = slot_of(node.find(Echo, "echo"))
    await slot.rt.approvals.ask_once(slot, "Which size?", None, FORM, 60.0, None, None)


class Other(Agent):
    """Has a field of that name."""

    launcher: Any


async def test_another_agent_at_that_place_launches_nothing(virtual_clock: MockClock) -> None:
    network = MemoryNetwork()
    agent = ChildSpec("launcher", partial(Other, launcher="mine"))
    tree = SupervisorSpec("root", [SupervisorSpec("control", [agent])])
    async with (
        open_node(tree, listen=PLACE, network=network, security=SECURITY),
        watching(PLACE, network) as watcher,
    ):
        assert "groups" not in watcher.hello["views"]
        watcher.look("groups")
        watcher.look("tree", "tree")
        await watcher.until(lambda: watcher.views.get("tree"))
        assert watcher.errors == []
