"""`top`, `tree`, `inspect` and `deadletters`: what they show of a node, and their exit codes."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import Agent, AgentDied, ChildSpec, Secret, SupervisorSpec, action, open_node
from lmos_actors.cli import main
from lmos_actors.security import Access, Bearer, Security
from lmos_actors.transport import TcpNetwork
from tests.commands import called

if TYPE_CHECKING:
    from pathlib import Path


class Till(Agent):
    """Takes money."""

    pin: Secret[str] = "very-secret"

    @action
    def pay(self, amount: int) -> None: ...

    @action
    async def wait(self) -> None:
        await trio.sleep_forever()

    @action
    def fail(self) -> None:
        raise RuntimeError("no \x1b[31mchange")


TREE = SupervisorSpec("root", [SupervisorSpec("shop", [ChildSpec("till", Till)])])
LISTEN = "ws://127.0.0.1:0"


@attrs.frozen
class Ran:
    code: int
    lines: list[dict[str, Any]]
    error: str


async def ran(folder: Path, *words: str) -> Ran:
    ended = await trio.to_thread.run_sync(partial(called, words, folder, timeout=50))
    return Ran(ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr)


@pytest.mark.slow
async def test_they_show_a_node(tmp_path: Path) -> None:
    run = partial(ran, tmp_path)
    async with (
        open_node(TREE, listen=LISTEN, network=TcpNetwork(), allow_operations=True) as node,
        trio.open_nursery() as nursery,
    ):
        url = node.urls[0].replace("ws:", "http:")
        till = node.find(Till, "shop/till")
        with pytest.raises(AgentDied):
            await till.invoke(Till.fail)
        await till.ready()
        nursery.start_soon(till.invoke, Till.wait)
        shown = await run("tree", url, "--depth", "2")
        assert {"shop", "shop/till"} <= {line["path"] for line in shown.lines}
        assert [line["path"] for line in (await run("tree", url, "shop")).lines] == ["shop", "shop/till"]
        assert next(line["path"] for line in (await run("tree", url, "--depth", "0")).lines) == ""
        (line,) = (await run("top", url, "--by", "restarts")).lines
        assert (line["path"], line["most"]) == ("shop/till", 1)
        (line,) = (await run("inspect", f"{url}/agents/shop.till")).lines
        assert line["fields"] == {"pin": "***"}
        assert line["runs"][0]["affordance"] == "wait"
        assert (await run("inspect", url, "shop/till/")).lines[0]["path"] == "shop/till"
        assert (await run("deadletters", url)).lines == []
        gone = await run("inspect", url, "shop/none")
        assert (gone.code, gone.lines) == (1, [])
        assert "nothing at 'shop/none'" in gone.error
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_credentials_are_presented_and_refusals_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = partial(ran, tmp_path)
    for name in ("ANN", "BOB"):
        monkeypatch.setenv(f"LIVE_{name}", f"{name}-token")
    security = Security(
        schemes=(Bearer({"ann": "env:LIVE_ANN", "bob": "env:LIVE_BOB"}),),
        access={"shop*": Access(), "*": Access(inspect=("ann",))},
    )
    async with open_node(TREE, listen=LISTEN, network=TcpNetwork(), security=security) as node:
        url = node.urls[0].replace("ws:", "http:")
        assert (await run("tree", url, "--bearer", "env:LIVE_ANN")).code == 0
        refused = await run("tree", url, "--bearer", "env:LIVE_BOB")
        assert refused.code == 3
        assert "the right inspect" in refused.error
        assert (await run("tree", url)).code == 3
        refused = await run("inspect", url, "shop/till", "--bearer", "env:LIVE_ANN")
        assert refused.code == 1
        assert "the right inspect for shop.till" in refused.error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("top",), "URL"),
        (("top", "weather"), "is no URL of a node"),
        (("top", "http://127.0.0.1:8080", "--by", "size"), "--by"),
        (("top", "http://127.0.0.1:8080", "--rows", "0"), "--rows"),
        (("tree", "http://127.0.0.1:8080", "--depth", "-1"), "--depth"),
        (("inspect", "http://127.0.0.1:8080"), "which agent?"),
        (("inspect", "http://127.0.0.1:8080/agents/a", "b"), "the URL is that of an agent"),
        (("deadletters", "http://127.0.0.1:8080", "--bearer", "token"), "--bearer"),
    ],
)
def test_wrong_usage_is_named(words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
