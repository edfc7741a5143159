"""What waits to be sent: in order, in bounds, and the newest of what conflates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lmos_actors.errors import LocalProtocolError
from lmos_actors.protocol.lmos import Binary, _messages as m
from lmos_actors.protocol.lmos._outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Hashable


def encode(message: Any) -> bytes:
    return message.name.encode()


def read(name: str) -> m.ReadProperty:
    return m.ReadProperty(thing_id="urn:t", message_id="m", name=name)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(encode, max_waiting=3, max_bytes=10)


def test_what_goes_in_first_comes_out_first(outbox: Outbox) -> None:
    assert outbox.put(read("ab")) == 2
    assert outbox.put_frame(Binary(b"\x00")) == 1
    outbox.put_latest("k", read("c"))
    frames = outbox.take()
    assert frames == [b"ab", b"\x00", b"c"]
    assert [type(frame) for frame in frames] == [bytes, Binary, bytes]
    assert (len(outbox), outbox.bytes, outbox.take()) == (0, 0, [])


def test_the_latest_takes_the_place_of_the_one_that_waits(outbox: Outbox) -> None:
    outbox.put_latest("k", read("old"))
    outbox.put(read("b"))
    outbox.put_latest("k", read("new"))
    assert outbox.take() == [b"new", b"b"]
    outbox.put_latest("k", read("newer"))
    assert outbox.take() == [b"newer"]


def test_what_cannot_be_encoded_takes_nothing_else_with_it() -> None:
    def refuse(message: Any) -> bytes:
        if message.name == "bad":
            raise LocalProtocolError(message.name)
        return encode(message)

    outbox = Outbox(refuse, max_frame=4)
    outbox.put(read("a"))
    outbox.put_latest("k", read("good"))
    for name, why in (("bad", "bad"), ("long0", "5 bytes, 4 is the most")):
        with pytest.raises(LocalProtocolError, match=why):
            outbox.put_latest("k", read(name))
        with pytest.raises(LocalProtocolError, match=why):
            outbox.put_latest("l", read(name))
    assert (len(outbox), outbox.bytes) == (2, 5)
    assert outbox.take() == [b"a", b"good"]


@pytest.mark.parametrize(
    ("room", "taken"),
    [(0, ["aaaa"]), (1, ["aaaa"]), (4, ["aaaa"]), (5, ["aaaa", "bbbb"]), (99, ["aaaa", "bbbb", "c"])],
)
def test_frames_are_taken_until_there_is_no_more_room(room: int, taken: list[str]) -> None:
    outbox = Outbox(encode)
    for name in ("aaaa", "bbbb", "c"):
        outbox.put(read(name))
    assert [frame.decode() for frame in outbox.take(room)] == taken


def test_full_is_more_than_the_bound_in_frames_or_bytes(outbox: Outbox) -> None:
    for _ in range(3):
        outbox.put(read("a"))
    assert not outbox.full
    outbox.put(read("a"))
    assert outbox.full
    outbox.take()
    outbox.put(read("a" * 10))
    assert not outbox.full
    outbox.put(read("a"))
    assert outbox.full


def test_what_waits_can_be_dropped_unsent(outbox: Outbox) -> None:
    outbox.put(read("gone"), key="k")
    outbox.put_latest("l", read("gone too"))
    outbox.put(read("stays"))
    assert (outbox.drop("k"), outbox.drop("l"), outbox.drop("k"), outbox.drop("never")) == (
        True,
        True,
        False,
        False,
    )
    assert (len(outbox), outbox.bytes) == (1, 5)
    outbox.clear()
    assert (len(outbox), outbox.bytes, outbox.take()) == (0, 0, [])


def test_it_wakes_when_something_waits_where_nothing_did() -> None:
    woken: list[int] = []
    outbox = Outbox(encode, wake=lambda: woken.append(len(outbox)))
    outbox.put_latest("k", read("a"))
    outbox.put_latest("k", read("b"))
    outbox.put(read("c"))
    outbox.put_latest("l", read("d"))
    assert woken == [1]
    outbox.take()
    outbox.put(read("e"))
    assert woken == [1, 1]
    outbox.clear()
    outbox.put_frame(b"f")
    assert woken == [1, 1, 1]


def test_keys_are_told_when_their_frames_are_taken() -> None:
    told: list[Hashable] = []
    outbox = Outbox(encode, taken=told.append)
    outbox.put(read("a"), key="first")
    outbox.put(read("b"))
    outbox.put_latest("second", read("c"))
    outbox.put(read("d"), key="dropped")
    outbox.drop("dropped")
    assert told == []
    outbox.take(1)
    assert told == ["first"]
    outbox.take()
    assert told == ["first", "second"]


class Model(RuleBasedStateMachine):
    """The outbox against a list of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(encode)
        self.model: list[tuple[object, str]] = []

    @rule(name=st.text("xyz", max_size=5))
    def put(self, name: str) -> None:
        self.outbox.put(read(name))
        self.model.append((None, name))

    @rule(key=st.sampled_from("abc"), name=st.text("xyz", max_size=5))
    def put_latest(self, key: str, name: str) -> None:
        self.outbox.put_latest(key, read(name))
        places = [place for place, (had, _) in enumerate(self.model) if had == key]
        if places:
            self.model[places[0]] = (key, name)
        else:
            self.model.append((key, name))

    @rule(key=st.sampled_from("abc"))
    def drop(self, key: str) -> None:
        had = any(key == other for other, _ in self.model)
        assert self.outbox.drop(key) is had
        self.model = [entry for entry in self.model if entry[0] != key]

    @rule(room=st.integers(1, 12))
    def take(self, room: int) -> None:
        expected: list[str] = []
        while self.model and sum(map(len, expected)) < room:
            expected.append(self.model.pop(0)[1])
        assert [frame.decode() for frame in self.outbox.take(room)] == expected

    @invariant()
    def counts_what_waits(self) -> None:
        assert len(self.outbox) == len(self.model)
        assert self.outbox.bytes == sum(len(name) for _, name in self.model)


TestModel = Model.TestCase


@given(st.lists(st.text("ab", min_size=1, max_size=9), max_size=30), st.integers(1, 30))
def test_nothing_is_lost_whatever_the_room(names: list[str], room: int) -> None:
    outbox = Outbox(encode)
    for name in names:
        outbox.put(read(name))
    taken: list[bytes] = []
    while frames := outbox.take(room):
        taken += frames
    assert [frame.decode() for frame in taken] == names
