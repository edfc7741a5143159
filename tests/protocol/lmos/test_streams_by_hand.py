"""A consumer made from docs/reference/lmos-extensions.md alone, with json and struct: the page is enough."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from lmos_actors.protocol import lmos

WINDOW = {"items": 3, "bytes": 400}


class ByHand:
    """A consumer that knows the page: one call with a voice that goes in and one that comes out."""

    def __init__(self, spelling: str) -> None:
        self.id = spelling
        self.credit = [0, 0]  # what is left for the voice: items, bytes
        self.used = [0, 0]  # what was used up of the answer since credit was last given
        self.spoken = 0
        self.heard: list[Any] = []
        self.opened: int | None = None
        self.frames_heard = 0
        self.final: dict[str, Any] | None = None

    def message(self, kind: str, **members: Any) -> str:
        ids = {
            f"thing{self.id}": "urn:operator",
            f"message{self.id}": f"{kind}-{self.spoken}-{len(self.heard)}",
        }
        return json.dumps({"messageType": kind, **ids, **members}, ensure_ascii=False)

    def about(self, kind: str, **members: Any) -> str:
        return self.message(kind, **{f"correlation{self.id}": "call"}, **members)

    def invoke(self) -> str:
        members = {
            f"message{self.id}": "call",
            "action": "talk",
            "streams": {"voice": {"stream": 7, "contentType": "audio/pcm"}},
            "credit": WINDOW,
            "binary": True,
        }
        return self.message("invokeAction", **members)

    def speak(self, part: bytes) -> bytes | None:
        """A binary frame, if there is credit."""
        if min(self.credit) <= 0:
            return None
        frame = struct.pack(">BBHII", 1, 0, 0, 7, self.spoken) + part
        self.spoken += 1
        self.credit[0] -= 1
        self.credit[1] -= len(frame)
        return frame

    def hang_up(self) -> str:
        return self.about("streamEnd", stream=7, sequence=self.spoken)

    def take(self, frame: bytes) -> str | None:
        """Take what the thing sends; give credit when half of the window is used up."""
        if isinstance(frame, lmos.Binary):
            version, flags, zero, stream, sequence = struct.unpack(">BBHII", frame[:12])
            assert (version, flags, zero, stream, sequence) == (1, 0, 0, self.opened, self.frames_heard)
            self.frames_heard += 1
            return self.use(frame[12:], len(frame))
        message = json.loads(frame)
        assert message[f"correlation{self.id}"] == "call"
        kind = message["messageType"]
        if kind == "streamCredit":
            assert message["stream"] == 7
            self.credit[0] += message["items"]
            self.credit[1] += message["bytes"]
        elif kind == "streamOpen":
            assert message["stream"] % 2 == 0
            self.opened = message["stream"]
        elif kind == "streamEnd":
            assert (message["stream"], message["sequence"]) == (self.opened, self.frames_heard)
        elif message.get("status") == "in progress" and "output" in message:
            return self.use(message["output"], len(frame))
        else:
            assert kind == "actionStatus"
            self.final = message
        return None

    def use(self, item: Any, size: int) -> str | None:
        self.heard.append(item)
        self.used[0] += 1
        self.used[1] += size
        if 2 * self.used[0] < WINDOW["items"] and 2 * self.used[1] < WINDOW["bytes"]:
            return None
        items, size = self.used
        self.used = [0, 0]
        return self.about("streamCredit", items=items, bytes=size)


class Operator:
    """The host of a thing: says back in capitals what it hears, and writes it down."""

    def __init__(self) -> None:
        numbers = iter(range(10**6))
        options = lmos.SessionOptions(credit=lmos.Credit(items=2, bytes=50))
        self.session = lmos.ThingSession(offered=True, new_id=lambda: f"t{next(numbers)}", options=options)
        self.asked: Any = None
        self.to_say: list[Any] = []
        self.waits: list[Any] = []  # streams with an item that is not used up

    def meet(self, demands: Any) -> None:
        for demand in demands:
            if isinstance(demand, lmos.IncomingRequest):
                self.asked = demand
                self.session.ready(demand.streams["voice"])
            elif isinstance(demand, lmos.ItemArrived):
                self.to_say += [demand.item.upper(), {"wrote": demand.item.decode()}]
                self.waits.append(demand.stream)
            elif isinstance(demand, lmos.StreamFinished):
                self.to_say.append(None)
            else:
                assert isinstance(demand, lmos.CreditArrived)
        self.work()

    def work(self) -> None:
        while self.to_say and self.session.room(self.asked):
            said = self.to_say.pop(0)
            if said is None:
                self.session.complete(self.asked)
            else:
                self.session.item(self.asked, said)
        while self.waits and not self.to_say:
            self.session.consumed(self.waits.pop(0))


@pytest.mark.parametrize("spelling", ["ID", "Id"])
def test_the_page_is_enough_to_talk(spelling: str) -> None:
    consumer, operator = ByHand(spelling), Operator()
    words = ["one", "two", "drei", "été", "x" * 100, "", "end"]
    operator.meet(operator.session.receive(consumer.invoke(), 0.0))
    said = 0
    for _ in range(100):
        for frame in operator.session.frames():
            credit = consumer.take(frame)
            if credit is not None:
                operator.meet(operator.session.receive(credit, 0.0))
        if said < len(words):
            frame = consumer.speak(words[said].encode())
            if frame is not None:
                said += 1
                operator.meet(operator.session.receive_binary(frame))
        elif said == len(words):
            said += 1
            operator.meet(operator.session.receive(consumer.hang_up(), 0.0))
    assert consumer.final is not None
    assert (consumer.final["status"], "output" in consumer.final) == ("completed", False)
    wanted = [item for word in words for item in (word.encode().upper(), {"wrote": word})]
    assert consumer.heard == wanted
    assert operator.session.statistics().late == 0
