"""A node that registers at a directory that fails with some, is slow, or hangs; credentials that go away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from lmos_actors import Agent, ChildSpec, open_node
from lmos_actors.discovery import Registration
from lmos_actors.security import BearerToken, Credentials
from tests.discovery.fake import FakeDirectory, directory_at

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

URL = "http://directory:81"


class Weather(Agent):
    """Answers questions about the weather."""


class Clock(Agent):
    """Tells the time."""


class Slow(FakeDirectory):
    """Takes a while for each request, and hangs or breaks off when it is told to."""

    seconds = 0.0
    mute = False

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer what comes over one connection, later."""
        await super().serve(_Later(stream, self))


class _Later(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream, slow: Slow) -> None:
        self._stream = stream
        self._slow = slow

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep(self._slow.seconds)
        if self._slow.mute:
            await trio.sleep_forever()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("ttl", [3.0, 60.0])
def test_one_that_a_directory_fails_with_lets_no_others_expire(ttl: float) -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.refused["Clock"] = 500
        async with directory_at(URL, fake):
            async with open_node(listen="ws://here:80", register=Registration(URL, ttl=ttl)) as node:
                await node.start(Weather)
                await node.start(Clock)
                await node.start(Weather)
                await trio.sleep(ttl)
                for _ in range(50):
                    await trio.sleep(ttl / 6)
                    assert fake.titles == ["Weather", "Weather"]
                fake.refused.clear()
                await trio.sleep(ttl)
                assert fake.titles == ["Clock", "Weather", "Weather"]
                assert node.registrations[0].failure is None
                fake.refused["Clock"] = 500
            assert fake.titles == []

    run(main)


def test_a_node_that_ends_takes_away_what_a_failing_directory_has() -> None:
    async def main() -> None:
        fake = FakeDirectory()
        fake.refused["Clock"] = 500
        async with directory_at(URL, fake):
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Clock)
                await node.start(Weather)
                await trio.sleep(30)
                assert fake.titles == ["Weather"]
            assert fake.titles == []

    run(main)


def test_renewals_are_not_held_up_by_what_comes_and_goes() -> None:
    async def main() -> None:
        slow = Slow()
        slow.seconds = 0.1
        async with (
            directory_at(URL, slow),
            open_node(listen="ws://here:80", register=Registration(URL, ttl=3)) as node,
            trio.open_nursery() as nursery,
        ):

            async def crowd() -> None:
                for number in range(300):
                    await node.root.start_child(ChildSpec(f"clock-{number}", Clock))
                    await trio.sleep(0.05)

            await node.start(Weather)
            await trio.sleep(1)
            nursery.start_soon(crowd)
            for _ in range(30):
                await trio.sleep(0.5)
                assert "Weather" in slow.titles
            nursery.cancel_scope.cancel()

    run(main)


def test_what_was_registered_without_an_answer_is_taken_away() -> None:
    async def main() -> None:
        slow = Slow()
        async with directory_at(URL, slow), open_node(listen="ws://here:80", register=URL) as node:
            slow.mute = True
            await node.start(Clock)
            await trio.sleep(1)
            assert slow.titles == ["Clock"]  # and nobody was told
            await node.root.terminate_child("clock")
            await node.root.delete_child("clock")
            slow.mute = False
            await trio.sleep(60)
            assert slow.titles == []

    run(main)


def test_a_directory_that_hangs_in_the_middle_holds_the_end_up_for_five_seconds_at_most() -> None:
    async def main() -> None:
        slow = Slow()
        slow.mute = True
        async with directory_at(URL, slow):
            async with open_node(listen="ws://here:80", register=URL) as node:
                await node.start(Weather)
                await trio.sleep(1)
                begin = trio.current_time()
            assert trio.current_time() - begin < 5.1

    run(main)


def test_credentials_that_are_gone_for_a_while_end_no_node(tmp_path: Path) -> None:
    async def main() -> None:
        token = tmp_path / "token"
        token.write_text("a-token-of-some-length")
        credentials = Credentials({URL: BearerToken(f"file:{token}")}, allow_insecure=True)
        options: Any = {"register": Registration(URL, ttl=60), "credentials": credentials}
        async with directory_at(URL) as fake, open_node(listen="ws://here:80", **options) as node:
            await node.start(Weather)
            await trio.sleep(1)
            token.unlink()
            await trio.sleep(50)
            assert "token" in (node.registrations[0].failure or "")
            with pytest.raises(Exception, match="No such file"):
                await node.find(Clock, capability="time").read_all()
            token.write_text("a-token-of-some-length")
            await trio.sleep(30)
            assert fake.titles == ["Weather"]
            assert node.registrations[0].failure is None

    run(main)
