"""What a turn asks of other chat agents is asked once, over all its lives: near, far, and whoever ends."""

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 -- types of agents are read
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import ActionFailed, Agent, ChildSpec, Ref, action, ephemeral, open_node
from lmos_actors.errors import LmosActorsError
from lmos_actors.facades import ChatAgent, ChatTurn
from lmos_actors.facades.chat import TextChunk, TurnBegan, TurnDone, TurnFailure
from lmos_actors.transport import MemoryNetwork
from tests.facades.lives import Mortal, in_memory, virtual

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lmos_actors import Node


@attrs.define
class Book:
    """What the sages of a test were asked, over all their lives, and whether they may answer."""

    asked: list[str] = attrs.field(factory=list[str])
    begun: trio.Event = attrs.field(factory=trio.Event)
    may_answer: trio.Event = attrs.field(factory=trio.Event)
    told: trio.Event = attrs.field(factory=trio.Event)
    """A desk has an answer, and is about to end its turn."""
    may_end: trio.Event = attrs.field(factory=trio.Event)
    session: str | None = None
    """The session in which the desk asks."""


class Sage(ChatAgent):
    """Answers, once it may."""

    book: Book

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        if not turn.steps:
            self.book.asked.append(turn.text)
            await turn.record("asked")
        self.book.begun.set()
        await self.book.may_answer.wait()
        if "fail" in turn.text:
            raise ActionFailed({"code": "NO_IDEA", "message": "no idea"})
        yield f"{turn.text}: 42"


class Desk(ChatAgent):
    """Asks a sage what it is asked, each word."""

    sage: Ref[Any]
    book: Book
    patience: float = 1e9

    async def reply(self, turn: ChatTurn) -> AsyncIterator[str]:
        for word in turn.text.split():
            try:
                with trio.move_on_after(self.patience):
                    yield await answer_of(self.sage, word, session=self.book.session, new=True)
            except ActionFailed as error:
                yield f"{word}: {error.code}"
        self.book.told.set()
        await self.book.may_end.wait()

    @action
    def fall(self) -> None:
        """Crash."""
        raise KeyError("a bug")


async def answer_of(agent: Ref[Any], text: str, session: str | None = None, **more: Any) -> str:
    said = ""
    async with agent.stream(ChatAgent.chat, text, session, **more) as items:
        async for item in items:
            if isinstance(item, TurnDone):
                said = item.text
    return said


@attrs.define
class Place:
    """The stores of a desk and of its sage, which are of one node or of two."""

    is_far: bool
    patience: float = 1e9
    book: Book = attrs.field(factory=Book)
    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)
    stores: list[Mortal] = attrs.field(factory=lambda: [in_memory(), in_memory()])

    @asynccontextmanager
    async def sage(self) -> AsyncGenerator[Node | None]:
        """Have the node of the sage for a block, where it has one of its own."""
        if not self.is_far:
            yield None
            return
        async with open_node(store=self.stores[1], listen="ws://sage", network=self.network) as node:
            await node.start_child(ChildSpec("sage", partial(Sage, book=self.book), shutdown="brutal"))
            yield node

    @asynccontextmanager
    async def desk(self, *, is_killed: bool = False) -> AsyncGenerator[Ref[Any]]:
        """Have the node of the desk for a block."""
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(open_node(store=self.stores[0], network=self.network))
            if self.is_far:
                sage: Ref[Any] = await node.consume(Sage, "http://sage/agents/sage")
            else:
                sage = await node.start_child(ChildSpec("sage", partial(Sage, book=self.book)))
            made = partial(Desk, sage=sage, book=self.book, patience=self.patience)
            yield await node.start_child(ChildSpec("desk", made, shutdown="brutal"))
            if is_killed:
                self.stores[0].is_dead = True
                node.force_stop()
        self.stores[0].is_dead = False

    async def begin(self, desk: Ref[Any], text: str) -> None:
        """Ask the desk; its end is no failure of the test."""
        with suppress(LmosActorsError):
            await answer_of(desk, text, "s", new=True)


each_place = pytest.mark.parametrize("is_far", [False, True], ids=["near", "far"])


async def settled(desk: Ref[Any]) -> list[str]:
    return [each.text for each in await desk.invoke(ChatAgent.history, "s", settled=True)]


@each_place
@pytest.mark.parametrize("is_answered", [False, True])
@virtual
async def test_the_process_of_the_desk_is_killed(is_far: bool, is_answered: bool) -> None:
    place = Place(is_far)
    book = place.book
    if is_answered:
        book.may_answer.set()
    async with place.sage():
        async with trio.open_nursery() as nursery, place.desk(is_killed=True) as desk:
            nursery.start_soon(place.begin, desk, "life rest")
            await (book.told if is_answered else book.begun).wait()
        book.may_answer.set()
        book.may_end.set()
        async with place.desk() as desk:
            assert await settled(desk) == ["life rest", "life: 42rest: 42"]
    assert book.asked == ["life", "rest"]


@virtual
async def test_the_process_of_the_sage_is_killed() -> None:
    place = Place(is_far=True)
    book = place.book
    book.may_end.set()

    async def first_life(*, task_status: trio.TaskStatus[None]) -> None:
        async with place.sage() as node:
            assert node is not None
            task_status.started()
            await book.begun.wait()
            place.stores[1].is_dead = True
            node.force_stop()
        place.stores[1].is_dead = False

    async with trio.open_nursery() as nursery:
        await nursery.start(first_life)
        async with place.desk() as desk:
            await place.begin(desk, "life")
            (_, answer) = await desk.invoke(ChatAgent.history, "s")
            assert answer.failed is not None
            book.may_answer.set()
            await trio.sleep(5)
            async with place.sage():
                await desk.invoke(ChatAgent.history, "s", settled=True)
                await trio.sleep(5)
    assert book.asked == ["life"]
    assert place.stores[1].is_clean


@each_place
@virtual
async def test_the_desk_crashes(is_far: bool) -> None:
    place = Place(is_far)
    book = place.book
    async with place.sage(), place.desk() as desk, trio.open_nursery() as nursery:
        nursery.start_soon(place.begin, desk, "life")
        await book.begun.wait()
        with suppress(LmosActorsError):
            await desk.invoke(Desk.fall)
        book.may_answer.set()
        book.may_end.set()
        await desk.ready()
        assert await settled(desk) == ["life", "life: 42"]
    assert book.asked == ["life"]


@each_place
@virtual
async def test_a_desk_whose_caller_leaves_asks_no_more(is_far: bool) -> None:
    place = Place(is_far)
    book = place.book
    async with place.sage(), place.desk() as desk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(place.begin, desk, "life")
            await book.begun.wait()
            nursery.cancel_scope.cancel()
        await trio.sleep(5)
        book.may_answer.set()
        book.may_end.set()
        await place.begin(desk, "life")
        assert await settled(desk) == ["life", "life: 42"]
    assert book.asked == ["life", "life"]
    assert all(store.is_clean for store in place.stores)


@virtual
async def test_a_message_that_comes_again_gets_the_same_answer() -> None:
    book = Book()
    book.may_answer.set()
    async with open_node(store=in_memory()) as node:
        sage = await node.start_child(ChildSpec("sage", partial(Sage, book=book)))
        for _ in range(2):
            async with sage.stream(Sage.chat, "life", key="k") as items:
                began, piece, done = [item async for item in items]
            assert (piece, done) == (TextChunk("life: 42"), TurnDone("life: 42"))
            assert isinstance(began, TurnBegan)
        assert len(await sage.invoke(Sage.sessions)) == 1
        for _ in range(2):
            with pytest.raises(ActionFailed, match="no idea"):
                await answer_of(sage, "fail", key="f")
        assert await answer_of(sage, "other", key="k") == "other: 42"
        assert await answer_of(sage, "life", key="l") == "life: 42"
    assert book.asked == ["life", "fail", "other", "life"]


@each_place
@virtual
async def test_a_desk_that_gives_up_asks_no_more(is_far: bool) -> None:
    place = Place(is_far, patience=5)
    book = place.book
    book.session = "s"
    book.may_end.set()
    async with place.sage(), place.desk() as desk:
        await place.begin(desk, "life")
        assert await settled(desk) == ["life", ""]
        book.may_answer.set()
        assert await answer_of(desk, "rest", "t", new=True) == "rest: 42"
    assert book.asked == ["life", "rest"]


@virtual
async def test_a_turn_that_goes_on_is_before_those_that_wait() -> None:
    book = Book(session="s")
    async with open_node(store=in_memory()) as node, trio.open_nursery() as nursery:
        sage = await node.start_child(ChildSpec("sage", partial(Sage, book=book)))
        desk = await node.start_child(ChildSpec("desk", partial(Desk, sage=sage, book=book)))
        nursery.start_soon(Place(is_far=False).begin, desk, "life")
        await book.begun.wait()
        nursery.start_soon(answer_of, sage, "other", "s")
        await trio.sleep(1)
        with suppress(LmosActorsError):
            await desk.invoke(Desk.fall)
        book.may_answer.set()
        book.may_end.set()
        await desk.ready()
        assert await settled(desk) == ["life", "life: 42"]
        said = [each.text for each in await sage.invoke(Sage.history, "s", settled=True)]
    assert said == ["life", "life: 42", "other", "other: 42"]
    assert book.asked == ["life", "other"]


@virtual
async def test_a_failure_whose_words_are_no_text_ends_nobody() -> None:
    class Clumsy(ChatAgent):
        async def reply(self, turn: ChatTurn) -> str:
            assert turn.is_new
            raise ActionFailed({"code": "NO_FILE", "message": "cannot open caf\udce9.txt"})

    async with open_node(store=in_memory()) as node:
        clumsy = await node.start_child(ChildSpec("clumsy", Clumsy))
        for _ in range(2):  # nothing was answered before, so the session is new each time
            with pytest.raises(ActionFailed, match="NO_FILE"):
                await answer_of(clumsy, "open", "s", new=True)
        (_, answer, *_) = await clumsy.invoke(Clumsy.history, "s")
        assert answer.failed == TurnFailure("NO_FILE", "cannot open caf?.txt")


class Till(Agent, durable=True):
    """Pays, which takes some time."""

    paid: list[str] = ephemeral(factory=list)

    @action(snapshot_safe=True)
    async def pay(self, order: str) -> str:
        self.paid.append(order)
        await trio.sleep(10)
        return "paid"


class Buyer(ChatAgent):
    """Has an order paid under a key."""

    till: Ref[Any]

    async def reply(self, turn: ChatTurn) -> str:
        return await self.till.retrying(key=f"pay-{turn.text}").invoke(Till.pay, turn.text)

    @action
    def fall(self) -> None:
        """Crash."""
        raise KeyError("a bug")


@pytest.mark.parametrize("is_left", [False, True])
@virtual
async def test_a_request_with_a_key_goes_on_while_the_one_who_asked_is_away(is_left: bool) -> None:
    paid = list[str]()
    async with open_node(store=in_memory()) as node, trio.open_nursery() as nursery:
        till = await node.start_child(ChildSpec("till", partial(Till, paid=paid)))
        buyer = await node.start_child(ChildSpec("buyer", partial(Buyer, till=till)))
        with trio.move_on_after(5):
            if is_left:
                await answer_of(buyer, "o-1", "s", new=True)
            nursery.start_soon(Place(is_far=False).begin, buyer, "o-1")
            await trio.sleep_forever()
        if not is_left:
            with suppress(LmosActorsError):
                await buyer.invoke(Buyer.fall)
            await buyer.ready()
            assert await settled(buyer) == ["o-1", "paid"]
            assert paid == ["o-1"]
        else:
            await trio.sleep(1)
            assert await till.retrying(key="pay-o-1").invoke(Till.pay, "o-1") == "paid"
            assert paid == ["o-1", "o-1"]
