"""What real facades and clients said to each other, said to our facade and to our client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, open_node, simulate
from lmos_actors.errors import ToolFailed
from lmos_actors.facades import ChatAgent, ChatTurn, TurnDone
from lmos_actors.transport import MemoryNetwork
from tests.facades.desk import URL, opened_raw
from tests.facades.omnia.test_client import Facade, talked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmos_actors.facades import Chat

CAPTURES = Path(__file__).parents[1] / "protocol/omnia/captures"

Line = dict[str, Any]


def lines(story: str) -> list[Line]:
    """Return the frames of the first connection of a story that are JSON."""
    text = (CAPTURES / f"{story}.jsonl").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    return [each for each in found if each.get("connection") == "a" and isinstance(each.get("json"), dict)]


def plain(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# ---- our facade


class Demo(ChatAgent):
    """Does what the agent of the recording did."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        turn.memory["turns"] = turn.memory.get("turns", 0) + 1
        if turn.text == "client tool":
            yield f"Looking. {await self.asked(turn, {'accuracy': 'high'})}"
        elif turn.text == "two client tools":
            for number in (1, 2):
                yield f"tc-{number} {await self.asked(turn, {})}; "
        else:
            yield "Hello, world" if turn.text == "!hello" else f"turn {turn.memory['turns']}"

    async def asked(self, turn: ChatTurn, arguments: dict[str, str]) -> str:
        more: Any = {"consent_message": "Share your position?", "categories": ["location"]}
        try:
            return f"result: {plain(await turn.ask_client('position', arguments, **more))}"
        except ToolFailed as error:
            return f"rejected: {error.reason}"


def shown(frame: Line) -> str:
    """Return what is compared of a frame: the session, ids, dates and texts of errors differ."""
    if frame["type"] == "error":
        return str(frame["error"]["code"])
    if frame["type"] == "tool_call":
        call = {"arguments": {}, **frame["tool_call"], "id": ""}
        return f"call {json.dumps(call, sort_keys=True)}"
    return f"{frame['type']} {frame.get('content', '')}".strip()


async def said(raw: Any, seconds: float) -> list[Line]:
    """Return what the facade says meanwhile, without the chunks, which `done` has as well."""
    found: list[Line] = []
    with trio.move_on_after(seconds):
        while True:
            found.append(await raw.next())
    return [each for each in found if each["type"] != "chunk"]


HELLO = '"!hello"'
CALL = (
    'call {"arguments": {"accuracy": "high"}, "categories": ["location"], '
    '"consent_message": "Share your position?", "id": "", "name": "position"}'
)
DIFFERENT: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "new_conversation": [],
    "first_message_with_the_announced_id": [],
    # the session has been announced twice, which is enough
    "two_messages_without_session_id": [('"turns"', ["done turn 2"], ["connected", "done turn 2"])],
    "client_tool": [
        # messages wait, and a place is free once its turn has ended
        (HELLO, [], ["RATE_LIMITED"]),
        ('{"call_id":"tc-1","result":1}', ["done Looking. result: 1", "done Hello, world"],
         ["done Looking. result: 1"]),
        ('"hidden tool"', ["done turn 9"], ["RATE_LIMITED"]),
        # a frame is of its type
        ('null', ["INVALID_MESSAGE"], ["done runtime:"]),
    ],
    "client_tool_silence": [
        ('"client tool"',
         [CALL, "done Looking. rejected: the client did not acknowledge the call within 5 s"],
         [CALL, "done Looking. rejected: client did not acknowledge tool call within timeout"]),
        # silence is a failure of the tool, not of the turn
        ('{"call_id":"tc-1"}', ["done Looking. rejected: the client did not answer within 60 s"],
         ["INTERNAL_ERROR"]),
    ],
}  # fmt: skip


async def differences(raw: Any, frames: list[Line]) -> list[tuple[str, list[str], list[str]]]:
    """Say what the client said, and return where our facade answered otherwise: the frame, ours, theirs.

    The recording waited 0.5 s for an acknowledgement and 1 s for a result; here it is 5 s and 60 s.
    """
    found: list[tuple[str, list[str], list[str]]] = []
    (connected,) = await said(raw, 0.1)
    ids = {frames[0]["json"]["session_id"]: connected["session_id"]}
    asked = [number for number, line in enumerate(frames) if line["from"] == "client"]
    for number, after in zip(asked, [*asked[1:], len(frames)], strict=True):
        frame, text = frames[number]["json"], json.dumps(frames[number]["json"])
        for theirs, ours in ids.items():
            text = text.replace(theirs, ours)
        raw.say(text)
        heard = await said(raw, 0.1 + 130 * (frames[after - 1]["t"] - frames[number]["t"]))
        for each in heard:
            if each["type"] == "tool_call":
                ids |= dict.fromkeys(("tc-1", "tc-2"), each["tool_call"]["id"])
        got = [shown(each) for each in heard]
        answers = [line["json"] for line in frames[number + 1 : after]]
        wanted = [shown(each) for each in answers if each["type"] != "chunk"]
        if got != wanted:
            found.append((plain(frame.get("content", frame.get(frame["type"]))), got, wanted))
    return found


@pytest.mark.parametrize("story", DIFFERENT)
def test_our_facade_answers_what_a_real_client_said(story: str) -> None:
    async def main() -> Any:
        network = MemoryNetwork()
        async with open_node(listen=URL, omnia=True, network=network) as node:
            await node.start(Demo)
            async with opened_raw(network, "agent=demo") as raw:
                return await differences(raw, lines(f"head/{story}"))

    assert simulate(main) == DIFFERENT[story]


# ---- our client


def turns(story: str) -> list[tuple[list[Line], Line]]:
    """Return the turns of a story that were begun and ended: the frames of each, and the last one."""
    found: list[tuple[list[Line], Line]] = []
    frames: list[Line] = []
    for line in lines(story):
        if line["json"].get("type") == "message" and line["from"] == "client":
            frames = []
        elif line["from"] == "server":
            if line["json"].get("error", {}).get("code") in ("RATE_LIMITED", "INVALID_MESSAGE"):
                continue  # of a frame, and no turn
            frames.append(line["json"])
            if line["json"]["type"] in ("done", "error"):
                found.append((frames, line["json"]))
                frames = []
    return found


def position(accuracy: str = "low") -> str:
    """Return where this is."""
    return "Bonn"


READ = ("new_conversation", "handler_fails", "tool_shown", "empty_text", "media_as_text", "client_tool",
        "two_messages_without_session_id", "runtime_faults", "demo_agent", "resume_unknown")  # fmt: skip
STORIES = [
    f"{version}/{name}"
    for name in READ
    for version in ("seed", "jan", "head")
    if (CAPTURES / version / f"{name}.jsonl").exists()
]


@pytest.mark.parametrize("story", STORIES)
def test_our_client_reads_what_a_real_facade_said(story: str) -> None:
    played = turns(story)
    first = lines(story)[0]
    answers: list[str] = []

    async def facade(end: Facade, _: int) -> None:
        if first["from"] == "server":
            end.say(first["json"])
        for frames, _last in played:
            await end.message()
            for frame in frames:
                end.say(frame)
                if frame["type"] == "tool_call" and story == "head/client_tool":
                    answers.extend([(await end.next())["type"], (await end.next())["type"]])

    async def main(chat: Chat) -> None:
        for _, last in played:
            said = ""
            try:
                async with chat.stream("hello") as items:
                    async for item in items:
                        said = item.text if isinstance(item, TurnDone) else ""
            except ActionFailed as error:
                said = str(error.code)
            assert said == (last["error"]["code"] if "error" in last else last.get("content", ""))
            assert chat.session == last["session_id"]

    assert played
    talked(facade, main, tools=[position])
    calls = sum(frame["type"] == "tool_call" for frames, _ in played for frame in frames)
    assert answers == (["tool_call_ack", "tool_result"] * calls if story == "head/client_tool" else [])
