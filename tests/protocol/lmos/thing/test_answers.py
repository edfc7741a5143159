"""Requests that come twice are carried out once (DECISIONS C1)."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from lmos_actors.errors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    Forbidden,
    LmosActorsError,
    MailboxFull,
    RateLimited,
)
from lmos_actors.protocol.lmos import AnswerBound, AnswerMemory, SessionOptions
from tests.protocol.lmos.consumer_by_hand import AT, Talk

CALL = {"action": "go", "input": {"n": 1}}


@pytest.fixture
def memory() -> AnswerMemory:
    return AnswerMemory()


def invoke(talk: Talk, number: object = 1, **members: Any) -> tuple[Any, ...]:
    return talk.say("invokeAction", number, **{**CALL, **members})


def test_a_remembered_answer_is_given_again(memory: AnswerMemory) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk)
    talk.session.complete(asked, 7)
    assert invoke(talk, correlation="again", attempt=2) == ()
    first, second = talk.heard()
    assert {**first, "messageID": "", "correlationID": "again"} == {**second, "messageID": ""}
    assert first["messageID"] != second["messageID"]
    assert talk.session.statistics().answered == 2
    assert talk.adds_up()


@pytest.mark.parametrize("error", [ActionFailed("no"), AgentDied("boom", started=True)])
def test_a_failure_is_an_answer_too(memory: AnswerMemory, error: LmosActorsError) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk)
    talk.session.fail(asked, error)
    assert invoke(talk) == ()
    first, second = talk.short()
    assert first == second


@pytest.mark.parametrize(
    "error",
    [
        AgentUnavailable("a"),
        MailboxFull("a", 1),
        AgentDied("x", started=False),
        Forbidden("no"),
        RateLimited(1.0),
    ],
)
def test_a_request_that_had_not_begun_is_carried_out_when_it_comes_again(
    memory: AnswerMemory, error: LmosActorsError
) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    assert invoke(second) == ()
    first.session.fail(asked, error)
    assert first.short() == second.short() != []
    assert (len(memory), memory.running) == (0, 0)
    assert len(invoke(first)) == 1


@pytest.mark.parametrize("when", ["while it runs", "afterwards", "cancelled"])
def test_a_failure_is_told_to_each_connection_by_its_habits(memory: AnswerMemory, when: str) -> None:
    spec, kotlin = Talk(memory=memory), Talk("kotlin-wot", memory=memory)
    (asked,) = invoke(spec)
    if when != "afterwards":
        assert invoke(kotlin) == ()
    if when == "cancelled":
        spec.say("cancelAction", 2, action="go", correlation="m1")
    else:
        spec.session.fail(asked, ActionFailed("no"))
    if when == "afterwards":
        assert invoke(kotlin) == ()
    (status,), (error,) = spec.heard(), kotlin.heard()
    assert (status["messageType"], status["status"]) == ("actionStatus", "failed")
    assert (error["messageType"], error["status"], error["correlationId"]) == ("error", "500", "m1")
    kind = "action-cancelled" if when == "cancelled" else "internal-server-error"
    assert error["type"].endswith(f"#{kind}")


@pytest.mark.parametrize("by", ["answer", "cancel", "progress"])
def test_each_connection_is_woken_when_it_has_something_to_send(memory: AnswerMemory, by: str) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    assert invoke(second) == ()
    assert (first.woken, second.woken) == (0, 0)
    if by == "answer":
        first.session.complete(asked, 7)
    elif by == "progress":
        first.session.progress(asked, 1)
        first.session.progress(asked, 2)
        first.session.complete(asked, 7)
    else:
        second.say("cancelAction", 2, action="go", correlation="m1")
    assert (first.woken, second.woken) == (1, 1)
    assert len(first.heard()) == len(second.heard()) > 0
    assert first.session.frames() == []


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("writeProperty", {"name": "x", "data": 1}),
    ("writeMultipleProperties", {"data": {"x": 1}}),
    ("writeAllProperties", {"data": {"x": 1}}),
]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("readProperty", {"name": "x"}),
    ("readAllProperties", {}),
    ("observeProperty", {"name": "x"}),
    ("subscribeEvent", {"event": "x"}),
]


@pytest.mark.parametrize(("kind", "members"), WRITES)
def test_writes_are_remembered(memory: AnswerMemory, kind: str, members: dict[str, Any]) -> None:
    talk = Talk(memory=memory)
    talk.session.answer(talk.ask(kind, 1, **members), {"x": 1}, AT)
    assert talk.say(kind, 1, **members) == ()
    assert len(talk.heard()) == 2


@pytest.mark.parametrize(("kind", "members"), OTHERS)
def test_what_has_no_effect_is_done_again(memory: AnswerMemory, kind: str, members: dict[str, Any]) -> None:
    talk = Talk(memory=memory)
    assert talk.ask(kind, 1, **members) is not talk.ask(kind, 1, **members)
    assert (len(memory), memory.running) == (0, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"input": {"n": 2}},
        {"input": {"n": 1.0}},
        {"input": {"n": True}},
        {"input": None},
        {"action": "stop"},
        {"thing": "urn:other"},
    ],
)
def test_of_the_same_id_with_other_content_is_a_request_of_its_own(
    memory: AnswerMemory, other: dict[str, Any]
) -> None:
    talk = Talk(memory=memory)
    (first,) = invoke(talk)
    (second,) = invoke(talk, **other)
    assert second is not first
    talk.session.complete(second, "second")
    (third,) = invoke(talk)
    talk.session.complete(third, "third")
    talk.session.complete(first, "first")
    assert [m["output"] for m in talk.heard()] == ["second", "third", "first"]
    assert invoke(talk) == ()
    assert [m["output"] for m in talk.heard()] == ["third"], "the last that was remembered under the id"
    assert (len(memory), memory.running) == (1, 0)
    assert talk.adds_up()


def test_the_order_of_members_is_no_difference(memory: AnswerMemory) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk, input={"a": 1, "b": {"c": 1, "d": 2}})
    talk.session.complete(asked)
    assert invoke(talk, input={"b": {"d": 2, "c": 1}, "a": 1}) == ()


LONG = {
    "a text": {"text": "x" * 400},
    "a text of many bytes": {"text": "x" * 400 + "\N{SNOWMAN}"},
    "a name of many bytes": {"x" * 400 + "\N{SNOWMAN}": 1},
    "many members": {f"member {number}": number for number in range(40)},
    "lists": {"lists": [[] for _ in range(140)]},
    "nothing but lists": [[] for _ in range(140)],
}


@pytest.mark.parametrize("payload", LONG.values(), ids=LONG)
def test_what_is_long_is_remembered_as_it_was(memory: AnswerMemory, payload: Any) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk, input=payload)
    talk.session.complete(asked, payload)
    assert invoke(talk, input=payload) == ()
    assert [message["output"] for message in talk.heard()] == [payload, payload]
    (other,) = invoke(talk, input=[payload])
    talk.session.complete(other, "other")


@pytest.mark.parametrize("payload", LONG.values(), ids=LONG)
def test_what_is_remembered_takes_no_more_than_twice_what_is_counted(payload: Any) -> None:
    memory = AnswerMemory(bound=AnswerBound(1 << 40))
    talk = Talk(memory=memory)

    def settle_some(numbers: range) -> None:
        for number in numbers:
            (asked,) = invoke(talk, number, input=payload)
            talk.session.complete(asked, payload)
            talk.heard()

    settle_some(range(100))
    assert memory.bound is not None
    gc.collect()
    tracemalloc.start()
    counted = memory.bound.bytes
    settle_some(range(100, 164))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 2 * (memory.bound.bytes - counted)


def test_a_bound_counts_what_is_remembered_and_nothing_else() -> None:
    bound = AnswerBound(1 << 40)
    memory = AnswerMemory(max_answers=3, bound=bound)
    talk = Talk(memory=memory, options=SessionOptions(remembered_runs=2))
    for number, size in enumerate([10, 500, 10, 2000, 10, 10, 10, 10]):
        settle(talk, number, "x" * size)
    settled = bound.bytes
    settle(talk, 8, "x" * 10)  # in the place of one like it
    assert bound.bytes == settled > 0
    talk.session.closed()
    assert bound.bytes == memory.held
    memory.close()
    assert bound.bytes == 0


def test_what_is_going_on_is_answered_once(memory: AnswerMemory) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk)
    assert invoke(talk) == ()
    talk.session.complete(asked, 7)
    assert len(talk.heard()) == 1
    statistics = talk.session.statistics()
    assert (statistics.merged, statistics.answered) == (1, 1)
    assert talk.adds_up()


def test_an_answer_goes_to_every_connection_that_asked(memory: AnswerMemory) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory, ids="t")
    (asked,) = invoke(first)
    assert invoke(second, correlation="mine") == ()
    assert invoke(second) == ()
    first.session.progress(asked, 0.5)
    first.session.complete(asked, 7)
    assert first.short() == [
        'actionStatus m1 action="go" status="in progress" progress=0.5',
        'actionStatus m1 action="go" status="completed" output=7',
    ]
    assert second.short() == [
        'actionStatus mine action="go" status="in progress" progress=0.5',
        'actionStatus mine action="go" status="completed" output=7',
    ]
    second.say("queryAction", 2, action="go", correlation="m1")
    assert second.short() == ['actionStatus mine action="go" status="completed" output=7 inReplyTo="m2"']
    assert first.adds_up()
    assert second.adds_up()


def test_an_answer_goes_to_the_connection_that_is_left(memory: AnswerMemory) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    assert invoke(second) == ()
    assert first.session.closed() == (), "the run is still wanted"
    assert asked.open
    first.session.complete(asked, 7)
    assert first.heard() == []
    assert second.short() == ['actionStatus m1 action="go" status="completed" output=7']
    assert invoke(second) == ()
    assert len(second.heard()) == 1


def test_what_nobody_wants_any_more_ends_with_the_last_connection(memory: AnswerMemory) -> None:
    first, second, third = Talk(memory=memory), Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    assert invoke(second) == ()
    assert (first.session.closed(), second.session.closed()) == ((), (asked,))
    assert not asked.open
    (again,) = invoke(third)
    assert again is not asked
    assert memory.running == 1


def test_the_later_connection_may_go_first(memory: AnswerMemory) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    invoke(second)
    assert second.session.closed() == ()
    first.session.complete(asked, 7)
    assert (len(first.heard()), second.heard()) == (1, [])


def test_what_is_kept_is_remembered_without_a_connection(memory: AnswerMemory) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    (dropped,) = invoke(first, 2)
    assert first.session.closed(keep=lambda one: one is asked) == (dropped,)
    first.session.progress(asked, 1)
    first.session.complete(asked, 7)
    assert invoke(second) == ()
    assert second.short() == ['actionStatus m1 action="go" status="completed" output=7']
    assert len(invoke(second, 2)) == 1, "what was ended with its connection is done again"


def test_a_run_may_be_cancelled_over_any_of_its_connections(memory: AnswerMemory) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory)
    (asked,) = invoke(first)
    invoke(second)
    (withdrawn,) = second.say("cancelAction", 2, action="go", correlation="m1")
    assert withdrawn.request is asked
    end = 'actionStatus m1 action="go" status="failed" output=null'
    assert first.short() == [f"{end} cancelled=true"]
    assert second.short() == [f'{end} inReplyTo="m2" cancelled=true']
    assert first.adds_up()
    assert second.adds_up()
    assert invoke(first) == ()
    assert first.short() == [f"{end} cancelled=true"]


def test_a_run_that_gave_items_is_not_repeated(memory: AnswerMemory) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk)
    talk.session.item(asked, 1)
    assert memory.running == 0
    assert len(invoke(talk)) == 1
    (streaming,) = invoke(talk, 2, credit={"items": 1, "bytes": 100})
    assert len(invoke(talk, 2, credit={"items": 1, "bytes": 100})) == 1
    talk.session.complete(streaming)
    assert len(memory) == 0


def test_where_repeats_are_not_offered_there_are_none(memory: AnswerMemory) -> None:
    for talk in (Talk(memory=memory, options=SessionOptions(offers=())), Talk()):
        (asked,) = invoke(talk)
        talk.session.complete(asked)
        assert len(invoke(talk)) == 1


def test_a_repeat_counts_among_the_open(memory: AnswerMemory) -> None:
    first, second = Talk(memory=memory), Talk(memory=memory, options=SessionOptions(max_open=0))
    invoke(first)
    assert invoke(second) == ()
    assert [m["status"] for m in second.heard()] == ["503"]
    assert second.adds_up()


# ---- bounds


def settle(talk: Talk, number: int, output: object = None) -> None:
    (asked,) = invoke(talk, number)
    talk.session.complete(asked, output)


def remembered(talk: Talk, numbers: range) -> list[int]:
    known = []
    for number in numbers:
        demands = invoke(talk, number)
        if not demands:
            known.append(number)
    return known


@pytest.mark.parametrize(("later", "known"), [(0.0, [1]), (59.9, [1]), (60.0, []), (1e6, [])])
def test_answers_are_remembered_for_a_time(memory: AnswerMemory, later: float, known: list[int]) -> None:
    talk = Talk(memory=memory)
    settle(talk, 1)
    talk.now = 1000.0
    memory.expire(talk.now)  # from here on it counts
    talk.now += later
    assert remembered(talk, range(1, 2)) == known


def test_a_long_run_is_remembered_from_its_end_on(memory: AnswerMemory) -> None:
    talk = Talk(memory=memory)
    (asked,) = invoke(talk)
    talk.now = 500.0
    assert invoke(talk) == ()
    talk.session.complete(asked)
    talk.now = 559.0
    assert invoke(talk) == ()
    talk.now = 619.0
    assert len(invoke(talk)) == 1


def test_a_number_of_answers_is_remembered() -> None:
    memory = AnswerMemory(max_answers=3)
    talk = Talk(memory=memory)
    for number in range(5):
        settle(talk, number)
    assert len(memory) == 3
    assert remembered(talk, range(5)) == [2, 3, 4]


def test_so_many_bytes_are_remembered() -> None:
    memory = AnswerMemory(max_bytes=2000)
    talk = Talk(memory=memory)
    settle(talk, 1, "x" * 2000)
    assert (len(memory), memory.bytes) == (0, 0)
    for number in (2, 3, 4):
        settle(talk, number, "x" * 500)
    assert len(memory) == 2
    assert 1000 < memory.bytes <= 2000
    assert remembered(talk, range(1, 5)) == [3, 4]
    memory.expire(0.0)
    memory.expire(61.0)
    assert (len(memory), memory.bytes) == (0, 0)
