"""Frames that are wrong: each has its answer, the connection stays unless decided otherwise, nothing is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

from lmos_actors.protocol.lmos import SessionOptions
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
    "an unknown type": (message("frobnicate"), ['error m1 type="unsupported-message-type" status="400" path="$.messageType"']),
    "no thing": ({"messageType": "readProperty", "messageID": "m1", "name": "units"}, [f'error m1 {INVALID} path="$.thingID"']),
    "no id": ({"messageType": "readProperty", "thingID": "IT", "name": "units"}, [f'error - {INVALID} path="$.messageID"']),
    "an id that is no text": (READ | {"messageID": 7}, [f'error - {INVALID} path="$.messageID"']),
    "a name that is no text": (READ | {"name": ["units"]}, [f'error m1 {INVALID} path="$.name"']),
    "no name": (message(), [f'error m1 {INVALID} path="$.name"']),
    "ids that contradict": (READ | {"thingId": "other"}, [f'error m1 {INVALID} path="$.thingId"']),
    "an unknown thing": (READ | {"thingID": "urn:nobody"}, [f"error m1 {NOT_FOUND}"]),
    "a very long thing": (READ | {"thingID": "x" * 100_000}, [f"error m1 {NOT_FOUND}"]),
    "an unknown property": (READ | {"name": "colour"}, [f"error m1 {NOT_FOUND}"]),
    "an unknown action": (message("invokeAction", action="fresh"), [f"error m1 {NOT_FOUND}"]),
    "an action's name as a property": (READ | {"name": "echo"}, ['error m1 type="operation-not-allowed" status="405"']),
    "an internal name": (message("invokeAction", action="?units"), [f'error m1 {NOT_FOUND}']),
    "an unknown event": (message("subscribeEvent", event="moved", ack=True), [f"error m1 {NOT_FOUND}"]),
    "an input of the wrong type": (message("invokeAction", action="echo", input=[1]), [f'error m1 {INVALID} path="$"']),
    "an input with a wrong member": (
        message("invokeAction", action="echo", input={"text": 3}),
        [f'error m1 {INVALID} path="$.text"'],
    ),
    "a value of the wrong type": (message("writeProperty", name="limit", data="3"), [f'error m1 {INVALID} path="$"']),
    "no value": (message("writeProperty", name="limit"), [f'error m1 {INVALID} path="$.data"']),
    "deep nesting": (message("writeProperty", name="last", data=json.loads("[" * 200 + "]" * 200)), [f'error m1 {INVALID} path="$"']),
    "an answer": (message("propertyReading", name="units", value=1), ['error m1 type="unsupported-message-type" status="400" path="$.messageType"']),
    "a status": (message("actionStatus", action="echo", status="completed"), ['error m1 type="unsupported-message-type" status="400" path="$.messageType"']),
    "an error": (
        message("error", type="about:blank", title="t", status="500", detail="d", instance="urn:i"),
        [],
    ),
    "an acknowledgement": (message("acknowledgement", message="subscribeEvent"), []),
    "credit for nothing": (message("streamCredit", items=1, bytes=1, correlationID="m0"), []),
    "the end of no subscription": (message("unsubscribeEvent", event="asked", ack=True), ['acknowledgement m1 message="unsubscribeEvent"']),
    "the end of no observation": (message("unobserveProperty", name="units", ack=True), ['acknowledgement m1 message="unobserveProperty"']),
    "the end of no subscriptions": (message("unsubscribeAllEvents", ack=True), ['acknowledgement m1 message="unsubscribeAllEvents"']),
    "a cancel of nothing": (message("cancelAction", action="hold", correlationID="m0"), [f'error m0 {NOT_FOUND} inReplyTo="m1"']),
    "a query of nothing": (message("queryAction", action="hold", correlationID="m0"), [f'error m0 {NOT_FOUND} inReplyTo="m1"']),
    "a cancel of nothing, without a correlation": (message("cancelAction", action="hold"), [f'error m1 {NOT_FOUND} inReplyTo="m1"']),
    "streams for an action that takes none": (
        message("invokeAction", action="echo", input={"text": "a"}, streams={"text": {"stream": 1}}),
        [f'error m1 {INVALID} path="$.streams"'],
    ),
    "no time left": (message("invokeAction", action="echo", input={"text": "a"}, remaining=0), ['error m1 type="deadline-exceeded" status="503"']),
    "less than no time left": (message("invokeAction", action="echo", input={"text": "a"}, remaining=-1), ['error m1 type="deadline-exceeded" status="503"']),
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
