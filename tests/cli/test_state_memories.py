"""`lmos-actors state memories` and `forget`, and memories in exports and copies."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.cli import main
from lmos_actors.memories import Memories
from lmos_actors.persistence import SqliteStore
from tests.memories.keepers import in_server, keeper_on, texts
from tests.redis_server import needs_redis
from tests.scenario.project import Ran

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Ran]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Call the command in this process, in a folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(("state", *words))
        assert isinstance(ended.value.code, int)
        ran = Ran(ended.value.code, *capfd.readouterr())
        assert "Traceback" not in ran.text
        return ran

    return call


def fill(store: str) -> None:
    """Have two agents remember something of three identities."""

    async def work() -> None:
        for name in ("desk", "bar"):
            async with keeper_on(store, name=name) as keeper:
                await Memories(keeper, "alice").remember("likes tea", ["taste", "\n"])
                await Memories(keeper, "alice").remember("hates\train")
                await Memories(keeper, "al\0ice%").remember("a bot")
                await Memories(keeper, None).remember("everybody's")

    trio.run(work)


def recalled(store: str, agent: str, identity: str | None, query: str = "") -> list[str]:
    async def work() -> list[str]:
        async with keeper_on(store, name=agent) as keeper:
            return await texts(Memories(keeper, identity), query)

    return trio.run(work)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """What a node, and the command, call a store."""
    if request.param == "redis":
        url = in_server(tmp_path)
        return url, url
    return f"sqlite:{tmp_path / 'kept.db'}", "kept.db"


def test_the_list(call: Call, place: tuple[str, str]) -> None:
    fill(place[0])
    assert call("memories", place[1]).out.splitlines() == [
        "     1  bar  (without a name)",
        "     1  bar  al\\x00ice%",
        "     2  bar  alice",
        "     1  desk  (without a name)",
        "     1  desk  al\\x00ice%",
        "     2  desk  alice",
    ]
    assert call("memories", place[1], "--agent", "bar").out.count("\n") == 3
    ran = call("memories", place[1], "--agent", "desk", "--identity", "alice")
    ids = [line.split()[0] for line in ran.out.splitlines()]
    assert ran.out.splitlines() == [
        f"{ids[0]}  desk  hates\\train",
        f"{ids[1]}  desk  likes tea  [taste, \\n]",
    ]
    assert "everybody's" in call("memories", place[1], "--identity", "").out
    none = call("memories", place[1], "--identity", "ALICE")
    assert (none.code, none.out, none.err.endswith(": there are no such memories\n")) == (0, "", True)
    assert call("memories", place[0], "--agent", "bar").out.count("\n") == 3, "as serve --store has it"
    rows: list[Any] = json.loads(call("memories", place[1], "--identity", "alice", "--json").out)
    assert [(each["agent"], each["text"]) for each in rows][:2] == [
        ("bar", "hates\train"),
        ("bar", "likes tea"),
    ]
    owners: list[Any] = json.loads(call("memories", place[1], "--json").out)
    assert owners[1] == {"agent": "bar", "identity": "al\0ice%", "texts": 1}


def test_what_is_forgotten(call: Call, place: tuple[str, str]) -> None:
    fill(place[0])
    ran = call("forget", place[1], "--agent", "desk", "--identity", "alice")
    assert (ran.code, "forgot 2 memories of 1 identity" in ran.err) == (0, True)
    assert recalled(place[0], "desk", "alice") == []
    assert recalled(place[0], "bar", "alice", "tea") == ["likes tea"]
    assert recalled(place[0], "desk", None) == ["everybody's"]
    assert call("forget", place[1], "--agent", "desk", "--identity", "alice").code == 1
    assert call("forget", place[1], "--identity", "al\0ice%").code == 0
    assert call("memories", place[1]).out.count("\n") == 3
    assert call("forget", place[1], "--identity", "").code == 0
    assert call("forget", place[1], "--agent", "bar").code == 0
    assert call("memories", place[1]).out == ""
    assert call("ls", place[1]).out == "", "nothing of them is left"


def test_what_to_forget_has_to_be_said(call: Call) -> None:
    fill("sqlite:kept.db")
    ran = call("forget", "kept.db")
    assert (ran.code, "name --agent, --identity, or both" in ran.err) == (2, True)
    assert call("forget", "none.db", "--agent", "desk").code == 2
    assert call("memories", "none.db").code == 2


def test_exports_carry_memories_and_their_index(call: Call, tmp_path: Path) -> None:
    fill("sqlite:kept.db")
    exported = call("export", "kept.db").out
    assert call("import", "new.db", stdin=exported).code == 0
    assert call("check", "new.db").code == 0
    store = SqliteStore("new.db")
    store.open()
    found = store.matching("memories", [], start="", stop="z")
    store.close()
    assert found is not None
    assert found.indexed == 8
    assert recalled("sqlite:new.db", "desk", "alice", "tea") == ["likes tea"]
    assert call("backup", "new.db", "copy.db").code == 0
    assert recalled("sqlite:copy.db", "desk", "alice", "tea") == ["likes tea"]
    assert call("memories", "copy.db").out == call("memories", "kept.db").out


def test_a_store_in_use_is_named(call: Call, tmp_path: Path) -> None:
    fill("sqlite:kept.db")
    store = SqliteStore("kept.db")
    store.open()
    try:
        assert call("memories", "kept.db").code == 3
        assert call("forget", "kept.db", "--agent", "desk").code == 3
    finally:
        store.close()
    assert recalled("sqlite:kept.db", "desk", None) == ["everybody's"]
