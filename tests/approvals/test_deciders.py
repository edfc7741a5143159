"""Who may decide approvals over a network: nobody, unless an access list names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, ConfigError, Node, SupervisorSpec, action, open_node
from lmos_actors.approvals import Approval, Approvals
from lmos_actors.errors import Forbidden, Unauthorized
from lmos_actors.security import (
    ANYONE,
    AUTHENTICATED,
    Access,
    Bearer,
    BearerToken,
    Credentials,
    Guard,
    NoSec,
    RequestContext,
    Security,
)
from lmos_actors.transport import ConnectFailed, TcpNetwork

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

PLACE = "ws://here"
NAMES = ("alice", "bob", "carol")
BEARER = Bearer({name: f"env:D_{name.upper()}" for name in NAMES})

SECURITY = Security(
    schemes=(BEARER, NoSec()),
    access={
        "desk": Access(approve=("alice",)),
        "shop.*": Access(approve=("bob",)),
        "*": Access(invoke=("carol",), approve=()),
    },
)


class Desk(Agent):
    """Asks."""

    @action(concurrency=9)
    async def refund(self, key: str) -> bool:
        return await self.approve(f"Refund {key}", key=key)


@pytest.fixture(autouse=True)
def secrets_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(f"D_{name.upper()}", f"{name}-token")


TREE = SupervisorSpec(
    "root", [ChildSpec("desk", Desk), SupervisorSpec("shop", [ChildSpec("till", Desk, shutdown="brutal")])]
)


async def asked(node: Node, nursery: trio.Nursery) -> dict[str, str]:
    """Have both agents ask; return the ids of their approvals."""

    async def ask(path: str) -> None:
        await node.find(Desk, path).invoke(Desk.refund, path)

    for path in ("desk", "shop/till"):
        nursery.start_soon(ask, path)
    approvals = node.find(Approvals)
    async with approvals.observe(Approvals.waiting) as numbers:
        async for number in numbers:
            if number == 2:
                break
    return {each.agent: each.id for each in await approvals.invoke(Approvals.entries)}


def client_of(name: str | None, place: str = PLACE) -> AbstractAsyncContextManager[Node]:
    mine = {} if name is None else {place: BearerToken(f"env:D_{name.upper()}")}
    return open_node(credentials=Credentials(mine, allow_insecure=True))


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_each_decides_what_their_list_names(autojump_clock: Any, scheme: str) -> None:
    url = f"{scheme}://here/agents/approvals"
    async with (
        open_node(TREE, listen=PLACE, security=SECURITY, approvals=True) as node,
        trio.open_nursery() as nursery,
    ):
        ids = await asked(node, nursery)
        async with client_of("alice") as alice:
            approvals = await alice.consume(Approvals, url)
            assert [each.agent for each in await approvals.invoke(Approvals.entries)] == ["desk"]
            with pytest.raises(ActionFailed) as unknown:
                await approvals.invoke(Approvals.accept, ids["shop/till"])
            assert unknown.value.code == "UNKNOWN"
            with pytest.raises(ActionFailed, match="ids are given whole"):
                await approvals.invoke(Approvals.accept, ids["desk"][:8])
            kept = await approvals.invoke(Approvals.accept, ids["desk"], "fine")
            assert (kept.state, kept.by, kept.note) == ("approved", "alice", "fine")
            again = await approvals.invoke(Approvals.accept, ids["desk"])  # as a client that had no answer
            assert again.note == "fine"
        async with client_of("bob") as bob:
            approvals = await bob.consume(Approvals, url)
            with pytest.raises(ActionFailed, match="no approval"):  # alice's exist for her alone
                await approvals.invoke(Approvals.refuse, ids["desk"])
            kept = await approvals.invoke(Approvals.refuse, ids["shop/till"])
            assert (kept.state, kept.by) == ("refused", "bob")
            with pytest.raises(ActionFailed, match="bob has refused it already"):
                await approvals.invoke(Approvals.accept, ids["shop/till"])


async def accept_over(client: Node, said: str, id: str) -> None:
    """Approve by one of the ways to spell the agent."""
    if said in ("urn", "path"):
        thing = "ws://here/agents/approvals" if said == "urn" else "approvals"
        approvals = await client.consume(Approvals, f"{PLACE}/agents/desk", thing=thing)
    else:
        approvals = await client.consume(Approvals, f"http://here/agents/{said}")
    await approvals.invoke(Approvals.accept, id)


@pytest.mark.parametrize("name", ["carol", None])
@pytest.mark.parametrize("said", ["approvals", "%61pprovals", "urn", "path"])
async def test_those_whom_no_list_names_do_not_get_there(
    autojump_clock: Any, name: str | None, said: str
) -> None:
    async with (
        open_node(TREE, listen=PLACE, security=SECURITY, approvals=True) as node,
        trio.open_nursery() as nursery,
        client_of(name) as client,
    ):
        ids = await asked(node, nursery)
        with pytest.raises((Forbidden, Unauthorized, ConnectFailed), match=r"may not|are needed"):
            await accept_over(client, said, ids["desk"])
        assert len(await node.find(Approvals).invoke(Approvals.entries)) == 2
        for each in ids.values():
            await node.find(Approvals).invoke(Approvals.refuse, each)


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_only_agents_of_the_node_ask(autojump_clock: Any, scheme: str) -> None:
    forged = Approval(id="x", agent="desk", key="k", text="Refund", asked=0.0, expires=9e9)
    async with (
        open_node(TREE, listen=PLACE, security=SECURITY, approvals=True) as node,
        client_of("alice") as alice,
    ):
        approvals = await alice.consume(Approvals, f"{scheme}://here/agents/approvals")
        with pytest.raises(ActionFailed, match="only agents of the node itself"):
            await approvals.invoke(Approvals.ask, forged)
        assert await node.find(Approvals).invoke(Approvals.entries, "all") == []


@pytest.mark.parametrize("scheme", ["ws", "http"])
@pytest.mark.parametrize("allowed", [True, False])
async def test_without_security_this_machine_decides_if_that_is_allowed(scheme: str, allowed: bool) -> None:
    network = TcpNetwork()
    options: dict[str, Any] = {"listen": "ws://127.0.0.1:0", "network": network, "approvals": True}
    async with (
        open_node(TREE, **options, allow_operations=allowed) as node,
        trio.open_nursery() as nursery,
        open_node(network=network) as client,
    ):
        ids = await asked(node, nursery)
        place = node.urls[0].replace("ws:", f"{scheme}:")
        approvals = await client.consume(Approvals, f"{place}/agents/approvals")
        if allowed:
            assert len(await approvals.invoke(Approvals.entries)) == 2
            for each in ids.values():
                assert (await approvals.invoke(Approvals.accept, each)).by is None
            return
        assert await approvals.invoke(Approvals.entries) == []
        for each in ids.values():
            with pytest.raises(ActionFailed, match="no approval"):
                await approvals.invoke(Approvals.accept, each)
            await node.find(Approvals).invoke(Approvals.refuse, each)


@pytest.mark.parametrize(
    ("peer", "headers", "may"),
    [
        ("127.0.0.1:5000", {}, True),
        ("[::1]:5000", {}, True),
        ("192.0.2.1:5000", {}, False),
        ("", {}, False),
        ("127.0.0.1:5000", {"x-forwarded-for": "192.0.2.1"}, False),
        ("127.0.0.1:5000", {"forwarded": "for=192.0.2.1"}, False),
        ("127.0.0.1:5000", {"via": "1.1 proxy"}, False),
        ("127.0.0.1:5000", {"x-real-ip": "192.0.2.1"}, False),
        ("127.0.0.1:5000", {"x-forwarded-host": "agents.example"}, False),
        ("127.0.0.1:5000", {"x-forwarded-proto": "https"}, False),
        ("127.0.0.1:5000", {"cf-connecting-ip": "192.0.2.1"}, False),
        ("127.0.0.1:5000", {"user-agent": "curl"}, True),
    ],
)
def test_what_counts_as_this_machine(peer: str, headers: dict[str, str], may: bool) -> None:
    given = tuple((name.encode(), value.encode()) for name, value in headers.items())
    request = RequestContext.of(((b"host", b"localhost"), *given), peer, secure=False)
    for operations in (True, False):
        guard = Guard(Security(), wall=lambda: 0.0, operations=operations)
        admission: Any = guard.admit(request, 0.0)
        assert admission.allows("desk", "approve") is (may and operations)
        assert admission.allows("desk", "invoke")


def test_the_right_is_given_to_nobody_unless_named() -> None:
    def allowed(access: Access | None, name: str) -> bool:
        security = Security(schemes=(BEARER,), access={} if access is None else {"desk": access})
        guard = Guard(security, wall=lambda: 0.0, operations=True)
        shown = (b"authorization", f"Bearer {name}-token".encode())
        admission: Any = guard.admit(RequestContext.of((shown,), "127.0.0.1:5", secure=True), 0.0)
        return bool(admission.allows("desk", "approve"))

    assert not allowed(None, "alice")
    assert not allowed(Access(invoke=("alice",)), "alice")
    assert not allowed(Access(approve=()), "alice")
    assert allowed(Access(approve=("alice",)), "alice")
    assert not allowed(Access(approve=("alice",)), "bob")
    assert allowed(Access(approve=AUTHENTICATED), "bob")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Access(approve=ANYONE), "has to be known who used it"),
        (
            lambda: Security(schemes=(BEARER,), access={"*": Access(approve=("alcie",))}),
            "did you mean 'alice'",
        ),
    ],
)
def test_wrong_lists_are_errors(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "goes with listen="),
        ({"listen": PLACE, "security": SECURITY}, None),
        ({"listen": PLACE, "security": Security(schemes=(BEARER,))}, "lists `approve`"),
        ({"listen": PLACE, "public_url": "wss://agents.example"}, "public_url"),
    ],
)
async def test_operations_are_for_nodes_without_security(
    autojump_clock: Any, options: dict[str, Any], named: str | None
) -> None:
    if named is None:  # clients without credentials are admitted there, and may decide nothing
        guard = Guard(SECURITY, wall=lambda: 0.0, operations=True)
        assert not guard.operations
        return
    with pytest.raises(ConfigError, match=named):
        async with open_node(**options, allow_operations=True):
            pass
