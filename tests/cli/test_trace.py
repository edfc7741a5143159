"""`trace`, as users call it, and what is made of its log and of the one that the page of a node saves."""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, ChildSpec, Ref, Secret, SupervisorSpec, action, open_node, sibling
from lmos_actors.cli import main
from lmos_actors.transport import TcpNetwork
from tests.chromium import browser as browser, opened
from tests.commands import called

if TYPE_CHECKING:
    from pathlib import Path

    from lmos_actors import Node

URL = "http://127.0.0.1:8080/"
HEAD = {"schema": "lmos-actors/trace/v1", "seed": None, "run": {"watched": URL, "label": URL}}


class Stock(Agent):
    """Has things."""

    @action
    async def take(self, name: str, pin: Secret[str] = "") -> list[str]:
        return [name, "x" * 5_000] if name == "much" else [name]


class Desk(Agent):
    """Asks the stock."""

    stock: Ref[Stock]

    @action
    async def order(self, name: str, count: int | None = None) -> int:
        return len(await self.stock.invoke(Stock.take, name, "pin-of-1234"))


TREE = SupervisorSpec(
    "root", [ChildSpec("stock", Stock), ChildSpec("desk", partial(Desk, stock=sibling("stock")))]
)


def lines_of(*records: dict[str, Any], whole: bool = True) -> str:
    """Return a log of records."""
    numbered = ({"n": n, "t": n / 10, **each} for n, each in enumerate(records, start=1))
    text = "".join(f"{json.dumps(line)}\n" for line in (HEAD, *numbered))
    end = {"end": len(records), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return f"{text}{json.dumps(end)}\n" if whole else text


def request(number: int, **more: Any) -> list[dict[str, Any]]:
    own = {"agent": "desk", "affordance": "order", "id": number}
    sent = {"kind": "sent", **own, "trace": number, "verb": "invoke", "from": "user", **more}
    return [sent, {"kind": "delivered", **own}, {"kind": "answered", **own, "value": number}]


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


# ---- what is made of a log


def test_a_scenario_of_a_log_leaves_out_what_the_log_has_as_text_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two = [*request(1, input={"name": "tea"}), *request(2, input="{'name': 'xxx…", text=["input"])]
    (tmp_path / "seen.jsonl").write_text(lines_of(*two))
    assert ran("replay", "seen.jsonl", "--as-scenario", "seen.yaml") == 0
    assert "1 request to 1 agent; left out, as the log has not all of what was given: 1" in (
        capsys.readouterr().out
    )
    made = (tmp_path / "seen.yaml").read_text()
    assert "input: {name: tea}" in made
    assert "xxx" not in made
    assert ran("run", "seen.yaml", "--check-determinism", "off") == 0


def test_a_log_that_the_page_could_not_end_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.jsonl").write_text(lines_of(*request(1, input={"name": "tea"}), whole=False))
    assert ran("replay", "seen.jsonl", "--as-scenario", "seen.yaml") == 0


def test_a_log_of_a_node_does_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "seen.jsonl"
    log.write_text(lines_of(*request(1)))
    assert ran("replay", str(log)) == 2
    assert "what was seen of a node, which does not run again: --as-scenario" in capsys.readouterr().err


def test_a_page_of_a_log_says_that_nothing_was_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, page = tmp_path / "seen.jsonl", tmp_path / "seen.html"
    log.write_text(lines_of(*request(1, input={"name": "tea"})))
    assert ran("replay", str(log), "--html", str(page)) == 0
    assert "3 records" in capsys.readouterr().out
    assert "passed" not in re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    log.write_text(lines_of(*request(1)).replace('"id": 1', '"id": 7'))
    assert ran("replay", str(log), "--html", str(page)) == 0, "one that was changed is shown, too"
    assert ran("replay", str(log), "--html", str(page), "--run", "2") == 2
    assert ran("replay", str(log), "--html", str(page), "--at", "1s") == 2
    (tmp_path / "none.jsonl").write_text("no log")
    assert ran("replay", str(tmp_path / "none.jsonl"), "--html", str(page)) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("weather",), "is no URL of a node"),
        ((URL, "--trace", "x"), "--trace"),
        ((URL, "--log", "there.jsonl"), "is there already, and is not written over"),
    ],
)
def test_wrong_usage_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.jsonl").write_text("")
    assert ran("trace", *words) == 2
    assert named in capsys.readouterr().err


# ---- a node


async def run(folder: Path, *words: str) -> Any:
    return await trio.to_thread.run_sync(partial(called, words, folder, timeout=100))


async def ask_until(node: Node, names: tuple[str, ...], *, done: trio.Event) -> None:
    """Ask again and again: messages are recorded only once somebody looks."""
    while not done.is_set():
        for name in names:
            await node.find(Desk).invoke(Desk.order, name)
        with trio.move_on_after(0.3):
            await done.wait()


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_messages_are_printed_and_a_log_of_them_is_a_scenario(tmp_path: Path) -> None:
    done = trio.Event()
    async with (
        open_node(TREE, listen="ws://127.0.0.1:0", network=TcpNetwork(), allow_operations=True) as node,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(ask_until, node, ("tea",), done=done))
        url = node.urls[0].replace("ws:", "http:")
        seen = await run(tmp_path, "trace", url, "--once", "--log", "seen.jsonl", "--within", "60s")
        only = await run(tmp_path, "trace", url, "--agent", "stock", "--once", "--within", "60s")
        refused = await run(tmp_path, "trace", url, "--agent", "x" * 5_000, "--within", "60s")
        done.set()
    assert seen.returncode == 0, seen.stderr
    lines = [json.loads(line) for line in seen.stdout.splitlines()]
    first = [each for each in lines if each["trace"] == lines[0]["trace"]]
    assert [(each["kind"], each["agent"]) for each in first] == [
        *(("sent", "desk"), ("delivered", "desk"), ("sent", "stock"), ("delivered", "stock")),
        *(("answered", "stock"), ("answered", "desk")),
    ]
    assert (lines[0]["t"], first[0]["input"]) == (0.0, {"name": "tea", "count": None})
    assert first[2]["input"] == {"name": "tea", "pin": "***"}
    assert "pin-of-1234" not in seen.stdout
    assert {json.loads(line)["agent"] for line in only.stdout.splitlines()} == {"stock"}
    assert (refused.returncode, "INVALID" in refused.stderr) == (1, True)
    await judge(tmp_path)


async def judge(folder: Path) -> None:
    """Check that a log is one for `replay`, `diff`, and the page for people."""
    made = await run(folder, "replay", "seen.jsonl", "--as-scenario", "seen.yaml")
    assert made.returncode == 0, made.stderr
    passed = await run(folder, "run", "seen.yaml")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert (await run(folder, "diff", "seen.jsonl", "seen.jsonl")).stdout.startswith("equal")
    assert (await run(folder, "replay", "seen.jsonl", "--html", "seen.html")).returncode == 0


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(200)
async def test_what_the_page_saves_is_such_a_log(tmp_path: Path, browser: str) -> None:
    done = trio.Event()
    async with (
        open_node(TREE, listen="ws://127.0.0.1:0", allow_operations=True) as node,
        opened(browser) as page,
        trio.open_nursery() as nursery,
    ):
        assert node.page_url is not None
        await page.visit(f"{node.page_url}#view=flow")
        nursery.start_soon(partial(ask_until, node, ("tea", "much"), done=done))
        await page.until("document.querySelectorAll('.diagram .row').length > 8")
        await page.run(
            "window.saved = null; const make = URL.createObjectURL.bind(URL);"
            " URL.createObjectURL = (blob) => { blob.text().then((text) => { saved = text; });"
            " return make(blob); };"
            " [...document.querySelectorAll('button')].find((one) => one.textContent === 'Save').click()"
        )
        text = await page.until("saved")
        done.set()
    (tmp_path / "seen.jsonl").write_text(text, encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()][1:-1]
    assert (records[0]["n"], records[0]["t"]) == (1, 0)
    assert {"name": "tea", "count": None} in [each.get("input") for each in records]
    much = [each for each in records if each["agent"] == "stock" and each.get("text") == ["value"]]
    assert much
    assert all(each["value"].startswith("['much', 'xxx") for each in much)
    await judge(tmp_path)
