"""`replay`, `diff` and `run --update-recordings`, as users call them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lmos_actors.cli import main
from tests.scenario.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENTS = '''\
from __future__ import annotations

import trio

from lmos_actors import Agent, Event, Property, Ref, Secret, action, event, prop


class Store(Agent):
    """Sells what it has."""

    stock: Property[int] = prop(default=5)
    sold: Event[int] = event()
    key: Secret[str] = "geheim"

    @action
    async def buy(self, count: int) -> int:
        await trio.sleep(0.5)
        self.stock -= count
        self.sold.emit(count)
        return self.stock


class Buyer(Agent):
    """Buys one after the other."""

    store: Ref[Store]
    left: int = 0

    @action(concurrency=4)
    async def order(self, count: int) -> int:
        self.left = await self.store.invoke(Store.buy, count)
        return self.left
'''

STORY = """\
lmos: scenario/v1
name: shop
vars: {count: {type: integer, default: 1}}
agents:
  store: {from: agent, use: "shop_agents.py:Store"}
  buyer: {from: agent, use: "shop_agents.py:Buyer", args: {store: $(agents.store)}}
steps:
  - {do: invoke, target: buyer, action: order, input: {count: $(vars.count)}, id: first, wait: false}
  - {do: invoke, target: buyer, action: order, input: {count: 1}, save: {left: $.output}}
  - {do: expect, that: value, of: $(saved.left), le: 5}
  - {do: expect, that: output, of: first, ge: 0}
  - {do: inject, fault: {kind: crash, target: store}}
  - {do: invoke, target: buyer, action: order, input: {count: 2}}
"""


@attrs.frozen
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("shop"))
    made.write("pyproject.toml", "")
    made.write("shop_agents.py", AGENTS)
    made.write("shop.yaml", STORY)
    yield made
    sys.path[:] = path
    sys.modules.pop("shop_agents", None)


@pytest.fixture
def call(shop: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(shop.root)

    def call(*words: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            main(words)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Said(int(exited.value.code or 0), said.out, said.err)

    return call


@pytest.fixture
def log(call: Any) -> str:
    """Record one run."""
    said = call("run", "shop.yaml", "--log", "log.jsonl", "--check-determinism", "off")
    assert said.code == 0, said.out + said.err
    return "log.jsonl"


def change(name: str, old: str, new: str, to: str = "changed.jsonl") -> str:
    text = Path(name).read_text(encoding="utf-8")
    assert old in text
    Path(to).write_text(text.replace(old, new, 1), encoding="utf-8")
    return to


# --- replay


def test_a_recorded_run_gives_the_same_log_again(call: Any, log: str) -> None:
    said = call("replay", log)
    assert said.code == 0
    assert said.out.startswith("seed=1: equal, ")
    data = call("replay", log, "--json").data
    assert data["equal"]
    assert data["difference"] is None
    assert data["ended"] == "passed"
    assert data["changed"] == []
    assert data["exit_code"] == 0


@pytest.mark.slow
def test_settings_seed_and_values_are_those_of_the_log(call: Any) -> None:
    assert call("run", "shop.yaml", "--set", "count=2", "--seed", "9", "--log", "set.jsonl").code == 0
    assert call("replay", "set.jsonl").out.startswith("seed=9: equal, ")


def test_a_different_run_is_reported_with_the_first_difference(call: Any, log: str) -> None:
    said = call("replay", change(log, '"value":4', '"value":3'))
    assert said.code == 4
    assert "note: changed.jsonl: the log was changed after it was written" in said.out
    recorded, now = said.out.splitlines()[-2:]
    assert "recorded" in recorded
    assert "buy = 3" in recorded
    assert "buy = 4" in now
    data = call("replay", "changed.jsonl", "--json").data
    assert [field["name"] for field in data["difference"]["fields"]] == ["value"]
    assert data["exit_code"] == 4


def test_replay_reports_what_has_changed_since(shop: Project, log: str) -> None:
    """In a process of its own: the agents' modules are imported once.

    The other text is longer: of the same length, and in the same second, Python takes one's bytecode for the
    other's.
    """
    shop.write("shop_agents.py", AGENTS.replace("sleep(0.5)", "sleep(0.625)"))
    shop.write("shop.yaml", STORY + "# a remark\n")
    try:
        ran = shop.command("replay", log)
    finally:
        shop.write("shop_agents.py", AGENTS)
        shop.write("shop.yaml", STORY)
    assert ran.code == 4
    assert "note: the scenario file has changed" in ran.out
    assert "note: shop_agents.py has changed" in ran.out


def test_a_log_that_was_cut_short_is_compared_as_far_as_it_goes(call: Any, log: str) -> None:
    Path("cut.jsonl").write_text(Path(log).read_text(encoding="utf-8")[:-300], encoding="utf-8")
    said = call("replay", "cut.jsonl")
    assert said.code == 2
    assert "note: cut.jsonl: the log was cut short" in said.out
    assert "equal as far as the log goes" in said.out


@pytest.mark.parametrize("at", ["0s", "250ms", "500ms", "700ms", "1s", "1200ms"])
def test_a_run_is_looked_at_at_an_instant(call: Any, log: str, at: str) -> None:
    """And what came before is what comes in the whole run: the prefix of the log is held against it."""
    data = call("replay", log, "--at", at, "--json").data
    assert data["equal"]
    assert data["exit_code"] == 0
    snapshot = data["snapshot"]
    lines = [json.loads(line) for line in Path(log).read_text(encoding="utf-8").splitlines()]
    before = [line for line in lines if "n" in line and line["t"] <= snapshot["at"]]
    assert snapshot["n"] == len(before)


def test_the_state_of_every_agent_is_shown_without_secrets(call: Any, log: str) -> None:
    said = call("replay", log, "--at", "700ms")
    assert said.code == 0
    assert "seed=1: at 0.700000 s, after record" in said.out
    assert "store (Store) running #1, mailbox 1/64" not in said.out
    assert "  stock: 4" in said.out
    assert "  key: " in said.out
    assert "geheim" not in said.out
    assert '  runs: invoke buy {"count": 1} from buyer' in said.out
    assert "root one_for_one" in said.out
    assert "last records" in said.out
    alone = call("replay", log, "--at", "700ms", "--agent", "store").out
    assert "store (Store)" in alone
    assert "buyer (Buyer)" not in alone


def test_a_run_is_looked_at_before_a_message_is_handled(call: Any, log: str) -> None:
    data = call("replay", log, "--break", "agent=store action=buy nth=3", "--json").data
    (store,) = [agent for agent in data["snapshot"]["agents"] if agent["path"] == "store"]
    assert (store["incarnation"], store["state"]["stock"]) == (2, 5)
    assert json.loads(data["snapshot"]["recent"][-1])["kind"] == "delivered"
    crashed = call("replay", log, "--break", "kind=crashed", "--json").data["snapshot"]
    assert [agent["state"] for agent in crashed["agents"] if agent["path"] == "store"] == [None]
    number = call("replay", log, "--break", f"n={crashed['n']}", "--json").data["snapshot"]
    assert number == crashed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "1h"], "the run never came there; it ended at 1.5 s: passed"),
        (["--break", "agent=store kind=dead_letter"], "the run never came there"),
    ],
)
def test_a_point_outside_the_run_is_an_error(call: Any, log: str, words: list[str], message: str) -> None:
    said = call("replay", log, *words)
    assert said.code == 2
    assert message in said.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.jsonl"], "none.jsonl: no such file"),
        (["shop.yaml"], "shop.yaml:1:1: is not a message log"),
        (["log.jsonl", "--at", "1s", "--break", "n=1"], "give --at or --break, not both"),
        (["log.jsonl", "--break", "actoin=x"], 'no key "actoin", did you mean "action"'),
        (["log.jsonl", "--run", "0"], "--run: must be at least 1"),
        (["log.jsonl", "--run", "2"], "there are 1 runs in log.jsonl, none is number 2"),
        (["log.jsonl", "--agent", "store"], "give --at or --break too"),
        (["log.jsonl", "--at", "1s", "--agent", "stroe"], 'no agent "stroe", did you mean "store"'),
        (["log.jsonl", "--file", "other.yaml"], "other.yaml: no such file"),
    ],
)
def test_errors_name_the_mistake(call: Any, log: str, words: list[str], message: str) -> None:
    said = call("replay", *words)
    assert said.code == 2
    assert message in said.err


@pytest.mark.slow
def test_of_several_runs_one_is_named(call: Any) -> None:
    assert call("run", "shop.yaml", "--seeds", "1,2", "--log", "two.jsonl").code == 0
    said = call("replay", "two.jsonl")
    assert said.code == 2
    assert "holds 2 runs: --run 1 is seed=1, --run 2 is seed=2" in said.err
    assert call("replay", "two.jsonl", "--run", "2").out.startswith("seed=2: equal")


def test_a_log_that_does_not_say_its_run_cannot_be_replayed(call: Any, log: str) -> None:
    said = call("replay", change(log, '"run":{', '"ran":{'))
    assert said.code == 2
    assert "says nothing of how to repeat its run" in said.err


def test_a_run_that_is_not_in_the_file_any_more(call: Any, log: str) -> None:
    said = call("replay", change(log, '"label":"seed=1"', '"label":"city=Bonn seed=1"'))
    assert said.code == 2
    assert 'shop.yaml has no run "city=Bonn seed=1" any more' in said.err


def test_the_scenario_is_looked_for_beside_the_log_too(call: Any, log: str, tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    assert call("replay", str(here / log)).out.startswith("seed=1: equal")
    (tmp_path / "moved.jsonl").write_text((here / log).read_text(encoding="utf-8"), encoding="utf-8")
    said = call("replay", "moved.jsonl")
    assert said.code == 2
    assert 'its scenario file "shop.yaml" is not here: say --file PATH' in said.err
    said = call("replay", "moved.jsonl", "--file", str(here / "shop.yaml"))
    assert said.out.startswith("seed=1: equal")


# --- diff


def test_equal_logs_are_equal(call: Any, log: str) -> None:
    said = call("diff", log, log)
    assert said.code == 0
    assert said.out.startswith("equal: ")
    assert call("diff", log, log, "--json").data["equal"]


def test_the_first_difference_is_shown_with_what_is_around_it(call: Any, log: str) -> None:
    said = call("diff", log, change(log, '"value":4', '"value":3'), "--context", "1")
    assert said.code == 1
    assert "note: changed.jsonl:1: the log was changed after it was written" in said.out
    assert "differs in value: 4 | 3" in said.out
    marked = [line for line in said.out.splitlines() if line.lstrip()[:1] in ("<", ">")]
    assert "buy = 4" in marked[0]
    assert "buy = 3" in marked[2]
    assert len(marked) == 4
    data = call("diff", log, "changed.jsonl", "--json").data
    assert not data["equal"]
    assert data["divergence"]["fields"] == [{"name": "value", "first": 4, "second": 3}]
    assert data["common"] == data["before"][-1]["n"]


@pytest.mark.slow
def test_runs_of_two_seeds_differ_in_their_heads(call: Any, log: str) -> None:
    assert call("run", "shop.yaml", "--seed", "2", "--log", "other.jsonl").code == 0
    said = call("diff", log, "other.jsonl")
    assert said.code == 1
    assert "the heads differ: seed  1 | 2" in said.out
    assert "run.file" not in said.out


@pytest.mark.slow
def test_logs_of_several_runs_are_compared_run_by_run(call: Any, log: str) -> None:
    assert call("run", "shop.yaml", "--seeds", "1,2", "--log", "two.jsonl").code == 0
    said = call("diff", log, "two.jsonl")
    assert said.code == 1
    assert "the number of runs differs: 1 run in log.jsonl, 2 runs in two.jsonl" in said.out
    assert call("diff", log, "two.jsonl", "--run", "1").code == 0
    text = Path("two.jsonl").read_text(encoding="utf-8")
    first, second = text.split('\n{"schema"')
    Path("mixed.jsonl").write_text(
        first + '\n{"schema"' + second.replace('"stock"', '"stick"', 1).replace("buy", "bye"),
        encoding="utf-8",
    )
    said = call("diff", "two.jsonl", "mixed.jsonl", "--json")
    assert said.code == 1
    assert said.data["first"]["run"] == "seed=2"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["log.jsonl", "none.jsonl"], "none.jsonl: no such file"),
        (["shop.yaml", "log.jsonl"], "shop.yaml:1:1: is not a message log"),
        (["log.jsonl", "log.jsonl", "--run", "3"], "none is number 3"),
        (["log.jsonl", "log.jsonl", "--context", "-1"], "must be at least 0"),
    ],
)
def test_logs_that_cannot_be_compared(call: Any, log: str, words: list[str], message: str) -> None:
    said = call("diff", *words)
    assert said.code == 2
    assert message in said.err


# --- recordings

REPLAYED = STORY.replace(
    'store: {from: agent, use: "shop_agents.py:Store"}',
    'store: {from: replay, log: tapes/store.jsonl, use: "shop_agents.py:Store"}',
)


def test_recordings_are_made_and_made_anew(call: Any, shop: Project) -> None:
    shop.write("replayed.yaml", REPLAYED)
    said = call("validate", "replayed.yaml")
    assert said.code == 2
    assert "tapes/store.jsonl: no such file, run --update-recordings writes it" in said.err
    said = call("run", "replayed.yaml", "--update-recordings", "--seeds", "1,2")
    assert said.code == 0
    assert "recorded 2 runs: tapes/store.jsonl" in said.out
    assert call("run", "replayed.yaml", "--seeds", "1,2", "--check-determinism", "off").code == 0
    assert [path.name for path in Path("tapes").iterdir()] == ["store.jsonl"]
    whole = Path("tapes/store.jsonl").read_text(encoding="utf-8")
    assert call("run", "replayed.yaml", "--update-recordings", "--seed", "2").code == 0
    assert sorted(Path("tapes/store.jsonl").read_text(encoding="utf-8").splitlines()) == sorted(
        whole.splitlines()
    )


def test_a_replay_takes_the_place_of_the_agent_and_never_calls_it(call: Any, shop: Project) -> None:
    shop.write("replayed.yaml", REPLAYED)
    assert call("run", "replayed.yaml", "--update-recordings").code == 0
    said = call("run", "replayed.yaml", "--set", "count=3", "--check-determinism", "off")
    assert said.code == 1
    assert 'a recorded invoke buy {"count": 3} from buyer' in said.out
    assert 'the nearest is {"count": 1} (tapes/store.jsonl:' in said.out


def test_what_fails_is_not_recorded(call: Any, shop: Project) -> None:
    shop.write("replayed.yaml", REPLAYED)
    assert call("run", "replayed.yaml", "--update-recordings").code == 0
    before = Path("tapes/store.jsonl").read_bytes()
    shop.write("replayed.yaml", REPLAYED.replace("le: 5", "le: 0"))
    said = call("run", "replayed.yaml", "--update-recordings")
    assert said.code == 1
    assert "nothing is recorded, as not every run passed" in said.err
    assert Path("tapes/store.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STORY, "has no agent from: replay, there is nothing to record"),
        (
            REPLAYED.replace(', use: "shop_agents.py:Store"', ""),
            '"store" cannot be recorded anew: it has no "use"',
        ),
        (REPLAYED.replace("tapes/store.jsonl", "shop.yaml/log"), "cannot be written"),
    ],
)
def test_what_cannot_be_recorded(call: Any, shop: Project, text: str, message: str) -> None:
    shop.write("wrong.yaml", text)
    said = call("run", "wrong.yaml", "--update-recordings")
    assert said.code == 2
    assert message in said.err
