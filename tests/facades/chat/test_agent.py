"""Chat agents as their callers in the same node see them: turns, sessions, tools, crashes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors import ActionFailed, ChildSpec, InvalidInput, open_node, simulate
from lmos_actors.errors import SlowTurnWarning, ToolFailed
from lmos_actors.facades import ChatAgent, ChatTurn, Said, tool_of
from lmos_actors.facades.chat import (
    ClientAnswer,
    TextChunk,
    ToolCalled,
    ToolReturned,
    TurnBegan,
    TurnDone,
)
from lmos_actors.persistence import SessionOptions
from tests.facades.desk import Desk, add
from tests.persistence.stores import StoreOfTest, every_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lmos_actors import Ref
    from tests.persistence.stores import Place


async def said(desk: Ref[Any], text: str, session: str | None = None) -> tuple[str, str]:
    """Say something; return the session and the whole answer."""
    answer = ""
    async with desk.stream(Desk.chat, text, session) as items:
        async for item in items:
            if isinstance(item, TurnBegan):
                session = item.session
            elif isinstance(item, TurnDone):
                answer = item.text
    assert session is not None
    return session, answer


def test_an_answer_comes_in_pieces_and_as_a_whole() -> None:
    async def main() -> list[Any]:
        async with open_node() as node:
            desk = await node.start(Desk)
            async with desk.stream(Desk.chat, "hello") as items:
                return [item async for item in items]

    began, chunk, done = simulate(main)
    assert isinstance(began, TurnBegan)
    assert began.is_new
    assert (chunk, done) == (TextChunk("1: hello"), TurnDone("1: hello"))


def test_a_session_goes_on_with_its_memory_and_history() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            session, answer = await said(desk, "hello")
            assert answer == "1: hello"
            assert await said(desk, "again", session) == (session, "2: again")
            assert (await said(desk, "history", session))[1] == (
                "user: hello; agent: 1: hello; user: again; agent: 2: again"
            )
            other, answer = await said(desk, "hello")
            assert other != session
            assert answer == "1: hello"
            entries = await desk.invoke(Desk.sessions)
            assert [(each.id, each.messages) for each in entries] == [(session, 6), (other, 2)]
            assert await desk.invoke(Desk.forget, session) is True
            assert await desk.invoke(Desk.forget, session) is False
            with pytest.raises(ActionFailed, match="SESSION_EXPIRED"):
                await desk.invoke(Desk.history, session)
            with pytest.raises(ActionFailed, match=r"SESSION_EXPIRED.*new=True begins one with this id"):
                await said(desk, "hello", session)

    simulate(main)


def test_notes_are_kept_with_an_answer_for_the_agent_alone() -> None:
    class Noting(ChatAgent):
        async def reply(self, turn: ChatTurn) -> str:
            turn.note(turn.text, {"n": 1})
            with pytest.raises(TypeError, match="a note is plain data"):
                turn.note(object())
            if turn.text == "two":
                raise ActionFailed({"code": "NO", "message": "no"})
            return str([said.notes for said in turn.history])

    async def main() -> None:
        async with open_node() as node:
            agent = await node.start(Noting)
            session, _ = await said(agent, "one")
            with pytest.raises(ActionFailed, match="NO"):
                await said(agent, "two", session)
            answer = (await said(agent, "three", session))[1]
            assert answer == "[[], ['one', {'n': 1}], [], ['two', {'n': 1}]]"
            history = await agent.invoke(ChatAgent.history, session)
            assert [type(each) for each in history] == [Said] * 6

    simulate(main)


def test_a_crash_ends_one_turn_and_says_nothing() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            session, _ = await said(desk, "hello")
            async with trio.open_nursery() as nursery:
                answers: list[str] = []

                async def other() -> None:
                    answers.append((await said(desk, "slow 5"))[1])

                nursery.start_soon(other)
                await trio.sleep(1)
                with pytest.raises(ActionFailed) as failed:
                    await said(desk, "crash now", session)
                assert failed.value.code == "INTERNAL_ERROR"
                assert "4711" not in str(failed.value)
            assert answers == ["wait 1: slow 5"], "the turn of another session went on"
            assert desk.statistics().incarnation == 1
            assert [report.agent for report in node.crash_reports] == ["desk/turn-3"]
            assert await said(desk, "again", session) == (session, "2: again"), "it has not been kept"
            assert "turn-" not in node.tree()

    simulate(main)


def test_a_declared_failure_is_no_crash() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            with pytest.raises(ActionFailed) as failed:
                await said(desk, "fail no provider")
            assert (failed.value.code, failed.value.detail) == ("PROVIDER_ERROR", "no provider")
            assert not node.crash_reports

    simulate(main)


def test_turns_of_a_session_come_one_after_the_other_and_those_of_others_at_once() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            session, _ = await said(desk, "hello")
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(said, desk, "slow 10", session)
                    nursery.start_soon(said, desk, "slow 10")
                await trio.sleep(5)
                assert node.tree().count("turn-") == 4
            assert trio.current_time() - began == pytest.approx(30)

    simulate(main)


def test_the_tenth_message_of_a_session_is_refused() -> None:
    """One turn is in progress, eight wait."""

    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            session, _ = await said(desk, "hello")
            async with trio.open_nursery() as nursery:
                for _ in range(9):
                    nursery.start_soon(said, desk, "slow 1", session)
                await trio.sleep(0.5)
                with pytest.raises(ActionFailed, match="RATE_LIMITED"):
                    await said(desk, "one more", session)

    simulate(main)


def test_a_caller_that_leaves_cancels_the_turn_at_its_await() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            session, _ = await said(desk, "hello")
            with trio.move_on_after(1):
                await said(desk, "slow 100", session)
            await trio.testing.wait_all_tasks_blocked()
            assert "turn-" not in node.tree()
            assert not node.crash_reports
            assert await said(desk, "again", session) == (session, "2: again")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))


def test_what_a_turn_says_at_its_end_when_its_caller_has_left_is_no_crash() -> None:
    class Polite(ChatAgent):
        async def reply(self, turn: ChatTurn) -> None:
            try:
                await turn.say("one moment")
                await trio.sleep_forever()
            finally:
                await turn.say("bye")

    async def main() -> None:
        async with open_node() as node:
            polite = await node.start(Polite)
            for _ in range(3):
                async with polite.stream(Polite.chat, "hello") as items:
                    async for item in items:
                        if isinstance(item, TextChunk):
                            break
            assert not node.crash_reports

    simulate(main)


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    "result", [float("nan"), "\ud800", {"a": 10**1001}, _nested(64)], ids=["nan", "surrogate", "huge", "deep"]
)
def test_a_result_of_a_tool_that_cannot_be_sent_is_a_failure_of_the_tool(result: Any) -> None:
    def odd() -> Any:
        return result

    class Talker(ChatAgent):
        async def reply(self, turn: ChatTurn) -> str:
            try:
                return str(await turn.use(odd))
            except ToolFailed as error:
                return error.reason

    async def main() -> None:
        async with open_node() as node:
            _, answer = await said(await node.start(Talker), "hello")
            assert answer.startswith("its result cannot be sent: ")
            assert not node.crash_reports

    simulate(main)


def test_tools_show_themselves_in_order() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            async with desk.stream(Desk.chat, "add 4") as items:
                _, called, returned, chunk, done = [item async for item in items]
            assert isinstance(called, ToolCalled)
            assert (called.name, called.arguments, called.by_client) == ("add", {"a": 1, "b": 4}, False)
            assert returned == ToolReturned(called.id, 5)
            assert (chunk, done) == (TextChunk("sum 5"), TurnDone("sum 5"))

    simulate(main)


def test_a_tool_that_fails_ends_the_turn_if_it_lets_it() -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            with pytest.raises(ActionFailed) as failed:
                await said(desk, "bad one")
            assert failed.value.code == "TOOL_ERROR"
            assert not node.crash_reports

    simulate(main)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([("result", {"lat": 1}, "")], "found {'lat': 1}"),
        ([("accepted", None, ""), ("result", None, "")], "found None"),
        ([("refused", None, "not now")], "TOOL_ERROR"),
        ([("error", None, "no signal")], "TOOL_ERROR"),
        ([], "TOOL_ERROR"),
        ([("accepted", None, "")], "TOOL_ERROR"),
    ],
)
def test_a_tool_of_the_caller(answers: list[tuple[Any, Any, str]], outcome: str) -> None:
    """It has 5 s to accept the call, and 60 s to answer it."""

    async def main() -> tuple[str, float]:
        async with open_node() as node:
            desk = await node.start(Desk)
            send, receive = trio.open_memory_channel[ClientAnswer](10)
            try:
                async with desk.stream(Desk.converse, receive, "ask high") as items:
                    async for item in items:
                        if isinstance(item, ToolCalled):
                            assert (item.name, item.arguments) == ("position", {"accuracy": "high"})
                            for kind, result, error in answers:
                                send.send_nowait(ClientAnswer(item.id, kind, result, error))
                        elif isinstance(item, TurnDone):
                            return item.text, trio.current_time()
            except ActionFailed as failed:
                return str(failed.code), trio.current_time()
            raise AssertionError("the turn has no end")

    found, at = simulate(main)
    assert found == outcome
    assert at == pytest.approx(
        {0: 5.0, 1: 60.0 if answers and answers[-1][0] == "accepted" else 0.0}.get(len(answers), 0.0)
    )


def test_without_tools_of_the_caller_the_agent_gets_an_error() -> None:
    async def main() -> None:
        async with open_node() as node:
            with pytest.raises(ActionFailed, match="TOOL_ERROR"):
                await said(await node.start(Desk), "ask high")

    simulate(main)


def test_sessions_expire() -> None:
    class Short(Desk):
        session_options = SessionOptions(seconds=60)

    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Short)
            session, _ = await said(desk, "hello")
            await trio.sleep(59)
            await said(desk, "again", session)
            await trio.sleep(59)
            assert await said(desk, "again", session) == (session, "3: again")
            await trio.sleep(61)
            with pytest.raises(ActionFailed, match="SESSION_EXPIRED"):
                await said(desk, "again", session)

    simulate(main)


def test_history_is_bounded_and_so_are_sessions() -> None:
    class Small(Desk):
        session_options = SessionOptions(sessions=3, messages=4, bytes=1_000)

    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Small)
            first, _ = await said(desk, "hello")
            for _ in range(5):
                await said(desk, "again", first)
            texts = [each.text for each in await desk.invoke(Desk.history, first)]
            assert texts == ["again", "5: again", "again", "6: again"]
            await said(desk, "x" * 2_000, first)
            assert len(await desk.invoke(Desk.history, first)) == 2, "the last turn is kept, however large"
            others = [(await said(desk, "hello"))[0] for _ in range(3)]
            assert [each.id for each in await desk.invoke(Desk.sessions)] == others

    simulate(main)


@pytest.mark.parametrize("store", [None, "memory:", "sqlite"])
async def test_sessions_outlive_their_agent(store: str | None, tmp_path: Path) -> None:
    if store == "sqlite":
        store = f"sqlite:{tmp_path / 'chats.db'}"
    async with open_node(store=store) as node:
        desk = await node.start_child(ChildSpec("desk", Desk))
        session, _ = await said(desk, "hello")
        await node.root.terminate_child("desk")
        await node.root.restart_child("desk")
        assert await said(node.find(Desk, "desk"), "again", session) == (session, "2: again")


@every_place
async def test_sessions_outlive_their_process(place: Place, tmp_path: Path) -> None:
    store = place(tmp_path)
    async with open_node(store=store) as node:
        session, _ = await said(await node.start_child(ChildSpec("desk", Desk)), "hello")
        other, _ = await said(await node.start_child(ChildSpec("other", Desk)), "hello")
    async with open_node(store=store) as node:
        desk = await node.start_child(ChildSpec("desk", Desk))
        assert await said(desk, "again", session) == (session, "2: again")
        with pytest.raises(ActionFailed, match="SESSION_EXPIRED"):
            await said(desk, "again", other)


@pytest.mark.parametrize("id", ["", "x" * 201, "a\0b", "\0", "a\x01", "a\n"])
async def test_an_id_of_a_session_is_printable(id: str, tmp_path: Path) -> None:
    """One with a separator of the keys of a store would keep the agent from ever starting again."""
    store = f"sqlite:{tmp_path / 'chats.db'}"
    for _ in range(2):
        async with open_node(store=store) as node:
            desk = await node.start(Desk)
            for verb in (Desk.chat, Desk.converse):
                streams: dict[str, Any] = {} if verb is Desk.chat else {"answers": _nothing()}
                with pytest.raises(ActionFailed, match="1 to 200 printable characters"):
                    async with desk.stream(verb, content="hi", session=id, new=True, **streams) as items:
                        assert [item async for item in items]
            assert await said(desk, "hi", (await said(desk, "hi"))[0])


async def _nothing() -> AsyncIterator[ClientAnswer]:
    for each in ():
        yield each


@pytest.mark.parametrize("text", ["", None])
def test_a_message_has_content(text: str | None) -> None:
    async def main() -> None:
        async with open_node() as node:
            desk = await node.start(Desk)
            with pytest.raises((ActionFailed, InvalidInput)):
                await said(desk, text)  # type: ignore[arg-type]

    simulate(main)


def test_a_chat_agent_without_a_reply_is_refused() -> None:
    with pytest.raises(TypeError, match="Mute has no reply: write `async def reply"):

        class Mute(ChatAgent):
            """Says nothing."""


@pytest.mark.parametrize("kind", ["def", "async def", "generator"])
def test_a_reply_may_be_any_kind_of_function(kind: str) -> None:
    class Plain(ChatAgent):
        def reply(self, turn: ChatTurn) -> str:
            return "plain"

    class Awaited(ChatAgent):
        async def reply(self, turn: ChatTurn) -> str:
            await trio.sleep(1)
            return "awaited"

    class Pieces(ChatAgent):
        async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
            yield "pie"
            yield "ces"

    cls, answer = {
        "def": (Plain, "plain"),
        "async def": (Awaited, "awaited"),
        "generator": (Pieces, "pieces"),
    }[kind]

    async def main() -> str:
        async with open_node() as node:
            return (await said(await node.start(cls), "hello"))[1]

    assert simulate(main) == answer


# --- tools


def test_a_tool_has_a_name_a_description_and_a_schema() -> None:
    tool = tool_of(add)
    assert (tool.name, tool.description) == ("add", "Add two numbers.")
    assert tool.schema["required"] == ["a", "b"]
    assert tool_of(add, name="plus").name == "plus"


def test_parameters_of_tools_need_types() -> None:
    def bare(a) -> int:  # type: ignore[no-untyped-def]
        return int(a)

    with pytest.raises(TypeError, match="the type of 'a' of the tool 'bare' is not known"):
        tool_of(bare)
    with pytest.raises(TypeError, match="in_thread is for a function that blocks"):
        tool_of(look_up_later, in_thread=True)
    with pytest.raises(TypeError, match="tool_of takes a function"):
        tool_of(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "reason"), [(object(), "turn.memory holds plain data"), ("x" * 70_000, "turn.memory has 70")]
)
def test_a_memory_that_cannot_be_kept_crashes_its_turn_alone(kept: Any, reason: str) -> None:
    class Hoarder(ChatAgent):
        def reply(self, turn: ChatTurn) -> str:
            if turn.text == "keep":
                turn.memory["kept"] = kept
            return f"{sorted(turn.memory)}"

    async def main() -> None:
        async with open_node() as node:
            hoarder = await node.start(Hoarder)
            session, _ = await said(hoarder, "hello")
            with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
                await said(hoarder, "keep", session)
            assert await said(hoarder, "hello", session) == (session, "[]")
            (report,) = node.crash_reports
            assert reason in str(report)

    simulate(main)


def test_an_exception_of_a_tool_is_for_the_turn_and_not_for_others() -> None:
    def broken() -> int:
        raise KeyError("secret: 4711")

    class Careful(ChatAgent):
        async def reply(self, turn: ChatTurn) -> str:
            try:
                return str(await turn.use(broken))
            except ToolFailed as error:
                return str("4711" in error.reason)

    async def main() -> list[Any]:
        async with open_node() as node:
            careful = await node.start(Careful)
            async with careful.stream(Careful.chat, "hello") as items:
                return [item async for item in items][2:]

    returned, chunk, done = simulate(main)
    assert returned.error == "the tool failed"
    assert (chunk, done) == (TextChunk("True"), TurnDone("True"))


def test_a_full_disk_fails_turns_and_loses_nothing() -> None:
    store = StoreOfTest()

    async def main() -> None:
        async with open_node(store=store) as node:
            desk = await node.start(Desk)
            session, _ = await said(desk, "hello")
            store.fails = True
            with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
                await said(desk, "lost", session)
            with pytest.raises(ActionFailed, match="INTERNAL_ERROR"):
                await said(desk, "lost too")
            store.fails = False
            await trio.sleep(60)
            assert await said(desk, "again", session) == (session, "2: again")
            said_before = [each.text for each in await desk.invoke(Desk.history, session)]
            assert said_before == ["hello", "1: hello", "again", "2: again"]
            assert node.crash_reports == ()

    simulate(main)


async def look_up_later(order: int) -> int:
    return order


def test_a_function_that_blocks_is_named_or_called_in_a_thread() -> None:
    here = threading.get_ident()
    cannot_go_on, went_on = threading.Event(), trio.Event()

    def blocks(seconds: float) -> bool:
        cannot_go_on.wait(seconds)
        return threading.get_ident() == here

    async def main() -> None:
        with pytest.warns(SlowTurnWarning, match=r"the tool 'blocks' .* tool_of\(function, in_thread=True\)"):
            assert await tool_of(blocks).call({"seconds": 0.15}) is True
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                assert await tool_of(blocks, in_thread=True).call({"seconds": 60}) is False
                went_on.set()

            nursery.start_soon(call)
            cannot_go_on.set()  # while the thread waits for it
            await went_on.wait()
        cannot_go_on.clear()
        with trio.move_on_after(0.01) as scope:
            await tool_of(blocks, in_thread=True).call({"seconds": 60})
        assert scope.cancelled_caught  # and the thread is left behind
        cannot_go_on.set()

    trio.run(main)


def test_a_tool_that_is_written_for_asyncio_is_answered_with_the_way_out() -> None:
    async def sleeps() -> None:
        await asyncio.sleep(1)

    async def main() -> None:
        with pytest.raises(ToolFailed) as failed:
            await tool_of(sleeps).call({})
        assert "agents run on trio" in "".join(getattr(failed.value.__cause__, "__notes__", []))

    trio.run(main)
