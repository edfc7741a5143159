"""First windows of one-way messages: there is memory for those of all connections that a node takes."""

from __future__ import annotations

from collections import defaultdict

import trio

from lmos_actors import Agent, ChildSpec, MailboxOptions, action, open_node
from lmos_actors._core import TOTAL
from lmos_actors.protocol import lmos
from lmos_actors.testing import settle
from lmos_actors.transport import DoorOptions
from tests.bindings.server_connections import Session, serving

PART = 20
"""The part of the default memory, and of the connections that a node takes by default."""

NAMES = [f"counter-{number}" for number in range(3)]
SIZE = 1_000


async def test_many_connections_that_tell_at_once_are_not_closed_for_it(virtual_clock: object) -> None:
    gate, came = trio.Event(), defaultdict[str, list[int]](list)

    class Slow(Agent, mailbox=MailboxOptions(size=1)):
        @action
        async def take(self, teller: str, number: int, text: str) -> None:
            await gate.wait()
            came[teller].append(number)

    async with open_node() as node, serving(node) as it:
        for name in NAMES:
            await node.start_child(ChildSpec(name, Slow))
        budget = it.server.context.budget
        budget.limit = TOTAL // PART
        tellers: list[Session] = []
        for number in range(DoorOptions().max_connections // PART):
            teller = Session(peer=f"teller:{number}")
            teller.account = budget.open(bool)
            await it.line(teller)
            tellers.append(teller)
        sent = dict.fromkeys((teller.peer for teller in tellers), 0)
        for _ in range(3):  # the first time all at once, and then as much as the server grants
            for teller in tellers:
                for name in NAMES:
                    while teller.session.may_tell(name):
                        sent[teller.peer] += 1
                        words = {"teller": teller.peer, "number": sent[teller.peer], "text": "x" * SIZE}
                        teller.session.tell(name, "take", words)
            for teller in tellers:
                assert not [each for each in teller.carry() if isinstance(each, lmos.ForgottenFailed)]
            memory = budget.statistics()
            assert memory.bytes + memory.granted <= memory.limit
        assert budget.statistics().gave_way == 0
        assert min(sent.values()) == 2
        assert max(sent.values()) > 10
        gate.set()
        await settle()
        for teller in tellers:
            assert not [each for each in teller.carry() if isinstance(each, lmos.ForgottenFailed)]
            assert sorted(came[teller.peer]) == [*range(1, sent[teller.peer] + 1)]
            assert teller.closed is None
        assert budget.statistics().gave_way == 0
        assert budget.statistics().bytes == 0
