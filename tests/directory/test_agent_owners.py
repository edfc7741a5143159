"""Entries of a directory belong to the principal that has made them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import ActionFailed, ConfigError, action, open_node
from lmos_actors.actors import Agent
from lmos_actors.directory import DirectoryOptions, ThingDirectory, directory_spec
from lmos_actors.security import ANYONE, Access, Bearer, Security

from .web import MERGE, ask, directory, td

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

NAMES = ("ann", "bob", "launcher")
SECURITY = Security(
    schemes=(Bearer({name: f"env:{name.upper()}" for name in NAMES}),),
    access={"directory": Access(read=ANYONE, write=ANYONE, subscribe=(), invoke=ANYONE)},
)
THING = "/things/urn:x:1"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a token for everybody."""
    for name in NAMES:
        monkeypatch.setenv(name.upper(), token(name))


def token(name: str) -> str:
    return f"{name}-token-that-is-long-enough"


async def by(who: str | None, method: str, target: str, body: Any = None) -> int:
    headers = {} if who is None else {"Authorization": f"Bearer {token(who)}"}
    if method == "PATCH":
        headers["Content-Type"] = MERGE
    return (await ask(method, target, body, **headers)).status


CHANGES = [("PUT", td(title="Other")), ("PATCH", {}), ("PATCH", {"title": "Other"}), ("DELETE", None)]


@pytest.mark.parametrize(("method", "body"), CHANGES)
async def test_an_entry_is_changed_by_its_owner_alone(
    method: str, body: Any, autojump_clock: MockClock
) -> None:
    options = DirectoryOptions(takeover=("launcher",))
    async with directory(options, security=SECURITY):
        assert await by("ann", "PUT", THING, td()) == 201
        for other in ("bob", None):
            assert await by(other, method, THING, body) == 403
        assert await by("ann", "PATCH", THING, {"title": "Mine"}) == 204
        assert await by("ann", method, THING, body) == 204
        if method != "DELETE":
            assert await by("launcher", method, THING, body) == 204
            assert await by("ann", method, THING, body) == 403, "it has been taken over"
            assert await by("launcher", "DELETE", THING) == 204
        assert await by("bob", "PUT", THING, td()) == 201, "the id is free again"


@pytest.mark.parametrize(("method", "body"), CHANGES)
async def test_an_entry_that_no_principal_has_made_is_everybodys(
    method: str, body: Any, autojump_clock: MockClock
) -> None:
    async with directory(security=SECURITY):
        assert await by(None, "PUT", THING, td()) == 201
        assert await by("bob", "PATCH", THING, {"title": "New"}) == 204
        assert await by("ann", method, THING, body) == 204


async def test_without_security_entries_have_no_owners(autojump_clock: MockClock) -> None:
    async with directory():
        assert (await ask("PUT", THING, td())).status == 201
        assert (await ask("PUT", THING, td(title="Other"))).status == 204


async def test_an_anonymous_description_has_an_owner(autojump_clock: MockClock) -> None:
    async with directory(security=SECURITY):
        headers = {"Authorization": f"Bearer {token('ann')}"}
        made = await ask("POST", "/things", td(None), **headers)
        assert made.status == 201
        assert await by("bob", "DELETE", made.header("location") or "") == 403
        assert await by("ann", "DELETE", made.header("location") or "") == 204


async def test_an_owner_is_kept(tmp_path: Path, autojump_clock: MockClock) -> None:
    options = DirectoryOptions(path=tmp_path / "directory.db")
    async with directory(options, security=SECURITY):
        assert await by("ann", "PUT", THING, td()) == 201
    async with directory(options, security=SECURITY):
        assert await by("bob", "DELETE", THING) == 403
        assert await by("ann", "PATCH", THING, {}) == 204


async def test_nobody_says_who_they_are_by_a_parameter(autojump_clock: MockClock) -> None:
    """Over the network, and from agents, `principal` is not heeded: that of a peer is known."""

    class Sly(Agent):
        @action
        async def take(self) -> None:
            found = self.find(ThingDirectory)
            await found.invoke(ThingDirectory.delete_thing, "urn:x:1", "ann")

    async with directory(security=SECURITY):
        assert await by("ann", "PUT", THING, td()) == 201
        target, body = "/agents/directory/actions/deleteThing", {"id": "urn:x:1", "principal": "ann"}
        for other in ("bob", None):
            headers = {} if other is None else {"Authorization": f"Bearer {token(other)}"}
            answer = await ask("POST", target, body, kind="application/json", **headers)
            assert answer.status >= 400
            assert "another principal" in json.dumps(answer.data)
        assert await by("ann", "PATCH", THING, {}) == 204
    async with open_node() as node:
        there = await node.start_child(directory_spec(DirectoryOptions()))
        await there.invoke(ThingDirectory.put_thing, "urn:x:1", td(), "ann")
        sly = await node.start(Sly)
        with pytest.raises(ActionFailed, match="another principal"):
            await sly.invoke(Sly.take)
        await there.invoke(ThingDirectory.delete_thing, "urn:x:1", "ann")


def test_names_that_are_none() -> None:
    for wrong in ("launcher", ["launcher"], ("",), (7,)):
        with pytest.raises(ConfigError, match="takeover: must be a tuple of names"):
            DirectoryOptions(takeover=wrong)  # type: ignore[arg-type]
