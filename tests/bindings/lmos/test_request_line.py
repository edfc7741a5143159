"""What stands in line on a connection, over any carrier: room, credit, order, and who leaves."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from lmos_actors import InvalidInput
from lmos_actors.bindings import PendingRequest, RequestLine


@attrs.frozen
class Thing:
    thing_id: str


class Noted(PendingRequest, eq=False):
    """A request that notes the error that ended it."""

    error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.error = error


@attrs.define
class FakeCarrier:
    """Sends as many requests as it has `room` for, and one-way messages where there is `credit`."""

    room: int = 0
    credit: dict[str, int] = attrs.field(factory=dict[str, int])
    sent: list[str] = attrs.field(factory=list[str])

    def put(self, request: PendingRequest) -> bool:
        if request.name == "broken":
            raise InvalidInput("it cannot be written")
        if not self.room:
            return False
        self.room -= 1
        if request.sent is not None:
            self.credit[request.far.thing_id] -= 1
        self.sent.append(request.name)
        return True

    def may_tell(self, thing_id: str) -> bool:
        return self.credit.get(thing_id, 0) > 0


def call(name: str, thing: str = "a") -> Noted:
    far: Any = Thing(thing)
    return Noted(far, "invoke", name)


def message(name: str, thing: str = "a") -> Noted:
    sent: Any = object()
    far: Any = Thing(thing)
    return Noted(far, "invoke", name, sent=sent)


def line_of(carrier: FakeCarrier, *requests: Noted) -> RequestLine:
    line = RequestLine(carrier)
    for request in requests:
        line.post(request)
    return line


def test_requests_go_out_first_come_first_served() -> None:
    carrier = FakeCarrier(room=1)
    line = line_of(carrier, call("1"), call("2"), call("3", "b"))
    assert (carrier.sent, len(line), line.holds_up("c")) == (["1"], 2, True)
    carrier.room = 5
    line.post(call("4"))  # there is room, but others were first
    assert carrier.sent == ["1"]
    line.send()
    assert (carrier.sent, len(line), line.holds_up("a")) == (["1", "2", "3", "4"], 0, False)


def test_a_message_without_credit_holds_up_what_goes_to_its_thing_alone() -> None:
    carrier = FakeCarrier(room=9, credit={"b": 1})
    line = line_of(carrier, message("1"), call("2"), message("3", "b"), call("4", "b"))
    assert (carrier.sent, line.holds_up("a"), line.holds_up("b")) == (["3", "4"], True, False)
    assert [kind for kind, _ in line.unsent()] == ["credit", "credit"]
    carrier.credit["a"] = 1
    line.send_credited()
    assert (carrier.sent, len(line)) == (["3", "4", "1", "2"], 0)


def test_things_with_credit_send_in_turn() -> None:
    carrier = FakeCarrier(room=9)
    line = line_of(carrier, message("a1"), message("a2"), message("b1", "b"), message("b2", "b"))
    carrier.credit = {"a": 2, "b": 1}
    line.send_credited()
    assert (carrier.sent, len(line)) == (["a1", "b1", "a2"], 1)


def test_credit_that_comes_without_room_is_used_once_there_is_some() -> None:
    carrier = FakeCarrier()
    line = line_of(carrier, message("1"))
    carrier.credit["a"] = 1
    line.send_credited()
    assert (carrier.sent, line.stalled) == ([], True)
    carrier.room = 1
    line.send()
    assert (carrier.sent, line.stalled) == (["1"], False)


@pytest.mark.parametrize("make", [call, message])
def test_a_request_that_leaves_lets_the_others_go_on(make: Any) -> None:
    carrier, first = FakeCarrier(), make("1")
    line = line_of(carrier, first, call("2"))
    carrier.room = 1
    assert line.leave(first)
    assert not line.leave(first)
    assert (carrier.sent, len(line)) == (["2"], 0)


def test_a_request_that_cannot_be_sent_fails_and_holds_up_nobody() -> None:
    carrier = FakeCarrier()
    broken = call("broken"), message("broken", "b")
    line = line_of(carrier, call("1"), *broken, call("2"), call("3", "b"))
    carrier.room, carrier.credit = 9, {"b": 1}
    line.send()
    assert (carrier.sent, len(line)) == (["1", "2", "3"], 0)
    assert all(isinstance(each.error, InvalidInput) for each in broken)


def test_the_end_returns_what_stood_in_line() -> None:
    carrier = FakeCarrier(room=1)
    waiting = message("1"), call("2", "b"), call("3", "b")
    line = line_of(carrier, *waiting)
    assert [request.name for request in line.end()] == ["3", "1"]
    assert (len(line), line.end()) == (0, ())
