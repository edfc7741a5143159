"""One-way messages under credit: both ends of a connection keep the same books, and nobody waits for ever."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmos_actors import ActionFailed, AgentUnavailable, InvalidInput, MailboxFull
from lmos_actors.protocol import lmos
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import Account, Budget
from tests.matrix import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

THING = "http://here/agents/counter"
OTHER = "http://here/agents/other"
KIB = 1024


class Line:
    """A consumer and a thing on one connection; frames go when a test says so."""

    def __init__(self, **options: Any) -> None:
        ours, theirs = count(1), count(1)
        self.consumer = lmos.ConsumerSession(
            selected=True, new_id=lambda: f"c{next(ours)}", offers=options.pop("offers", lmos.OFFERS)
        )
        self.account: Account | None = options.pop("account", None)
        self.thing = lmos.ThingSession(
            offered=True,
            new_id=lambda: f"t{next(theirs)}",
            grants=self.account,
            options=SessionOptions(**options),
        )
        self.waiting: deque[lmos.IncomingRequest] = deque()
        self.happened: list[Any] = []

    def tell(self, thing: str = THING, size: int = 0) -> lmos.ConsumerRequest:
        return self.consumer.tell(thing, "go", "x" * size)

    def tell_all(self, thing: str = THING, size: int = 0) -> int:
        told = 0
        while self.consumer.may_tell(thing):
            self.tell(thing, size)
            told += 1
        return told

    def fill(self, *things: str, size: int = 0) -> int:
        """Send as many as there is credit for, while the thing gives more for what has come."""
        told = found = sum(self.tell_all(thing, size) for thing in things or (THING,))
        while found:
            self.there()
            self.back()
            found = sum(self.tell_all(thing, size) for thing in things or (THING,))
            told += found
        return told

    def there(self) -> None:
        """Let the thing take what the consumer has sent."""
        for frame in self.consumer.frames(1 << 30):
            self.take(frame)

    def take(self, frame: bytes) -> None:
        for demand in self.thing.receive(frame.decode(), 0.0):
            assert isinstance(demand, lmos.IncomingRequest)
            self.waiting.append(demand)

    @property
    def windows(self) -> tuple[int, int]:
        """How many messages may be under way: as the consumer knows it, and as the thing takes them."""
        return self.consumer._requests.tells.window.items, self.thing._connection.tells.window.items

    def back(self) -> list[str]:
        """Let the consumer take what the thing has sent; what happened."""
        said: list[Any] = []
        for frame in self.thing.frames(1 << 30):
            said += self.consumer.receive(frame.decode())
        self.happened += said
        return [type(each).__name__ for each in said]

    def take_all(self) -> None:
        """Let all that waits begin, and have its credit back."""
        self.begin(len(self.waiting))
        self.thing.give_credit()
        self.back()

    def begin(self, messages: int) -> None:
        for _ in range(messages):
            self.thing.tell_begun(self.waiting.popleft())


def wide_line() -> Line:
    """Make a line whose window has been raised, to 64 messages for each thing."""
    line = Line()
    line.thing._connection.tells.thing = THING
    for _ in range(3):
        line.thing._connection.raise_window()
    line.back()
    line.happened.clear()
    return line


class Time:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def frames_of(session: lmos.ThingSession) -> list[dict[str, Any]]:
    return [msgspec.json.decode(frame) for frame in session.frames(1 << 30)]


# ---- credit


def test_the_first_messages_need_no_round_trip_and_the_257th_waits() -> None:
    line = Line()
    assert line.tell_all() == 2
    assert line.tell_all(OTHER) == 0
    assert not line.consumer.may_tell(f"{THING}-3")
    line = Line()
    assert line.fill() == 256
    with pytest.raises(MailboxFull):
        line.tell()
    assert line.consumer.may_tell(OTHER)


def test_credit_is_counted_in_bytes_too_and_no_message_is_too_large() -> None:
    line = Line()
    assert line.tell_all(size=10 * KIB) == 1
    line = Line()
    assert line.fill(size=100 * KIB) == 3
    assert line.fill(OTHER, size=1 << 20) == 1


def test_the_connection_has_a_window_of_its_own() -> None:
    line = Line()
    assert sum(line.fill(f"{THING}-{n}") for n in range(20)) == 1024
    line = Line()
    assert sum(line.fill(f"{THING}-{n}", size=200 * KIB) for n in range(40)) == 6


def test_a_message_that_has_begun_is_not_answered_and_credit_comes_by_halves() -> None:
    line = Line()
    line.fill()
    line.begin(127)
    assert line.thing.frames() == []
    line.begin(1)
    assert line.back() == ["TellRoom"]
    assert line.tell_all() == 128


def test_room_is_told_only_where_somebody_found_none() -> None:
    line = wide_line()
    for _ in range(15):
        line.tell()
    line.there()
    line.begin(15)
    assert line.back() == []


def test_credit_that_is_owed_can_be_given_at_any_time() -> None:
    line = Line()
    line.tell()
    line.there()
    line.begin(1)
    assert line.thing.owes_credit
    line.thing.give_credit()
    assert not line.thing.owes_credit
    line.thing.give_credit()
    line.back()
    assert line.consumer.statistics().remembered == 0
    assert line.thing.statistics().answered == 1


@pytest.mark.slow
def test_slow_agents_do_not_use_up_the_credit_of_those_that_are_not() -> None:
    line = Line()
    for n in range(3):
        line.fill(f"{THING}-{n}")
    line.waiting.clear()  # none of them ever begins
    for _ in range(100):
        assert line.tell_all(OTHER) > 0
        line.there()
        line.begin(len(line.waiting))
        line.back()


def test_messages_that_begin_out_of_order_are_told_by_number() -> None:
    line = wide_line()
    told = [line.tell() for _ in range(6)]
    line.there()
    for place in (5, 0, 1, 3):
        line.thing.tell_begun(line.waiting[place])
    line.thing.give_credit()
    (frame,) = frames_of(line.thing)
    assert frame["begun"] == [[1, 2], [4, 4], [6, 6]]
    line.consumer.receive(msgspec.json.encode(frame).decode())
    assert [pending for pending, _ in line.consumer.closed().pendings] == [told[2], told[4]]


# ---- windows


def lines_of(budget: Budget, number: int) -> list[Line]:
    return [Line(account=budget.open(lambda: None)) for _ in range(number)]


def test_a_window_is_raised_while_memory_is_granted_for_it() -> None:
    budget = Budget(8 << 20, Time())
    lines = lines_of(budget, 4)
    assert [line.fill(THING, OTHER) for line in lines] == [512, 128, 128, 32]
    assert [line.windows for line in lines] == [(1024, 1024), (128, 128), (128, 128), (32, 32)]
    assert budget.statistics().granted == (1024 + 128 + 128 + 32) * 3072
    assert budget.statistics().gave_way == 0


def test_credit_that_is_not_used_is_asked_back_where_others_need_it() -> None:
    time = Time()
    budget = Budget(8 << 20, time)
    first, second = lines_of(budget, 2)
    assert first.fill(THING, OTHER) == 512
    assert second.fill(THING, OTHER) == 128  # the first one uses what it has
    first.take_all()
    assert first.windows == (1024, 1024)
    time.now = 1.0
    assert second.fill(THING, OTHER) == 0
    second.take_all()
    assert second.fill(THING, OTHER) == 128
    first.back()  # it is asked
    assert first.windows == (2, 1024)  # what was on its way may come
    assert budget.statistics().granted == (1024 + 128) * 3072
    first.there()
    assert first.windows == (2, 2)
    assert budget.statistics().granted == 128 * 3072
    second.take_all()
    assert second.fill(THING, OTHER) == 512
    assert first.fill(THING, OTHER) == 128


def test_what_was_sent_under_a_window_that_is_lowered_meanwhile_is_taken() -> None:
    line = Line(account=Budget(8 << 20, Time()).open(lambda: None))
    assert line.fill() == 256
    line.take_all()
    assert line.account is not None
    assert line.account.lower()
    assert not line.account.lower(), "it has been asked"
    assert line.tell_all() == 256
    line.back()
    line.there()
    assert (len(line.waiting), frames_of(line.thing)) == (256, [])
    assert line.windows == (2, 2)
    assert not line.consumer.may_tell(OTHER)
    line.take_all()
    assert line.tell_all() == 2


def test_what_is_in_use_is_not_asked_back() -> None:
    line = Line()
    line.fill()
    assert line.windows == (1024, 1024)
    assert not line.thing._connection.lower_window()
    line.begin(1)
    line.thing.give_credit()
    assert line.thing._connection.lower_window()
    line.back()
    line.there()
    assert line.windows == (512, 512)


@pytest.mark.parametrize("window", [(0, 0), (1, 1 << 50), (1 << 50, 1), (1, 2047)])
def test_a_consumer_takes_no_window_that_is_not_allowed(window: tuple[int, int]) -> None:
    line = Line()
    for thing in (THING, OTHER):
        message = lmos.TellWindow(thing_id=thing, message_id="t", messages=window[0], bytes=window[1])
        line.consumer.receive(msgspec.json.encode(message).decode())
    most, bound = 2 if window[0] < 2 else 1024, 2048 if window[1] < 2048 else 1 << 20
    assert sum(line.tell_all(f"{THING}-{n}") for n in range(40)) <= most
    tells = line.consumer._requests.tells
    assert (tells.window.items, tells.window.bytes) == (most, bound)


def test_a_window_that_nobody_has_asked_to_be_confirmed_changes_nothing() -> None:
    line = Line()
    for number in (1, 2, 5000):
        confirmation = lmos.TellWindow(thing_id=THING, message_id="x", messages=number, bytes=number)
        line.take(msgspec.json.encode(confirmation))
    assert frames_of(line.thing) == []
    assert line.windows == (2, 2)
    assert line.fill() == 256


# ---- refusals


def test_a_message_that_is_refused_is_lost_and_has_its_credit_back() -> None:
    line = Line()
    pending = line.tell()
    assert line.fill() == 255
    line.thing.fail(line.waiting.popleft(), AgentUnavailable("counter", "stopping"))
    assert line.back() == ["ForgottenFailed", "TellRoom"]
    assert pending.done
    assert isinstance(pending.error, AgentUnavailable)
    assert line.tell_all() == 1


def test_a_refusal_is_told_once() -> None:
    line = Line()
    line.tell()
    line.there()
    asked = line.waiting.popleft()
    line.thing.fail(asked, ActionFailed("no"))
    line.thing.fail(asked, ActionFailed("no"))
    line.thing.tell_begun(asked)
    assert line.back() == ["ForgottenFailed"]
    assert line.thing.statistics().open == 0


def test_a_consumer_that_ignores_its_credit_is_refused_and_bounded() -> None:
    line = Line()
    line.fill()
    frame = {"messageType": "invokeAction", "thingID": THING, "action": "go"}
    for number in range(257, 300):
        line.take(msgspec.json.encode({**frame, "messageID": f"x{number}", "tell": number}))
    errors = frames_of(line.thing)
    assert [(e["type"], e["status"], e["path"]) for e in errors] == [
        ("urn:lmos-actors:errors#invalid-input", "400", "$.tell")
    ] * 43
    assert errors[0]["detail"] == "a one-way message came without credit"
    assert (len(line.waiting), line.thing.statistics().open) == (256, 256)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_number_that_was_used_is_refused(number: int) -> None:
    line = wide_line()
    for _ in range(3):
        line.tell()
    line.there()
    frame = {"messageType": "invokeAction", "thingID": THING, "action": "go", "messageID": "x"}
    line.take(msgspec.json.encode({**frame, "tell": number}))
    (error,) = frames_of(line.thing)
    assert error["detail"] == "the number of a one-way message is higher than all before"
    assert len(line.waiting) == 3


class CountedDict(dict[int, Any]):
    """A dictionary that counts how many of its entries are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        for number in super().__iter__():
            self.looks += 1
            yield number

    def __getitem__(self, number: int) -> Any:
        self.looks += 1
        return super().__getitem__(number)

    def __contains__(self, number: object) -> bool:
        self.looks += 1
        return super().__contains__(number)

    def items(self) -> Any:
        return [(number, self[number]) for number in self]


@pytest.mark.parametrize(
    ("first", "last", "left"),
    [(9_999, 1 << 60, 300), (1, 1 << 60, 0), (1, 290, 10), (9_999, 1, 300), (5, 5, 299)],
)
def test_many_ranges_of_credit_cost_no_more_than_they_and_the_messages(
    first: int, last: int, left: int
) -> None:
    line = Line()
    assert line.fill(THING, OTHER) == 512
    line.take_all()
    assert line.tell_all() + line.tell_all(OTHER) == 512
    tells = line.consumer._requests.tells
    tells.begun([(513, 512 + 212)])
    assert len(tells) == 300
    tells._by_number = counted = CountedDict(tells._by_number)
    ranges = [(first + 724, last + 724)] * 2_000
    frame = lmos.TellCredit(thing_id=THING, message_id="x", begun=ranges)
    line.consumer.receive(msgspec.json.encode(frame).decode())
    assert len(tells) == left
    assert counted.looks <= 2 * 300 + len(ranges)


@pytest.mark.parametrize("begun", [[(0, 1 << 60)], [(5, 1)], [(2, 2)] * 3, [(1 << 62, 1 << 62)], []])
def test_credit_for_what_was_never_sent_takes_no_time(begun: list[tuple[int, int]]) -> None:
    line = Line()
    line.fill()
    message = lmos.TellCredit(thing_id=THING, message_id="t", begun=begun)
    line.consumer.receive(msgspec.json.encode(message).decode())
    gone = {(0, 1 << 60): 256, (2, 2): 1}.get(begun[0] if begun else (0, 0), 0)
    assert line.tell_all() == gone


# ---- peers that know no credit


@pytest.mark.parametrize("offers", [(), ("acks",)])
def test_the_answers_of_other_peers_bound_what_is_open(offers: tuple[str, ...]) -> None:
    line = Line(offers=offers)
    assert line.tell_all() == 256
    line.there()
    first, second = line.waiting.popleft(), line.waiting.popleft()
    assert first.tell is None
    line.thing.pending(first)
    assert line.back() == []
    line.thing.complete(first, 1)
    line.thing.fail(second, InvalidInput("no"))
    assert line.back() == ["TellRoom", "ForgottenFailed"]
    assert line.tell_all() == 2


def test_answers_that_name_no_request_are_those_of_the_oldest() -> None:
    line = Line(offers=())
    line.tell_all()
    status = {"messageType": "actionStatus", "thingID": THING, "messageID": "t", "action": "go"}
    error = {"type": "t", "title": "t", "status": "503", "detail": "d", "instance": "i"}
    wrong = {"messageType": "error", "thingID": THING, "messageID": "t", **error}
    for frame in ({**status, "status": "completed"}, {**status, "status": "in progress"}, wrong):
        line.consumer.receive(msgspec.json.encode(frame).decode())
    assert line.tell_all() == 2


def test_a_thing_that_offers_no_tells_answers() -> None:
    line = Line(offers=())
    line.tell()
    line.there()
    assert line.waiting[0].tell is None
    (frame,) = [msgspec.json.decode(f) for f in [msgspec.json.encode(line.waiting[0].message)]]
    assert "tell" not in frame
    silent = Line(offers=("acks", "gaps"))
    plain = lmos.ThingSession(offered=True, new_id=lambda: "t", options=SessionOptions(offers=()))
    silent.tell()
    (asked,) = plain.receive(silent.consumer.frames()[0].decode(), 0.0)
    assert isinstance(asked, lmos.IncomingRequest)
    plain.complete(asked)
    assert frames_of(plain)[0]["status"] == "completed"


# ---- the end


def test_what_is_left_is_what_is_not_known_to_have_begun() -> None:
    line = wide_line()
    told = [line.tell() for _ in range(4)]
    line.there()
    line.begin(1)
    line.thing.give_credit()
    line.back()
    told.append(line.tell())
    left = line.consumer.closed().pendings
    assert left == ((told[1], True), (told[2], True), (told[3], True), (told[4], False))


def test_what_a_drained_thing_leaves_was_not_begun() -> None:
    line = Line()
    told = line.tell()
    line.there()
    assert line.consumer.closed(drained=True).pendings == ((told, False),)


def test_after_the_end_nothing_is_said() -> None:
    line = wide_line()
    for _ in range(3):
        line.tell()
    line.there()
    line.begin(1)
    assert line.thing.closed() == ()
    line.begin(1)
    line.thing.fail(line.waiting.popleft(), AgentUnavailable("counter", "stopped"))
    line.thing.give_credit()
    assert line.thing.frames() == []
    counts = line.thing.statistics()
    assert (counts.received, counts.answered, counts.abandoned, counts.open) == (3, 1, 2, 0)


# ---- anything, in any order


class Books(RuleBasedStateMachine):
    """Messages go, begin in any order, are refused, and credit comes back whenever it likes."""

    @initialize(offers=st.sampled_from([lmos.OFFERS, ()]))
    def begin(self, offers: tuple[str, ...]) -> None:
        self.line = Line(offers=offers)
        self.numbered = bool(offers)
        self.under_way: deque[bytes] = deque()
        self.coming: deque[bytes] = deque()
        self.told = self.begun = self.lost = 0
        self.stuck = False

    @rule(
        things=st.integers(1, 4), messages=st.integers(1, 300), size=st.sampled_from([0, 10, 5000, 400_000])
    )
    def tell(self, things: int, messages: int, size: int) -> None:
        for n in range(messages):
            thing = f"{THING}-{n % things}"
            if self.line.consumer.may_tell(thing):
                self.line.tell(thing, size)
                self.told += 1
        self.under_way += self.line.consumer.frames(1 << 30)

    @rule(frames=st.integers(1, 500))
    def arrive(self, frames: int) -> None:
        for _ in range(min(frames, len(self.under_way))):
            self.line.take(self.under_way.popleft())

    @rule(messages=st.integers(1, 300), data=st.randoms(use_true_random=False), refuse=st.booleans())
    def go_on(self, messages: int, data: Any, refuse: bool) -> None:
        for _ in range(min(messages, len(self.line.waiting))):
            place = data.randrange(min(len(self.line.waiting), 40))
            asked = self.line.waiting[place]
            del self.line.waiting[place]
            if refuse and data.random() < 0.2:
                self.line.thing.fail(asked, AgentUnavailable("x", "stopping"))
                self.lost += 1
            elif self.numbered:
                self.line.thing.tell_begun(asked)
                self.begun += 1
            else:
                self.line.thing.complete(asked)
                self.begun += 1
        self.coming += self.line.thing.frames(1 << 30)

    @rule()
    def give_credit(self) -> None:
        self.line.thing.give_credit()
        self.coming += self.line.thing.frames(1 << 30)

    @rule(frames=st.integers(1, 500))
    def come_back(self, frames: int) -> None:
        for _ in range(min(frames, len(self.coming))):
            for each in self.line.consumer.receive(self.coming.popleft().decode()):
                assert type(each) in (lmos.ForgottenFailed, lmos.TellRoom)

    @rule()
    def settle(self) -> None:
        """Let everything arrive, begin and come back: then there is room for everybody, without a timer."""
        while self.under_way or self.line.waiting or self.coming:
            self.arrive(10_000)
            while self.line.waiting:
                asked = self.line.waiting.popleft()
                self.begun += 1
                (self.line.thing.tell_begun if self.numbered else self.line.thing.complete)(asked)
            self.coming += self.line.thing.frames(1 << 30)
            self.come_back(10_000)
        for n in range(5):
            assert self.line.consumer.may_tell(f"{THING}-{n}")
        assert self.told == self.begun + self.lost

    @invariant()
    def adds_up(self) -> None:
        thing = self.line.thing.statistics()
        assert thing.refused == thing.unreadable == thing.strays == 0, "credit was broken"
        assert thing.open == len(self.line.waiting) <= 1024
        assert thing.received == thing.answered + thing.open
        consumer = self.line.consumer.statistics()
        assert consumer.asked == consumer.forgotten == self.told
        assert consumer.strays == 0
        assert consumer.remembered >= thing.open


class Shares(RuleBasedStateMachine):
    """Many connections and other holders share one budget: grants never pass their half of it."""

    @initialize(lines=st.integers(2, 6), limit=st.sampled_from([1 << 20, 4 << 20, 16 << 20]))
    def begin(self, lines: int, limit: int) -> None:
        self.time = Time()
        self.budget = Budget(limit, self.time)
        self.lines = lines_of(self.budget, lines)
        self.under_way: list[deque[bytes]] = [deque() for _ in self.lines]
        self.coming: list[deque[bytes]] = [deque() for _ in self.lines]
        self.other = self.budget.open(self.give_way)

    def give_way(self) -> None:
        self.other = self.budget.open(self.give_way)

    def picked(self, number: int) -> int:
        return number % len(self.lines)

    @rule(number=st.integers(0, 5), messages=st.integers(1, 300), size=st.sampled_from([0, 1000, 50_000]))
    def tell(self, number: int, messages: int, size: int) -> None:
        line = self.lines[self.picked(number)]
        for n in range(messages):
            thing = f"{THING}-{n % 3}"
            if line.consumer.may_tell(thing):
                line.tell(thing, size)
        self.under_way[self.picked(number)] += line.consumer.frames(1 << 30)

    @rule(number=st.integers(0, 5), frames=st.integers(1, 500))
    def arrive(self, number: int, frames: int) -> None:
        number = self.picked(number)
        for _ in range(min(frames, len(self.under_way[number]))):
            self.lines[number].take(self.under_way[number].popleft())
        self.coming[number] += self.lines[number].thing.frames(1 << 30)

    @rule(number=st.integers(0, 5), messages=st.integers(1, 300))
    def go_on(self, number: int, messages: int) -> None:
        number = self.picked(number)
        line = self.lines[number]
        line.begin(min(messages, len(line.waiting)))
        self.coming[number] += line.thing.frames(1 << 30)

    @rule(number=st.integers(0, 5), frames=st.integers(1, 500))
    def come_back(self, number: int, frames: int) -> None:
        number = self.picked(number)
        self.coming[number] += self.lines[number].thing.frames(1 << 30)  # it may have been asked
        for _ in range(min(frames, len(self.coming[number]))):
            self.lines[number].consumer.receive(self.coming[number].popleft().decode())
        self.under_way[number] += self.lines[number].consumer.frames(1 << 30)

    @rule(size=st.integers(0, 1 << 20))
    def hold(self, size: int) -> None:
        self.other.charge(size)

    @rule()
    def let_go(self) -> None:
        self.other.release(self.other.bytes)

    @rule(seconds=st.sampled_from([0.01, 0.2, 5.0]))
    def wait(self, seconds: float) -> None:
        self.time.now += seconds

    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        number = self.picked(number)
        account = self.lines[number].account
        assert account is not None
        self.lines[number].thing.closed()
        account.close()
        self.lines[number] = lines_of(self.budget, 1)[0]
        self.under_way[number].clear()
        self.coming[number].clear()

    @rule()
    def settle(self) -> None:
        """Let everything arrive, begin and come back: then there is room for everybody."""
        for number, line in enumerate(self.lines):
            while self.under_way[number] or line.waiting or self.coming[number]:
                self.arrive(number, 10_000)
                self.go_on(number, 10_000)
                self.come_back(number, 10_000)
            for n in range(5):
                assert line.consumer.may_tell(f"{THING}-{n}")

    @invariant()
    def is_within_the_budget(self) -> None:
        granted = 0
        for line in self.lines:
            known, taken = line.consumer._requests.tells.window, line.thing._connection.tells.window
            assert known.items <= taken.items
            assert known.bytes <= taken.bytes
            if known.items > 2 or taken.items > 2:
                granted += 2048 * taken.items + taken.bytes
            thing = line.thing.statistics()
            assert thing.refused == thing.unreadable == thing.strays == 0, "credit was broken"
            assert line.consumer.statistics().strays == 0
        counts = self.budget.statistics()
        assert granted <= counts.limit // 2
        assert granted <= counts.granted
        assert counts.bytes + counts.granted <= counts.limit


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)

TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
