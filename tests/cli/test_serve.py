"""`serve`: what it is told, what it says, and how it ends, as a process of its own where that matters."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from lmos_actors import (
    Agent,
    AgentDied,
    ChildSpec,
    ConfigError,
    OutcomeUnknown,
    SupervisorSpec,
    action,
    open_node,
)
from lmos_actors.cli import main
from lmos_actors.cli.serve._announcer import Announcer
from lmos_actors.cli.serve._ending import Ending
from lmos_actors.cli.serve._serve import RESERVED, Serving, door_options
from lmos_actors.cli.serve._targets import planned_of, tree_at
from tests.commands import RunningCommand, called, started
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator

AGENTS = '''
import trio
from lmos_actors import Agent, Property, Ref, action, prop


class Slow(Agent):
    """Takes its time."""

    units: Property[str] = prop(default="celsius")
    limit: int = 3

    @action(concurrency=100)
    async def work(self, seconds: float) -> str:
        await trio.sleep(seconds)
        return f"{self.units} {self.limit}"

    @action
    def hang(self) -> None:
        open("hangs", "x").close()
        while True:
            pass

    @action
    def crash(self) -> None:
        raise KeyError("the key that is not there")


class Shop(Agent, durable=True):
    sold: int = 0

    @action
    def order(self, item: str) -> str:
        self.sold += 1
        return f"{item}, receipt {self.sold}"


class Needy(Agent):
    city: str


class Guide(Agent):
    slow: Ref[Slow]

    @action
    async def work(self) -> str:
        return "guided: " + await self.slow.invoke(Slow.work, 0.0)


class Broken(Agent):
    def started(self) -> None:
        raise RuntimeError("no licence")
'''

TREES = """
from functools import partial

from lmos_actors import ChildSpec, Pool, SupervisorSpec, sibling
from served import Guide, Slow

tree = SupervisorSpec(
    "office",
    [
        ChildSpec("guide", partial(Guide, slow=sibling("back/many"))),
        SupervisorSpec("back", [Pool(partial(Slow, limit=5), 2, name="many")]),
    ],
)
taken = SupervisorSpec("office", [ChildSpec("search", Slow)])
"""


class Slow(Agent):
    """The same, as it is known here."""

    @action(concurrency=100)
    async def work(self, seconds: float) -> str:
        return ""

    @action
    def hang(self) -> None: ...

    @action
    def crash(self) -> None: ...


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "served.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "trees.py").write_text(TREES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("served", "trees"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


# ---- what it is told


def test_targets_are_named_and_given_arguments(project: Path) -> None:
    planned = planned_of(["served.py:Slow", "warm=served:Slow"], ["slow.limit=7", "warm.units=kelvin"])
    assert not isinstance(planned, int)
    assert [each.name for each in planned] == ["slow", "warm"]
    slow, warm = (each.spec({}).factory() for each in planned)
    assert (slow.limit, slow.units, warm.limit, warm.units) == (7, "celsius", 3, "kelvin")


def test_a_text_that_looks_like_json_stays_a_text_where_the_type_is_text(project: Path) -> None:
    for text in ("5", "true", '"5"', "null"):
        planned = planned_of(["served.py:Slow"], [f"units={text}"])
        assert not isinstance(planned, int)
        assert planned[0].spec({}).factory().units == text.strip('"')


WRONG: list[tuple[list[str], list[str], str]] = [
    (["served.py"], [], "the class is missing, as in served.py:"),
    (["=served.py:Slow"], [], "no name before"),
    (["served.py:Slow", "served:Slow"], [], "both called slow"),
    (["served.py:Slow"], ["limit"], "not NAME=VALUE"),
    (["served.py:Slow"], ["limits=3"], 'did you mean "limit"'),
    (["served.py:Slow"], ["limit=many"], "is not JSON"),
    (["served.py:Slow"], ["limit=1.5"], "limit"),
    (["served.py:Slow"], ["slo.limit=3"], 'did you mean "slow"'),
    (["served.py:Slow", "two=served.py:Slow"], ["limit=3"], "as in slow.limit"),
    (["served.py:Needy"], [], "needs city: add --arg needy.city=VALUE"),
    (["served.py:Guide"], [], "needs slow: add --arg guide.slow=TARGET or =URL"),
    (["served.py:Guide", "a=served.py:Slow", "b=served.py:Slow"], [], "needs slow"),
    (["served.py:Guide", "a=served.py:Slow"], ["guide.slow=aa"], 'did you mean "a"'),
    (["a/b=served.py:Slow"], [], "without '/'"),
    (["a.b=served.py:Slow"], [], "use 'a-b'"),
]


@pytest.mark.parametrize(("targets", "arguments", "words"), WRONG, ids=[each[2] for each in WRONG])
def test_errors_name_the_mistake(project: Path, targets: list[str], arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned_of(targets, arguments)
    assert words in str(caught.value)


WRONG_BESIDE_A_TREE: list[tuple[list[str], list[str], str]] = [
    (["guide=served:Slow"], [], '"--tree trees:tree" and "guide=served:Slow" are both called guide'),
    (["back=served:Slow"], [], "are both called back"),
    (["other=served:Guide"], ["slow=back/mny"], 'did you mean "back/many"?'),
    (["served:Slow"], ["guide.slow=x"], '"guide.slow": trees:tree has the arguments of its agents itself'),
    ([], ["limit=3"], '"limit": trees:tree has the arguments of its agents itself'),
]


@pytest.mark.parametrize(
    ("targets", "arguments", "words"), WRONG_BESIDE_A_TREE, ids=[each[2] for each in WRONG_BESIDE_A_TREE]
)
def test_errors_beside_a_tree_name_the_mistake(
    project: Path, targets: list[str], arguments: list[str], words: str
) -> None:
    tree = tree_at("trees:tree")
    assert not isinstance(tree, int)
    with pytest.raises(ConfigError) as caught:
        planned_of(targets, arguments, tree)
    assert words in str(caught.value)


def test_refs_of_targets_lead_to_agents_of_the_tree(project: Path) -> None:
    tree = tree_at("trees.py:tree")
    assert not isinstance(tree, int)
    for arguments in ([], ["other.slow=back/many"]):
        planned = planned_of(["other=served:Guide"], arguments, tree)
        assert not isinstance(planned, int)
        assert planned[0].refs["slow"][1] == "back/many"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "nothing to serve"),
        (["trees.py:tree"], 2, '"tree" in trees.py is a tree, not a class: "serve --tree" takes it'),
        (["--tree", "trees.py"], 2, '"trees.py" is not path/file.py:tree'),
        (["--tree", "trees:tre"], 2, 'no SupervisorSpec "tre" in trees, did you mean "tree"?'),
        (["--tree", "served:Slow"], 2, '"Slow" in served is not a SupervisorSpec'),
        (["--tree", "tres:tree"], 2, 'no module "tres"'),
        (["--tree", "trees:taken"], 2, "serves something else at /search"),
        (["served.py:Slwo"], 2, 'did you mean "Slow"'),
        (["nowhere.py:Slow"], 2, 'no file "nowhere.py"'),
        (["ws=served.py:Slow"], 2, "serves something else at /ws"),
        (["served.py:Slow", "--listen", "wss://127.0.0.1:0"], 2, "needs a certificate: --cert FILE"),
        (["served.py:Slow", "--listen", "ws://127.0.0.1:0", "--cert", "none.pem"], 2, "none.pem: "),
        (["served.py:Slow", "--key", "key.pem"], 2, "goes with --cert"),
        (
            ["served.py:Broken", "--listen", "ws://127.0.0.1:0"],
            3,
            "broken could not start: RuntimeError: no licence",
        ),
        (
            ["served.py:Guide", "--listen", "ws://127.0.0.1:0", "--arg", "slow=ws://127.0.0.1:1/agents/slow"],
            3,
            "cannot connect to ws://127.0.0.1:1/agents/slow",
        ),
    ],
)
def test_what_cannot_be_served_has_an_exit_code(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", *words])
    printed = capsys.readouterr()
    assert (caught.value.code, printed.out) == (code, "")
    assert said in printed.err


def test_it_says_what_its_end_waits_for(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = planned_of(["served.py:Slow"], [])
    assert not isinstance(planned, int)
    [child] = [each.spec({}) for each in planned]
    tree = SupervisorSpec("root", [ChildSpec("slow", child.factory, shutdown="infinity")])
    opened = partial(open_node, tree, listen="ws://here:80")

    async def main() -> None:
        async with open_node() as node, trio.open_nursery() as nursery:
            nursery.start_soon(Serving(Announcer(json=True), None).run, opened)
            await trio.sleep(1.0)
            far = await node.consume(Slow, "ws://here/agents/slow")
            async with far.begin(Slow.work, 6.0) as call:
                await trio.sleep(1.0)
                signal.raise_signal(signal.SIGTERM)
                assert await call.result() == "celsius 3"

    trio.run(main, clock=MockClock(autojump_threshold=0))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[2] == {"event": "page", "url": "http://here/"}
    assert [each["event"] for each in said[4:]] == ["draining", "waiting", "waiting", "stopped"]
    assert said[5] == {"event": "waiting", "agents": {"slow": 1}, "connections": 1}


@pytest.mark.parametrize(
    ("second", "end"), [(signal.SIGINT, "ended"), (signal.SIGTERM, "stopped")], ids=["another", "the same"]
)
def test_a_second_signal_may_come_right_after_the_first(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    second: signal.Signals,
    end: str,
) -> None:
    """A SIGTERM that comes with another is the same: `timeout` sends it to the process and its group."""

    announcer = Announcer(json=True)

    def hasty(name: str) -> None:
        Announcer.draining(announcer, name)
        signal.raise_signal(second)

    async def main() -> None:
        tree = SupervisorSpec("root", [ChildSpec("slow", Slow, shutdown="infinity")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Serving(announcer, None).run, partial(open_node, tree, listen="ws://x"))
            await trio.sleep(1.0)
            signal.raise_signal(signal.SIGTERM)

    def gone(code: int) -> None:
        raise AssertionError(code)

    monkeypatch.setattr(announcer, "draining", hasty)
    monkeypatch.setattr(os, "_exit", gone)
    trio.run(main, clock=MockClock(autojump_threshold=0))
    said = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert said[-2:] == ["draining", end]


# ---- as a process


class Served:
    """A process that serves, and the lines that it has said."""

    def __init__(self, process: RunningCommand) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    def until(self, event: str) -> dict[str, Any]:
        """Read lines up to one of that kind."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == event:
                return self.said[-1]
        raise AssertionError(f"no {event!r} in {self.said}")

    @property
    def url(self) -> str:
        return str(next(each["url"] for each in self.said if each["event"] == "agent"))

    def end(self) -> tuple[int, list[str]]:
        """Give the exit code, and the events that were told since."""
        out, self.errors = self.process.communicate()
        return self.process.wait(), [json.loads(line)["event"] for line in out.splitlines()]


@contextmanager
def serving(*words: str, listen: str = "ws://127.0.0.1:0") -> Generator[Served]:
    with started(("serve", *words, "--listen", listen), Path.cwd()) as process:
        served = Served(process)
        try:
            served.until("ready")
            yield served
        finally:
            process.kill()


def test_all_requests_accepted_before_the_stop_are_answered(project: Path) -> None:
    answers: list[str] = []

    async def ask(far: Any) -> None:
        answers.append(await far.invoke(Slow.work, 0.5))

    async def client(served: Served) -> None:
        async with open_node() as node:
            far = await node.consume(Slow, served.url)
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(ask, far)
                await trio.testing.wait_all_tasks_blocked()
                await far.invoke(Slow.work, 0.0)  # those before it have come: one connection keeps order
                served.process.send_signal(signal.SIGTERM)

    with serving("served.py:Slow", "--arg", "limit=9") as served:
        trio.run(client, served)
        assert served.end() == (0, ["draining", "stopped"]), served.errors
    assert answers == ["celsius 9"] * 50


def test_a_request_with_a_key_is_carried_out_once_over_a_kill_of_the_server(project: Path) -> None:
    def call(served: Served, *words: str, url: str = "http") -> tuple[int, str]:
        agent = served.url if url == "http" else served.url.replace("http:", "ws:")
        ended = called(("call", agent, "order", "item=tea", *words, "--raw"), project, timeout=30)
        return ended.returncode, ended.stdout + ended.stderr

    for _ in range(2):
        with serving("served.py:Shop", "--store", "sqlite:shop.db") as served:  # and killed
            assert call(served, "--request-key", "order-17") == (0, "tea, receipt 1\n")
    with serving("served.py:Shop", "--store", "sqlite:shop.db") as served:
        code, refused = call(served, "--request-key", "order-17", url="ws")
        assert code == 2
        assert "--request-key: needs a description of the agent" in refused
        assert call(served, "--request-key", "order-18") == (0, "tea, receipt 2\n")


def test_a_tree_is_served_with_its_pools_and_with_targets_beside_it(project: Path) -> None:
    async def client(served: Served) -> None:
        urls = {each["name"]: each["url"] for each in served.said if each["event"] == "agent"}
        assert list(urls) == ["guide", "back/many", "slow"]
        async with open_node() as node:
            guide = await node.consume_thing(urls["guide"])
            assert await guide.invoke("work") == "guided: celsius 5"
            for name, limit in (("back/many", 5), ("slow", 9)):
                far = await node.consume(Slow, urls[name])
                assert await far.invoke(Slow.work, 0.0) == f"celsius {limit}"

    with serving("--tree", "trees.py:tree", "served.py:Slow", "--arg", "limit=9") as served:
        trio.run(client, served)


@pytest.mark.parametrize("way", ["work", "hang"])
def test_a_second_signal_ends_it_at_once(project: Path, way: str) -> None:
    async def client(served: Served) -> None:
        async with open_node() as node:
            far = await node.consume(Slow, served.url)
            async with far.begin(Slow.work, 600.0):
                await far.invoke(Slow.work, 0.0)
                if way == "hang":
                    await far.tell(Slow.hang)
                    while not (project / "hangs").exists():  # noqa: ASYNC110 -- another process
                        await trio.sleep(0.01)
                served.process.send_signal(signal.SIGINT)
                if way == "work":
                    await trio.to_thread.run_sync(served.until, "draining")
                    served.process.send_signal(signal.SIGINT)
                while way == "hang" and served.process.poll() is None:  # those that wait may come as one
                    served.process.send_signal(signal.SIGINT)
                    await trio.sleep(0.1)
                assert await trio.to_thread.run_sync(served.end) == (130, ["ended"] if way == "work" else [])

    with serving("served.py:Slow") as served:
        trio.run(client, served)


def test_agents_that_crash_too_often_end_it(project: Path) -> None:
    async def client(served: Served) -> None:
        async with open_node() as node:
            far = await node.consume(Slow, served.url)
            for _ in range(4):
                await far.ready()  # a request that is alone may come before the restart
                with pytest.raises(AgentDied):
                    await far.invoke(Slow.crash)

    with serving("served.py:Slow") as served:
        trio.run(client, served)
        code, _ = served.end()
    assert code == 3
    assert "more than 3 restarts in 5 s" in served.errors
    assert "KeyError: 'the key that is not there'" in served.errors


@pytest.mark.parametrize(
    ("descriptors", "doors", "most", "half_open"),
    [(1 << 20, 1, 10_000, 256), (1024, 1, 768, 192), (256, 1, 153, 38), (256, 3, 51, 12), (8, 20, 1, 1)],
)
def test_who_connects_leaves_descriptors_for_others(
    descriptors: int, doors: int, most: int, half_open: int
) -> None:
    options = door_options(descriptors, doors)
    assert (options.max_connections, options.max_half_open) == (most, half_open)
    # those who are told that there is no place have one for a moment: as many as may be half open
    assert doors * (most + half_open) <= max(descriptors - RESERVED, 2 * doors)


def test_an_address_that_is_taken_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving("served.py:Slow") as served:
        address = served.url.split("/")[2]
        with pytest.raises(SystemExit) as caught:
            main(["serve", "served.py:Slow", "--listen", f"ws://{address}"])
        assert caught.value.code == 3
        assert f"cannot listen at {address}: " in capsys.readouterr().err
        served.process.kill()
        assert served.end() == (-signal.SIGKILL, [])


def test_agents_are_given_refs_to_each_other_and_to_those_of_others(project: Path) -> None:
    async def ask(url: str) -> str:
        async with open_node() as node:
            thing = await node.consume_thing(url)
            return str(await thing.invoke("work"))

    with serving("served.py:Guide", "served.py:Slow", "--arg", "slow.limit=5") as near:
        assert [each["name"] for each in near.said if each["event"] == "agent"] == ["slow", "guide"]
        urls = [each["url"] for each in near.said if each["event"] == "agent"]
        assert trio.run(ask, urls[1]) == "guided: celsius 5"
        with serving("served.py:Guide", "--arg", f"slow={urls[0]}") as far:
            assert trio.run(ask, far.url) == "guided: celsius 5"


def test_it_serves_over_tls(project: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path("both.pem")
    public = ("--public-url", "wss://agents.example.org")
    with serving("served.py:Slow", "--cert", "both.pem", *public, listen="wss://127.0.0.1:0") as served:
        assert served.url == "https://agents.example.org/agents/slow"
        served.process.send_signal(signal.SIGTERM)
        assert served.end() == (0, ["draining", "stopped"])


def test_the_examples_of_its_help_are_in_the_repository(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who copies one can copy the next: the agent is called as it is asked for, and has that property."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = capsys.readouterr().out
    examples = [line.split()[2:] for line in said.splitlines() if line.startswith("lmos-actors serve ")]
    for example in examples:
        targets = [word for word in example if word.endswith("Agent")]
        given = [example[at + 1] for at, word in enumerate(example) if word == "--arg"]
        planned = planned_of(targets, given)
        assert not isinstance(planned, int), example
        assert example is not examples[0] or [each.name for each in planned] == ["weather"]
    assert len(examples) >= 5
    assert "lmos-actors read http://127.0.0.1:8080/agents/weather units" in said
    assert "    units: Property[" in (ROOT / "agents/weather.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("seconds", "answered"), [(3.0, True), (60.0, False)])
def test_an_action_that_takes_longer_than_the_time_to_drain_is_cut_off(
    project: Path, capsys: pytest.CaptureFixture[str], seconds: float, answered: bool
) -> None:
    planned = planned_of(["served.py:Slow"], [])
    assert not isinstance(planned, int)
    tree = SupervisorSpec("root", [each.spec({}) for each in planned])
    opened = partial(open_node, tree, listen="ws://here:80")

    async def main() -> None:
        ending = Ending(4.0, spread=1.0)
        async with open_node() as node, trio.open_nursery() as nursery:
            nursery.start_soon(Serving(Announcer(json=True), None, ending=ending).run, opened)
            await trio.sleep(1.0)
            far = await node.consume(Slow, "ws://here/agents/slow")
            async with far.begin(Slow.work, seconds) as call:
                await trio.sleep(1.0)
                signal.raise_signal(signal.SIGTERM)
                if answered:
                    assert await call.result() == "celsius 3"
                else:
                    with pytest.raises((OutcomeUnknown, AgentDied)):
                        await call.result()
                    assert trio.current_time() == pytest.approx(7.0)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    said = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert said[-1] == "stopped"
