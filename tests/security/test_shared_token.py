"""`SharedToken`: a token that nodes were handed, which opens what a directory keeps and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, ConfigError, SupervisorSpec, action, open_node
from lmos_actors.actors import current_request
from lmos_actors.directory import DirectoryOptions
from lmos_actors.discovery import Registration
from lmos_actors.security import ANYONE, TOKEN_VARIABLE, Access, Bearer, Security, SharedToken
from lmos_actors.transport import MemoryNetwork
from tests.directory.web import MERGE, ask, directory, td

if TYPE_CHECKING:
    from trio.testing import MockClock

    from lmos_actors import Node

SECRET = SharedToken.new()
WRONG = SharedToken.new()
THING = "/things/urn:x:1"
LEASE = {"lmosx:lease": {"key": "1", "epoch": 999}}
ANN = "a-token-of-ann-that-is-long-enough"
CLOSED = Security(
    schemes=(Bearer({"ann": "env:ANN"}),),
    access={
        "directory": Access(read=("ann",), write=("ann",), invoke=(), subscribe=()),
        "open": Access(invoke=ANYONE),
    },
)


@pytest.fixture(autouse=True)
def _token_of_ann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN", ANN)


def options() -> DirectoryOptions:
    return DirectoryOptions(takeover_token=SharedToken(SECRET.encode()))


async def by(token: str | None, method: str, target: str, body: Any = None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if method in ("PATCH", "POST"):
        headers["Content-Type"] = MERGE if method == "PATCH" else "application/json"
    return (await ask(method, target, body, **headers)).status


CHANGES = [("PUT", td(title="Other")), ("PATCH", {}), ("PATCH", {"title": "Other"}), ("DELETE", None)]


@pytest.mark.parametrize(("method", "body"), CHANGES)
async def test_an_open_directory_keeps_entries_of_the_token_from_strangers(
    method: str, body: Any, autojump_clock: MockClock
) -> None:
    async with directory(options()):
        assert await by(None, "GET", THING) == 404
        assert await by(SECRET, "PUT", THING, td()) == 201
        for stranger in (None, WRONG, SECRET[:-1], f"{SECRET}0", ANN):
            assert await by(stranger, method, THING, body) == 403
        assert await by(SECRET, "PATCH", THING, {}) == 204
        assert await by(SECRET, method, THING, body) == 204


@pytest.mark.parametrize(("method", "body"), CHANGES)
async def test_an_entry_that_a_stranger_has_made_is_taken_over(
    method: str, body: Any, autojump_clock: MockClock
) -> None:
    async with directory(options()):
        assert await by(None, "PUT", THING, td(title="Forged")) == 201
        assert await by(SECRET, "PUT", THING, td()) == 204
        assert await by(None, method, THING, body) == 403


@pytest.mark.parametrize("security", [None, CLOSED])
async def test_nobody_else_registers_agents_with_a_key(
    security: Security | None, autojump_clock: MockClock
) -> None:
    async with directory(options(), security=security):
        assert await by(SECRET, "PUT", THING, td(**LEASE)) == 201
        other = None if security is None else ANN
        assert await by(other, "PUT", "/things/urn:x:2", td("urn:x:2", **LEASE)) == 403
        assert await by(other, "PUT", "/things/urn:x:3", td("urn:x:3")) == 201
        assert await by(other, "PATCH", "/things/urn:x:3", LEASE) == 403
        assert await by(other, "POST", "/things", td(None, **LEASE)) == 403
        assert await by(SECRET, "PATCH", "/things/urn:x:3", LEASE) == 204


async def test_with_security_both_hold(autojump_clock: MockClock) -> None:
    async with directory(options(), security=CLOSED):
        assert await by(None, "PUT", THING, td()) == 401
        assert await by(WRONG, "PUT", THING, td()) == 401
        assert await by(ANN, "PUT", THING, td()) == 201
        assert await by(SECRET, "GET", THING) == 200
        assert await by(SECRET, "PUT", THING, td(title="Taken over")) == 204
        assert await by(ANN, "DELETE", THING) == 403


class Who(Agent):
    @action
    def name(self) -> str | None:
        return current_request().principal


async def test_at_other_agents_it_is_no_credential(autojump_clock: MockClock) -> None:
    tree = SupervisorSpec("root", (ChildSpec("open", Who), ChildSpec("closed", Who)))
    async with directory(options(), security=CLOSED, tree=tree):
        for token, status in ((SECRET, 403), (ANN, 200)):
            assert await by(token, "POST", "/agents/closed/actions/name", {}) == status
        assert await by(SECRET, "POST", "/agents/open/actions/name", {}) == 200


async def test_it_is_presented_to_the_directories_that_it_is_for(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    tree = SupervisorSpec("root", (ChildSpec("who", Who, id="urn:x:1"),))
    there = "http://127.0.0.1:80"
    async with open_node(
        tree, listen="ws://127.0.0.1:80", register=True, directory=options(), network=network
    ) as hub:
        for urls, agents in ((["http://127.0.0.1:81"], 0), ([there], 1)):
            token = SharedToken(SECRET.encode(), urls)
            registration = Registration(there, token=token)
            async with open_node(
                tree, listen="ws://127.0.0.1:82", register=registration, network=network
            ) as node:
                assert await registered(hub, node) == agents


async def registered(hub: Node, node: Node) -> int:
    for each in (hub, node):
        with trio.fail_after(10):
            while not each.registrations[0].agents and not each.registrations[0].refused:  # noqa: ASYNC110
                await trio.sleep(0.01)
    return node.registrations[0].agents


def test_where_it_is_sent() -> None:
    urls = ["http://127.0.0.1:1", "https://a.example", "http://a.example"]
    for insecure in (False, True):
        token = SharedToken(SECRET.encode(), urls, insecure=insecure)
        assert [bool(token.headers_for(url)) for url in urls] == [True, True, insecure]
        assert token.headers_for("http://127.0.0.1:2") == ()
        assert SECRET not in repr(token) + str(token.headers_for(urls[0]))


def test_it_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, SECRET)
    handed = SharedToken.handed()
    assert handed is not None
    assert bytes(handed) == SECRET.encode()
    assert TOKEN_VARIABLE not in os.environ
    assert SharedToken.handed() is None


@pytest.mark.parametrize("secret", [b"", b"short", b"x" * 31, b" " * 40, b"\xff" * 40])
def test_what_is_no_token(secret: bytes) -> None:
    with pytest.raises(ConfigError, match="at least 32 characters"):
        SharedToken(secret)
