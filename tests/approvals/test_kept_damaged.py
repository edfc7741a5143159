"""Records of approvals and of sessions that cannot be read: the error names the record, and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors import Agent, StartFailed, action, open_node
from lmos_actors.errors import StoreDamaged
from lmos_actors.persistence import Put
from tests.facades.desk import Desk
from tests.facades.lives import in_memory

DAMAGED = (b"{", b"null", b"\xff", b'{"id": "1"}', b"[" * 5_000)


class Asker(Agent):
    """Asks."""

    @action
    async def ask(self) -> str:
        try:
            return str(await self.approve("Refund?", key="k", expires=9))
        except StoreDamaged as error:
            return str(error)


@pytest.mark.parametrize("value", DAMAGED)
async def test_an_approval_that_cannot_be_read_is_named(value: bytes, autojump_clock: Any) -> None:
    store = in_memory()
    store.at_rest(Put("approvals", "asker\0old", value))
    async with open_node(store=store) as node:
        asker = await node.start(Asker)
        said = await asker.invoke(Asker.ask)
    assert "the record 'asker\\x00old' in 'approvals' is no approval; keep a copy of the file" in said


@pytest.mark.parametrize("value", DAMAGED)
async def test_a_session_that_cannot_be_read_is_named(value: bytes) -> None:
    store = in_memory()
    store.at_rest(Put("chats", "desk\0\0s", value))
    async with open_node(store=store) as node:
        with pytest.raises(StartFailed, match="in 'chats' is no session; keep a copy of the file"):
            await node.start(Desk)
