"""Our own facade, held against every case for facades: whatever fails here is wrong in it, or in the case."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import ActionFailed, open_node
from lmos_actors.conformance import ChatHints, ChatOptions, Level, Verdict, all_chat_cases, conform
from lmos_actors.facades import ChatAgent, ChatTurn, OmniaOptions, VoiceCall
from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.commands import called
from tests.conformance.breaking import ids, on_virtual_time, told

if TYPE_CHECKING:
    from pathlib import Path

HINTS = ChatHints(slow="slow", fails="fail", tool="tool", client_tool="client")
UPLOADS = tuple(case.id for case in all_chat_cases() if case.group == "omniaupload")
OTHERS = tuple(case.id for case in all_chat_cases() if case.group != "omniaupload")


def find(number: int) -> str:
    """Find an order."""
    return f"order {number}"


class Desk(ChatAgent):
    """Does what the hints are for."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        if turn.text == "slow":
            await trio.sleep(1.5)
        elif turn.text == "fail":
            raise ActionFailed({"code": "PROVIDER_ERROR", "message": "no"})
        elif turn.text == "tool":
            yield str(await turn.use(find, number=1))
        elif turn.text == "client":
            yield str(await turn.ask_client("position"))
        yield f"You said {turn.text}."

    async def talk(self, call: VoiceCall) -> None:
        async for frame in call.sound:
            await call.play(frame)


def test_everything_passes_but_uploads_without_a_folder() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with open_node(listen="ws://desk:80", omnia=OmniaOptions(only=True), network=network) as node:
            await node.start(Desk)
            options = ChatOptions(level=Level.SPEC, hints=HINTS, allow_unsafe=True)
            card = await conform(network, "ws://desk:80/ws?agent=desk", options)
        assert ids(card, Verdict.PASSED) == {*OTHERS, "omniaupload.wrong-order"}, told(card)
        assert ids(card, Verdict.NOT_OFFERED) == set(UPLOADS) - {"omniaupload.wrong-order"}

    on_virtual_time(main)


async def test_uploads_pass_over_sockets(tmp_path: Path) -> None:
    options = OmniaOptions(uploads=str(tmp_path))
    async with open_node(listen="ws://127.0.0.1:0", omnia=options) as node:
        await node.start(Desk)
        chosen = ChatOptions(level=Level.SPEC, allow_unsafe=True, cases=UPLOADS)
        url = f"{node.urls[0].replace('ws', 'http', 1).removesuffix('/ws')}/agents/desk"
        card = await conform(TcpNetwork(), url, chosen)
    assert ids(card, Verdict.PASSED) == set(UPLOADS), told(card)


MISTAKES = {
    "level": (("--level", "kotlin-wot"), 'lmos-actors: --level: "kotlin-wot" is a level for LMOS'),
    "thing": (("--thing", "urn:x"), "lmos-actors: --thing: is about servers of LMOS"),
    "case": (("--case", "omniaturn.dnoe"), "'omniaturn.done' is"),
    "hints": (("--hints", "hints.yaml"), "hints.yaml:1:1: unknown key"),
}


@pytest.mark.slow
async def test_the_command_judges_a_facade_that_is_served(tmp_path: Path) -> None:
    (tmp_path / "hints.yaml").write_text("sya: hello\n", encoding="utf-8")
    async with open_node(listen="ws://127.0.0.1:0", omnia=True) as node:
        await node.start(Desk)
        url = f"{node.urls[0].removesuffix('/ws')}/?agent=desk"

        async def judged(*words: str) -> tuple[int, str, str]:
            said = partial(
                called, ("conform", url, "--omnia", "--idle", "200ms", *words), tmp_path, timeout=60
            )
            ran = await trio.to_thread.run_sync(said)
            return ran.returncode, ran.stdout, ran.stderr

        code, out, _ = await judged("--case", "omniaturn.*", "--case", "omniabytes.ping")
        assert code == 0
        assert "omniaturn   10 passed, 2 not run" in out
        assert "spoken to: Omnia's chat protocol" in out
        code, out, _ = await judged("--case", "omniaopen.no-agent", "--level", "spec", "--json")
        card = json.loads(out)
        assert (code, [each["verdict"] for each in card["results"]]) == (1, ["failed"])
        for words, error in MISTAKES.values():
            code, out, err = await judged(*words)
            assert (code, out) == (2, "")
            assert error in err
