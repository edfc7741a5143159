"""The programs of docs/guides/use-mcp-servers.md that need a server: run with one, and a model, of ours."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from lmos_actors.mcp import McpSource
from tests.commands import called
from tests.llm.provider_server import Reply, Tool, open_provider
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/guides/use-mcp-servers.md").read_text(encoding="utf-8")
SHOP, DESK, SECRETS, PROGRAM, PERSON, BY_HAND, CONSENT = (
    re.findall(r"<!-- not run: [^\n]*\n```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
)  # fmt: skip


def loaded(program: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(
        compile(program.replace('"python shop.py"', repr(f"{sys.executable} shop.py")), "guide", "exec"),
        names,
    )
    return names


@pytest.mark.slow
async def test_the_programs_of_use_mcp_servers_md_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    (tmp_path / "shop.py").write_text(SHOP)
    async with open_provider() as provider:
        provider.reply(Reply(text=(), tools=(Tool("look_up", ('{"number": 17}',)),)), Reply(text=("Sent.",)))
        local = DESK.replace('model="gpt-5-mini"', f'model="gpt-5-mini", url="{provider.openai_url}"')
        await loaded(local)["main"]()  # type: ignore[operator]
        assert capsys.readouterr().out == "Sent.\n"
        assert provider.requests[1].body["messages"][-1]["content"] == '{"result":"sent"}'
    await loaded(BY_HAND)["call"]()  # type: ignore[operator]
    assert capsys.readouterr().out == PAGE.partition(BY_HAND)[2].partition("```text\n")[2].partition("```")[0]


SCENARIO = """lmos: scenario/v1
name: desk
summary: The desk looks an order up at a server that is not there in this test.

agents:
  model:
    from: mock
    speaks: model
    rules:
      - when: {{contains: order 17}}
        reply: [{{call: {{tool: look_up, arguments: {{number: 17}}}}}}]
      - when: {{after: look_up, match: {{$.tools.look_up.state: sent}}}}
        output: It is on its way.
{shop}
steps:
  - do: stream
    id: first
    target: desk
    action: chat
    input: {{content: Where is order 17?, session: ada, new: true}}

checks:
  - {{check: tools, of: first, in_order: [{{tool: look_up, match: {{$.number: 17}}}}]}}
  - {{check: answer, of: first, words: [on its way]}}
"""


@pytest.mark.slow
def test_a_mock_in_a_scenario_stands_in_for_a_server(tmp_path: Path) -> None:
    shop = PAGE.partition("```yaml\n")[2].partition("```")[0]
    run(tmp_path, SCENARIO.format(shop=shop))


@pytest.mark.slow
def test_a_server_is_recorded_and_played_without_it(tmp_path: Path) -> None:
    shop = PAGE.rpartition("```yaml\n")[2].partition("```")[0].replace("python", sys.executable)
    desk = '  desk: {from: agent, use: "desk.py:Desk", args: {tools: [$(agents.shop)]}}\n'
    text = SCENARIO.format(shop=shop + desk).replace(", match: {$.tools.look_up.state: sent}", "")
    (tmp_path / "shop.py").write_text(SHOP)
    run(tmp_path, text.replace("\nagents:", "world: websocket\nagents:"), "--update-recordings")
    (tmp_path / "shop.py").unlink()
    run(tmp_path, text)


def run(folder: Path, text: str, *options: str) -> None:
    (folder / "desk.yaml").write_text(text)
    (folder / "desk.py").write_text(DESK.replace('(mcp("python shop.py"),)', "()"))
    ended = called(("run", "desk.yaml", *options), folder, timeout=50)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_sources_of_use_mcp_servers_md_are_right() -> None:
    names = [name for block in (SECRETS, PROGRAM, PERSON, CONSENT) for name in loaded(block).values()]
    assert [each.name for each in names if isinstance(each, McpSource)] == [
        "papers",
        "ticket-server",
        "search-example",
        "orders-example",
        "notes-example",
        "shop-server",
        "bank-example",
    ]
