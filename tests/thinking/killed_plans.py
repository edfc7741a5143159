"""The program that `test_killed_plans.py` kills: an agent that works on plans, with tools that have effects.

Each plan is one turn of a conversation: the model asks for `ship` and `note` together, then for a refund that
a person has to approve, then for `look`, which may be repeated, and then it answers what became of each.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Node, Ref, action, open_node
from lmos_actors.approvals import Approvals
from lmos_actors.facades import ChatAgent, SessionOptions, tool_of
from lmos_actors.facades.chat import SESSION_EXPIRED
from lmos_actors.llm import Model, ModelEnd, ModelMessage, TextDelta, ToolMessage, ToolRequest, UserMessage
from lmos_actors.persistence import Put
from lmos_actors.thinking import Budget, ThinkingAgent
from tests.lives import FatalStore, Outside

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors.llm import ModelItem, ModelRequest
    from lmos_actors.persistence import Write

ROUNDS = [["ship", "note"], ["refund"], ["look"]]
TOOLS = [name for names in ROUNDS for name in names]


class Planner(Model):
    """Asks for the tools of one round after the other, and answers what became of each."""

    outside: Outside

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelItem]:
        if request.instructions.startswith("Summarize"):
            yield TextDelta("Plans were carried out.")
            yield ModelEnd()
            return
        plan, round, results = self._read(request)
        self.outside.log("asked", plan, round)
        unknown = [each for each in results if each.error.startswith("OutcomeUnknown")]
        for each in unknown:
            self.outside.log("told", plan, each.name)
        look = [each for each in results if each.name == "look"]
        names = ROUNDS[round] if round < len(ROUNDS) else []
        if look:
            names = ["look"] if look[-1] in unknown else []
        for piece in [f"Round {round}", ". ", "Next. "] if names else ["Done: ", *self._became(results)]:
            self.outside.reach(f"stream {round} of {plan}")
            yield TextDelta(piece)
        for name in names:
            yield ToolRequest(f"{plan}-{name}-{len(look)}", name, {"plan": plan})
        self.outside.reach(f"end {round} of {plan}")
        yield ModelEnd("tools" if names else "stop")

    def _read(self, request: ModelRequest) -> tuple[str, int, list[ToolMessage]]:
        """Return the plan, the number of this round, and the results so far."""
        last = max(i for i, each in enumerate(request.messages) if isinstance(each, UserMessage))
        plan = request.messages[last]
        assert isinstance(plan, UserMessage)
        since = request.messages[last + 1 :]
        asked = [each for each in since if isinstance(each, ModelMessage)]
        results = [each for each in since if isinstance(each, ToolMessage)]
        assert [each.id for each in results] == [each.id for one in asked for each in one.tools]
        return plan_of(plan.text), len(asked), results

    def _became(self, results: list[ToolMessage]) -> list[str]:
        return [f"{each.name}={'unknown ' if each.error else 'ok '}" for each in results]


class Refunds(Agent):
    """Pays money back."""

    outside: Outside

    @action(concurrency=99)
    async def refund(self, plan: str) -> str:
        """Pay back what a plan has cost."""
        if not await self.approve(f"Refund {plan}", key=plan):
            return "refused"
        return do("refund", plan, self.outside)


class Worker(ThinkingAgent):
    """You carry out plans."""

    session_options = SessionOptions(messages=1_000_000, bytes=1 << 40)
    budget = Budget(calls=20, tools=20)
    history_tokens = 400


def do(tool: str, plan: str, outside: Outside) -> str:
    """Have an effect outside of the process."""
    outside.reach(f"{tool} before of {plan}")
    outside.append("log", "did", plan, tool, sync=True)
    outside.reach(f"{tool} done of {plan}")
    return "done"


def tools_of(outside: Outside) -> list[Any]:
    async def ship(plan: str) -> str:
        """Ship the goods of a plan."""
        return do("ship", plan, outside)

    async def note(plan: str) -> str:
        """Note a plan."""
        return do("note", plan, outside)

    async def look(plan: str) -> str:
        """Look what a plan has done."""
        return do("look", plan, outside)

    return [ship, note, Refunds, tool_of(look, repeatable=True)]


def name_of(write: Write) -> str:
    """Return what is written for which plan, as a life may end there."""
    if not isinstance(write, Put):
        return ""
    found: dict[str, Any] = {}
    if write.space in ("approvals", "chat turns", "chat messages", "chat steps"):
        found = msgspec.json.decode(write.value)
    match write.space:
        case "approvals":
            return f"{found['state']} of {found['key']}"
        case "chat turns":
            return f"turn {found.get('resumed', 0)} of {plan_of(found['text'])}"
        case "chat messages" if found["role"] == "user":
            return f"history of {plan_of(found['text'])}"
        case "chat steps" if found["type"] == "said":
            return step_name(found["message"])
        case _:
            return ""


def step_name(said: dict[str, Any]) -> str:
    if said["role"] == "model":
        plan = said["tools"][0]["arguments"]["plan"]
        return f"request {'+'.join(each['name'] for each in said['tools'])} of {plan}"
    plan = said["id"].partition("-")[0]
    return f"{'unknown' if 'error' in said else 'result'} {said['name']} of {plan}"


def plan_of(text: str) -> str:
    return text.split()[-1]


async def decide(node: Node) -> None:
    """Approve what is asked."""
    approvals: Ref[Approvals] = node.find(Approvals)
    await approvals.ready()
    async with approvals.observe(Approvals.waiting) as numbers:
        async for _ in numbers:
            for each in await approvals.invoke(Approvals.entries):
                if each.state == "waiting":
                    await approvals.invoke(Approvals.accept, each.id)


async def main(
    folder: str, sessions: dict[str, list[str]], end: str = "", seconds: float = 0.0, shared: str = ""
) -> None:
    """Have plans carried out, side by side in several sessions; each may have begun in an earlier life.

    The life ends at a point, or after so many seconds, or in order; then the histories are written down. With
    a `shared` store, that of a server, it does not end at the point, but is paused.
    """
    outside = Outside(Path(folder), signal.SIGSTOP if shared else signal.SIGKILL)
    outside.log("life")
    outside.end_at(end)
    if seconds:
        outside.end_after(seconds)
    store = shared or FatalStore(outside, name_of)
    async with open_node(store=store, approvals=True) as node, trio.open_nursery() as nursery:
        nursery.start_soon(decide, node)
        await node.start(partial(Planner, outside=outside))
        await node.start(partial(Refunds, outside=outside))
        worker = await node.start_child(ChildSpec("worker", partial(Worker, tools=tools_of(outside))))
        async with trio.open_nursery() as callers:
            for session, plans in sessions.items():
                callers.start_soon(have, worker, session, plans, outside)
        histories = {each: await worker.invoke(ChatAgent.history, each) for each in sessions}
        asked = await node.find(Approvals).invoke(Approvals.entries, "all", 10_000)
        (outside.folder / "end.json").write_bytes(msgspec.json.encode([histories, asked]))
        nursery.cancel_scope.cancel()


async def have(worker: Ref[Worker], session: str, plans: list[str], outside: Outside) -> None:
    """Have plans carried out, as a caller does who does not know whether they have been asked for already."""
    for plan in plans:
        text = f"plan {plan}"
        try:
            history = await worker.invoke(ChatAgent.history, session, settled=True)
        except ActionFailed as error:
            if error.code != SESSION_EXPIRED:
                raise
            history = []
        if not any(each.text == text for each in history):
            outside.log("said", plan)
            async with worker.stream(ChatAgent.chat, text, session, new=True) as items:
                async for _ in items:
                    pass
            outside.log("answered", plan)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], {"s": ["0"]}, sys.argv[3], 0.0, sys.argv[2])
