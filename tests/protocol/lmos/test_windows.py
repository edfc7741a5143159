"""Credit: a sender never sends more than it may, and a receiver that uses what it gets never stops it."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, strategies as st

from lmos_actors.protocol.lmos import Credit
from lmos_actors.protocol.lmos._streams import (
    DEFAULT_CREDIT,
    MAX_CREDIT,
    ReceiveWindow,
    SendWindow,
    wire_size,
)

CREDITS = st.builds(Credit, items=st.integers(1, 20), bytes=st.integers(1, 100))
SIZES = st.lists(st.integers(0, 300), max_size=60)


def credit(items: int, size: int) -> Credit:
    return Credit(items=items, bytes=size)


def test_the_default_is_sixteen_items_or_a_quarter_of_a_mebibyte() -> None:
    assert (DEFAULT_CREDIT.items, DEFAULT_CREDIT.bytes) == (16, 256 * 1024)


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("abc", 3), ("é", 2), ("😀", 4), (b"\xff\x00", 2), ("\ud800", 3)]
)
def test_the_size_of_a_message_is_its_bytes(text: str | bytes, size: int) -> None:
    assert wire_size(text) == size


# -- sending

ROOM = [
    (credit(1, 1), [], True),
    (credit(0, 1), [], False),
    (credit(1, 0), [], False),
    (credit(2, 10), [10], False),  # no bytes left
    (credit(2, 10), [9], True),
    (credit(2, 10), [1, 1], False),  # no items left
    (credit(2, 10), [1_000_000], False),  # larger than the window: sent, and then waited for
    (None, [1_000_000] * 100, True),  # a peer that knows no credit
]


@pytest.mark.parametrize(("given", "sent", "room"), ROOM)
def test_there_is_room_while_both_are_above_zero(given: Credit | None, sent: list[int], room: bool) -> None:
    window = SendWindow(given)
    for size in sent:
        assert window.room
        window.spend(size)
    assert window.room is room


GRANTS = [
    ((1, 1), True),
    ((1, 0), False),
    ((0, 1), False),
    ((0, 0), False),
]


@pytest.mark.parametrize(("granted", "made_room"), GRANTS)
def test_a_grant_says_whether_it_made_room(granted: tuple[int, int], made_room: bool) -> None:
    window = SendWindow(credit(0, 0))
    assert window.grant(*granted) is made_room
    assert window.room is made_room


def test_a_grant_where_there_was_room_made_none() -> None:
    assert SendWindow(credit(1, 1)).grant(5, 5) is False


def test_bytes_owed_are_paid_first() -> None:
    window = SendWindow(credit(4, 10))
    window.spend(25)
    assert window.grant(0, 15) is False
    assert window.grant(0, 1) is True


def test_credit_without_end_is_cut() -> None:
    window = SendWindow(credit(10**400, 10**400))
    window.grant(10**400, 10**400)
    assert (window.items, window.bytes) == (MAX_CREDIT, MAX_CREDIT)


def test_without_credit_a_grant_is_ignored() -> None:
    window = SendWindow(None)
    assert window.grant(1, 1) is False
    assert window.items is None


def test_items_are_numbered_from_nought_and_around() -> None:
    window = SendWindow(None)
    assert [window.number(), window.number()] == [0, 1]
    window.sequence = 2**32 - 1
    assert [window.number(), window.number()] == [2**32 - 1, 0]


# -- receiving


def test_items_are_numbered_around_for_the_receiver_too() -> None:
    window = ReceiveWindow(None)
    window.sequence = 2**32 - 1
    assert [window.arrive(1, 2**32 - 1), window.arrive(1, 0), window.sequence] == [None, None, 1]


@pytest.mark.parametrize("sequence", [0, 2, 3, 2**32 - 1])
def test_a_gap_or_a_repeat_is_caught(sequence: int) -> None:
    window = ReceiveWindow(granted=True)
    assert window.arrive(1, 0) is None
    assert window.arrive(1, sequence) == f"item 1 was due, {sequence} came"


def test_items_without_numbers_are_not_counted() -> None:
    window = ReceiveWindow(granted=True)
    assert window.arrive(1) is None
    assert window.sequence == 0
    assert window.arrive(1, 0) is None


@pytest.mark.parametrize(("given", "sizes"), [(credit(2, 10), [1, 1, 1]), (credit(9, 10), [4, 6, 0])])
def test_what_exceeds_the_credit_is_caught(given: Credit, sizes: list[int]) -> None:
    window = ReceiveWindow(given, granted=True)
    assert [window.arrive(size) for size in sizes] == [None, None, "an item came without credit"]
    assert (window.held, window.held_bytes) == (2, sum(sizes[:2]))


def test_nothing_may_come_before_the_first_credit() -> None:
    window = ReceiveWindow(credit(2, 10))
    assert window.arrive(1, 0) == "an item came without credit"
    assert window.due() == credit(2, 10)
    assert window.due() is None
    assert window.arrive(1, 0) is None


@pytest.mark.parametrize(
    ("given", "sizes", "grants"),
    [
        (credit(4, 100), [1] * 4, [None, credit(2, 2), None, credit(2, 2)]),
        (credit(5, 100), [1] * 3, [None, None, credit(3, 3)]),
        (credit(9, 10), [4, 1, 9], [None, credit(2, 5), credit(1, 9)]),
        (credit(1, 1), [500], [credit(1, 500)]),
        (credit(1, 0), [], []),
    ],
)
def test_credit_is_given_back_by_halves(given: Credit, sizes: list[int], grants: list[Credit | None]) -> None:
    window = ReceiveWindow(given, granted=True)
    got = []
    for size in sizes:
        assert window.arrive(size) is None
        got.append(window.consume())
    assert got == grants


def test_consuming_what_never_came_gives_nothing() -> None:
    assert ReceiveWindow(credit(1, 1), granted=True).consume() is None
    assert ReceiveWindow(None).consume() is None


def test_without_a_window_only_numbers_count() -> None:
    window = ReceiveWindow(None, granted=True)
    assert {window.arrive(10**9, n) for n in range(100)} == {None}
    assert (window.held, window.due(), window.arrive(1, 7)) == (0, None, "item 100 was due, 7 came")


# -- both ends


class Pair:
    """A sender and a receiver with a channel in between, which keeps the order."""

    def __init__(self, window: Credit, sizes: list[int], *, granted: bool) -> None:
        self.window = window
        self.sender = SendWindow(window if granted else credit(0, 0))
        self.receiver = ReceiveWindow(window, granted=granted)
        self.sizes = deque(sizes)
        self.items: deque[tuple[int, int]] = deque()
        self.grants: deque[Credit] = deque()
        self.largest = max(sizes, default=0)
        if not granted:
            self._grant(self.receiver.due())

    def _grant(self, given: Credit | None) -> None:
        if given is not None:
            self.grants.append(given)

    def send(self) -> bool:
        if not self.sizes or not self.sender.room:
            return False
        size = self.sizes.popleft()
        self.items.append((size, self.sender.number()))
        self.sender.spend(size)
        return True

    def deliver(self) -> bool:
        if not self.items:
            return False
        assert self.receiver.arrive(*self.items.popleft()) is None, "the sender exceeded its credit"
        self.check()
        return True

    def consume(self) -> bool:
        held = self.receiver.held
        self._grant(self.receiver.consume())
        return held > 0

    def credit(self) -> bool:
        if not self.grants:
            return False
        given = self.grants.popleft()
        self.sender.grant(given.items, given.bytes)
        return True

    def check(self) -> None:
        """What is under way or held fits into the window, but for the excess of one item."""
        under_way = [size for size, _ in self.items]
        assert self.receiver.held + len(under_way) <= self.window.items
        assert (
            self.receiver.held_bytes + sum(under_way) < self.window.bytes + self.largest or not self.largest
        )

    @property
    def done(self) -> bool:
        return not self.sizes and not self.items


@pytest.mark.slow
@given(CREDITS, SIZES, st.booleans(), st.randoms(use_true_random=False))
def test_no_interleaving_exceeds_the_credit_or_stops_for_ever(
    window: Credit, sizes: list[int], granted: bool, random
) -> None:
    pair = Pair(window, sizes, granted=granted)
    steps = [pair.send, pair.deliver, pair.consume, pair.credit]
    while not pair.done:
        random.shuffle(steps)
        assert any(step() for step in steps), "nothing can ever happen again"
        pair.check()
    while pair.consume() or pair.credit():
        pass
    assert (pair.receiver.sequence, pair.receiver.held) == (len(sizes), 0)
    assert pair.sender.room


@given(CREDITS, SIZES, st.integers(0, 60))
def test_a_receiver_that_uses_nothing_gets_no_more_than_its_window(
    window: Credit, sizes: list[int], used: int
) -> None:
    pair = Pair(window, sizes, granted=True)
    for _ in range(used):
        while pair.send() or pair.deliver() or pair.credit():
            pass
        pair.consume()
    while pair.send() or pair.deliver() or pair.credit():
        pass
    assert pair.receiver.held <= window.items
    assert len(sizes) - len(pair.sizes) <= used + window.items


@given(SIZES.filter(lambda sizes: len(sizes) > 2), st.data())
def test_a_lost_or_doubled_item_is_caught(sizes: list[int], data: st.DataObject) -> None:
    sent = list(enumerate(sizes))
    at = data.draw(st.integers(0, len(sent) - 2))
    changed = sent[:at] + data.draw(st.sampled_from([[], [sent[at]] * 2])) + sent[at + 1 :]
    window = ReceiveWindow(credit(100, 10**9), granted=True)
    wrong = [window.arrive(size, number) for number, size in changed]
    assert any(wrong)
