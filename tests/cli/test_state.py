"""`lmos-actors state`: what a store has, its copies, and what is wrong with it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from lmos_actors import Agent, ChildSpec, action, open_node
from lmos_actors.cli import main
from lmos_actors.persistence import Put, SqliteStore, open_writer, store_of
from tests.redis_server import RedisServer, needs_redis
from tests.scenario.project import Ran

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Ran]

RECORDS = [
    Put("state", "bank/1", b'{"cents": 1700, "owner": "Ada"}'),
    Put("state", "bank/2", b"\xff\x00\x01"),
    Put("journal", "bank/1\n\x00\\n", "ä".encode()),
    Put("journal", "bank/2", b""),
]


EMPTY = '{"lmos": "state/v1"}\n{"records": 0}\n'


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Call the command in this process, in a folder with the store node.db."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("node.db")
    store.open()
    store.commit([RECORDS], "process")
    store.close()

    def call(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(("state", *words))
        assert isinstance(ended.value.code, int)
        ran = Ran(ended.value.code, *capfd.readouterr())
        assert "Traceback" not in ran.text
        return ran

    return call


def test_the_list_of_records(call: Call) -> None:
    assert call("ls", "node.db").out == (
        "        2  journal  bank/1\\n\\x00\\\\n\n"
        "        0  journal  bank/2\n"
        "       31  state  bank/1\n"
        "        3  state  bank/2\n"
    )
    found = json.loads(call("ls", "node.db", "--space", "journal", "--json").out)
    assert found == [
        {"space": "journal", "key": "bank/1\n\x00\\n", "bytes": 2},
        {"space": "journal", "key": "bank/2", "bytes": 0},
    ]
    assert call("ls", "node.db", "--space", "other").out == ""


def test_a_record(call: Call) -> None:
    assert call("show", "node.db", "bank/1").out == '{\n  "cents": 1700,\n  "owner": "Ada"\n}\n'
    assert call("show", "node.db", "bank/2").out == "journal:\n\nstate:\nff00 01\n"
    assert call("show", "node.db", "bank/2", "--space", "state").out == "ff00 01\n"
    ran = call("show", "node.db", "bnk/2")
    assert (ran.code, ran.out) == (1, "")
    assert 'node.db: no record has the key "bnk/2", did you mean "bank/2"?' in ran.err
    assert "state ls lists the keys" in call("show", "node.db", "something else").err


class Seat(Agent, durable=True, behaviours=("free", "held")):
    guest: str = ""

    @action
    def hold(self, guest: str) -> None:
        self.guest = guest
        self.become("held")
        self.after(900, self.give_back, guest, durable=True)

    def give_back(self, guest: str) -> None:
        """Free it."""


@attrs.frozen
class Sold:
    seats: int


class Sales(Agent, durable="journal", behaviours=("open", "closed")):
    sold: int = 0

    def apply(self, fact: Sold) -> None:
        self.sold += fact.seats

    @action
    def sell(self, seats: int) -> None:
        self.record(Sold(seats))
        self.become("closed")


def test_behaviours_timers_and_journals_of_agents(call: Call) -> None:
    async def live() -> None:
        async with open_node(store="sqlite:node.db") as node:
            await (await node.start_child(ChildSpec("seat", Seat))).invoke(Seat.hold, "Ada")
            await (await node.start_child(ChildSpec("sales", Sales))).invoke(Sales.sell, 3)

    trio.run(live)
    seat = json.loads(call("show", "node.db", "seat").out)
    assert (seat["fields"], seat["behaviour"]) == ({"guest": "Ada"}, "held")
    (timer,) = seat["timers"]
    assert (timer["turn"], timer["arguments"]) == ("give_back", {"guest": "Ada"})
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", timer["due"])
    shown = call("show", "node.db", "sales").out
    assert shown.startswith('state:\n{\n  "class": "tests.cli.test_state:Sales",\n')
    assert shown.endswith('journal:\n0000000000000001  {"version": 1, "fact": {"is": "Sold", "seats": 3}}\n')
    assert '"behaviour": "closed"' in shown


def test_an_export_is_read_again(call: Call, tmp_path: Path) -> None:
    text = call("export", "node.db").out
    first, *lines, last = map(json.loads, text.splitlines())
    assert (first, last) == ({"lmos": "state/v1"}, {"records": 4})
    assert lines[0] == {"space": "journal", "key": "bank/1\n\x00\\n", "text": "ä"}
    assert lines[3] == {"space": "state", "key": "bank/2", "base64": "/wAB"}
    ran = call("import", "new.db", stdin=text)
    assert (ran.code, ran.err) == (0, "new.db: 4 records\n")
    assert call("export", "new.db").out == text
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "export.jsonl").write_text(text, encoding="utf-8")
    assert call("import", "other.db", "export.jsonl").code == 0
    assert call("check", "other.db").out == "other.db: 4 records, 36 bytes, ok\n"


def test_an_import_is_whole_or_nothing(call: Call, tmp_path: Path) -> None:
    text = call("export", "node.db").out
    extra = '{"lmos": "state/v1"}\n{"space": "a", "key": "b", "text": "c"}\n' + "\n".join(
        text.splitlines()[1:]
    )
    extra = extra.replace('"records": 4', '"records": 5')
    for words, lines, code, said in (
        (["new.db"], text[: text.index('{"records')], 2, "the export is cut off: its last line is missing"),
        (
            ["new.db"],
            text.replace('"records": 4', '"records": 5'),
            2,
            "line 6: there are 4 records, and not 5",
        ),
        (["new.db"], text + text, 2, "line 7: there is something after the last line"),
        (["new.db"], "", 2, "the export is cut off"),
        (["new.db"], "[]", 2, "line 1: must be an object"),
        (["new.db"], "{", 2, "line 1: is not JSON"),
        (["new.db"], '{"lmos": "state/v2"}', 2, 'line 1: the first line must be {"lmos": "state/v1"}'),
        (["new.db"], text.replace('"text"', '"txt"'), 2, "line 2: must have space, key, and text or base64"),
        (["new.db"], text.replace('"/wAB"', '"?"'), 2, "line 5: must have space"),
        (["new.db"], text.replace('"state"', "3"), 2, "line 4: must have space"),
        (["new.db"], text.replace('"bank/2"', '"\\ud800"'), 2, "line 3: is not JSON"),
        (["new.db", "missing.jsonl"], "", 2, "missing.jsonl: cannot be read: No such file"),
        (["missing/new.db"], text, 3, "it cannot be made: No such file or directory"),
        (["node.db"], text, 2, "node.db: there is such a file already, name a new one"),
        (["new.db", "--into"], text, 2, "there is no such file"),
        (
            ["node.db", "--into"],
            extra,
            2,
            'line 3: "bank/1\\n\\x00\\\\n" is in "journal" already; nothing is',
        ),
    ):
        ran = call("import", *words, stdin=lines)
        assert ran.code == code, (words, ran)
        assert said in ran.err
        assert [each.name for each in tmp_path.iterdir()] == ["node.db"], said
    assert call("export", "node.db").out == text
    more = '{"lmos": "state/v1"}\n{"space": "a", "key": "b", "text": "c"}\n{"records": 1}'
    assert call("import", "node.db", "--into", stdin=more).code == 0
    assert call("show", "node.db", "b").out == "63\n"


def test_a_check_says_what_is_damaged(call: Call, tmp_path: Path) -> None:
    assert call("check", "node.db").out == "node.db: 4 records, 36 bytes, ok\n"
    data = (tmp_path / "node.db").read_bytes()
    (tmp_path / "node.db").write_bytes(data.replace(b"1700", b"9700"))
    ran = call("check", "node.db")
    assert (ran.code, ran.out) == (
        1,
        "node.db: the record 'bank/1' in 'state' has another content than was written\n",
    )
    assert "go on with a backup" in ran.err
    assert call("show", "node.db", "bank/1").code == 1
    (tmp_path / "node.db").write_bytes(data[:9000])
    assert call("check", "node.db").code == 1


HOLDER = """
import sys
from lmos_actors.persistence import Put, SqliteStore
store = SqliteStore("node.db")
store.open()
store.commit([[Put("state", "bank/3", b"new")]], "process")
print("open", flush=True)
sys.stdin.read()
store.commit([[Put("state", "bank/4", b"newer")]], "process")
print(store.get("state", ["bank/3", "bank/4"]), flush=True)
store.close()
"""


@pytest.mark.slow  # its lines: the tests around it
def test_the_file_of_a_node_that_runs(call: Call, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "open\n"
        for words in (
            ["ls", "node.db"],
            ["show", "node.db", "bank/1"],
            ["export", "node.db"],
            ["check", "node.db"],
            ["import", "node.db", "--into"],
        ):
            ran = call(*words, stdin='{"lmos": "state/v1"}\n{"records": 0}\n')
            assert (ran.code, ran.out) == (3, "")
            assert f"process {process.pid} has it open" in ran.err
            assert "lmos-actors state backup copies it meanwhile" in ran.err
        ran = call("backup", "node.db", "copy.db")
        assert (ran.code, ran.err) == (0, "wrote copy.db\n")
        process.stdin.close()
        assert process.stdout.readline() == "[b'new', b'newer']\n"
    assert call("show", "copy.db", "bank/3").out == "6e65 77\n"
    assert call("show", "copy.db", "bank/4").code == 1
    assert call("check", "copy.db").code == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "node.db"]


@needs_redis
def test_a_store_in_a_server(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RedisServer(tmp_path, "--requirepass", "s3cret", "--appendfsync", "always")
    try:
        for prefix in ("desk", "a*[b]?c"):
            _look_into_it(call, server.url(prefix, password="env:REDIS_PASSWORD"), monkeypatch)
    finally:
        server.kill()


def _look_into_it(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = url.partition("&")[0]
    monkeypatch.delenv("REDIS_PASSWORD", raising=False)
    assert "its password: " in call("ls", url).err
    monkeypatch.setenv("REDIS_PASSWORD", "s3cret")
    ran = call("ls", url)
    assert (ran.code, ran.out) == (2, "")
    assert f"{name} failed: there is no store with this prefix; look at the prefix" in ran.err
    assert call("import", url, "--into", stdin=EMPTY).code == 2
    text = call("export", "node.db").out
    ran = call("import", url, stdin=text)
    assert (ran.code, ran.err) == (0, f"{name}: 4 records\n")
    ran = call("import", url, stdin=text)
    assert ran.code == 2
    assert "there is such a store already: --into writes to it" in ran.err
    ran = call("import", url, "--into", stdin=text)
    assert ran.code == 2
    assert 'line 2: "bank/1\\n\\x00\\\\n" is in "journal" already; nothing is imported' in ran.err
    assert call("ls", url).out == call("ls", "node.db").out
    assert call("show", url, "bank/2").out == call("show", "node.db", "bank/2").out
    assert f'{name}: no record has the key "bnk/2", did you mean "bank/2"?' in call("show", url, "bnk/2").err
    assert call("export", url).out == text
    checked = re.escape(name) + r": 4 records, 36 bytes, ok, id [0-9a-f]{16}\n"
    assert re.fullmatch(checked, call("check", url).out)

    async def hold() -> None:
        """Have it open as a node has, which goes on when others have looked into it."""
        async with open_writer(store_of(url)) as writer:
            await writer.submit([Put("state", "bank/3", b"new")]).wait()
            shown = await trio.to_thread.run_sync(call, "show", url, "bank/3")
            assert shown == Ran(0, "6e65 77\n", "")
            await writer.submit([Put("state", "bank/3", b"newer")]).wait()

    trio.run(hold)
    assert call("show", url, "bank/3").out == "6e65 7765 72\n"


@needs_redis
def test_a_server_whose_content_does_not_fit_together(call: Call, tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        assert call("import", server.url(), stdin=call("export", "node.db").out).code == 0
        server.send("ZREM", "{lmos}:k:state", "bank/1")
        ran = call("check", server.url())
        assert (ran.code, ran.out) == (
            1,
            f"{server.url()}: the space 'state' has 2 values, and 1 keys\n",
        )
        server.send("HDEL", "{lmos}:v:state", "bank/2")
        assert "'bank/2' in 'state' has no value" in call("check", server.url()).err
        server.send("HSET", "{lmos}:meta", "version", "2")
        ran = call("check", server.url())
        assert (ran.code, "version 2" in ran.err) == (2, True)
    finally:
        server.kill()
    ran = call("ls", server.url())
    assert (ran.code, ran.out) == (3, "")
    assert "it cannot be reached" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "missing.db"], "there is no such file"),
        (["ls", "."], "it is a folder"),
        (["ls", "redis://host?id=7"], "id must be 16 hexadecimal digits"),
        (["backup", "redis://host", "copy.db"], "a Redis server makes copies of its own"),
        (["show", "redis://:secret@host", "key"], "does not belong in a URL"),
        (["ls", "text.db"], "not a database"),
        (["backup", "missing.db", "copy.db"], "there is no such file"),
        (["backup", "node.db", "text.db"], "there is such a file already"),
        (["backup", "node.db"], "TO"),
        (["list", "node.db"], 'Unknown command "list"'),
    ],
)
def test_wrong_usage(call: Call, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "text.db").write_text("some text " * 100)
    ran = call(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.splitlines()[-1].endswith("--help explains the command")


def test_help_teaches(call: Call) -> None:
    assert "lmos-actors state backup node.db backup.db" in call("--help").out
    assert call().code == 0
    for verb in ("ls", "show", "export", "import", "check", "backup"):
        assert f"lmos-actors state {verb}" in call(verb, "--help").out


def test_turns_in_progress_are_listed(call: Call) -> None:
    kept = b'{"text":"Order 2 chairs.","at":1700000000.0,"resumed":1}'
    store = SqliteStore("node.db")
    store.open()
    store.commit(
        [
            [
                Put("chat turns", "buyer\0ann%2F1\0s-1", kept),
                Put("chat steps", "buyer\0ann%2F1\0s-1\x000000000001", b"1"),
                Put("chat turns", "buyer\0\0s-2", b"broken"),
                Put("chat turns", "foreign", b'{"is_too_large":true}'),
            ]
        ],
        "process",
    )
    store.close()
    assert call("turns", "node.db").out == (
        "1970-01-01 00:00:00Z  buyer - s-2  it cannot be read  \n"
        "2023-11-14 22:13:20Z  buyer ann/1 s-1  1 steps, resumed 1 times  Order 2 chairs.\n"
        "1970-01-01 00:00:00Z  foreign -   it has recorded more than is kept  \n"
    )
    _, turn, _ = json.loads(call("turns", "node.db", "--json").out)
    assert turn == {
        "agent": "buyer", "owner": "ann/1", "session": "s-1", "began": 1700000000.0, "resumed": 1, "steps": 1,
        "text": "Order 2 chairs.", "wrong": "",
    }  # fmt: skip
