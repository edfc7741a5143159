"""Answers that do not count, on every way on which they come: twice, late, without the right, misspelt."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Node, Ref, SupervisorSpec, action, open_node, simulate
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.facades import RelayBridge, open_relay
from lmos_actors.security import ANYONE, Access, Bearer, BearerToken, Credentials, Security
from tests.facades.relays import URL, hub_with

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

PLACE = "ws://place:80"
STRANGER = f"relay:{urlsplit(URL).netloc}/stranger"
NAMES = ("alice", "bob")

WAYS = ("memory", "ws", "http", "relay")
NAMED_WAYS = WAYS[1:]


class Desk(Agent):
    """Asks."""

    @action(concurrency=9)
    async def refund(self, key: str) -> bool:
        return await self.approve(f"Refund {key}", key=key, expires=600)


TREE = SupervisorSpec(
    "root", [ChildSpec("desk", Desk, shutdown="brutal"), ChildSpec("till", Desk, shutdown="brutal")]
)


@pytest.fixture(autouse=True)
def tokens_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(f"W_{name.upper()}", f"{name}-token")


def security() -> Security:
    """Alice and the stranger on the relay may decide what the desk asks, and bob what the till does."""
    return Security(
        schemes=(Bearer({name: f"env:W_{name.upper()}" for name in NAMES}),),
        access={
            "approvals": Access(invoke=(STRANGER,)),
            "desk": Access(approve=("alice", STRANGER)),
            "till": Access(approve=("bob",)),
        },
    )


async def by_ref(approvals: Ref[Approvals], verb: str, id: str) -> str:
    handle = Approvals.accept if verb == "approve" else Approvals.refuse
    try:
        return (await approvals.invoke(handle, id)).state
    except ActionFailed as error:
        return error.code or ""


async def by_relay(relay: Any, verb: str, id: str) -> str:
    payload = (await relay.ask({"action": verb, "input": {"id": id}}, "approvals")).payload
    found: str = payload["error"]["code"] if "error" in payload else payload["state"]
    return found


@asynccontextmanager
async def decider(way: str, name: str = "alice") -> AsyncGenerator[tuple[Node, Any]]:
    """A node whose agents ask, and a way to decide."""
    async with hub_with("approvals", "stranger") as (network, tokens):
        bridge = RelayBridge(url=URL, agent="approvals", credentials=tokens["approvals"])
        options: Any = {"network": network, "security": security(), "insecure": True}
        async with open_node(TREE, listen=PLACE, bridges=[bridge], **options) as node:
            if way == "memory":
                yield node, partial(by_ref, node.find(Approvals))
            elif way == "relay":
                async with open_relay(URL, network=network, credentials=tokens["stranger"]) as relay:
                    yield node, partial(by_relay, relay)
            else:
                token = BearerToken(f"env:W_{name.upper()}")
                credentials = Credentials({"ws://place": token}, allow_insecure=True)
                async with open_node(network=network, credentials=credentials) as client:
                    ref = await client.consume(Approvals, f"{way}://place/agents/approvals")
                    yield node, partial(by_ref, ref)


async def asked(node: Node, nursery: trio.Nursery, agent: str = "desk") -> Approval:
    """Have an agent ask; return its approval."""
    nursery.start_soon(refund, node, agent)
    approvals = node.find(Approvals)
    async with approvals.observe(Approvals.waiting) as numbers:
        async for number in numbers:
            if number:
                break
    (found,) = await approvals.invoke(Approvals.entries)
    return found


async def refund(node: Node, agent: str) -> None:
    await node.find(Desk, agent).invoke(Desk.refund, "o-1")


def played(way: str, body: Callable[[Node, Any, Any], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with decider(way, **options) as (node, decide), trio.open_nursery() as nursery:
            await body(node, decide, nursery)
            nursery.cancel_scope.cancel()
        assert node.crash_reports == ()

    simulate(main)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", ["approve", "refuse"])
def test_the_second_answer(way: str, first: str) -> None:
    async def body(node: Node, decide: Any, nursery: Any) -> None:
        found = await asked(node, nursery)
        done = {"approve": "approved", "refuse": "refused"}[first]
        assert await decide(first, found.id) == done
        assert await decide("refuse" if first == "approve" else "approve", found.id) == "DECIDED"
        again = "DECIDED" if way == "memory" else done  # its client had no answer, and asks once more
        assert await decide(first, found.id) == again
        (kept,) = await node.find(Approvals).invoke(Approvals.entries, "decided")
        assert kept.state == done
        assert kept.by == {"memory": None, "relay": STRANGER}.get(way, "alice")

    played(way, body)


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_after_the_deadline(way: str) -> None:
    async def body(node: Node, decide: Any, nursery: Any) -> None:
        found = await asked(node, nursery)
        await trio.sleep(601)
        for verb in ("approve", "refuse"):
            assert await decide(verb, found.id) == "DECIDED"
        (kept,) = await node.find(Approvals).invoke(Approvals.entries, "decided")
        assert (kept.state, kept.by) == ("expired", None)

    played(way, body)


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_for_an_agent_that_is_gone(way: str) -> None:
    async def body(node: Node, decide: Any, nursery: Any) -> None:
        async with trio.open_nursery() as asking:
            found = await asked(node, asking)
            asking.cancel_scope.cancel()
        await node.root.terminate_child("desk")
        for verb in ("approve", "refuse"):
            assert await decide(verb, found.id) == "GONE"
        await node.root.restart_child("desk")
        assert await decide("approve", found.id) == "approved"

    played(way, body)


@pytest.mark.parametrize("way", NAMED_WAYS)
def test_an_answer_without_the_right(way: str) -> None:
    async def body(node: Node, decide: Any, nursery: Any) -> None:
        found = await asked(node, nursery, "till")
        for verb in ("approve", "refuse"):
            assert await decide(verb, found.id) == "UNKNOWN"
        (kept,) = await node.find(Approvals).invoke(Approvals.entries)
        assert kept.state == "waiting"

    played(way, body)


@pytest.mark.parametrize("way", WAYS)
def test_an_id_that_is_spelt_in_another_way(way: str) -> None:
    async def body(node: Node, decide: Any, nursery: Any) -> None:
        found = await asked(node, nursery)
        spelt = (
            found.id.upper(),
            f" {found.id}",
            f"{found.id}\n",
            f"urn:uuid:{found.id}",
            f"{{{found.id}}}",
            found.id.replace("-", ""),
            f"%{found.id}",
            f"../{found.id}",
            f"desk\x00{found.key}",
            found.key,
            "desk",
            "*",
            "",
            "x" * 10_000,
        )
        for each in spelt:
            assert await decide("approve", each) == "UNKNOWN", each
        assert await decide("approve", found.id) == "approved"

    played(way, body)


def test_a_question_that_is_asked_over_a_relay() -> None:
    forged = {"id": "x", "agent": "desk", "key": "k", "text": "Refund", "asked": 0.0, "expires": 9e9}

    async def main() -> None:
        async with hub_with("approvals", "stranger") as (network, tokens):
            bridge = RelayBridge(url=URL, agent="approvals", credentials=tokens["approvals"])
            options: Any = {"network": network, "security": security(), "insecure": True}
            async with (
                open_node(TREE, listen=PLACE, bridges=[bridge], **options) as node,
                open_relay(URL, network=network, credentials=tokens["stranger"]) as relay,
            ):
                answer = await relay.ask({"action": "ask", "input": {"question": forged}}, "approvals")
                assert answer.payload["error"]["code"] == "FORBIDDEN"
                assert await node.find(Approvals).invoke(Approvals.entries, "all") == []

    simulate(main)


@pytest.mark.parametrize("operations", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_a_relay_that_is_let_in_may_decide_nothing_by_that(operations: bool, named: bool) -> None:
    """Neither a node without security that lets its machine decide, nor a list that admits all, is enough."""

    async def main() -> None:
        async with hub_with("approvals", "stranger") as (network, tokens):
            bridge = RelayBridge(url=URL, agent="approvals", credentials=tokens["approvals"])
            access = {"approvals": Access(invoke=(STRANGER,) if named else ANYONE)}
            options: Any = {"network": network, "insecure": True, "allow_operations": operations}
            options["security"] = Security(access=access)
            async with (
                open_node(
                    TREE, listen="ws://127.0.0.1:80", bridges=[bridge], approvals=True, **options
                ) as node,
                open_relay(URL, network=network, credentials=tokens["stranger"]) as relay,
                trio.open_nursery() as nursery,
            ):
                found = await asked(node, nursery)
                assert (await relay.ask({"action": "list", "input": {}}, "approvals")).payload == []
                for verb in ("approve", "refuse"):
                    assert await by_relay(relay, verb, found.id) == "UNKNOWN"
                nursery.cancel_scope.cancel()

    simulate(main)
