"""Thinking agents: chat agents that answer with a language model.

`reply` runs one round of `think` for a message, with everything else that a conversation needs: a bounded
history, the files of the message, a budget for the session, and the agents to which the conversation can be
handed over. To do something else, an agent overrides `reply` as a whole, or one of the small methods that
`reply` calls.

On a node with a store, a turn survives the end of its process: each piece of work is recorded as a step of
the turn (`_steps.py`). A resumed turn follows the same path and skips the recorded steps. Finished work is
never repeated; the model is told that the outcome of work that was in progress is unknown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence  # noqa: TC003 -- types of an agent are read
from contextlib import asynccontextmanager
from functools import partial
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
import msgspec
import trio

from lmos_actors._core import declared
from lmos_actors.actors import Property, Ref, prop
from lmos_actors.approvals import standing_still
from lmos_actors.facades import ChatAgent, ChatTurn, Tool
from lmos_actors.llm import Model, ModelMessage, UserMessage
from lmos_actors.mcp import McpServer, McpSource
from lmos_actors.supervision import Backoff, ChildSpec

from ._budget import Account, Budget, Spent, exceeded, is_last_call, left_of
from ._class_checks import check_body, check_fields
from ._failures import ASKED_IN_A_CIRCLE, thinking_failure
from ._hand_over import (
    BACK,
    HANDED_OVER,
    MOST_IN_A_ROW,
    HandOver,
    depth_of,
    hand_overs,
    last_said,
    note_of,
    pass_on,
    take_over,
)
from ._history import files_of, first_kept, messages_of, notes_of, tokens_of, transcript_of
from ._memory_tools import MemoryTools, memory_tools
from ._steps import (
    BACK_AGAIN,
    BackStep,
    PassingStep,
    Recorded,
    SaidStep,
    SummaryStep,
    recorded_of,
    results_of,
)
from ._think import think
from ._tool_calls import ToolLimits
from ._tools import ASKED_BY, ASKERS, ToolSource, askers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.facades import Recalled
    from lmos_actors.llm import Message

    from ._think import Thought

MEMORY: Final = "thinking"
"""The key under which a thinking agent keeps its state in the memory of a session."""

SUMMARIZE: Final = (
    "Summarize the conversation below for yourself, in a few sentences: what the user wants, what was found "
    "and done, and what is open. Facts only; do not answer the user."
)

MCP_BACKOFF: Final = Backoff(initial=1.0)
"""The waits between restarts of the MCP servers of an agent: three in seven seconds, then ever fewer."""

CUT_OFF: Final = "[This answer is cut off: it has reached the limit of its length.]"
"""The end of an answer that is not whole, for the user and, in the history, for the model."""

HANDED: Final = "done: the conversation is handed over"
"""The result, for the model, of a hand-over or a hand-back that was carried out."""

REMEMBERED: Final = 1_000
"""Sessions at most whose failed turns are counted."""


class Kept(msgspec.Struct, omit_defaults=True):
    """The state of a session that a thinking agent keeps in `turn.memory`."""

    spent: Spent = Spent()
    summary: str = ""
    until: float = 0.0
    """The time of the last message in the summary; `until_count` messages of that time are in it."""
    until_count: int = 0
    partner: str = ""
    """The name of the `HandOver` whose agent has the conversation now; empty: none."""
    sessions: dict[str, str] = {}
    """The sessions at the agents that this one was handed over to, by the name of the `HandOver`."""

    def unsummarized(self, history: Sequence[Recalled]) -> list[Recalled]:
        """Return the messages that are not in the summary yet."""
        same = [said for said in history if said.at == self.until][self.until_count :]
        return [*same, *(said for said in history if said.at > self.until)]

    def summarized(self, said: Sequence[Recalled]) -> None:
        """Record that these messages, the next in order, are now in the summary."""
        last = said[-1].at
        again = self.until_count if last == self.until else 0
        self.until, self.until_count = last, again + sum(each.at == last for each in said)


class ThinkingAgent(ChatAgent):
    """A chat agent that answers with a language model. Its docstring is the system prompt.

    Every field may also be set in the body of a subclass, as `tools = (Weather, look_up)`. On a node with a
    store, a turn is resumed after the end of its process; `resumes = False` in the body of a subclass
    prevents that.
    """

    resumes: ClassVar[bool] = True
    _fields_of_body: ClassVar[tuple[str, ...]] = ()
    _ephemeral = (
        "model", "tools", "client_tools", "instructions", "answer", "budget", "session_budget",
        "history_tokens", "limits", "max_tokens", "temperature", "spent", "_unkept", "_servers", "_starting",
        "_asker",
    )  # fmt: skip

    model: Ref[Model] | None = None
    """The model; by default the first one of the node, or else of the directories of its `lookup`."""
    tools: Sequence[ToolSource | HandOver] = ()
    """The tools of the model: see `think`, `hand_over`, `mcp`, whose server starts with the agent, and
    `MEMORY_TOOLS`."""
    client_tools: Sequence[Tool] = ()
    """Tools that users' clients carry out if they can; the model is offered no other tools of clients."""
    instructions: str = ""
    """The system prompt; without it, the docstring of the class."""
    answer: Any = attrs.field(default=str)
    """The type of the answers; for any type but `str` the user gets JSON, in one piece."""
    budget: Budget = Budget()
    """The most that a turn may use."""
    session_budget: Budget | None = None
    """The most that all turns of a session may use."""
    history_tokens: int = 8_000
    """The most tokens of history, as estimated; older messages go into a summary.

    The tool calls of one turn, with their results, take at most a quarter of them.
    """
    limits: ToolLimits = ToolLimits()
    """The limits of the calls of tools."""
    max_tokens: int | None = None
    temperature: float | None = None
    cut_off: str = CUT_OFF
    """The text at the end of an answer that was cut off, as it was too long; empty: none."""

    spent: Property[Spent] = prop(
        default=Spent(), read_only=True, doc="What all turns have used since the agent has started."
    )

    def __init_subclass__(cls, **options: Any) -> None:
        cls._fields_of_body = tuple(declared(ThinkingAgent))
        check_body(cls, cls._fields_of_body)
        for name in cls._fields_of_body:
            if isinstance(vars(cls).get(name), list):  # as people write it
                setattr(cls, name, tuple(getattr(cls, name)))
        super().__init_subclass__(**options)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Check the fields and start MCP servers. A subclass that has its own lifespan enters this one."""
        check_fields(self, self._fields_of_body)
        self._unkept: dict[tuple[str | None, str], Spent] = {}  # by principal, and the session that it names
        self._servers: list[tuple[McpSource, Ref[McpServer]]] = []
        self._starting = trio.Lock()
        self._asker = self.new_id()
        async with super().lifespan():
            for source in self.tools:
                if isinstance(source, McpSource):
                    await self._server_of(source)
            yield

    # ---- to override

    def instructions_for(self, turn: ChatTurn) -> str:
        """Return the instructions for this turn: `instructions`, or the docstring of the class."""
        if self.instructions:
            return self.instructions
        ours = type(self).__mro__
        for each in ours[: ours.index(ThinkingAgent)]:
            if doc := vars(each).get("__doc__"):
                return cleandoc(doc)
        return ""

    def tools_for(self, turn: ChatTurn) -> Sequence[ToolSource | HandOver]:
        """Return the tools that the model may use in this turn: `tools`."""
        return self.tools

    async def summarize(self, older: Sequence[Message], summary: str, account: Account) -> str:
        """Return a new summary of a conversation that is too long, from `summary` and the `older` messages.

        It takes one request to the model. If the budget allows only one more request, that one is reserved
        for the answer, and the old summary is returned. If the returned summary is empty, the older messages
        are left out.
        """
        if is_last_call(account):
            return summary
        text = f"Summary of what was before: {summary}\n\n" if summary else ""
        thought = await think(
            self._model(),
            text + transcript_of(older),
            instructions=SUMMARIZE,
            budget=account,
            max_tokens=1_000,
        )
        return thought.answer

    def keeps_turn(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether a turn is resumed: all but tool calls, whose sessions their callers delete.

        That caller is an agent that is itself resumed, and treats the call as a tool of unknown outcome.
        """
        return ASKED_BY not in metadata

    # ---- one turn

    async def reply(self, turn: ChatTurn) -> None:
        """Answer a message, by thinking or through the agent to which the conversation was handed over."""
        askers = askers_of(turn)
        if self._asker in askers or len(askers) >= 8:
            why = "it waits for this very answer" if self._asker in askers else "too many agents wait already"
            raise thinking_failure(ASKED_IN_A_CIRCLE, f"{self.path} is not asked: {why}")
        token = ASKERS.set((*askers, self._asker))
        try:
            await self._reply(turn)
        finally:
            ASKERS.reset(token)

    async def _reply(self, turn: ChatTurn) -> None:
        kept = msgspec.convert(turn.memory.get(MEMORY, {}), Kept)
        owner = turn.principal, turn.session
        unkept = self._unkept.get(owner, Spent())
        kept.spent += unkept
        recorded = recorded_of(turn.steps)
        account = Account(left_of(self.budget, self.session_budget, kept.spent))
        before = recorded.spent
        account.count(tokens=before.tokens, calls=before.calls, tools=before.tools)
        try:
            await self._answer(turn, kept, account, recorded)
        except BaseException:
            self._unkept.pop(owner, None)  # so that it is the last one to be dropped
            self._unkept[owner] = unkept + account.spent  # the memory of this turn is not kept
            if len(self._unkept) > REMEMBERED:
                del self._unkept[next(iter(self._unkept))]
            raise
        finally:
            turn.note(*notes_of(recorded.messages, self.history_tokens))  # a byte for a token: a quarter
            self.spent += account.spent - msgspec.structs.replace(before, seconds=0.0)
        kept.spent += account.spent + Spent(seconds=before.seconds)
        turn.memory[MEMORY] = msgspec.to_builtins(kept)
        self._unkept.pop(owner, None)

    async def _answer(self, turn: ChatTurn, kept: Kept, account: Account, recorded: Recorded) -> None:
        sources = self.tools_for(turn)
        over = hand_overs(sources)
        if depth_of(turn) >= MOST_IN_A_ROW:
            over.clear()
        for passed in recorded.passed:
            over.pop(passed.to, None)
            kept.sessions[passed.to] = passed.session
        if kept.partner in over:
            partner = over.pop(kept.partner)
            if await self._pass_on(turn, kept, account, recorded, partner, "") is None:
                return
        kept.partner = ""
        before = await self._said_before(turn, kept, account, recorded)
        texts = (turn.text, *[part.text for part in turn.parts], note_of(turn))
        text = "\n\n".join([each for each in texts if each])
        messages = [*before, UserMessage(text, await files_of(turn)), *recorded.messages]
        if self.answer is str:
            # what the model had said before it asked for tools is part of the answer; nobody hears it now
            for message in recorded.messages:
                if isinstance(message, ModelMessage) and message.text:
                    gap = "\n\n" if turn.answer and not turn.answer[-1].isspace() else ""
                    await turn.say(gap + message.text)
        while True:
            thought = await self._think(turn, account, recorded, messages, sources, list(over.values()))
            asked = thought.asked
            if asked is None:
                if self.answer is not str:
                    await turn.say(msgspec.json.encode(thought.answer).decode())
                elif thought.reason == "length":
                    turn.is_cut = True
                    await turn.say(f"\n\n{self.cut_off}" if self.cut_off else "")
                return
            reason = str(asked.arguments.get("reason", ""))
            if asked.name == BACK.name:
                await turn.use(BACK, reason=reason)
                recorded.messages += results_of(recorded.messages[-1], asked, HANDED)
                return
            why = await self._pass_on(turn, kept, account, recorded, over.pop(asked.name), reason)
            if why is None:
                recorded.messages += results_of(recorded.messages[-1], asked, HANDED)
                return
            results = results_of(recorded.messages[-1], asked, error=f"{BACK_AGAIN}{why}")
            recorded.messages += results
            messages += [*thought.messages, *results]

    async def _record_said(
        self, turn: ChatTurn, account: Account, recorded: Recorded, message: Message
    ) -> None:
        recorded.messages.append(message)
        if turn.is_kept:
            await turn.record(msgspec.to_builtins(SaidStep(message, account.spent)))

    async def _think(
        self,
        turn: ChatTurn,
        account: Account,
        recorded: Recorded,
        messages: Sequence[Message],
        sources: Sequence[Any],
        over: Sequence[HandOver],
    ) -> Thought[Any]:
        back = [BACK] if HANDED_OVER in turn.metadata else []
        of_client: list[Tool] = []
        if turn.has_client_tools:
            for each in self.client_tools:  # the client of the turn carries their calls out
                ask = partial(turn.ask_client, each.name)
                of_client.append(attrs.evolve(each, call=ask, repeatable=False))
        model, instructions = self._model(), self.instructions_for(turn)
        tools: list[ToolSource] = [*of_client]
        for source in sources:
            if isinstance(source, MemoryTools):
                tools += memory_tools(turn.memories)
            elif isinstance(source, McpSource):
                tools.append(await self._server_of(source))
            elif not isinstance(source, HandOver):
                tools.append(source)
        return await think(
            model,
            "",
            history=messages,
            instructions=instructions,
            tools=tools,
            ending=[*(each.tool for each in over), *back],
            answer=self.answer,
            budget=account,
            say=turn.say,
            use=partial(_used, turn, of_client),
            find=self.find,
            record=partial(self._record_said, turn, account, recorded),
            begun=turn.answer,
            limits=self.limits,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )

    async def _pass_on(
        self, turn: ChatTurn, kept: Kept, account: Account, recorded: Recorded, to: HandOver, reason: str
    ) -> str | None:
        """Let another agent answer; return None if it did, or why it handed the conversation back."""
        ref: Ref[Any] = to.agent if isinstance(to.agent, Ref) else self.find(to.agent)
        with standing_still(account.clock), account.clock.scope(account.deadline):
            passing = recorded.passing
            if passing is not None and passing.to == to.name:
                passed = await take_over(turn, ref, passing)
            else:
                session = kept.sessions.get(to.name)
                if turn.is_kept:
                    last, count = (0.0, 0) if session is None else await last_said(ref, session)
                    session = session or self.new_id()
                    step = PassingStep(to.name, session, last, count, account.spent)
                    await turn.record(msgspec.to_builtins(step))
                passed = await pass_on(turn, ref, session, reason)
            recorded.passing = None
            if passed.session is not None:
                kept.sessions[to.name] = passed.session
            kept.partner = to.name if passed.back is None else ""
            if passed.back is None or passed.said:
                return None
            await turn.record(msgspec.to_builtins(BackStep(to.name, passed.back, account.spent)))
            return passed.back
        raise exceeded(f"{account.budget.seconds} s")

    async def _said_before(
        self, turn: ChatTurn, kept: Kept, account: Account, recorded: Recorded
    ) -> list[Message]:
        """Return the earlier messages that fit the limit of tokens; older messages go into the summary."""
        if (made := recorded.summary) is not None:
            kept.summary, kept.until, kept.until_count = made.summary, made.until, made.until_count
        said = kept.unsummarized(turn.history)
        if tokens_of(messages_of(said)) > self.history_tokens:
            place = first_kept(said, self.history_tokens // 2)
            summary = await self.summarize(messages_of(said[:place]), kept.summary, account)
            kept.summary = summary[:8_000]  # a model may write more than it is asked for
            kept.summarized(said[:place])
            said = said[place:]
            step = SummaryStep(kept.summary, kept.until, kept.until_count, account.spent)
            await turn.record(msgspec.to_builtins(step))
        messages = messages_of(said)
        if kept.summary:
            messages.insert(0, UserMessage(f"[Summary of what we said before: {kept.summary}]"))
        return messages

    async def _server_of(self, source: McpSource) -> Ref[McpServer]:
        """Return the agent of an MCP server, which is started at the first call. Raises StartFailed."""
        async with self._starting:
            for known, server in self._servers:
                if known == source:
                    return server
            same = sum(known.name == source.name for known, _ in self._servers)
            name = f"{source.name}-{same + 1}" if same else source.name
            spec = ChildSpec(name, source.factory, backoff=MCP_BACKOFF, optional=source.optional)
            server = await self.start_child(spec)
            self._servers.append((source, server))
            return server

    def _model(self) -> Ref[Model]:
        if self.model is not None:
            return self.model
        return self.find(Model, affordance=Model.generate.name)  # in directories by affordance, not title


async def _used(turn: ChatTurn, of_client: Sequence[Tool], tool: Tool, /, **arguments: Any) -> Any:
    """Call a tool, and show the call unless the client carries out the tool itself. Raise ToolFailed."""
    is_its = any(tool.name == each.name for each in of_client)
    return await (tool.call(arguments) if is_its else turn.use(tool, **arguments))
