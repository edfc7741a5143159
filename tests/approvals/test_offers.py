"""What is asked in a turn of a chat goes to its user, who needs the right to decide it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import ActionFailed, Agent, action, open_node, simulate
from lmos_actors.approvals import Approvals
from lmos_actors.facades import ChatAgent, ChatTurn, ClientAnswer, TurnDone, open_chat
from lmos_actors.security import Access, Bearer, BearerToken, Credentials, Security
from lmos_actors.testing import answer_approval
from lmos_actors.transport import MemoryNetwork
from tests.facades.desk import URL, opened_raw
from tests.security.nodes.guarded import Secrets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from lmos_actors.facades import ToolCalled


class Refunds(Agent):
    """Pays money back, once somebody agrees."""

    @action(concurrency=9)
    async def refund(self, order: str) -> bool:
        return await self.approve(f"Refund {order}", {"order": order}, key=order, expires=600)


class Desk(ChatAgent):
    """Asks itself, or has another agent ask."""

    async def reply(self, turn: ChatTurn) -> str:
        word, _, order = turn.text.partition(" ")
        if word == "own":
            return str(await self.approve(f"Refund {order}", key=order, expires=600))
        return str(await self.find(Refunds).invoke(Refunds.refund, order))


class Talker(ChatAgent):
    """Asks while it talks and talks."""

    decided: list[bool] = attrs.field(factory=list)

    async def reply(self, turn: ChatTurn) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._talk, turn)
            await trio.sleep(1)
            decided = await self.approve("Go on?", key=turn.text, expires=600)
            self.decided.append(decided)
            nursery.cancel_scope.cancel()
        return str(decided)

    async def _talk(self, turn: ChatTurn) -> None:
        while True:
            await turn.say("word ")


class Front(ChatAgent):
    """Has the desk answer."""

    async def reply(self, turn: ChatTurn) -> str:
        async with self.find(Desk).stream(Desk.chat, turn.text) as items:
            async for item in items:
                if isinstance(item, TurnDone):
                    return item.text
        return "nothing"


async def approve(agent: str, text: str, expires: float, data: Any = None) -> bool:
    """Approve what an agent asks."""
    return True


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


class Shop:
    """A node with agents that ask, and its users: alice may decide, bob may not."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self.network = MemoryNetwork()
        tokens = {name: secrets.put(name, f"token-{name}") for name in ("alice", "bob")}
        may = Access(approve=("alice",))
        self.security = Security(
            schemes=(Bearer(tokens),), access={"refunds": may, "desk": may, "talker": may}
        )
        self.asked: list[ToolCalled] = []

    async def run(self, body: Callable[[Any], Awaitable[None]]) -> None:
        options: Any = {"listen": URL, "omnia": True, "network": self.network, "insecure": True}
        async with open_node(**options, security=self.security) as node:
            for each in (Refunds, Desk, Front):
                await node.start(each)
            await body(node)
            assert node.crash_reports == ()

    def chat(self, name: str, consents: bool = True, agent: str = "desk", tools: Any = (approve,)) -> Any:
        async def consent(call: ToolCalled) -> bool:
            self.asked.append(call)
            return consents

        place = {"http://desk": BearerToken(self.secrets.put(f"{name}-out", f"token-{name}"))}
        credentials = Credentials(place, allow_insecure=True)
        return open_chat(
            f"{URL}/agents/{agent}",
            network=self.network,
            credentials=credentials,
            tools=tools,
            consent=consent,
        )


@pytest.mark.parametrize(
    ("agent", "text", "asker"),
    [("desk", "own o-1", "desk"), ("desk", "refund o-1", "refunds"), ("front", "refund o-1", "refunds")],
)
@pytest.mark.parametrize("consents", [True, False])
def test_a_user_with_the_right_decides(
    secrets: Secrets, agent: str, text: str, asker: str, consents: bool
) -> None:
    shop = Shop(secrets)

    async def body(node: Any) -> None:
        async with shop.chat("alice", consents, agent) as chat:
            assert (await chat.say(text)).text == str(consents)
        (call,) = shop.asked
        assert (call.name, call.consent_message, call.categories) == ("approve", "Refund o-1", ["approval"])
        assert (call.arguments["agent"], call.arguments["text"]) == (asker, "Refund o-1")
        (kept,) = await node.find(Approvals).invoke(Approvals.entries, "decided")
        assert (kept.agent, kept.state, kept.by) == (asker, "approved" if consents else "refused", "alice")

    simulate(lambda: shop.run(body))


def test_a_user_without_the_right_is_not_asked(secrets: Secrets) -> None:
    shop = Shop(secrets)

    async def body(node: Any) -> None:
        async with shop.chat("bob") as chat, trio.open_nursery() as nursery:
            nursery.start_soon(answer_approval, node, False)
            assert (await chat.say("refund o-1")).text == "False"
        assert shop.asked == []

    simulate(lambda: shop.run(body))


def test_the_first_answer_counts(secrets: Secrets) -> None:
    shop = Shop(secrets)
    token = ((b"authorization", b"Bearer token-alice"),)

    async def body(node: Any) -> None:
        approvals = node.find(Approvals)
        async with opened_raw(shop.network, "agent=desk", headers=token) as raw:
            raw.ask("refund o-1")
            call = (await raw.next("tool_call"))["tool_call"]
            raw.say(type="tool_call_ack", tool_call_ack={"call_id": call["id"]})
            kept = await answer_approval(node, False, note="by phone")
            assert (await raw.end())["content"] == "False"
            late = {"call_id": call["id"], "result": True}
            raw.say(type="tool_result", tool_result=late)
            assert (await raw.next("error"))["error"]["code"] == "INVALID_MESSAGE"
        (found,) = await approvals.invoke(Approvals.entries, "decided")
        assert (found.id, found.state, found.note) == (kept.id, "refused", "by phone")
        assert shop.asked == []
        async with shop.chat("alice") as chat:
            await chat.say("refund o-2")
        (_, kept) = await approvals.invoke(Approvals.entries, "decided")
        with pytest.raises(ActionFailed, match="alice has approved it already"):
            await approvals.invoke(Approvals.refuse, kept.id)

    simulate(lambda: shop.run(body))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"type": "tool_call_nack", "tool_call_nack": {"reason": "no such tool"}},
        {"type": "tool_result", "tool_result": {"error": "no such tool"}},
        {"type": "tool_result", "tool_result": {"result": None}},
        {"type": "tool_result", "tool_result": {"result": "yes"}},
        {"type": "tool_result", "tool_result": {"result": {"approved": "yes"}}},
        {"type": "tool_result", "tool_result": {"result": {"approved": True, "answer": {"name": "Ann"}}}},
    ],
)
def test_an_answer_that_decides_nothing_leaves_it_to_others(secrets: Secrets, answer: Any) -> None:
    shop = Shop(secrets)
    token = ((b"authorization", b"Bearer token-alice"),)

    async def body(node: Any) -> None:
        async with opened_raw(shop.network, "agent=desk", headers=token) as raw:
            raw.ask("refund o-1")
            call = (await raw.next("tool_call"))["tool_call"]
            if answer is not None:
                said = json.loads(json.dumps(answer))
                said[said["type"]]["call_id"] = call["id"]
                raw.say(said)
            await trio.sleep(30)
            (found,) = await node.find(Approvals).invoke(Approvals.entries)
            assert (found.state, found.awaited) == ("waiting", True)
            await node.find(Approvals).invoke(Approvals.accept, found.id)
            assert (await raw.end())["content"] == "True"

    simulate(lambda: shop.run(body))


@pytest.mark.parametrize("refuses", [True, False])
def test_a_client_that_does_not_acknowledge_is_not_asked_again_in_that_session(
    secrets: Secrets, refuses: bool
) -> None:
    shop = Shop(secrets)
    token = ((b"authorization", b"Bearer token-alice"),)

    async def calls(node: Any, order: str, session: str | None) -> tuple[int, str]:
        """Have people decide about a refund after a while; return the calls that came, and the session."""
        async with opened_raw(shop.network, "agent=desk", headers=token) as raw:
            raw.ask(f"refund {order}", session_id=session)
            count = 0
            with trio.move_on_after(10):
                while True:
                    call = (await raw.next("tool_call"))["tool_call"]
                    count += 1
                    if refuses:
                        raw.say(type="tool_call_nack", tool_call_nack={"call_id": call["id"]})
            await answer_approval(node, True)
            end = await raw.end()
            assert end["content"] == "True"
            return count, end["session_id"]

    async def body(node: Any) -> None:
        first, session = await calls(node, "o-1", None)
        again, _ = await calls(node, "o-2", session)
        other, _ = await calls(node, "o-3", None)
        assert (first, again, other) == (1, 0, 1)

    simulate(lambda: shop.run(body))


def test_a_client_that_does_not_read_holds_up_no_decision(secrets: Secrets) -> None:
    shop = Shop(secrets)

    async def answers() -> AsyncGenerator[ClientAnswer]:
        await trio.sleep_forever()
        yield ClientAnswer("", "refused")

    async def body(node: Any) -> None:
        decided: list[bool] = []
        await node.start(Talker, decided=decided)
        place = {"http://desk": BearerToken(secrets.put("alice-out", "token-alice"))}
        credentials = Credentials(place, allow_insecure=True)
        async with open_node(network=shop.network, credentials=credentials) as other:
            talker = await other.consume(Talker, f"{URL}/agents/talker")
            async with talker.stream(Talker.converse, answers(), "o-1"):
                await trio.sleep(5)
                await answer_approval(node, True)
                await trio.sleep(5)
                assert decided == [True]

    simulate(lambda: shop.run(body))


def test_a_user_who_leaves_decides_nothing(secrets: Secrets) -> None:
    shop = Shop(secrets)
    token = ((b"authorization", b"Bearer token-alice"),)

    async def body(node: Any) -> None:
        async with opened_raw(shop.network, "agent=desk", headers=token) as raw:
            raw.ask("refund o-1")
            await raw.next("tool_call")
        await trio.sleep(1)
        (found,) = await node.find(Approvals).invoke(Approvals.entries)
        assert (found.state, found.awaited) == ("waiting", False)
        async with shop.chat("alice") as chat:  # who comes back is asked again
            assert (await chat.say("refund o-1")).text == "True"

    simulate(lambda: shop.run(body))


def test_a_right_that_is_taken_away_meanwhile_counts_no_more(secrets: Secrets) -> None:
    shop = Shop(secrets)
    token = ((b"authorization", b"Bearer token-alice"),)

    async def body(node: Any) -> None:
        async with opened_raw(shop.network, "agent=desk", headers=token) as raw:
            raw.ask("refund o-1")
            call = (await raw.next("tool_call"))["tool_call"]
            secrets.put("alice", "another token")
            await trio.sleep(2)
            raw.say(type="tool_result", tool_result={"call_id": call["id"], "result": True})
            await trio.sleep(1)
            (found,) = await node.find(Approvals).invoke(Approvals.entries)
            assert found.state == "waiting"
            await node.find(Approvals).invoke(Approvals.refuse, found.id)

    simulate(lambda: shop.run(body))
