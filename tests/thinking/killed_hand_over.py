"""The program that `test_killed_hand_over.py` kills: a desk that hands conversations over to a clerk."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from lmos_actors import ActionFailed, ChildSpec, Ref, open_node
from lmos_actors.facades import ChatAgent
from lmos_actors.facades.chat import SESSION_EXPIRED
from lmos_actors.llm import Model, ModelEnd, ModelMessage, TextDelta, ToolMessage, ToolRequest, UserMessage
from lmos_actors.persistence import Put
from lmos_actors.thinking import ThinkingAgent, hand_over
from tests.lives import FatalStore, Outside

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.llm import ModelItem, ModelRequest
    from lmos_actors.persistence import Write


class Deskmate(Model):
    """Hands over at once for the desk; for the clerk it asks for one tool, and says what became of it."""

    outside: Outside

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        last = next(each for each in reversed(request.messages) if isinstance(each, UserMessage))
        plan = last.text.split("\n")[0].split()[-1]
        who = "desk" if request.instructions.startswith("You pass") else "clerk"
        self.outside.reach(f"{who} stream of {plan}")
        said = request.messages[-1]
        if who == "desk":
            assert not any(isinstance(each, ModelMessage) for each in request.messages)
            yield ToolRequest(f"{plan}-over", "hand_over_to_Clerk", {"reason": plan})
        elif not isinstance(said, ToolMessage):
            yield TextDelta("Working. ")
            yield ToolRequest(f"{plan}-work", "work", {"plan": plan})
        else:
            yield TextDelta(f"work={'unknown' if said.error else 'ok'}")
        self.outside.reach(f"{who} end of {plan}")
        yield ModelEnd("stop" if isinstance(said, ToolMessage) else "tools")


class Clerk(ThinkingAgent):
    """You work."""


class Desk(ThinkingAgent):
    """You pass on."""

    tools = (hand_over(Clerk),)


def name_of(write: Write) -> str:
    """Return what is written, and by which agent, as a life may end there."""
    if not isinstance(write, Put) or not write.space.startswith("chat "):
        return ""
    agent = write.key.partition("\0")[0]
    found: dict[str, Any] = msgspec.json.decode(write.value)
    match write.space:
        case "chat turns":
            return f"{agent} turn {found.get('resumed', 0)}"
        case "chat messages":
            return f"{agent} history" if found["role"] == "user" else ""
        case _:
            return f"{agent} {found.get('message', {}).get('role', found['type'])}"


async def main(folder: str, plans: list[str], end: str = "") -> None:
    """Have plans carried out, each in a session of its own; the life ends at a point of the last one."""
    outside = Outside(Path(folder))

    async def work(plan: str) -> str:
        """Work."""
        outside.reach(f"work before of {plan}")
        outside.append("log", "did", plan, sync=True)
        outside.reach(f"work done of {plan}")
        return "done"

    async with open_node(store=FatalStore(outside, name_of)) as node:
        await node.start(partial(Deskmate, outside=outside))
        clerk: Ref[Clerk] = await node.start_child(ChildSpec("clerk", partial(Clerk, tools=[work])))
        desk: Ref[Desk] = await node.start_child(ChildSpec("desk", Desk))
        for plan in plans:
            history = await said_in(desk, plan)
            if end and plan == plans[-1]:
                outside.end_at(end)
            if not history:
                async with desk.stream(ChatAgent.chat, f"plan {plan}", plan, new=True) as items:
                    async for _ in items:
                        pass
        await clerk.ready()
        found: list[Any] = [await said_in(desk, each.id) for each in await desk.invoke(ChatAgent.sessions)]
        worked: list[Any] = [await said_in(clerk, each.id) for each in await clerk.invoke(ChatAgent.sessions)]
        (outside.folder / "end.json").write_bytes(msgspec.json.encode([found, worked]))


async def said_in(agent: Ref[Any], session: str) -> list[Any]:
    try:
        with trio.fail_after(60):
            return await agent.invoke(ChatAgent.history, session, settled=True)  # type: ignore[no-any-return]
    except ActionFailed as error:
        if error.code != SESSION_EXPIRED:
            raise
        return []
