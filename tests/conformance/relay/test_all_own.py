"""Our own hub, held against every case for relays: whatever fails here is wrong in it, or in the case."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.conformance import Level, RelayConformOptions, Verdict, all_relay_cases, conform
from lmos_actors.facades import RelayOptions
from lmos_actors.transport import MemoryNetwork, TcpNetwork
from tests.commands import called
from tests.conformance.breaking import ids, on_virtual_time, told

if TYPE_CHECKING:
    from pathlib import Path

EXTENSIONS = ("receipts", "presence", "history", "semantic", "voting", "questions")
RESULT = "relayvoting.result"  # a deadline goes by the time of day
OTHERS = tuple(case.id for case in all_relay_cases() if case.id != RESULT)


def test_everything_passes() -> None:
    async def main() -> None:
        network, options = MemoryNetwork(), RelayOptions(extensions=EXTENSIONS)
        async with open_node(listen="ws://127.0.0.1:80", relay=options, network=network):
            given = RelayConformOptions(level=Level.SPEC, allow_unsafe=True, cases=OTHERS)
            card = await conform(network, "ws://127.0.0.1:80/arc", given)
        assert ids(card, Verdict.PASSED) == set(OTHERS), told(card)

    on_virtual_time(main)


async def test_votes_pass_over_sockets() -> None:
    async with open_node(listen="ws://127.0.0.1:0", relay=RelayOptions(extensions=EXTENSIONS)) as node:
        given = RelayConformOptions(level=Level.SPEC, cases=("relayvoting.*", "relayopen.*"))
        url = f"{node.urls[0].removesuffix('/ws')}/arc"
        card = await conform(TcpNetwork(), url, given)
    assert not ids(card, Verdict.FAILED, Verdict.NOT_OFFERED, Verdict.NOT_RUN, Verdict.TOLERATED), told(card)


# ---- the command

REFUSED: dict[tuple[str, ...], str] = {
    (
        "--level",
        "kotlin-wot",
    ): '--level: "kotlin-wot" is a level for LMOS; relays are judged by spec, lenient',
    (
        "--bearer",
        "env:TOKEN",
    ): "--bearer: the kit is several agents, each with a token of its own: name them in --hints",
    ("--relay", "--thing", "urn:x"): "--thing: is about servers of LMOS, and does not go with --relay",
    ("--omnia", "--relay"): "--relay: does not go with --omnia",
    ("--case", "relaysend.brodcast"): "'relaysend.broadcast' is",
    ("--case", "handshake.accept"): "no case is called 'handshake.accept'",
    ("--hints", "hints.yaml"): 'hints.yaml:1:1: unknown key "agetns"',
    ("--hints", "token.yaml"): "token.yaml: agents.kit-1: ",
    ("--hints", "nobody.yaml"): "nobody.yaml: agents.kit-1: ",
    ("--invitation", "word"): "--invitation: ",
    ("--invitation", "file:none.txt"): "--invitation: ",
    ("--omnia", "--invitation", "env:WORD"): "--invitation: is about relays: ws://HOST/arc, or another URL",
    (
        "--omnia",
        "--level",
        "rawk",
    ): '--level: "rawk" is a level for relays; facades are judged by spec or len',
}


@pytest.mark.slow
async def test_the_command_judges_a_hub_that_is_served(tmp_path: Path) -> None:
    (tmp_path / "hints.yaml").write_text("agetns: {}\n", encoding="utf-8")
    (tmp_path / "token.yaml").write_text("agents: {kit-1: tok_1}\n", encoding="utf-8")
    (tmp_path / "nobody.yaml").write_text("agents: {kit-1: env:NOBODY_SET_THIS}\n", encoding="utf-8")
    async with open_node(listen="ws://127.0.0.1:0", relay=RelayOptions()) as node:
        place = node.urls[0].removesuffix("/ws")
        url = f"{place}/arc"

        async def judged(*words: str) -> tuple[int, str, str]:
            call = ("conform", *words, "--idle", "200ms", "--patience", "1s")
            ran = await trio.to_thread.run_sync(partial(called, call, tmp_path, timeout=60))
            return ran.returncode, ran.stdout, ran.stderr

        cases = ("--case", "relaysend.*", "--case", "relaycommand.*", "--level", "spec")
        code, out, err = await judged(url, *cases, "--junit", "card.xml", "--html", "card.html")
        assert (code, err) == (0, "wrote card.xml\nwrote card.html\n")
        assert " relaysend     14 passed\n relaycommand  3 passed\n" in out
        assert f"judged:    server {url}\nspoken to: AgentRelay\nlevel:     spec" in out
        assert f"again:     lmos-actors conform {url} --case 'relaysend.*'" in out
        assert "relaysend.broadcast" in (tmp_path / "card.xml").read_text("utf-8")
        assert "relaysend.broadcast" in (tmp_path / "card.html").read_text("utf-8")
        there = f"http{place.removeprefix('ws')}"
        code, out, _ = await judged(there, "--relay", "--case", "relayopen.w*", "--json")
        card = json.loads(out)
        assert (code, card["subject"], card["counts"]["passed"]) == (0, url, 1)
        for words, error in REFUSED.items():
            code, out, err = await judged(url, *words)
            assert (code, out) == (2, ""), err
            assert error in err
        code, out, err = await judged(f"{url}-not", "--relay")
        assert (code, out) == (3, "")
        assert "404" in err


@pytest.mark.parametrize("words", [("ws://127.0.0.1:9/arc",), ("--relay",)], ids=" ".join)
def test_the_cases_of_relays_are_listed(words: tuple[str, ...], tmp_path: Path) -> None:
    ran = called(("conform", *words, "--list"), tmp_path, timeout=60)
    listed = [line.split()[0] for line in ran.stdout.splitlines()]
    assert listed == [case.id for case in all_relay_cases()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("http://127.0.0.1:9/x", "--level", "rawk"), '"rawk" is a level for relays; servers of LMOS are'),
        (("http://127.0.0.1:9/x", "--register-url", "http://h/r"), "--register-url: is about relays"),
        (("ws://127.0.0.1:9/arc?token=tok_1",), "a token is given by reference"),
        (("lamp.json", "--relay"), "a relay has an address like ws://HOST/arc"),
    ],
)  # fmt: skip
def test_what_is_no_relay(words: tuple[str, ...], error: str, tmp_path: Path) -> None:
    (tmp_path / "lamp.json").write_text("{}", encoding="utf-8")
    ran = called(("conform", *words), tmp_path, timeout=60)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert error in ran.stderr
