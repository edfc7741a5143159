"""Voice in and voice out at once, between two sessions joined by a channel that keeps the order."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lmos_actors.errors import ActionFailed, InvalidInput, NotAllowed, RemoteProtocolError
from lmos_actors.protocol import lmos
from tests.matrix import few_or_all
from tests.protocol.lmos.wire import binary_frame

THING = "urn:operator"
WINDOW = lmos.Credit(items=16, bytes=262_144)
OFFERS = ("acks", "gaps", "streams", "deadlines", "retries")


def receive(session: Any, frame: bytes, *now: float) -> Any:
    """Hand over a frame as a transport does: bytes, or text."""
    if isinstance(frame, lmos.Binary):
        return session.receive_binary(bytes(frame))
    return session.receive(frame.decode(), *now)


class Call:
    """A consumer with a voice, and an operator who hears it and speaks at the same time.

    The operator says back what it hears, `echoes` items for each; every `note_every`th is also told as JSON.
    """

    def __init__(
        self,
        parts: int,
        *,
        kind: str = "audio/pcm",
        binary: bool = True,
        credit: lmos.Credit | None = WINDOW,
        note_every: int = 0,
        echoes: int = 1,
        options: lmos.SessionOptions | None = None,
        offered: tuple[str, ...] = OFFERS,
    ) -> None:
        ids = count(1)
        self.thing = lmos.ThingSession(offered=True, new_id=lambda: f"t{next(ids)}", options=options)
        self.consumer = lmos.ConsumerSession(selected=True, new_id=lambda: f"c{next(ids)}", offers=offered)
        self.run = self.consumer.invoke(THING, "talk", streams={"voice": kind}, credit=credit, binary=binary)
        self.json = kind == "application/json"
        self.note_every, self.echoes, self.parts = note_every, echoes, parts
        self.said = self.heard_back = self.heard = self.notes = 0
        self.happened: list[Any] = []
        self.asked: Any = None
        self.to_say: deque[Any] = deque()  # what the operator has still to say
        self.uses: deque[Any] = deque()  # streams whose oldest item is not used up
        self.over = False
        self.widest = 0

    def part(self, number: int) -> Any:
        return f"é{number}😀" if self.json else number.to_bytes(4, "big") * 8

    # -- the consumer's side

    def speak(self) -> bool:
        """Say one part of the voice, or its end."""
        voice = self.run.inputs["voice"]
        if self.said > self.parts or (self.said < self.parts and not voice.room):
            return False
        if self.said == self.parts:
            self.consumer.finish(voice)
        else:
            assert self.consumer.send(voice, self.part(self.said))
        self.said += 1
        return True

    def listen(self) -> bool:
        """Take what the thing has sent."""
        frames = self.thing.frames()
        for frame in frames:
            self._take_at_consumer(frame)
        return bool(frames)

    def _take_at_consumer(self, frame: bytes) -> None:
        for one in receive(self.consumer, frame):
            if not isinstance(one, lmos.RunItem):
                self.happened.append(one)
            elif isinstance(one.output, dict):
                self._consume()
            else:
                assert one.output == self.part(self.heard_back // self.echoes)
                self.heard_back += 1
                self._consume()

    def _consume(self) -> None:
        self.consumer.consumed(self.run)

    # -- the operator's side

    def hear(self) -> bool:
        """Take what the consumer has sent."""
        frames = self.consumer.frames()
        for frame in frames:
            for demand in receive(self.thing, frame, 0.0):
                self._meet(demand)
        return bool(frames)

    def _meet(self, demand: Any) -> None:
        if isinstance(demand, lmos.IncomingRequest):
            if demand.name != "talk":
                return
            self.asked = demand
            self.thing.began(demand)
            self.thing.ready(demand.streams["voice"])
        elif isinstance(demand, lmos.ItemArrived):
            assert demand.item == self.part(self.heard)
            self.uses.append(demand.stream)
            self.to_say += [demand.item] * self.echoes
            if self.note_every and self.heard % self.note_every == 0:
                self.to_say.append({"heard": self.heard})
            self.heard += 1
        elif isinstance(demand, lmos.StreamFinished):
            assert demand.reason is None
            self.to_say.append(None)
        else:
            assert isinstance(demand, lmos.CreditArrived)

    def answer(self) -> bool:
        """Say one thing, if there is room; what has been answered is used up."""
        if not self.to_say or not self.thing.room(self.asked):
            return False
        said = self.to_say.popleft()
        if said is None:
            self.thing.complete(self.asked)
            self.over = True
        else:
            assert self.thing.item(self.asked, said)
            self.notes += isinstance(said, dict)
        return True

    def use(self) -> bool:
        """Be done with the oldest item, once all that it called for has been said."""
        if not self.uses or len(self.to_say) > 2 * self.echoes * (len(self.uses) - 1):
            return False
        self.thing.consumed(self.uses.popleft())
        return True

    def check(self) -> None:
        """Nothing waits anywhere beyond the windows."""
        waiting = self.consumer.statistics().waiting, self.thing.statistics().waiting
        self.widest = max(self.widest, *waiting)
        assert max(waiting) <= 2 * WINDOW.items + 8
        assert len(self.uses) <= WINDOW.items

    def steps(self) -> list[Any]:
        return [self.speak, self.hear, self.answer, self.use, self.listen]

    def finish(self) -> None:
        """Let each go on for as long as it can, in turn, so that the windows are full."""
        went_on = True
        while went_on:
            went_on = False
            for step in self.steps():
                while step():
                    went_on = True
                self.check()

    def all_said(self) -> None:
        """Everything arrived, once, in order; there is one final answer, and nothing is left.

        What may come late is credit, for a stream that its sender has ended meanwhile.
        """
        assert (self.heard, self.heard_back) == (self.parts, self.parts * self.echoes)
        assert [
            type(one) for one in self.happened if not isinstance(one, lmos.CreditArrived | lmos.RunProgressed)
        ] == [lmos.RequestAnswered]
        consumer, thing = self.consumer.statistics(), self.thing.statistics()
        assert (consumer.open, consumer.waiting, consumer.strays) == (0, 0, 0)
        assert (thing.open, thing.waiting, thing.strays, thing.streams) == (0, 0, 0, 0)


def test_a_long_call_both_ways() -> None:
    call = Call(few_or_all(5_000, 100_000))
    call.finish()
    call.all_said()
    assert call.widest >= WINDOW.items


@pytest.mark.parametrize(
    "how",
    [
        {"binary": False, "kind": "application/json"},
        {"note_every": 7},
        {"echoes": 3},
        {"credit": lmos.Credit(items=1, bytes=1)},
        {"credit": lmos.Credit(items=2, bytes=10**9)},
        {"credit": lmos.Credit(items=500, bytes=40), "note_every": 1},
        {"options": lmos.SessionOptions(credit=lmos.Credit(items=1, bytes=1))},
    ],
    ids=str,
)
def test_calls_of_every_kind(how: dict[str, Any]) -> None:
    call = Call(200, **how)
    call.finish()
    call.all_said()


@pytest.mark.slow
@given(
    st.integers(0, 60),
    st.builds(lmos.Credit, items=st.integers(1, 5), bytes=st.integers(1, 200)),
    st.builds(lmos.Credit, items=st.integers(1, 5), bytes=st.integers(1, 200)),
    st.integers(0, 3),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_interleaving_comes_to_the_end(
    parts: int, back: lmos.Credit, forth: lmos.Credit, note_every: int, is_json: bool, random
) -> None:
    call = Call(
        parts,
        kind="application/json" if is_json else "audio/pcm",
        credit=back,
        note_every=note_every,
        options=lmos.SessionOptions(credit=forth),
    )
    steps = call.steps()
    while not (call.over and call.run.done):
        random.shuffle(steps)
        call.check()
        assert any(step() for step in steps), "nothing can ever happen again"
    call.finish()
    call.all_said()


# -- what goes wrong between two sessions


def started(**how: Any) -> Call:
    """A call in which a few parts have been said, and all that was sent was taken."""
    call = Call(100, **how)
    call.hear()
    call.listen()
    for _ in range(3):
        call.speak()
    call.hear()
    return call


def final(call: Call) -> Any:
    call.hear()
    call.listen()
    (failed,) = [one for one in call.happened if isinstance(one, lmos.RequestFailed)]
    assert failed.pending is call.run
    assert call.thing.statistics().streams == 0
    return failed.error


def test_a_consumer_that_breaks_the_rules_loses_that_run_alone() -> None:
    call = started()
    other = call.consumer.invoke(THING, "wait")
    call.hear()
    demands = call.thing.receive_binary(binary_frame(1, 9, b"x"))
    assert [type(demand) for demand in demands] == [lmos.RequestWithdrawn]
    call.speak()  # under way
    error = final(call)
    assert isinstance(error, InvalidInput)
    assert "item 3 was due, 9 came" in str(error)
    assert (call.thing.statistics().late, other.done) == (1, False)


def test_a_thing_that_breaks_the_rules_is_told_to_end_the_run() -> None:
    call = started()
    call.answer()
    call.listen()
    happened = call.consumer.receive_binary(binary_frame(2, 7, b"x"))
    (failed,) = happened
    assert isinstance(failed, lmos.RequestFailed)
    assert isinstance(failed.error, RemoteProtocolError)
    (said,) = [frame for frame in call.consumer.frames() if b"cancelAction" in frame]
    (withdrawn,) = call.thing.receive(said, 0.0)
    assert isinstance(withdrawn, lmos.RequestWithdrawn)
    assert withdrawn.reason == "item 1 was due, 7 came"
    call.listen()
    assert call.consumer.statistics().strays == 0


def test_a_run_that_fails_ends_its_streams() -> None:
    call = started()
    call.speak()
    call.thing.fail(call.asked, ActionFailed("no line"))
    assert isinstance(final(call), ActionFailed)
    assert call.consumer.send(call.run.inputs["voice"], b"x") is False
    assert call.thing.statistics().late == 1


def test_a_cancelled_run_ends_its_streams() -> None:
    call = started()
    call.consumer.cancel(call.run, "hung up")
    (withdrawn,) = [demand for frame in call.consumer.frames() for demand in call.thing.receive(frame, 0.0)]
    assert isinstance(withdrawn, lmos.RequestWithdrawn)
    assert not call.asked.streams["voice"].open
    assert call.thing.item(call.asked, b"late") is False
    final(call)


def test_a_voice_that_breaks_off_is_told() -> None:
    call = started()
    call.consumer.finish(call.run.inputs["voice"], "line cut")
    (frame,) = call.consumer.frames()
    (finished,) = call.thing.receive(frame, 0.0)
    assert isinstance(finished, lmos.StreamFinished)
    assert finished.reason == "line cut"


def test_an_operator_that_has_heard_enough_says_so() -> None:
    call = started()
    call.thing.stop(call.asked.streams["voice"], "enough")
    call.listen()
    (stopped,) = [one for one in call.happened if isinstance(one, lmos.StreamStopped)]
    assert (stopped.stream, stopped.reason) == (call.run.inputs["voice"], "enough")
    assert not call.run.done
    call.thing.complete(call.asked, "thanks")
    call.listen()
    assert call.run.done


def test_input_streams_need_a_peer_that_offers_them() -> None:
    with pytest.raises(NotAllowed):
        Call(1, offered=("acks",))


def test_a_thing_without_streams_refuses_them_clearly() -> None:
    call = Call(1, options=lmos.SessionOptions(offers=("acks",)))
    call.hear()
    assert call.asked is None
    error = final(call)
    assert isinstance(error, InvalidInput)
    assert error.path == "$.streams"


def test_binary_frames_close_a_connection_that_has_no_streams() -> None:
    frame = binary_frame(1, 0, b"")
    for session in (
        lmos.ThingSession(offered=True, new_id=str, options=lmos.SessionOptions(offers=())),
        lmos.ConsumerSession(selected=True, new_id=str),
    ):
        (close,) = session.receive_binary(frame)
        assert isinstance(close, lmos.Close)
        assert close.code == 1003
