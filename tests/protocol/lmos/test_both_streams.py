"""Runs with streams both ways, between the two sessions, in any order of sending, using up and ending.

Each item arrives once, in order and at its run; credit is never overdrawn; a run that is cancelled, fails or
completes in the midst of it has one final answer; when all is quiet no stream is left, on either side.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import count
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lmos_actors.errors import ActionCancelled, ActionFailed, AgentError, MailboxFull, NotAllowed
from lmos_actors.protocol import lmos
from tests.matrix import examples

OPTIONS = lmos.SessionOptions(max_open=6, remembered_runs=3, credit=lmos.Credit(items=3, bytes=2000))
INPUTS = {"words": "application/json", "voice": "audio/pcm"}
WHICH = st.integers(0, 7)
ROOM = st.sampled_from([1, 100_000])
MOST = st.integers(1, 20)


class Streams(RuleBasedStateMachine):
    """A client and a host that send each other items, and the books of both."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)
        own, others = count(1), count(1)
        self.client = lmos.ConsumerSession(
            selected=True, new_id=lambda: f"c{next(own)}", options=OPTIONS, offers=lmos.OFFERS
        )
        self.thing = lmos.ThingSession(
            offered=True, new_id=lambda: f"t{next(others)}", options=OPTIONS, memory=lmos.AnswerMemory()
        )
        self.to_thing: deque[Any] = deque()
        self.to_client: deque[Any] = deque()
        self.runs: list[lmos.PendingRun] = []
        self.finals: dict[lmos.ConsumerRequest, int] = defaultdict(int)
        self.asked: list[lmos.IncomingRequest] = []
        # by the run and the parameter, "" for the answer
        self.sent: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.came: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.finished: dict[tuple[str, str], int] = defaultdict(int)
        self.unused: list[lmos.PendingRun] = []
        self.unread: list[lmos.Incoming] = []

    def item(self, binary: bool) -> Any:
        number = next(self.numbers)
        return bytes([number % 256]) * (number % 400) if binary else number

    # ---- the client

    @initialize()
    def start(self) -> None:
        self.invoke(binary=True, credit=True, streams=True)

    @rule(binary=st.booleans(), credit=st.booleans(), streams=st.booleans())
    def invoke(self, binary: bool, credit: bool, streams: bool) -> None:
        try:
            run = self.client.invoke(
                "urn:a",
                "go",
                credit=OPTIONS.credit if credit else None,
                streams=INPUTS if streams else None,
                binary=binary and credit,
            )
        except (MailboxFull, NotAllowed):
            return
        self.runs.append(run)

    @precondition(lambda self: self.runs)
    @rule(which=WHICH, how=st.sampled_from(["query", "cancel", "forget"]))
    def go_on_about(self, which: int, how: str) -> None:
        run = self.runs[-1 - which % len(self.runs)]
        if how == "forget" and self.client.statistics().remembered == OPTIONS.max_open:
            return  # the answer to one more that is forgotten would be a stray
        done = run.done
        try:
            getattr(self.client, how)(run)
        except MailboxFull:
            return
        if run.done and not done:  # taken out of the outbox
            self.finals[run] += 1

    def inputs(self) -> list[tuple[str, str, lmos.Outgoing]]:
        return [(run.message_id, name, one) for run in self.runs for name, one in run.inputs.items()]

    @precondition(lambda self: self.inputs())
    @rule(which=WHICH, end=st.integers(0, 5), times=st.integers(1, 4))
    def send(self, which: int, end: int, times: int) -> None:
        inputs = self.inputs()
        run, name, stream = inputs[-1 - which % len(inputs)]
        for _ in range(times):
            item = self.item(name == "voice")
            if stream.open and self.client.room(stream) and self.client.send(stream, item):
                self.sent[run, name].append(item)
        if end == 0:
            self.client.finish(stream, None if which % 2 else "broken off")

    # ---- the host

    def going(self) -> list[lmos.IncomingRequest]:
        return [asked for asked in self.asked if asked.open]

    @precondition(lambda self: self.going())
    @rule(
        which=WHICH,
        how=st.sampled_from(["progress", "item", "item", "item", "item", "stop", "complete", "fail"]),
        error=st.sampled_from([ActionFailed(1), ActionCancelled("no"), NotAllowed("no")]),
    )
    def go_on(self, which: int, how: str, error: AgentError) -> None:
        going = self.going()
        asked = going[-1 - which % len(going)]
        if how == "progress":
            self.thing.progress(asked, next(self.numbers))
        elif how == "complete":
            self.thing.complete(asked)
        elif how == "fail":
            self.thing.fail(asked, error)
        elif how == "stop":
            for stream in (asked.streams or {}).values():
                self.thing.stop(stream, "enough")
        else:
            self.give(asked, bytes_too=which % 2 == 1)

    def give(self, asked: lmos.IncomingRequest, *, bytes_too: bool) -> None:
        if self.thing.room(asked):
            item = self.item(asked.message.binary and bytes_too)
            assert self.thing.item(asked, item)
            self.sent[asked.message_id, ""].append(item)

    @rule(times=st.integers(1, 5))
    def flow(self, times: int) -> None:
        """Let items go both ways at once for a while."""
        for _ in range(times):
            for which in range(len(self.inputs())):
                self.send(which, end=1, times=1)
            for asked in self.going():
                self.give(asked, bytes_too=bool(times % 2))
            self.there(100_000, 20)
            self.back(100_000, 20)

    @rule()
    def use_up(self) -> None:
        for stream in self.unread:
            self.thing.consumed(stream)
        for run in self.unused:
            self.client.consumed(run)
        self.unread.clear()
        self.unused.clear()

    # ---- the channels

    @rule(room=ROOM, most=MOST)
    def there(self, room: int, most: int) -> None:
        self.to_thing += self.client.frames(room)
        for _ in range(min(most, len(self.to_thing))):
            frame = self.to_thing.popleft()
            binary = isinstance(frame, lmos.Binary)
            for demand in self.thing.receive_binary(frame) if binary else self.thing.receive(frame, 0.0):
                self.meet(demand)

    def meet(self, demand: lmos.Demand) -> None:
        match demand:
            case lmos.IncomingRequest():
                self.asked.append(demand)
                for stream in (demand.streams or {}).values():
                    self.thing.ready(stream)
            case lmos.ItemArrived(run=run, stream=stream, item=item):
                self.came[run.message_id, stream.name or ""].append(item)
                self.unread.append(stream)
            case lmos.StreamFinished(run=run, stream=stream):
                self.finished[run.message_id, stream.name or ""] += 1
            case lmos.RequestWithdrawn(request=asked, reason=reason):
                assert (asked.open, reason) == (False, None), "nobody breaks the rules of streams"
            case _:
                assert isinstance(demand, lmos.CreditArrived | lmos.StreamStopped), demand

    @rule(room=ROOM, most=MOST)
    def back(self, room: int, most: int) -> None:
        self.to_client += self.thing.frames(room)
        for _ in range(min(most, len(self.to_client))):
            frame = self.to_client.popleft()
            binary = isinstance(frame, lmos.Binary)
            for happening in self.client.receive_binary(frame) if binary else self.client.receive(frame):
                self.note(happening)

    def note(self, happening: lmos.Outcome) -> None:
        match happening:
            case (
                lmos.RequestAnswered(pending=pending)
                | lmos.RequestFailed(pending=pending)
                | lmos.ForgottenFailed(pending=pending)
            ):
                self.finals[pending] += 1
            case lmos.RunItem(pending=pending, output=output):
                assert not pending.done
                self.came[pending.message_id, ""].append(output)
                self.unused.append(pending)
            case lmos.StrayMessage() | lmos.Close():
                pytest.fail(f"no place for {happening}")
            case _:
                assert isinstance(happening, lmos.RunProgressed | lmos.CreditArrived | lmos.StreamStopped), (
                    happening
                )

    # ---- what is always so

    @invariant()
    def each_item_arrives_once_and_in_order(self) -> None:
        for key, came in self.came.items():
            assert came == self.sent[key][: len(came)]
        assert max(self.finished.values(), default=0) <= 1
        assert max(self.finals.values(), default=0) <= 1

    @invariant()
    def nobody_holds_more_than_the_windows(self) -> None:
        for asked in self.going():
            for stream in (asked.streams or {}).values():
                assert stream.window.held <= OPTIONS.credit.items
        thing, client = self.thing.statistics(), self.client.statistics()
        fates = thing.answered + thing.refused + thing.merged + thing.streamed + thing.open
        assert thing.received == fates
        assert thing.streams <= 3 * OPTIONS.max_open
        assert (thing.strays, thing.unreadable, client.strays, client.unreadable) == (0, 0, 0, 0)

    def teardown(self) -> None:
        """Let everything come to its end."""
        for _ in range(4):
            self.use_up()
            self.there(1 << 30, 1 << 30)
            for asked in self.going():
                self.thing.complete(asked)
            self.back(1 << 30, 1 << 30)
        thing, client = self.thing.statistics(), self.client.statistics()
        assert (thing.open, thing.streams, thing.waiting) == (0, 0, 0)
        assert (client.open, client.waiting) == (0, 0)
        for run in self.runs:
            if run.forgotten:
                continue
            assert (run.done, self.finals[run]) == (True, 1), run
            if run.error is None:
                assert self.came[run.message_id, ""] == self.sent[run.message_id, ""]


Streams.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
TestStreams = Streams.TestCase
