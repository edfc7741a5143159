"""The program of docs/guides/models.md that needs a provider, against one on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.llm.provider_server import Reply, open_provider
from tests.source import ROOT

if TYPE_CHECKING:
    import pytest


async def test_the_first_program_of_models_md_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/guides/models.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0].replace("trio.run(main)", "")
    said = Reply(text=("In ", "Bonn."), input_tokens=24, output_tokens=3)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests")
    async with open_provider(said) as server:
        local = program.replace('model="gpt-5-mini"', f'model="gpt-5-mini", url="{server.openai_url}"')
        assert local != program
        names: dict[str, object] = {}
        exec(compile(local, "docs/guides/models.md", "exec"), names)
        await names["main"]()  # type: ignore[operator]
        (received,) = server.requests
    assert capsys.readouterr().out == "In Bonn.\nstop, 24 tokens in, 3 out\n"
    assert received.headers["authorization"] == "Bearer sk-of-the-tests"
    assert received.body["messages"][0] == {"role": "system", "content": "Be brief."}
