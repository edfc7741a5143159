"""What stands before every route, on its own: whatever the routes do, it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.bindings import guarded
from lmos_actors.security import Guard, Security
from lmos_actors.transport import ClientLeft
from tests.security.nodes.guarded import Secrets, rules

if TYPE_CHECKING:
    from pathlib import Path

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/stream",
    "raw_path": b"/stream",
    "query_string": b"",
    "scheme": "http",
    "client": ("127.0.0.1", 5),
}


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


def scope_with(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {**SCOPE, "state": {}, "headers": [(b"host", b"localhost"), *headers]}


class Sent:
    """What went out."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)


async def test_an_answer_in_parts_is_ended_by_the_guard_itself(autojump_clock: Any, secrets: Secrets) -> None:
    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for count in range(10):
            await send({"type": "http.response.body", "body": b"%d" % count, "more_body": True})
            await trio.sleep(1)

    sent = Sent()
    app = guarded(stream, Guard(rules(secrets), wall=trio.current_time))
    async with trio.open_nursery() as nursery:

        async def revoke() -> None:
            await trio.sleep(3.5)
            secrets.put("alice", "token-c")

        nursery.start_soon(revoke)
        with pytest.raises(ClientLeft):
            await app(scope_with((b"authorization", b"Bearer token-a")), None, sent)  # type: ignore[arg-type]
    bodies = [each for each in sent.messages if each["type"] == "http.response.body"]
    assert b"".join(each["body"] for each in bodies) in (b"0123", b"01234")
    assert bodies[-1]["more_body"] is False


async def test_a_short_cut_is_for_what_no_page_has_sent_and_for_names_that_are_known(
    autojump_clock: Any,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    door = guarded(app, Guard(Security(), wall=trio.current_time))

    async def status(*headers: tuple[bytes, bytes]) -> int:
        sent = Sent()
        await door(scope_with(*headers), None, sent)  # type: ignore[arg-type]
        return sent.messages[0]["status"]

    for _ in range(2):
        assert await status() == 200
        assert await status((b"origin", b"http://localhost")) == 200
        assert await status((b"origin", b"http://evil.example")) == 403
        assert await status((b"host", b"localhost")) == 400  # two hosts


async def test_a_refusal_of_a_route_names_the_schemes(autojump_clock: Any, secrets: Secrets) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"x-own", b"1")]})

    sent = Sent()
    door = guarded(app, Guard(rules(secrets), wall=trio.current_time))
    await door(scope_with((b"authorization", b"Bearer token-a")), None, sent)  # type: ignore[arg-type]
    names = [name for name, _ in sent.messages[0]["headers"]]
    assert names == [b"x-own", b"www-authenticate", b"www-authenticate"]
