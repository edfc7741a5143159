"""The streams of a connection: what may come when, what breaks a run and nothing more, what is late.

The tables of both sides stand here alone, joined by nothing but the texts and frames that they send.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, strategies as st

from lmos_actors.errors import InvalidInput, LocalProtocolError, MailboxFull, NotAllowed
from lmos_actors.protocol.lmos import (
    Binary,
    CreditArrived,
    Incoming,
    ItemArrived,
    Outgoing,
    StreamFinished,
    StreamStopped,
    _messages as m,
)
from lmos_actors.protocol.lmos._frames import (
    MAX_STREAM,
    BadFrame,
    Frame,
    pack_frame,
    parse_frame,
)
from lmos_actors.protocol.lmos._outbox import Outbox
from lmos_actors.protocol.lmos._streams import (
    BYTES,
    JSON,
    StreamTable,
    StreamViolation,
)
from lmos_actors.protocol.lmos.consumer._streams import ConsumerStreams, offers
from lmos_actors.protocol.lmos.thing._streams import MAX_GATHERED, MAX_INPUTS, ItemCollector, ThingStreams
from tests.rows import each_row

WINDOW = m.Credit(items=4, bytes=10_000)
VOICE = "audio/pcm"


@attrs.frozen(eq=False)
class Call:
    """A run, as a session would hold it."""

    message_id: str = "m-1"
    thing_id: str = "urn:thing"

    @property
    def correlation(self) -> str:
        return self.message_id


class Side:
    """One end: its table, its outbox, its run, and what it was told."""

    def __init__(self, kind: type[ConsumerStreams | ThingStreams], **options: Any) -> None:
        numbers = count()
        self.outbox = Outbox(msgspec.json.encode)
        self.table: Any = kind(
            encode=msgspec.json.encode, new_id=lambda: f"id-{next(numbers)}", **{"window": WINDOW, **options}
        )
        self.run = Call()
        self.news: list[Any] = []

    def do(self, method: str, *arguments: Any) -> bool:
        """Call the table; put out the frames that it gives, and say whether there were any."""
        given = getattr(self.table, method)(*arguments)
        frames = given if isinstance(given, tuple) else () if given is None else (given,)
        for frame in frames:
            self.outbox.put_frame(frame)
        return bool(frames)

    def take(self, frame: bytes) -> list[Any]:
        """Take one frame as a session does, and say what it amounts to."""
        news = self._taken(frame)
        new = list(news) if isinstance(news, tuple) else [news] if news is not None else []
        self.news += new
        return new

    def _taken(self, frame: bytes) -> Any:
        if isinstance(frame, Binary):
            return self.table.take_frame(frame)
        message = m.strict_decoder.decode(frame)
        if isinstance(message, m.StreamItem):
            return self.table.take_item(message, len(frame))
        if isinstance(message, m.StreamEnd):
            return self.table.take_end(message)
        if isinstance(message, m.StreamCredit):
            return self.table.take_credit(message)
        return self._answer(message, len(frame))

    def _answer(self, message: Any, size: int) -> Any:
        if isinstance(message, m.StreamOpen):
            return self.table.take_open(message)
        assert isinstance(message, m.ActionStatus)
        return self.table.take_output(self.answer, message.output, size)

    def frames(self) -> list[bytes]:
        return self.outbox.take(1 << 30)

    def messages(self) -> list[Any]:
        """Take what waits, read."""
        return [
            parse_frame(frame) if isinstance(frame, Binary) else m.strict_decoder.decode(frame)
            for frame in self.frames()
        ]

    answer: Any = None


class Line:
    """A consumer and a thing with one invocation between them."""

    def __init__(
        self,
        inputs: dict[str, str] | None = None,
        *,
        credit: m.Credit | None = WINDOW,
        binary: bool = True,
        ready: bool = True,
    ) -> None:
        self.consumer, self.thing = Side(ConsumerStreams), Side(ThingStreams)
        self.sending: dict[str, Outgoing] = self.consumer.table.offer(self.consumer.run, inputs or {})
        self.coming: dict[str, Incoming] = self.thing.table.accept(self.thing.run, offers(self.sending))
        self.consumer.answer = self.consumer.table.expect(self.consumer.run, credit)
        self.thing.answer = self.thing.table.answer(self.thing.run, credit, binary=binary)
        for stream in self.coming.values() if ready else ():
            self.thing.do("ready", stream)
        self.carry()

    def carry(self) -> None:
        """Carry everything both ways until nothing waits."""
        while len(self.consumer.outbox) or len(self.thing.outbox):
            self.carry_from(self.consumer, self.thing)
            self.carry_from(self.thing, self.consumer)

    def carry_from(self, here: Side, there: Side) -> None:
        for frame in here.frames():
            there.take(frame)

    @property
    def voice(self) -> Incoming:
        return self.coming["voice"]


def end(stream: int, sequence: int, reason: str | None = None, run: str = "m-1") -> bytes:
    return msgspec.json.encode(
        m.StreamEnd(
            thing_id="urn:thing",
            message_id="e",
            correlation_id=run,
            stream=stream,
            sequence=sequence,
            reason=reason,
        )
    )


def item(stream: int, sequence: int, data: Any = 0, run: str = "m-1") -> bytes:
    return msgspec.json.encode(
        m.StreamItem(
            thing_id="urn:thing",
            message_id="i",
            correlation_id=run,
            stream=stream,
            sequence=sequence,
            data=data,
        )
    )


def credit(items: int, size: int, stream: int | None = None, run: str | None = "m-1") -> bytes:
    return msgspec.json.encode(
        m.StreamCredit(
            thing_id="urn:thing",
            message_id="c",
            correlation_id=run,
            stream=stream,
            items=items,
            bytes=size,
        )
    )


def opening(stream: int, run: str = "m-1") -> bytes:
    return msgspec.json.encode(
        m.StreamOpen(thing_id="urn:thing", message_id="o", correlation_id=run, stream=stream)
    )


def frame(stream: int, sequence: int, payload: bytes = b"x", *, last: bool = False) -> Binary:
    return pack_frame(Frame(stream, sequence, payload, last))


def kinds(news: list[Any]) -> list[Any]:
    """What arrived, ended, and so on, in short."""
    short: list[Any] = []
    for one in news:
        if isinstance(one, ItemArrived):
            short.append(one.item)
        elif isinstance(one, StreamViolation):
            short.append(one.detail)
        else:
            short.append(
                (type(one), one.reason) if isinstance(one, StreamFinished | StreamStopped) else type(one)
            )
    return short


# -- the ordinary course


def test_an_input_of_bytes_goes_in_binary_frames() -> None:
    line = Line({"voice": VOICE})
    assert kinds(line.consumer.news) == [CreditArrived]
    for part in (b"a", b"", b"\xff\x00"):
        assert line.consumer.do("send", line.sending["voice"], part)
    assert line.consumer.messages() == [Frame(1, 0, b"a"), Frame(1, 1, b""), Frame(1, 2, b"\xff\x00")]


def test_an_input_of_json_goes_in_messages() -> None:
    line = Line({"lines": JSON})
    line.consumer.do("send", line.sending["lines"], {"a": [1, None]})
    (sent,) = line.consumer.messages()
    assert (type(sent), sent.stream, sent.sequence, sent.data) == (m.StreamItem, 1, 0, {"a": [1, None]})
    assert (sent.correlation_id, sent.thing_id) == ("m-1", "urn:thing")


@pytest.mark.parametrize(("kind", "items"), [(VOICE, [b"a", b"b"]), (JSON, [1, None, "x"])])
def test_what_is_sent_arrives_and_ends(kind: str, items: list[Any]) -> None:
    line = Line({"voice": kind})
    for one in items:
        line.consumer.do("send", line.sending["voice"], one)
    line.consumer.do("finish", line.sending["voice"])
    line.carry()
    assert kinds(line.thing.news) == [*items, (StreamFinished, None)]
    assert {news.stream for news in line.thing.news} == {line.voice}
    assert not line.voice.open


def test_a_sender_may_break_off() -> None:
    line = Line({"voice": VOICE})
    line.consumer.do("send", line.sending["voice"], b"a")
    line.consumer.do("finish", line.sending["voice"], "hung up")
    line.carry()
    assert kinds(line.thing.news) == [b"a", (StreamFinished, "hung up")]


def test_the_last_frame_may_say_so() -> None:
    line = Line({"voice": VOICE})
    assert kinds(line.thing.take(frame(1, 0, b"a", last=True))) == [b"a", (StreamFinished, None)]
    assert not line.voice.open


def test_nothing_may_be_sent_before_the_first_credit() -> None:
    line = Line({"voice": VOICE}, ready=False)
    stream = line.sending["voice"]
    assert not stream.room
    with pytest.raises(LocalProtocolError, match="no credit"):
        line.consumer.do("send", stream, b"a")
    line.thing.do("ready", line.voice)
    line.thing.do("ready", line.voice)
    line.carry()
    assert stream.room
    assert line.consumer.news == [CreditArrived(line.consumer.run, stream)]
    assert (stream.window.items, stream.window.bytes) == (WINDOW.items, WINDOW.bytes)


def test_a_stream_of_bytes_takes_nothing_else() -> None:
    line = Line({"voice": VOICE})
    with pytest.raises(LocalProtocolError, match="audio/pcm are bytes, this is str"):
        line.consumer.do("send", line.sending["voice"], "a")


def test_credit_comes_back_when_half_is_used_up() -> None:
    line = Line({"voice": VOICE})
    stream = line.sending["voice"]
    for _ in range(WINDOW.items):
        line.consumer.do("send", stream, b"a")
    line.carry()
    assert not stream.room
    line.thing.do("consumed", line.voice)
    assert line.thing.messages() == []
    line.thing.do("consumed", line.voice)
    (given,) = line.thing.messages()
    assert (type(given), given.stream, given.items, given.bytes) == (m.StreamCredit, 1, 2, 26)


def test_a_receiver_may_want_no_more() -> None:
    line = Line({"voice": VOICE})
    stream = line.sending["voice"]
    line.consumer.do("send", stream, b"a")
    line.thing.do("stop", line.voice, "enough")
    line.carry()
    assert kinds(line.consumer.news) == [CreditArrived, (StreamStopped, "enough")]
    assert line.consumer.do("send", stream, b"b") is False
    assert line.thing.table.ignored == 1  # the item that was under way
    line.consumer.do("finish", stream)
    assert not line.consumer.outbox


def test_an_answer_of_json_is_statuses() -> None:
    line = Line()
    assert line.thing.do("output", line.thing.answer, "speak", [1, 2])
    assert line.thing.do("output", line.thing.answer, "speak", None)
    sent = line.thing.messages()
    assert [(s.status, s.output, s.action, s.correlation_id) for s in sent] == [
        ("in progress", [1, 2], "speak", "m-1"),
        ("in progress", None, "speak", "m-1"),
    ]


def test_an_answer_of_bytes_is_opened_once() -> None:
    line = Line()
    for part in (b"a", b"b"):
        line.thing.do("output", line.thing.answer, "speak", part)
    line.thing.do("complete", line.thing.run)
    opened, first, second, ended = line.thing.messages()
    assert (type(opened), opened.stream, opened.content_type) == (m.StreamOpen, 2, BYTES)
    assert (first, second) == (Frame(2, 0, b"a"), Frame(2, 1, b"b"))
    assert (type(ended), ended.stream, ended.sequence, ended.reason) == (m.StreamEnd, 2, 2, None)


def test_an_answer_of_bytes_is_base64_where_frames_are_not_taken() -> None:
    line = Line(binary=False)
    line.thing.do("output", line.thing.answer, "speak", b"\xff\xfe")
    (sent,) = line.thing.messages()
    assert sent.output == "//4="


def test_an_answer_may_mix_bytes_and_json() -> None:
    line = Line()
    for part in (b"a", {"text": "a"}, b"b"):
        line.thing.do("output", line.thing.answer, "speak", part)
    line.thing.do("complete", line.thing.run)
    line.carry()
    assert kinds(line.consumer.news) == [b"a", {"text": "a"}, b"b", (StreamFinished, None)]


def test_the_answer_has_one_window_for_both() -> None:
    line = Line()
    for part in (b"a", 1, b"b", 2):
        assert line.thing.answer.room
        line.thing.do("output", line.thing.answer, "speak", part)
    assert not line.thing.answer.room
    line.carry()
    for _ in range(2):
        line.consumer.do("consumed", line.consumer.answer)
    (given,) = line.consumer.messages()
    assert (given.stream, given.correlation_id, given.items) == (None, "m-1", 2)
    line.thing.take(msgspec.json.encode(given))
    assert line.thing.news == [CreditArrived(line.thing.run, line.thing.answer)]


def test_credit_for_an_answer_may_name_its_number() -> None:
    line = Line(credit=m.Credit(items=1, bytes=1))
    line.thing.do("output", line.thing.answer, "speak", b"a")
    assert kinds(line.thing.take(credit(1, 100, stream=2, run=None))) == [CreditArrived]


def test_an_answer_without_credit_has_no_window() -> None:
    line = Line(credit=None)
    for number in range(1000):
        assert line.thing.answer.room
        line.thing.do("output", line.thing.answer, "speak", number)
    line.carry()
    assert kinds(line.consumer.news) == list(range(1000))
    line.consumer.do("consumed", line.consumer.answer)
    assert not line.consumer.outbox


def test_an_answer_that_is_over_takes_no_item() -> None:
    line = Line()
    line.thing.table.drop(line.thing.run)
    assert line.thing.do("output", line.thing.answer, "speak", 1) is False
    assert not line.thing.outbox


# -- numbers


def test_each_side_counts_by_two() -> None:
    consumer, thing = Side(ConsumerStreams), Side(ThingStreams)
    calls = [Call(f"m-{n}") for n in range(3)]
    opened = [consumer.table.offer(call, {"a": JSON, "b": JSON}) for call in calls]
    assert [stream.number for one in opened for stream in one.values()] == [1, 3, 5, 7, 9, 11]
    answers = [thing.table.answer(call, WINDOW, binary=True) for call in calls]
    for answer in answers:
        thing.do("output", answer, "speak", b"")
    assert [answer.number for answer in answers] == [2, 4, 6]


def test_an_offer_says_number_and_content_type() -> None:
    streams = Side(ConsumerStreams).table.offer(Call(), {"a": JSON, "b": VOICE})
    assert offers(streams) == {"a": m.StreamOffer(stream=1), "b": m.StreamOffer(stream=3, content_type=VOICE)}


WRONG_OFFERS = [
    ({"a": 2}, "$.streams.a.stream"),
    ({"a": 0}, "$.streams.a.stream"),
    ({"a": 2**32 + 1}, "$.streams.a.stream"),
    ({"a": 10**400 + 1}, "$.streams.a.stream"),
    ({"a": 5, "b": 5}, "$.streams.b.stream"),
    ({"a": 7, "b": 3}, "$.streams.b.stream"),  # 3 is not above 5, which was used before
    ({str(n): 2 * n + 101 for n in range(MAX_INPUTS + 1)}, "$.streams"),
]


@pytest.mark.parametrize(("numbers", "path"), WRONG_OFFERS)
def test_numbers_that_cannot_be_are_refused(numbers: dict[str, int], path: str) -> None:
    thing = Side(ThingStreams)
    thing.table.accept(Call("before"), {"x": m.StreamOffer(stream=5 if len(numbers) > 1 else 1)})
    if numbers == {"a": 5, "b": 5}:
        numbers = {"a": 7, "b": 7}
    error = thing.table.accept(thing.run, {name: m.StreamOffer(stream=n) for name, n in numbers.items()})
    assert isinstance(error, InvalidInput)
    assert error.path == path
    assert len(thing.table) == 1


def test_the_numbers_of_a_refused_invocation_are_used_up() -> None:
    thing = Side(ThingStreams)
    thing.table.accept(thing.run, {"a": m.StreamOffer(stream=3), "b": m.StreamOffer(stream=4)})
    assert thing.take(end(3, 0, "refused")) == []
    again = thing.table.accept(thing.run, {"a": m.StreamOffer(stream=3)})
    assert isinstance(again, InvalidInput)
    assert thing.table.ignored == 1


def test_offers_in_any_order_are_fine() -> None:
    thing = Side(ThingStreams)
    opened = thing.table.accept(thing.run, {"b": m.StreamOffer(stream=9), "a": m.StreamOffer(stream=1)})
    assert {name: stream.number for name, stream in opened.items()} == {"b": 9, "a": 1}


def test_a_connection_has_so_many_streams_and_no_more() -> None:
    consumer, thing = Side(ConsumerStreams, max_open=3), Side(ThingStreams, max_open=3)
    first, second = Call("a"), Call("b")
    thing.table.accept(first, offers(consumer.table.offer(first, {"a": JSON, "b": JSON})))
    with pytest.raises(NotAllowed, match="3 streams"):
        consumer.table.offer(second, {"a": JSON, "b": JSON})
    two = {"a": m.StreamOffer(stream=5), "b": m.StreamOffer(stream=7)}
    assert isinstance(thing.table.accept(second, two), MailboxFull)
    for side in (consumer, thing):
        side.table.drop(first)
        assert len(side.table) == 0
    assert len(consumer.table.offer(second, {"a": JSON, "b": JSON})) == 2
    assert len(thing.table.accept(second, {"a": m.StreamOffer(stream=9)})) == 1


def test_a_consumer_without_numbers_opens_no_streams() -> None:
    consumer = Side(ConsumerStreams)
    consumer.table._next = MAX_STREAM
    assert consumer.table.offer(Call("a"), {"a": JSON})["a"].number == MAX_STREAM
    with pytest.raises(NotAllowed, match="no numbers"):
        consumer.table.offer(Call("b"), {"a": JSON})


def test_a_thing_without_numbers_answers_in_base64() -> None:
    line = Line()
    line.thing.table._next = MAX_STREAM + 1
    line.thing.do("output", line.thing.answer, "speak", b"\xff")
    (sent,) = line.thing.messages()
    assert sent.output == "/w=="


# -- what breaks a run

TO_A_THING = {
    "a gap": ([frame(1, 1)], "item 0 was due, 1 came"),
    "a repeat": ([frame(1, 0), frame(1, 0)], "item 1 was due, 0 came"),
    "over credit": ([frame(1, n) for n in range(5)], "an item came without credit"),
    "over credit in bytes": ([frame(1, 0, bytes(10_000)), frame(1, 1, b"")], "an item came without credit"),
    "after the end": ([end(1, 0), frame(1, 0)], "an item came after the end of stream 1"),
    "after the last": ([frame(1, 0, last=True), frame(1, 1)], "an item came after the end of stream 1"),
    "after breaking off": ([end(1, 0, "x"), frame(1, 0)], "an item came after the end of stream 1"),
    "wrong count": ([frame(1, 0), end(1, 2)], "stream 1 ended after 2 items, 1 came"),
    "json for bytes": ([item(1, 0)], "an item of audio/pcm came in the wrong kind of frame"),
    "bytes for json": ([frame(3, 0)], "an item of application/json came in the wrong kind of frame"),
    "a json gap": ([item(3, 1)], "item 0 was due, 1 came"),
    "json over credit": ([item(3, n) for n in range(5)], "an item came without credit"),
    "json after the end": ([end(3, 0), item(3, 0)], "an item came after the end of stream 3"),
    "unknown flags": (
        [Binary(b"\x01\x02" + bytes(5) + b"\x01" + bytes(4))],
        "unknown flags are set in a binary frame",
    ),
    "no such stream": ([item(99, 0)], "there is no stream 99"),
    "no such stream ends": ([end(99, 0)], "there is no stream 99"),
    "no such answer": ([item(2, 0)], "there is no stream 2"),
}


@each_row("case", TO_A_THING)
def test_a_violation_ends_the_run(case: str) -> None:
    frames, detail = TO_A_THING[case]
    line = Line({"voice": VOICE, "lines": JSON})
    for one in frames:
        line.thing.take(one)
    assert line.thing.news[-1] == StreamViolation(line.thing.run, detail)
    assert [news for news in line.thing.news if isinstance(news, StreamViolation)] == line.thing.news[-1:]
    assert len(line.thing.table) == 0
    assert not any(stream.open for stream in (*line.coming.values(), line.thing.answer))


@each_row("case", TO_A_THING)
def test_what_comes_after_the_run_is_late_and_no_more(case: str) -> None:
    line = Line({"voice": VOICE, "lines": JSON})
    line.thing.table.drop(line.thing.run)
    for one in TO_A_THING[case][0]:
        assert [news for news in line.thing.take(one) if not isinstance(news, BadFrame)] == []
    assert line.thing.table.ignored + len(line.thing.news) == len(TO_A_THING[case][0])


def test_a_violation_leaves_other_runs_alone() -> None:
    line = Line({"voice": VOICE})
    other = Call("m-2")
    theirs = line.consumer.table.offer(other, {"voice": VOICE})
    mine = line.thing.table.accept(other, offers(theirs))["voice"]
    line.thing.do("ready", mine)
    line.carry()
    line.thing.take(frame(1, 7))
    line.consumer.do("send", theirs["voice"], b"a")
    line.carry()
    assert line.thing.news[-1] == ItemArrived(other, mine, b"a")


TO_A_CONSUMER = {
    "a gap": ([opening(2), frame(2, 1)], "item 0 was due, 1 came"),
    "over credit": ([opening(2), *(frame(2, n) for n in range(5))], "an item came without credit"),
    "after the end": ([opening(2), end(2, 0), frame(2, 0)], "an item came after the end of stream 2"),
    "wrong count": ([opening(2), end(2, 1)], "stream 2 ended after 1 items, 0 came"),
    "an odd number": ([opening(3)], "stream 3 cannot be opened"),
    "number nought": ([opening(0)], "stream 0 cannot be opened"),
    "too high": ([opening(2**32)], f"stream {2**32} cannot be opened"),
    "opened twice": ([opening(2), opening(4)], "stream 4 cannot be opened"),
    "the same again": ([opening(2), opening(2)], "stream 2 cannot be opened"),
    "an item as message": (
        [opening(2), item(2, 0)],
        "an item of application/json came in the wrong kind of frame",
    ),
    "the other way": ([frame(1, 0)], "stream 1 goes the other way"),
    "the other way, json": ([item(1, 0)], "stream 1 goes the other way"),
    "no such stream": ([item(6, 0)], "there is no stream 6"),
}


@pytest.mark.parametrize("case", TO_A_CONSUMER)
def test_a_thing_that_breaks_the_rules_is_caught_too(case: str) -> None:
    frames, detail = TO_A_CONSUMER[case]
    line = Line({"voice": VOICE})
    line.consumer.news.clear()
    for one in frames:
        line.consumer.take(one)
    assert line.consumer.news[-1] == StreamViolation(line.consumer.run, detail)
    assert len(line.consumer.table) == 0
    assert not line.sending["voice"].open


def test_statuses_over_credit_are_caught() -> None:
    line = Line(credit=m.Credit(items=1, bytes=1))
    news = [line.consumer.table.take_output(line.consumer.answer, n, 5) for n in range(2)]
    assert kinds(news) == [0, "an item came without credit"]


# -- what is late, strange or nobody's

STRANGE = [
    credit(1, 1),
    credit(1, 1, run=None),
    credit(1, 1, stream=1),
    credit(1, 1, stream=99),
    credit(1, 1, run="m-9"),
    end(1, 0, run="m-9"),
    end(99, 0, run="m-9"),
    item(1, 0, run="m-9"),
    item(99, 0, run="m-9"),
    frame(1, 0),
    frame(98, 0),
]


@pytest.mark.parametrize("sent", STRANGE)
@pytest.mark.parametrize("kind", [ThingStreams, ConsumerStreams])
def test_what_is_nobodys_is_counted_and_ignored(kind: type, sent: bytes) -> None:
    side = Side(kind)
    assert side.take(sent) == []
    assert side.table.ignored == 1
    assert not side.outbox


def test_an_opening_that_is_too_late_uses_up_its_number() -> None:
    consumer = Side(ConsumerStreams)
    assert consumer.take(opening(4, run="gone")) == []
    consumer.answer = consumer.table.expect(consumer.run, WINDOW)
    assert kinds(consumer.take(opening(4))) == ["stream 4 cannot be opened"]


def test_an_opening_for_an_answer_that_is_no_stream_is_ignored() -> None:
    consumer = Side(ConsumerStreams)
    consumer.table.offer(consumer.run, {"a": JSON})
    assert consumer.take(opening(2)) == []
    assert consumer.table.ignored == 1


@pytest.mark.parametrize("data", [b"", b"\x02" + bytes(20), b'{"messageType":"x"}', b"\x01" + bytes(11)])
def test_bytes_that_are_no_frame_are_handed_back(data: bytes) -> None:
    assert isinstance(Side(ThingStreams).table.take_frame(data), BadFrame)


def test_ends_that_come_again_are_ignored() -> None:
    line = Line({"voice": VOICE})
    assert kinds(line.thing.take(end(1, 0))) == [(StreamFinished, None)]
    assert line.thing.take(end(1, 5)) == []
    assert line.consumer.take(end(1, 0, "enough")) != []
    assert line.consumer.take(end(1, 0, "enough")) == []
    assert (line.thing.table.ignored, line.consumer.table.ignored) == (1, 1)


def test_a_stream_that_is_over_gives_no_credit() -> None:
    line = Line({"voice": VOICE}, ready=False)
    line.thing.table.drop(line.thing.run)
    line.thing.do("ready", line.voice)
    line.thing.do("consumed", line.voice)
    line.thing.do("stop", line.voice, "enough")
    assert not line.thing.outbox


def test_two_runs_of_one_id_are_two_runs() -> None:
    """Ids that come twice are common among simple peers: their streams must not be mixed up."""
    thing = Side(ThingStreams)
    first, second = Call(), Call()
    one = thing.table.answer(first, WINDOW)
    two = thing.table.answer(second, WINDOW)
    thing.table.drop(first)
    assert (one.open, two.open, len(thing.table)) == (False, True, 1)
    two.window.items = 0
    assert thing.take(credit(1, 1)) == [CreditArrived(second, two)]
    thing.table.drop(second)
    assert thing.take(credit(1, 1)) == []


def test_the_count_of_a_stream_that_broke_off_is_not_looked_at() -> None:
    line = Line({"voice": VOICE})
    assert kinds(line.thing.take(end(1, 9, "line cut"))) == [(StreamFinished, "line cut")]


def test_credit_for_a_stream_that_has_ended_is_late() -> None:
    line = Line({"voice": VOICE})
    stream = line.sending["voice"]
    stream.window.items = 0
    line.consumer.do("finish", stream)
    assert line.consumer.take(credit(1, 1, stream=1)) == []
    assert (line.consumer.table.ignored, stream.window.items) == (1, 0)


@pytest.mark.parametrize(("number", "detail"), [(2, "there is no stream 2"), (7, "there is no stream 7")])
def test_numbers_that_were_never_opened_are_told_from_those_that_are_over(number: int, detail: str) -> None:
    consumer = Side(ConsumerStreams)
    over = Call("over")
    consumer.table.offer(over, {"a": JSON, "b": JSON})
    consumer.table.drop(over)
    consumer.table.offer(consumer.run, {"a": JSON})
    assert consumer.take(item(3, 0)) == []
    assert kinds(consumer.take(item(number, 0))) == [detail]


def test_a_connection_that_is_gone_closes_all_streams() -> None:
    line = Line({"voice": VOICE, "lines": JSON})
    for side in (line.consumer, line.thing):
        side.table.close()
        assert len(side.table) == 0
    assert not any(stream.open for stream in (*line.sending.values(), *line.coming.values()))


# -- properties

FRAMES = st.one_of(
    st.builds(frame, st.integers(1, 8), st.integers(0, 3), st.binary(max_size=3), last=st.booleans()),
    st.builds(item, st.integers(0, 8), st.integers(0, 3), st.none(), st.sampled_from(["m-1", "m-2"])),
    st.builds(
        end,
        st.integers(0, 8),
        st.integers(0, 3),
        st.sampled_from([None, "r"]),
        st.sampled_from(["m-1", "m-2"]),
    ),
    st.builds(
        credit,
        st.integers(0, 9),
        st.integers(0, 99),
        st.sampled_from([None, *range(8)]),
        st.sampled_from([None, "m-1", "m-2"]),
    ),
    st.builds(Binary, st.binary(max_size=20)),
)


def accounted(side: Side) -> None:
    table: StreamTable = side.table
    open_ones = [stream for held in table._runs.values() for stream in held.values()]
    assert len(table) == len(open_ones)
    assert set(table._numbered.values()) <= set(open_ones)
    assert set(table._named.values()) == set(table._runs)
    assert all(stream.window.held <= WINDOW.items for stream in open_ones if isinstance(stream, Incoming))


@given(st.lists(FRAMES, max_size=40))
def test_whatever_comes_to_a_thing_the_tables_stay_true(frames: list[bytes]) -> None:
    line = Line({"voice": VOICE, "lines": JSON})
    for one in frames:
        assert len(line.thing.take(one)) <= 2
        accounted(line.thing)


@given(st.lists(FRAMES | st.builds(opening, st.integers(0, 8), st.sampled_from(["m-1", "m-2"])), max_size=40))
def test_whatever_comes_to_a_consumer_the_tables_stay_true(frames: list[bytes]) -> None:
    line = Line({"voice": VOICE, "lines": JSON})
    for one in frames:
        assert len(line.consumer.take(one)) <= 2
        accounted(line.consumer)


# -- answers for those who know no streams


def test_items_are_gathered_into_one_array() -> None:
    gathered = ItemCollector(100)
    assert [gathered.add(one) for one in (1, None, {"a": b"x"})] == [True] * 3
    assert gathered.items == [1, None, {"a": b"x"}]


def test_gathering_has_a_bound_in_items() -> None:
    gathered = ItemCollector(1 << 20)
    assert all(gathered.add(0) for _ in range(MAX_GATHERED))
    assert gathered.add(0) is False
    assert len(gathered.items) == MAX_GATHERED


@pytest.mark.parametrize(("left", "fits"), [(100, True), (99, True), (98, False)])
def test_gathering_has_a_bound_in_bytes(left: int, fits: bool) -> None:
    gathered = ItemCollector(left)
    assert gathered.add("x" * 47)
    assert gathered.add("x" * 44) is fits
    assert len(msgspec.json.encode(gathered.items)) <= left
