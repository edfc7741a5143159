"""Recorded chats with tools, files and media, which are played again, and with sound, which is not."""

from __future__ import annotations

import json
import re
import stat
from typing import TYPE_CHECKING, Any

import pytest

from tests.commands import script_started
from tests.recording.test_record import PATIENCE, call, ended, recording, records, serving

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = '''
from collections.abc import AsyncIterator
from contextlib import suppress

from lmos_actors.errors import ToolFailed
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.facades.chat import ChatMedia, ChatPart, SoundFormat, VoiceCall


def weather(city: str, token: str) -> dict:
    """Return the weather."""
    return {"city": city, "degrees": 21, "password": "pa55w0rd-of-tool"}


class Bot(ChatAgent):
    """Uses tools, and sends media."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        if turn.text == "tools":
            found = await turn.use(weather, city="Bonn", token="t0ken-of-tool")
            yield f"{found['degrees']} degrees, "
            yield await turn.ask_client("rate", {"stars": 5}, consent_message="May I?")
        elif turn.text == "refused":
            with suppress(ToolFailed):
                await turn.ask_client("rate", {"stars": 0}, consent_message="Really?")
            yield "as you like"
        else:
            sizes = [len(await turn.read(part)) for part in turn.parts if part.media]
            yield f"files of {sizes}"
            yield ChatPart("image", media=ChatMedia("image/png", data="iVBORw0KGgo="))
            await turn.stream_media("audio/wav", b"RIFF" * 4)

    async def talk(self, call: VoiceCall) -> None:
        await call.understood("hello there")
        await call.say("good morning")
'''

TALK = """
import trio

from lmos_actors.facades import open_chat
from lmos_actors.facades.chat import ChatMedia, ChatPart, tool_of


def rate(stars: int) -> str:
    "Return a verdict."
    return f"{{stars}} stars"


async def main():
    async with open_chat({url!r}, tools=[tool_of(rate)], consent=agreed, binary={binary!r}) as chat:
        print(await chat.say("tools"))
        print(await chat.say("refused"))
        mine = ChatPart("image", media=ChatMedia("image/png", data="iVBORw0KGgo="))
        print(await chat.say("look", parts=[mine, await chat.upload(b"12345", "text/plain", "a.txt")]))
        if {sound!r}:
            async with chat.call() as call:
                call.send(b"abcd")
                call.hang_up()
                async for item in call:
                    print(item)


async def agreed(call):
    return call.consent_message == "May I?"


trio.run(main)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "things.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


def chat(folder: Path, *, binary: bool = False, sound: bool = False) -> str:
    """Record a chat, and return what its client has printed."""
    with (
        serving(folder, "serve", "bot=things.py:Bot", "--omnia", "--uploads", "files") as server,
        recording(folder, f"http://{server}") as (process, url),
    ):
        where = f"ws://{url.partition('://')[2]}/?agent=bot&token=s3cr3t-of-omnia"
        with script_started(TALK.format(url=where, binary=binary, sound=sound), folder) as script:
            out, err = script.communicate(PATIENCE)
            assert script.wait() == 0, err
        code, said, err = ended(process)
    assert (code, err) == (0, ""), said
    return out


def items(folder: Path) -> list[list[Any]]:
    found: dict[int, list[Any]] = {data["id"]: [] for data in records(folder) if data.get("kind") == "sent"}
    for data in records(folder):
        if data.get("kind") == "item":
            found[data["id"]].append(data["value"])
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_tools_files_and_media_are_played_again(folder: Path, *, binary: bool) -> None:
    out = chat(folder, binary=binary)
    assert "21 degrees, 5 stars" in out
    tools, refused, media = items(folder)
    ids: list[str] = [each.pop("id") for each in tools + refused if not isinstance(each, str)]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    result = {"city": "Bonn", "degrees": 21, "password": "***"}
    assert tools == [
        {"type": "tool_call", "name": "weather", "arguments": {"city": "Bonn", "token": "***"}},
        {"type": "tool_result", "result": result},
        "21 degrees, ",
        {"type": "tool_call", "name": "rate", "arguments": {"stars": 5}, "consent_message": "May I?"},
        {"type": "tool_result", "result": "5 stars"},
        "5 stars",
    ]
    assert [each["type"] for each in refused[:2]] == ["tool_call", "tool_result"]
    assert "error" in refused[1]
    assert media[0] == "files of [8, 5]"
    assert media[1]["parts"][0]["media"] == {"mime_type": "image/png", "data": "iVBORw0KGgo="}
    assert media[2]["type"] == "media"
    assert media[2]["data"] == "UklGRlJJRkZSSUZGUklGRg=="
    path = folder / "log.jsonl"
    text = path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.findall(r'"upload_url":"([^"]*)"', text) == ["***"]
    assert [word for word in ("s3cr3t-of-omnia", "t0ken-of-tool", "pa55w0rd-of-tool") if word in text] == []
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")
    assert code == 0, said
    story = (folder / "recorded.yaml").read_text(encoding="utf-8")
    assert all(f'"type": "{kind}"' in story or f"type: {kind}" in story for kind in ("tool_call", "media"))
    code, said = call(folder, "run", "recorded.yaml")
    assert code == 0, said + story
    changed = story.replace("weather", "climate")
    (folder / "changed.yaml").write_text(changed, encoding="utf-8")
    code, said = call(folder, "run", "changed.yaml")
    assert (code, "climate" in said) == (1, True), said


@pytest.mark.slow
def test_a_call_with_sound_is_refused_at_its_line(folder: Path) -> None:
    out = chat(folder, binary=True, sound=True)
    assert "good morning" in out
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    (line,) = (
        number
        for number, text in enumerate(lines, 1)
        if (data := json.loads(text)).get("kind") == "sent" and data["affordance"] == "call"
    )
    assert items(folder)[-1] == [{"type": "chunk", "text": "hello there", "role": "user"}, "good morning"]
    story = (
        "lmos: scenario/v1\nname: replayed\nagents:\n"
        "  bot: {from: replay, log: log.jsonl, speaks: omnia}\n"
        "steps:\n  - {do: stream, target: bot, action: chat, input: {content: tools}}\n"
    )
    (folder / "replayed.yaml").write_text(story, encoding="utf-8")
    code, said = call(folder, "run", "replayed.yaml")
    assert code == 2
    assert re.search(rf"replayed\.yaml:4:\d+.*log\.jsonl:{line}: a call with sound", said, re.DOTALL), said
    (folder / "replayed.yaml").write_text(
        story.replace("omnia}", "omnia, unused: allowed}"), encoding="utf-8"
    )
    assert call(folder, "run", "replayed.yaml")[0] == 0
    code, said = call(folder, "replay", "log.jsonl", "--as-scenario", "recorded.yaml")
    assert (code, "left out" in said) == (0, True), said
    code, said = call(folder, "run", "recorded.yaml")
    assert code == 0, said
    broken = "\n".join(lines[:-1]).replace('"type":"tool_call"}', '"type":"tool_cal"}')
    (folder / "log.jsonl").write_text(f"{broken}\n", encoding="utf-8")
    code, said = call(folder, "run", "recorded.yaml")
    assert (code, "the answer has an item that cannot be replayed" in said) == (2, True), said
