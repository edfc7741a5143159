"""A page in Chromium talks to our agents over its own WebSocket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmos_actors import SupervisorSpec, open_node
from tests.chromium import browser as browser, opened
from tests.wire_conformance.examples import TURNS, agents, short

pytestmark = pytest.mark.browser

HEARD = (Path(__file__).parent / "examples.txt").read_text(encoding="utf-8").splitlines()

TALK = """
((url, offers, turns) => new Promise((tell) => {
  const socket = new WebSocket(url, offers);
  const heard = [];
  let wanted = 0;
  const goOn = () => {
    while (heard.length >= wanted && turns.length) {
      const [text, answers] = turns.shift();
      socket.send(text);
      wanted += answers;
    }
    if (heard.length >= wanted) socket.close(1000, "done");
  };
  socket.onopen = goOn;
  socket.onmessage = (event) => { heard.push(JSON.parse(event.data)); goOn(); };
  socket.onclose = ({code, wasClean}) => tell({protocol: socket.protocol, code, clean: wasClean, heard});
}))
"""


async def talk(browser: str, offers: list[str], *, at_home: bool = True) -> dict[str, Any]:
    """Have a page talk to a node: one that has come from there, or one that has come from nowhere."""
    tree = SupervisorSpec("root", agents())
    async with open_node(tree, listen="ws://127.0.0.1:0") as node, opened(browser) as page:
        if at_home:
            # not the page of links: its own policy lets it connect to nothing
            url = f"{node.urls[0].replace('ws', 'http', 1)}/.well-known/wot"
            await page.call("Page.navigate", url=url)
            await page.until("document.readyState === 'complete' && location.protocol === 'http:'")
        arguments = ", ".join(json.dumps(each) for each in (f"{node.urls[0]}/ws", offers, TURNS))
        told = await page.run(f"{TALK}({arguments})")
        assert node.connection_failures == ()
    return told


async def test_a_page_reads_invokes_subscribes_and_cancels(browser: str) -> None:
    told = await talk(browser, ["lmosprotocol"])
    assert (told["protocol"], told["code"], told["clean"]) == ("lmosprotocol", 1000, True)
    assert [short(message) for message in told["heard"]] == HEARD


@pytest.mark.slow  # its lines: test_guard.py has pages from elsewhere
async def test_a_page_from_elsewhere_is_not_let_in(browser: str) -> None:
    told = await talk(browser, ["lmosprotocol"], at_home=False)
    assert (told["protocol"], told["code"], told["heard"]) == ("", 1006, [])


@pytest.mark.slow
async def test_a_page_that_offers_nothing_we_speak_is_told_so(browser: str) -> None:
    told = await talk(browser, ["soap"])
    assert (told["protocol"], told["code"], told["heard"]) == ("", 1006, [])
