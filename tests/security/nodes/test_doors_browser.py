"""A page that somebody happens to visit locks nobody out of a node: in a real browser, at all doors."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from lmos_actors import open_node
from lmos_actors.security import Rate
from lmos_actors.transport import ConnectFailed, TcpNetwork, connect
from tests.chromium import Page, browser as browser, opened
from tests.security.nodes.guarded import Secrets, rules, tree

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TIMES = 20
"""How often the page tries each door: far oftener than one may be wrong."""

PAGE = """<!doctype html><title>elsewhere</title><body><script>
const PATHS = ['agents', 'agents/desk', 'things', 'mcp', 'register', 'stats', 'live/session', 'arc'];
const SOCKETS = ['ws', 'arc?token=wrong', 'api/agents/desk/ws', 'live'];
let open = 0, done = 0;
const end = (why) => () => { done++; };
for (let i = 0; i < TIMES; i++) {
  for (const path of PATHS) {
    const address = 'NODE' + path + '?token=wrong';
    fetch(address, {mode: 'no-cors', credentials: 'include'}).then(end(), end());
    fetch(address, {mode: 'no-cors', method: 'POST', body: '{}'}).then(end(), end());
    fetch(address, {headers: {authorization: 'Bearer wrong'}}).then(end(), end());
    const image = new Image(); image.onload = image.onerror = end(); image.src = address;
  }
  for (const path of SOCKETS) {
    const socket = new WebSocket('NODE'.replace('http', 'ws') + path);
    socket.onopen = () => { open++; };
    socket.onclose = end();
  }
}
const ALL = TIMES * (PATHS.length * 4 + SOCKETS.length);
</script>"""


@pytest.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with opened(browser) as page:
        yield page


@asynccontextmanager
async def site(html: str, host: str) -> AsyncGenerator[str]:
    """Serve a page at a port of its own: at 127.0.0.1 the same site as the node, at localhost another."""
    body = html.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(head + body)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield f"http://{host}:{listeners[0].socket.getsockname()[1]}/"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_page_that_somebody_visits_locks_nobody_out(page: Page, tmp_path: Path, host: str) -> None:
    secrets = Secrets(tmp_path)
    async with open_node(
        tree(),
        listen="ws://127.0.0.1:0",
        security=rules(secrets, failures=Rate(0.01, 2)),
        relay=True,
        omnia=True,
        mcp=True,
        directory=True,
    ) as node:
        url = node.urls[0].replace("ws://", "http://") + "/"
        html = PAGE.replace("NODE", url).replace("TIMES", str(TIMES))
        async with site(html, host) as address:
            await page.visit(address, "body")
            await page.until("done === ALL")
            assert await page.run("open") == 0

        async def status(token: str) -> int | None:
            try:
                lines = ((b"authorization", f"Bearer {token}".encode()),)
                connection = await connect(TcpNetwork(), f"{node.urls[0]}/ws", headers=lines)
            except ConnectFailed as failure:
                return failure.status
            await connection.aclose()
            return 101

        assert await status("token-a") == 101  # it is new, and can be guessed: nothing has failed
        assert [await status("wrong") for _ in range(3)] == [401, 401, 429]
        page.problems.clear()
        page.requests.clear()
