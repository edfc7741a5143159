"""A cancel at every step of every verb of an agent on a relay: nothing is left, and the next call works."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import Agent, action, open_node, simulate
from lmos_actors.errors import LmosActorsError
from lmos_actors.facades import RelayBridge, RelayMessage, join_relay
from lmos_actors.security import Access, Security
from tests.facades.relays import HUBS, URL, WORLDS
from tests.matrix import few_or_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.facades import Relay

    Verb = Callable[[Relay], Awaitable[object]]

MOST = 60
EACH = few_or_all(19, 1)
"""Steps after which every verb has ended."""

VERBS: dict[str, Verb] = {
    "say": lambda relay: relay.say("hello", "two"),
    "say to all": lambda relay: relay.say("hello"),
    "ask": lambda relay: relay.ask("how are you?", "two"),
    "ask all": lambda relay: relay.ask("how are you?"),
    "answer": lambda relay: relay.answer(RelayMessage("m", "two", ("one",), "?", "question", "r"), "well"),
    "command": lambda relay: relay.command("list_subscriptions"),
    "follow": lambda relay: relay.follow("two"),
    "unfollow": lambda relay: relay.unfollow("two"),
    "next": lambda relay: relay.__anext__(),
}


async def cancelled_after(steps: int, verb: Callable[[], Awaitable[object]]) -> bool:
    """Cancel a verb after so many steps of the loop; return whether it was too late for that."""
    done = False

    async def run() -> None:
        nonlocal done
        await verb()
        done = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return done


@pytest.mark.parametrize("world", ["ours", "reference", "rawk"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_cancel_at_every_step_of_a_verb(world: str, verb: str) -> None:
    async def main() -> None:
        async with (
            WORLDS[world]() as join,
            join("one") as one,
            join("two") as two,
            trio.open_nursery() as nursery,
        ):

            async def answer() -> None:
                async for event in two:
                    if isinstance(event, RelayMessage) and event.type == "question":
                        await two.answer(event, event.payload)

            nursery.start_soon(answer)
            await trio.sleep(1)
            done = False
            for steps in range(0, MOST, EACH):
                done = await cancelled_after(steps, lambda: VERBS[verb](one))
                if steps % 3 == 0:  # else the next is cancelled while this one is on its way
                    with trio.fail_after(10):
                        assert (await one.ask(steps, "two")).payload == steps
                        await one.command("list_subscriptions")
            assert done or verb == "next"
            await trio.sleep(5)
            left: Any = (one._asked, one._queue, one._flight, one._flight._left)
            assert not any(map(len, left))
            nursery.cancel_scope.cancel()

    simulate(main)


@pytest.mark.parametrize("world", ["ours", "reference"])
def test_a_cancel_at_every_step_of_a_connection(world: str) -> None:
    async def main() -> None:
        async with WORLDS[world]() as join:
            async with join("two"):
                pass

            async def be_there() -> None:
                async with join(f"one-{steps}") as one:
                    await one.say("hello")
                    await trio.sleep(1)

            for steps in range(0, MOST, EACH):
                before = trio.lowlevel.current_statistics().tasks_living
                await cancelled_after(steps, be_there)
                await trio.sleep(20)
                assert trio.lowlevel.current_statistics().tasks_living == before
            async with join("last") as last:
                await last.say("hello")

    simulate(main)


class Clock(Agent):
    """Says what it is asked to."""

    @action
    async def say(self, text: str, seconds: float = 0.0) -> str:
        """Say it, after some seconds."""
        await trio.sleep(seconds)
        return text

    @action
    def note(self, text: str) -> None:
        """Note something."""


@pytest.mark.parametrize("world", ["ours", "reference"])
@pytest.mark.parametrize("verb", ["invoke", "invoke slowly", "begin", "cancel", "tell", "ready"])
def test_a_cancel_at_every_step_of_a_ref(world: str, verb: str) -> None:
    async def main() -> None:
        async with HUBS[world]("clock", "caller") as (network, shown):
            rules = Security(access={"clock": Access(invoke="anyone")})
            bridge = RelayBridge(url=URL, credentials=shown["clock"])
            async with (
                open_node(listen="ws://there:80", network=network, bridges=[bridge], security=rules) as there,
                open_node(network=network) as here,
            ):
                await there.start(Clock)
                await join_relay(here, URL, credentials=shown["caller"], peers=True)
                clock = here.find(Clock, "clock")
                await clock.ready()

                async def begun(*, cancels: bool) -> None:
                    async with clock.begin(Clock.say, "x", seconds=1.0) as call:
                        if cancels:
                            with suppress(LmosActorsError):
                                await call.cancel("enough")
                        else:
                            await call.result()

                verbs: dict[str, Callable[[], Awaitable[object]]] = {
                    "invoke": lambda: clock.invoke(Clock.say, "x"),
                    "invoke slowly": lambda: clock.within(30).invoke(Clock.say, "x", seconds=1.0),
                    "begin": lambda: begun(cancels=False),
                    "cancel": lambda: begun(cancels=True),
                    "tell": lambda: clock.tell(Clock.note, "x"),
                    "ready": clock.ready,
                }
                for steps in range(0, MOST, EACH):
                    await cancelled_after(steps, verbs[verb])
                    if steps % 3 == 0:
                        with trio.fail_after(30):
                            assert await clock.invoke(Clock.say, str(steps)) == str(steps)
                await trio.sleep(30)
                peers: Any
                (peers,) = here._rt.relays
                requests: Any = peers._requests
                relay: Any = requests._relay
                assert not any(
                    map(len, (requests._open, requests._line, requests._tells, requests._cancelled))
                )
                assert not any(map(len, (relay._asked, relay._queue, relay._flight, relay._flight._left)))
                assert not here.connection_failures

    simulate(main)
