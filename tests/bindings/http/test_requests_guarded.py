"""Who is known asks over HTTP: what is theirs is theirs alone, and ends when they are known no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.testing import wait_all_tasks_blocked

from lmos_actors.security import Access, Bearer, Security
from tests.bindings.web import World, served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ALICE = {"authorization": "Bearer token-alice"}
BOB = {"authorization": "Bearer token-bob"}


def guarded(folder: Path, main: Callable[[World], Awaitable[None]], **lists: Any) -> None:
    tokens = {name: folder / name for name in ("alice", "bob")}
    for name, path in tokens.items():
        path.write_text(f"token-{name}")
    scheme = Bearer({name: f"file:{path}" for name, path in tokens.items()})
    served(main, security=Security(schemes=(scheme,), access={"weather": Access(**lists)} if lists else {}))


def test_a_run_is_its_principals_alone(tmp_path: Path) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        later = await web.ask("POST", "actions/order", **ALICE)
        place = later.headers["location"]
        for method in ("GET", "DELETE"):
            assert (await web.ask(method, place, **BOB)).problem == (404, "not-found")
            assert (await web.ask(method, "actions/order", **BOB)).problem == (404, "not-found")
            assert (await web.ask(method, place)).problem == (401, "unauthorized")
        assert (await web.ask("GET", "actions", **BOB)).data == {}
        await trio.sleep(2)
        assert (await there.ask("GET", place, **ALICE)).data["status"] == "completed"

    guarded(tmp_path, main)


def test_who_asks_is_told_to_the_agent(tmp_path: Path) -> None:
    async def main(there: World) -> None:
        assert (await there.ask("POST", "actions/who", **BOB)).data["principal"] == "bob"

    guarded(tmp_path, main)


def test_whoever_may_only_write_learns_nothing_by_writing_on_condition(tmp_path: Path) -> None:
    async def main(there: World) -> None:
        web = await there.client()
        assert (await web.ask("PUT", "properties/units", "kelvin", **BOB)).status == 204
        for condition in ({"if_match": '"x"'}, {"if_none_match": '"x"'}):
            for path, body in (("properties/units", "x"), ("properties", {"units": "x"})):
                refused = await web.ask("PUT", path, body, **BOB, **condition)
                assert refused.problem == (403, "forbidden")
                assert (await web.ask("PUT", path, body, **ALICE, **condition)).status in (204, 412)

    guarded(tmp_path, main, read=("alice",), write=("alice", "bob"))


def test_whoever_is_known_no_more_is_not_told_what_they_have_waited_for(tmp_path: Path) -> None:
    async def main(there: World) -> None:
        poll, stream = await there.client(), await there.client()
        await poll.send("GET", "events/asked", b"", **BOB)
        await stream.listen("events/asked", **BOB)
        await wait_all_tasks_blocked()
        (tmp_path / "bob").write_text("another-token")
        await trio.sleep(2)
        assert (await there.ask("POST", "actions/tell", {"city": "Rome"}, **ALICE)).status == 200
        assert (await poll.answer()).problem == (401, "unauthorized")
        found = await stream.heard()
        assert found is not None
        assert (found.name, found.data["status"]) == ("lmosx:end", 401)
        assert await stream.heard() is None

    guarded(tmp_path, main)
