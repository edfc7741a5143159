"""Frames that are wrong: each has its answer, the connection stays where it is to stay, nothing is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors.protocol.lmos import SessionOptions
from tests.matrix import examples
from tests.wire_conformance.hand import Scene, play

if TYPE_CHECKING:
    from collections.abc import Sequence


def message(kind: str = "readProperty", number: int = 1, **members: Any) -> dict[str, Any]:
    raw = {"messageType": kind, "thingID": "IT", "messageID": f"m{number}"}
    return raw | members


READ = message(name="units")
ANSWER = 'propertyReading m1 name="units" value="celsius"'
INVALID = 'type="invalid-input" status="400"'
NOT_FOUND = 'type="not-found" status="404"'

WRONG: dict[str, tuple[object, list[str]]] = {
    "no JSON": ("{", [f'error - {INVALID} path="$"']),
    "nothing": ("", [f'error - {INVALID} path="$"']),
    "null": ("null", [f'error - {INVALID} path="$"']),
    "an array": ("[]", [f'error - {INVALID} path="$"']),
    "an array of messages": ([READ, READ], [f'error - {INVALID} path="$"']),
    "text behind the message": (json.dumps(READ) + "x", [f'error - {INVALID} path="$"']),
    "half a message": (json.dumps(READ)[:-9], [f'error - {INVALID} path="$"']),
    "no type": ({"thingID": "IT", "messageID": "m1"}, [f'error m1 {INVALID} path="$.messageType"']),
    "an unknown type": (
        message("frobnicate"),
        ['error m1 type="unsupported-message-type" status="400" path="$.messageType"'],
    ),
    "no thing": (
        {"messageType": "readProperty", "messageID": "m1", "name": "units"},
        [f'error m1 {INVALID} path="$.thingID"'],
    ),
    "no id": (
        {"messageType": "readProperty", "thingID": "IT", "name": "units"},
        [f'error - {INVALID} path="$.messageID"'],
    ),
    "an id that is no text": (READ | {"messageID": 7}, [f'error - {INVALID} path="$.messageID"']),
    "a name that is no text": (READ | {"name": ["units"]}, [f'error m1 {INVALID} path="$.name"']),
    "no name": (message(), [f'error m1 {INVALID} path="$.name"']),
    "ids that contradict": (READ | {"thingId": "other"}, [f'error m1 {INVALID} path="$.thingId"']),
    "an unknown thing": (READ | {"thingID": "urn:nobody"}, [f"error m1 {NOT_FOUND}"]),
    "a very long thing": (READ | {"thingID": "x" * 100_000}, [f"error m1 {NOT_FOUND}"]),
    "an unknown property": (READ | {"name": "colour"}, [f"error m1 {NOT_FOUND}"]),
    "an unknown action": (message("invokeAction", action="fresh"), [f"error m1 {NOT_FOUND}"]),
    "an action's name as a property": (
        READ | {"name": "echo"},
        ['error m1 type="operation-not-allowed" status="405"'],
    ),
    "an internal name": (message("invokeAction", action="?units"), [f"error m1 {NOT_FOUND}"]),
    "an unknown event": (message("subscribeEvent", event="moved", ack=True), [f"error m1 {NOT_FOUND}"]),
    "an input of the wrong type": (
        message("invokeAction", action="echo", input=[1]),
        [f'error m1 {INVALID} path="$"'],
    ),
    "an input with a wrong member": (
        message("invokeAction", action="echo", input={"text": 3}),
        [f'error m1 {INVALID} path="$.text"'],
    ),
    "a value of the wrong type": (
        message("writeProperty", name="limit", data="3"),
        [f'error m1 {INVALID} path="$"'],
    ),
    "no value": (message("writeProperty", name="limit"), [f'error m1 {INVALID} path="$.data"']),
    "deep nesting": (
        message("writeProperty", name="last", data=json.loads("[" * 200 + "]" * 200)),
        [f'error m1 {INVALID} path="$"'],
    ),
    "an answer": (
        message("propertyReading", name="units", value=1),
        ['error m1 type="unsupported-message-type" status="400" path="$.messageType"'],
    ),
    "a status": (
        message("actionStatus", action="echo", status="completed"),
        ['error m1 type="unsupported-message-type" status="400" path="$.messageType"'],
    ),
    "an error": (
        message("error", type="about:blank", title="t", status="500", detail="d", instance="urn:i"),
        [],
    ),
    "an acknowledgement": (message("acknowledgement", message="subscribeEvent"), []),
    "credit for nothing": (message("streamCredit", items=1, bytes=1, correlationID="m0"), []),
    "the end of no subscription": (
        message("unsubscribeEvent", event="asked", ack=True),
        ['acknowledgement m1 message="unsubscribeEvent"'],
    ),
    "the end of no observation": (
        message("unobserveProperty", name="units", ack=True),
        ['acknowledgement m1 message="unobserveProperty"'],
    ),
    "the end of no subscriptions": (
        message("unsubscribeAllEvents", ack=True),
        ['acknowledgement m1 message="unsubscribeAllEvents"'],
    ),
    "a cancel of nothing": (
        message("cancelAction", action="hold", correlationID="m0"),
        [f'error m0 {NOT_FOUND} inReplyTo="m1"'],
    ),
    "a query of nothing": (
        message("queryAction", action="hold", correlationID="m0"),
        [f'error m0 {NOT_FOUND} inReplyTo="m1"'],
    ),
    "a cancel of nothing, without a correlation": (
        message("cancelAction", action="hold"),
        [f'error m1 {NOT_FOUND} inReplyTo="m1"'],
    ),
    "streams for an action that takes none": (
        message("invokeAction", action="echo", input={"text": "a"}, streams={"text": {"stream": 1}}),
        [f'error m1 {INVALID} path="$.streams"'],
    ),
    "no time left": (
        message("invokeAction", action="echo", input={"text": "a"}, remaining=0),
        ['error m1 type="deadline-exceeded" status="503"'],
    ),
    "less than no time left": (
        message("invokeAction", action="echo", input={"text": "a"}, remaining=-1),
        ['error m1 type="deadline-exceeded" status="503"'],
    ),
}


def addressed(raw: object, name: str) -> Any:
    """Put the agent's name for IT."""
    return json.loads(json.dumps(raw).replace('"IT"', json.dumps(name))) if not isinstance(raw, str) else raw


def told(heard: Sequence[str], name: str) -> list[str]:
    return [line.replace(name, "IT") for line in heard]


@pytest.mark.parametrize("title", WRONG)
def test_what_is_wrong_is_answered_and_the_connection_stays(title: str) -> None:
    raw, wanted = WRONG[title]

    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        await hand.raw(addressed(raw, scene.name))
        assert told(await hand.heard(), scene.name) == wanted
        await hand.raw(addressed(READ | {"messageID": "m2"}, scene.name))
        assert await hand.heard() == [ANSWER.replace("m1", "m2")]
        assert hand.closed == "open"

    play(story)


# ---- what ends the connection, and nothing else


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"x", 1003), (b"", 1003), (b"\x01" + b"\x00" * 20, 1003), ("x" * 2001, 1009), (b"x" * 2001, 1009)],
    ids=["a byte", "no bytes", "a stream 0", "too long a text", "too long bytes"],
)
def test_what_ends_the_connection(raw: str | bytes, code: int) -> None:
    async def story(scene: Scene) -> None:
        hand, other = await scene.hand(), await scene.hand()
        await hand.raw(raw)
        assert (await hand.heard(), hand.closed) == ([], code)
        await scene.count(2)
        await other.raw(addressed(READ, scene.name))
        assert await other.heard() == [ANSWER]

    play(story, session=SessionOptions(max_bytes=2000))


# ---- the same again, in another order, several at once


def test_a_request_said_twice_is_carried_out_once() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        answer = ['actionStatus m1 action="echo" status="completed" output="a"']
        for _ in range(3):  # those that come together have one answer together
            await hand.say("invokeAction", action="echo", input={"text": "a"})
        assert await hand.heard() == answer
        for _ in range(2):
            await hand.say("invokeAction", action="echo", input={"text": "a"})
            assert await hand.heard() == answer
        await hand.say("invokeAction", 2, action="counted")
        assert await hand.heard() == ['actionStatus m2 action="counted" status="completed" output=1']

    play(story)


def test_one_id_for_everything_is_no_repeat() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        for text in "ab":
            await hand.say("invokeAction", action="echo", input={"text": text})
        await hand.say("readProperty", name="units")
        heard = [f'actionStatus m1 action="echo" status="completed" output="{text}"' for text in "ab"]
        assert await hand.heard() == [*heard, ANSWER]

    play(story)


def test_interleaved_runs_of_one_action_are_told_apart() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        for number in (1, 2, 3):
            await hand.say("invokeAction", number, action="hold", input={"gate": f"g{number}"})
        await scene.bench.until("begun hold", 3)
        assert await hand.heard() == []
        await hand.say("queryAction", 9, action="hold", correlation="m2")
        await hand.say("cancelAction", 10, action="hold", correlation="m2", reason="enough")
        await hand.say("cancelAction", 11, action="hold", correlation="m2")
        failed, why = (
            'actionStatus m2 action="hold" status="failed" output=null',
            'cancelled=true reason="enough"',
        )
        assert await hand.heard() == [
            'actionStatus m2 action="hold" status="in progress" inReplyTo="m9"',
            f'{failed} inReplyTo="m10" {why}',
            f'{failed} inReplyTo="m11" {why}',
        ]
        await scene.bench.open("g3", "g2", "g1")
        assert sorted(await hand.heard()) == [
            f'actionStatus m{n} action="hold" status="completed" output="through g{n}"' for n in (1, 3)
        ]

    play(story)


def test_a_cancel_without_a_correlation_is_for_the_newest_run() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        for number in (1, 2):
            await hand.say("invokeAction", number, action="hold", input={"gate": "g"})
        await scene.bench.until("begun hold", 2)
        await hand.heard()
        for number in (3, 4, 5):
            await hand.say("cancelAction", number, action="hold")
        heard = [line.split(" output")[0] for line in await hand.heard()]
        assert heard == [
            f'actionStatus m{n} action="hold" status="failed"' for n in (2, 1, 1)
        ]  # then the last that has ended
        assert await scene.bench.noted("cancelled hold") == {"cancelled hold": 2}

    play(story)


def test_a_run_is_not_cancelled_by_somebody_elses_connection() -> None:
    async def story(scene: Scene) -> None:
        one, other = await scene.hand(), await scene.hand()
        await one.say("invokeAction", action="hold", input={"gate": "g"})
        await scene.bench.until("begun hold")
        await other.say("cancelAction", 2, action="hold", correlation="m1")
        await other.say("cancelAction", 3, action="hold")
        assert [line.split(" inReply")[0] for line in await other.heard()] == [
            f"error m1 {NOT_FOUND}",
            f"error m3 {NOT_FOUND}",
        ]
        await scene.bench.open("g")
        assert (await one.heard())[
            -1
        ] == 'actionStatus m1 action="hold" status="completed" output="through g"'

    play(story)


def test_a_cancel_that_overtakes_its_run_is_a_404() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        await hand.say("cancelAction", 2, action="hold", correlation="m1")
        await hand.say("invokeAction", 1, action="hold", input={"gate": "g"})
        await scene.bench.open("g")
        heard = await hand.heard()
        assert heard[0] == f'error m1 {NOT_FOUND} inReplyTo="m2"'
        assert heard[-1] == 'actionStatus m1 action="hold" status="completed" output="through g"'

    play(story)


def test_more_than_may_be_open_is_refused() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        for number in range(1, 8):
            await hand.say("invokeAction", number, action="hold", input={"gate": "g"})
        heard = await hand.heard()
        assert [line.split(" ")[0] for line in heard].count("error") == 3
        assert scene.server.statistics().open == 4
        await scene.bench.open("g")
        assert len(await hand.heard()) == 4

    play(story, session=SessionOptions(max_open=4))


def test_more_than_may_be_listened_to_is_refused() -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand()
        names = ("units", "limit", "serial", "last")
        for number, name in enumerate(names, 1):
            await hand.say("observeProperty", number, name=name)
        heard = [line.split(" ")[0] for line in await hand.heard()]
        assert heard.count("propertyReading") == 3
        assert heard.count("error") == 1

    play(story, session=SessionOptions(max_listening=3))


# ---- anything at all

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
WORDS = st.sampled_from(
    ["IT", "m1", "m2", "units", "limit", "echo", "hold", "line", "count", "asked", "g", ""]
)
MEMBERS = st.dictionaries(
    st.sampled_from(
        [
            "name",
            "property",
            "action",
            "event",
            "input",
            "data",
            "value",
            "ack",
            "gaps",
            "correlationID",
            "correlationId",
            "thingId",
            "messageId",
            "remaining",
            "attempt",
            "credit",
            "streams",
            "binary",
            "reason",
            "stream",
            "sequence",
            "items",
            "bytes",
            "status",
            "output",
            "timestamp",
            "traceparent",
        ]
    ),
    WORDS | VALUES,
    max_size=4,
)
KINDS = st.sampled_from(
    [
        "readProperty",
        "readAllProperties",
        "readMultipleProperties",
        "writeProperty",
        "writeMultipleProperties",
        "observeProperty",
        "unobserveProperty",
        "invokeAction",
        "queryAction",
        "cancelAction",
        "subscribeEvent",
        "subscribeevent",
        "unsubscribeEvent",
        "subscribeAllEvents",
        "unsubscribeAllEvents",
        "propertyReading",
        "actionStatus",
        "event",
        "error",
        "acknowledgement",
        "gap",
        "streamOpen",
        "streamItem",
        "streamEnd",
        "streamCredit",
        "nothing",
    ]
)
GOOD = st.sampled_from(
    [
        READ,
        message("writeProperty", name="limit", data=7),
        message("observeProperty", name="units"),
        message("subscribeEvent", event="asked"),
        message("subscribeAllEvents"),
        message("unsubscribeAllEvents"),
        message("invokeAction", action="hold", input={"gate": "g"}),
        message("invokeAction", 2, action="line", input={"gate": "g"}, credit={"items": 1, "bytes": 1}),
        message("invokeAction", 3, action="count", input={"up_to": 40}, credit={"items": 2, "bytes": 9999}),
        message("streamCredit", 4, correlationID="m3", items=1, bytes=1000),
        message("cancelAction", 5, action="hold", correlationID="m1"),
        message("queryAction", 6, action="line"),
        message("invokeAction", 7, action="tell_all", input={"words": ["a"]}),
    ]
)
SPOILT = st.builds(lambda good, members: good | members, GOOD, MEMBERS)
MADE = st.builds(lambda kind, members: message(kind) | members, KINDS, MEMBERS)


@st.composite
def frames(draw: st.DrawFn) -> list[str]:
    """Draw frames: right, spoilt, made up, cut short, twice, in any order."""
    texts: list[str] = []
    for raw in draw(st.lists(GOOD | SPOILT | MADE, min_size=1, max_size=12)):
        text = json.dumps(raw)
        how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "twice", "changed"]))
        if how == "cut":
            text = text[: draw(st.integers(0, len(text)))]
        elif how == "changed":
            place = draw(st.integers(0, len(text) - 1))
            text = text[:place] + draw(st.characters(codec="utf-8")) + text[place + 1 :]
        texts += [text, text] if how == "twice" else [text]
    return texts


@given(frames(), st.booleans())
@settings(max_examples=examples(60))
def test_whatever_comes_the_next_request_is_answered(texts: list[str], offer: bool) -> None:
    async def story(scene: Scene) -> None:
        hand = await scene.hand(offer=offer)
        for text in texts:
            await hand.raw(text.replace('"IT"', json.dumps(scene.name)))
        await trio.sleep(1)
        await scene.bench.open("g")
        hand.frames.clear()
        await hand.say("readProperty", "last", name="serial")
        (answer, *_) = [line for line in await hand.heard() if " mlast " in line]
        assert answer.endswith('="s-1"')
        assert hand.closed == "open"
        statistics = next(iter(scene.server._served)).session.statistics()
        assert statistics.waiting == 0

    play(story)
