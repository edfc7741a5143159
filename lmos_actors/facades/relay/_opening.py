"""Joining a relay as an agent, for a block."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import trio

from lmos_actors._core import for_async_with
from lmos_actors.actors import RUNTIME
from lmos_actors.transport import default_network

from ._session import Relay
from ._urls import relay_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Iterable

    from lmos_actors.security import Credentials
    from lmos_actors.transport import Network


@for_async_with
@asynccontextmanager
async def open_relay(
    url: str,
    *,
    id: str | None = None,
    names_itself: bool = True,
    network: Network | None = None,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
    follow: Iterable[str] = (),
) -> AsyncGenerator[Relay]:
    """Join a relay as an agent, for a block.

    `url` is the relay's URL, such as `ws://127.0.0.1:8080/arc`. `credentials` contain the agent's token. `id`
    is the agent's id, for relays that do not report it; with `names_itself`, each message contains it, as old
    relays require. `follow` names agents to follow from the beginning.

    Raises ConnectFailed if the relay cannot be reached now or rejects the agent, and ConfigError for an
    invalid address. An exception of the body is raised unchanged.
    """
    rt = RUNTIME.get()
    relay = Relay(
        relay_url(url),
        id=id,
        names_itself=names_itself,
        network=default_network() if network is None else network,
        tls=tls,
        credentials=credentials,
        new_id=(lambda: uuid4().hex) if rt is None else rt.entropy.new_id,
        draw=random.random if rt is None else rt.entropy.stream("relay").random,
    )
    relay.prepare(follow)
    await relay.connect()
    failure: BaseException | None = None
    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        nursery.start_soon(relay.run)
        try:
            await relay.wait_ready()
            yield relay
        except BaseException as error:  # noqa: ASYNC103 -- raised below, and not in a group of the nursery
            failure = error
        nursery.cancel_scope.cancel("the relay is left")
    if failure is not None:
        raise failure
