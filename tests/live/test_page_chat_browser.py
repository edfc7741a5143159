"""Chats of the page in a real browser: files both ways, media, tools of clients, nodes that end."""

from __future__ import annotations

import base64
import io
import json
import struct
import wave
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ChildSpec, SupervisorSpec, open_node
from lmos_actors.facades import ChatAgent, ChatMedia, ChatPart, ChatTurn
from tests.chromium import Page, browser as browser, of_one_server, violations

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from lmos_actors import Node

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<script>bad=1</script><img src=x onerror=bad=1>"


def png(width: int) -> bytes:
    """Return a black picture of one line."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" + b"\0" * width)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def silence() -> bytes:
    """Return half a second of it."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(b"\0\0" * 4_000)
    return made.getvalue()


def part(kind: Any, mime: str, data: bytes, name: str) -> ChatPart:
    media = ChatMedia(mime_type=mime, data=base64.b64encode(data).decode(), filename=name)
    return ChatPart(type=kind, media=media)


class Studio(ChatAgent):
    """Sends what it has, and asks for what it has not."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str | ChatPart]:
        if "tool" in turn.text:
            await turn.ask_client("take_picture")
        if "wait" in turn.text:
            yield "A moment. "
            await trio.sleep_forever()
        for sent in turn.parts:
            yield f"got {len(await turn.read(sent))} bytes of {sent.type}; "
        if "send" in turn.text:
            yield part("image", "image/png", png(7), "line.png")
            yield part("audio", "audio/wav", silence(), "nothing.wav")
            yield part("file", "text/html", HOSTILE.encode(), f"{HOSTILE}.html")
            yield part("image", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "drawn.svg")
            yield ChatPart(type="image", media=ChatMedia(mime_type="image/png", url="http://elsewhere/x.png"))
            await turn.stream_media("image/png", pieces(png(9)))
        yield "done"


async def pieces(data: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(data), 10):
        yield data[at : at + 10]


TREE = SupervisorSpec("root", [ChildSpec("studio", Studio)])

WORDS = "[...document.querySelectorAll('.bubble .words')].map((e) => e.textContent)"
NOTE = "document.querySelector('.chatmain > [role=status]').textContent"
BROWSERS_OWN = ("ERR_EMPTY_RESPONSE", "status of 409", "status of 503")
"""What a browser logs by itself, of requests that fail: some were taken in by a node that has ended since."""

READY = "document.querySelector('.composer .main').disabled === false"


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with of_one_server(browser, but=BROWSERS_OWN) as tab:
        yield tab


async def chatting(page: Page, node: Node) -> None:
    assert node.page_url is not None
    await page.visit(node.page_url + "#view=chats")
    await page.until("document.querySelector('.chatside select').value === 'studio'")


async def say(page: Page, text: str) -> None:
    await page.until(READY)
    await page.run(f"document.querySelector('.composer textarea').value = {json.dumps(text)}")
    await page.run("document.querySelector('.composer').requestSubmit()")


async def test_media_in_an_answer_are_shown_played_or_saved(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await chatting(page, node)
        await say(page, "send")
        await page.until(f"{READY} && {WORDS}.at(-1) === 'done'")
        widths = "[...document.querySelectorAll('.bubble img')].map((e) => e.naturalWidth).join()"
        await page.until(f"{widths} === '7,9'")
        await page.until("document.querySelector('.bubble audio').duration === 0.5")
        assert (
            await page.run("document.querySelectorAll('.bubble a, .bubble script, .bubble svg').length") == 0
        )
        said = await page.run("document.querySelector('.bubble.agent').textContent")
        assert f"{HOSTILE}.html (text/html)" in said
        assert "image (image/png) at http://elsewhere/x.png, not loaded" in said
        await page.run(
            "window.saved = []; const make = URL.createObjectURL.bind(URL);"
            " URL.createObjectURL = (blob) => { saved.push(blob.type); return make(blob); };"
            " [...document.querySelectorAll('.bubble .extra button')].forEach((e) => e.click())"
        )
        assert await page.run("saved") == ["application/octet-stream"] * 2
        await page.call("Page.reload")  # what is kept is shown again
        await page.until(f"document.querySelector('html[data-ready]') && {widths} === '7'")
        assert await page.run("window.bad") is None


async def test_axe_has_nothing_to_object_to_in_media(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await chatting(page, node)
        await say(page, "send")
        await page.until(f"{READY} && {WORDS}.at(-1) === 'done'")
        assert await violations(page) == []


async def test_a_file_goes_with_a_message(page: Page, tmp_path: Path) -> None:
    file, large = tmp_path / "line.png", tmp_path / "large.bin"
    file.write_bytes(png(5))
    large.write_bytes(b"x" * (256 * 1024 + 1))
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await chatting(page, node)
        document = await page.call("DOM.getDocument")
        picker = await page.call(
            "DOM.querySelector", nodeId=document["root"]["nodeId"], selector=".composer [type=file]"
        )
        await page.call("DOM.setFileInputFiles", files=[str(large)], nodeId=picker["nodeId"])
        await page.until(f"{NOTE}.includes('large.bin has 256.0 KiB: 256.0 KiB at most')")
        await page.call("DOM.setFileInputFiles", files=[str(file)], nodeId=picker["nodeId"])
        await page.until("document.querySelector('.composer').textContent.includes('Remove line.png')")
        await say(page, "look")
        await page.until(f"{WORDS}.at(-1) === 'got {len(png(5))} bytes of image; done'")
        await page.until("document.querySelector('.bubble.user img').naturalWidth === 5")


async def test_tools_of_clients_are_none_of_the_page(page: Page) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await chatting(page, node)
        await say(page, "tool")
        await page.until(f"{READY} && {NOTE}.includes('This page carries out no tools')")
        assert "No answer: TOOL_ERROR" in await page.run(
            "document.querySelector('.bubble.agent').textContent"
        )
        assert await page.run("document.querySelector('.composer textarea').value") == "tool"
        await say(page, "again")
        await page.until(f"{WORDS}.at(-1) === 'done'")


@pytest.mark.parametrize("killed", [True, False])
async def test_a_node_that_ends_in_the_middle_of_an_answer(page: Page, killed: bool) -> None:
    async with open_node(TREE, listen="ws://127.0.0.1:0") as node:
        await chatting(page, node)
        port = node.urls[0].rpartition(":")[2]
        await say(page, "please wait")
        await page.until(f"{WORDS}.at(-1) === 'A moment. '")
        if killed:
            node.force_stop()
    await page.until("document.querySelector('.notice.offline:not([hidden])') !== null")
    await page.until(f"{NOTE}.includes('was cut off')")
    async with open_node(TREE, listen=f"ws://127.0.0.1:{port}"):
        await page.until(f"{READY} && {NOTE} !== ''")
        said = await page.run(NOTE)
        assert "does not have this conversation any more" in said or "send it again" in said
        assert await page.run("document.querySelector('.composer textarea').value") == "please wait"
        await say(page, "and now")
        await page.until(f"{WORDS}.at(-1) === 'done'")
