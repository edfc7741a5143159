"""A headless Chromium, driven through its DevTools protocol over one WebSocket.

A file of tests that drives it imports the fixture `browser`, and opens pages in tabs by `opened`. There is no
library between: those that are kept download a browser or a driver of their own, and what is used of the
protocol is a dozen methods. The tests are marked `browser`; where none is installed they are skipped, or fail
with `LMOS_ACTORS_BROWSER=required`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio_websocket import ConnectionClosed, connect_websocket_url

from tests.web.foreign import installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
STARTED = 30.0
"""Seconds that a browser may take to start."""

ANSWERED = 30.0
"""Seconds that it may take to answer, or to come to what is waited for."""

ENDED = "ERR_CONNECTION"
"""What a browser logs by itself of a server that has ended."""

FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-sandbox",  # as root it does not start without
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
)


def chromium() -> str:
    """Return the path of the browser; where there is none, skip the test or, if one is required, fail it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    if os.environ.get("LMOS_ACTORS_BROWSER") == "required":
        pytest.fail("there is no Chromium, and LMOS_ACTORS_BROWSER=required asks for one")
    pytest.skip("no Chromium is installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    """The address of a browser: one for all tests of a file."""
    with running(chromium()) as address:
        yield address


@contextmanager
def running(binary: str) -> Iterator[str]:
    """Run a browser in a profile of its own; yield the address of its WebSocket."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        try:
            yield _address(process, Path(profile) / "DevToolsActivePort")
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], file: Path) -> str:
    due = time.monotonic() + STARTED
    while time.monotonic() < due and process.poll() is None:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.02)
    raise AssertionError(f"the browser does not start (exit code {process.poll()})")


class Page:
    """One tab, with all that it said and asked for."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._number = 0
        self._waiting: dict[int, trio.MemorySendChannel[dict[str, Any]]] = {}
        self.session = ""
        self.context = ""
        """The context that it shares with windows beside it: cookies, connections."""
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        """Take what the browser says, until the connection ends."""
        try:
            while True:
                self._take(json.loads(await self._connection.get_message()))
        except ConnectionClosed:
            return

    def _take(self, said: dict[str, Any]) -> None:
        if "id" in said:
            self._waiting.pop(said["id"]).send_nowait(said)
            return
        about = said.get("params", {})
        match said["method"]:
            case "Runtime.exceptionThrown":
                details = about["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.problems.append(str([one.get("value") for one in about["args"]]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        send, receive = trio.open_memory_channel[dict[str, Any]](1)
        self._waiting[self._number] = send
        request = {"id": self._number, "method": method, "params": params}
        with trio.fail_after(ANSWERED):
            await self._connection.send_message(
                json.dumps(request | ({"sessionId": self.session} if self.session else {}))
            )
            answer = await receive.receive()
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page, and what it promises."""
        got = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    async def until(self, script: str, seconds: float = ANSWERED) -> Any:
        """Evaluate an expression until it is true."""
        with trio.move_on_after(seconds):
            while not (got := await self.run(script)):  # noqa: ASYNC110 -- it happens in another process
                await trio.sleep(0.02)
            return got
        raise AssertionError(f"not within {seconds} s: {script}; problems: {self.problems}")

    async def open(self, path: Path, fragment: str = "") -> None:
        """Open a file, and wait until it is ready."""
        await self.call("Page.navigate", url=path.as_uri() + fragment)
        await self.until("document.querySelector('html[data-ready=yes]') !== null")

    async def visit(self, url: str, ready: str = "html[data-ready]") -> None:
        """Open an address, and wait until an element is there."""
        await self.call("Page.navigate", url=url)
        await self.until(f"document.querySelector({json.dumps(ready)}) !== null")

    async def window(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set size and colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def key(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36}
        codes |= {"ArrowLeft": 37, "ArrowRight": 39, "PageDown": 34, "PageUp": 33, "Escape": 27}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    async def click(self, selector: str) -> None:
        """Click into the middle of the first element that fits."""
        x, y = await self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        await self.mouse("mousePressed", x, y)
        await self.mouse("mouseReleased", x, y)

    async def mouse(self, what: str, x: float, y: float) -> None:
        """Press, move or release the left button at a place."""
        await self.call(
            "Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", buttons=1, clickCount=1
        )

    async def picture(self) -> bytes:
        """Return the window as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def of_one_server(address: str, *, but: tuple[str, ...] = ()) -> AsyncIterator[Page]:
    """Open a tab that has nothing to complain of at the end, `but` this, and has asked one server alone.

    That its server has ended is none of it: a page asks on until its tab is closed.
    """
    async with opened(address) as tab:
        yield tab
        problems = [each for each in tab.problems if not any(one in each for one in (ENDED, *but))]
        assert not problems, f"the browser complains: {problems}"
        asked = {url.split("/")[2] for url in tab.requests if not url.startswith(("data:", "blob:"))}
        assert len(asked) == 1, asked


@asynccontextmanager
async def opened(address: str, beside: Page | None = None) -> AsyncIterator[Page]:
    """Open a tab of its own, which shares nothing with others; or another window of the same person."""
    async with trio.open_nursery() as nursery:
        connection = await connect_websocket_url(nursery, address, max_message_size=1 << 28)
        page = Page(connection)
        nursery.start_soon(page.listen)
        if beside is None:
            page.context = (await page.call("Target.createBrowserContext"))["browserContextId"]
        else:
            page.context = beside.context
        target = await page.call(
            "Target.createTarget", url="about:blank", browserContextId=page.context, newWindow=True
        )
        attached = await page.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.window(1366, 768)
        try:
            yield page
        finally:  # of a test that fails, too: nothing of it is to be left to the next one
            with trio.CancelScope(shield=True):
                page.session = ""
                if beside is None:
                    await page.call("Target.disposeBrowserContext", browserContextId=page.context)
                else:
                    await page.call("Target.closeTarget", targetId=target["targetId"])
                await connection.aclose()
        nursery.cancel_scope.cancel()


@cache
def axe() -> str:
    """Return the script of axe-core, which tests/web/install.py installs; skip the test where it has not."""
    return (installed() / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """Return what axe-core objects to in what a page shows now: rule, element and reason."""
    script = axe()
    if not await page.run("typeof window.axe === 'object'"):
        await page.run(f"{script};1")
    return await page.run(
        "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.flatMap((rule) =>"
        " rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)}: ${node.failureSummary}`)))"
    )
