"""Servers that offer streams, and take input streams or answer in binary frames wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.conformance.scripted import (
    ABSENT,
    Problem,
    ScriptedConnection,
    SendFrame,
    completed,
    invalid,
)
from lmos_actors.conformance.wire import BINARY, ItemFrame
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Final_, Input, Json, Request, Run

SHELF = Shelf()
SOON = 0.01


def is_refused_at(problem: object, word: str) -> bool:
    return isinstance(problem, Problem) and word in problem.detail


# --- the end of an input


@SHELF("fails-at-the-end", "fails when its input ends", "extension.input", "extension.input-alone",
       "extension.input-frames", "extension.binary-stop")  # fmt: skip
class FailsAtTheEnd(ScriptedConnection):
    def end(self, run: Run, final: Final_, *, reply: tuple[ScriptedConnection, str] | None = None) -> None:
        if run.inputs and any(each.next for each in run.inputs.values()) and isinstance(final, tuple):
            final = ("actionStatus", {**final[1], "status": "failed"})
        super().end(run, final, reply=reply)


@SHELF("ignores-empty", "waits for an item of a stream that has ended without one", "extension.input-empty",
       "extension.input-number")  # fmt: skip
class IgnoresEmpty(ScriptedConnection):
    def take_end(self, run: Run, stream: Input, sequence: Any, reason: Any) -> None:
        if sequence:
            super().take_end(run, stream, sequence, reason)


@SHELF("any-count", "does not compare the count of a stream", "extension.input-count")
class AnyCount(ScriptedConnection):
    def take_end(self, run: Run, stream: Input, sequence: Any, reason: Any) -> None:
        super().take_end(run, stream, stream.next, reason)


@SHELF("breaks-unheard", "does not answer a run whose stream broke off", "extension.input-broken")
class BreaksUnheard(ScriptedConnection):
    def take_end(self, run: Run, stream: Input, sequence: Any, reason: Any) -> None:
        if reason is None:
            super().take_end(run, stream, sequence, reason)


@SHELF("breaks-are-faults-of-its-own", "takes a break for a fault of its own", "extension.input-broken")
class BreaksAreItsFault(ScriptedConnection):
    def take_end(self, run: Run, stream: Input, sequence: Any, reason: Any) -> None:
        if reason is not None:
            self.end(run, Problem("urn:lmos-actors:errors#agent-died", "Agent Died", 500, str(reason)))
            return
        super().take_end(run, stream, sequence, reason)


@SHELF("no-flag", "does not see that a frame is the last", "extension.input-frames")
class NoFlag(ScriptedConnection):
    def take_frame(self, run: Run, stream: Input, frame: ItemFrame, size: int) -> None:
        super().take_frame(run, stream, attrs.evolve(frame, flags=frame.flags & ~1), size)


# --- credit


@SHELF("no-credit", "grants no credit", "extension.input-credit")
class NoCredit(ScriptedConnection):
    def grant_input(self, run: Run, stream: Input) -> None:
        return


@SHELF("credit-nameless", "does not say to which stream it grants credit", "extension.input-credit")
class CreditNameless(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        if kind == "streamCredit":
            members = {name: value for name, value in members.items() if name != "stream"}
        return super().send(kind, thing_id, correlation, members)


@SHELF("first-credit-alone", "grants no credit for items that were used", "extension.input-more",
       "extension.input-held", "extension.input-large")  # fmt: skip
class FirstCreditAlone(ScriptedConnection):
    def grant_input(self, run: Run, stream: Input) -> None:
        if not stream.next:
            super().grant_input(run, stream)


@SHELF("credit-unkept", "takes items without credit", "extension.input-over")
class CreditUnkept(ScriptedConnection):
    def grant_input(self, run: Run, stream: Input) -> None:
        if not stream.next:
            super().grant_input(run, stream)
            stream.credit = [1 << 30, 1 << 30]
        else:
            self.server.after(SOON, lambda: super(CreditUnkept, self).grant_input(run, stream))


@SHELF("bytes-are-a-bound", "refuses items of more bytes than there is credit for", "extension.input-large")
class BytesAreABound(ScriptedConnection):
    def take_frame(self, run: Run, stream: Input, frame: ItemFrame, size: int) -> None:
        if size > stream.credit[1]:
            self.end(run, invalid("this item is too large", stream.path))
        else:
            super().take_frame(run, stream, frame, size)


@SHELF("never-held-back", "takes items without end though nobody takes its own", "extension.input-held")
class NeverHeldBack(ScriptedConnection):
    def grant(self, run: Run) -> None:
        for stream in run.inputs.values():
            if run.final is None and not stream.is_over and not stream.is_stopped:
                self.grant_input(run, stream)


@SHELF("held-for-good", "grants no credit again once its answer had none", "extension.input-held")
class HeldForGood(ScriptedConnection):
    def do_streamCredit(self, request: Request) -> None:
        for run in self.runs_of(request):
            for stream in run.inputs.values():
                stream.used = [-1 << 30, -1 << 30]
        super().do_streamCredit(request)


# --- violations


@SHELF("any-sequence", "does not look at the numbers of items", "extension.input-sequence")
class AnySequence(ScriptedConnection):
    def take_item(self, run: Run, stream: Input, request: Request) -> None:
        request.message["sequence"] = stream.next
        super().take_item(run, stream, request)


@SHELF("bytes-in-text", "takes text for bytes", "extension.input-kind")
class BytesInText(ScriptedConnection):
    def take_item(self, run: Run, stream: Input, request: Request) -> None:
        if stream.is_binary:
            stream.next += 1
            self.use_item(run, stream, b"item")
        else:
            super().take_item(run, stream, request)


@SHELF("frames-anywhere", "takes frames on a stream of JSON", "extension.input-json")
class FramesAnywhere(ScriptedConnection):
    def take_frame(self, run: Run, stream: Input, frame: ItemFrame, size: int) -> None:
        if stream.is_binary:
            super().take_frame(run, stream, frame, size)
        else:
            stream.next += 1
            self.use_item(run, stream, 1)


@SHELF("flags-ignored", "ignores flags that it does not know", "extension.input-flags")
class FlagsIgnored(ScriptedConnection):
    def check_frame(self, stream: Input, frame: ItemFrame) -> None:
        if not stream.is_binary:
            super().check_frame(stream, frame)


@SHELF("ends-its-neighbours", "ends all runs over a violation of one", "extension.input-alone")
class EndsItsNeighbours(ScriptedConnection):
    def end(self, run: Run, final: Final_, *, reply: tuple[ScriptedConnection, str] | None = None) -> None:
        super().end(run, final, reply=reply)
        if is_refused_at(final, "is next"):
            for other in tuple(self.live):
                super().end(other, final)


@SHELF("numbers-again", "takes a number of a stream again", "extension.input-number")
class NumbersAgain(ScriptedConnection):
    def open_inputs(self, request: Request, offers: Any) -> dict[int, Input]:
        self.highest_stream = 0
        return super().open_inputs(request, offers)


@SHELF("numbers-placeless", "does not say which number is wrong", "extension.input-number")
class NumbersPlaceless(ScriptedConnection):
    def open_inputs(self, request: Request, offers: Any) -> dict[int, Input]:
        try:
            return super().open_inputs(request, offers)
        except Problem as problem:
            raise invalid(problem.detail) if "odd" in problem.detail else problem from None


@SHELF("counts-no-streams", "refuses seventeen streams for the first of them", "extension.input-many")
class CountsNoStreams(ScriptedConnection):
    def open_inputs(self, request: Request, offers: Any) -> dict[int, Input]:
        if offers and len(offers) > 16:
            raise invalid("there is no such stream", "$.streams.s0")
        return super().open_inputs(request, offers)


# --- items of another type


@SHELF("takes-anything", "takes items that do not fit their schema", "extension.input-wrong")
class TakesAnything(ScriptedConnection):
    def check_item(self, run: Run, stream: Input, item: Any) -> None:
        return

    def use_item(self, run: Run, stream: Input, item: Any) -> None:
        fits = stream.is_binary or (isinstance(item, int) and not isinstance(item, bool))
        super().use_item(run, stream, item if fits else 0)


@SHELF("wrong-somewhere", "does not say where a wrong item is", "extension.input-wrong")
class WrongSomewhere(ScriptedConnection):
    def check_item(self, run: Run, stream: Input, item: Any) -> None:
        try:
            super().check_item(run, stream, item)
        except Problem as problem:
            raise invalid(problem.detail, "$") from None


@SHELF("wrong-twice", "answers a wrong item, and the items behind it", "extension.input-wrong")
class WrongTwice(ScriptedConnection):
    def do_streamEnd(self, request: Request) -> None:
        super().do_streamEnd(request)
        for run, correlation in self.ended:
            stopped = [each for each in run.inputs.values() if each.is_stopped]
            if request.given == run.request.id and stopped:
                self.send_error(run.request.thing.id, invalid("it was wrong"), correlation, {})


# --- runs that are over


@SHELF("credit-after-a-cancel", "grants credit to a stream whose run was cancelled", "extension.input-cancel")
class CreditAfterACancel(ScriptedConnection):
    def do_cancelAction(self, request: Request) -> None:
        streams = [each for run in self.live for each in run.inputs.values()]
        super().do_cancelAction(request)
        for stream in streams:
            members = {"stream": stream.number, "items": 1, "bytes": 1}
            self.send("streamCredit", request.thing.id, request.given, members)


@SHELF("late-items-refused", "refuses items for a run that is over", "extension.input-late")
class LateItemsRefused(ScriptedConnection):
    def do_streamItem(self, request: Request) -> None:
        super().do_streamItem(request)
        for run, correlation in self.ended:
            is_completed = isinstance(run.final, tuple) and run.final[1]["status"] == "completed"
            if request.given == run.request.id and is_completed and not self.live:
                self.send_error(run.request.thing.id, invalid("it is over"), correlation, {})


@SHELF("ids-once", "does not answer a run whose messageID it has seen", "extension.input-again")
class IdsOnce(ScriptedConnection):
    def do_invokeAction(self, request: Request) -> None:
        if not request.message.get("streams") or request.id not in [run.request.id for run, _ in self.ended]:
            super().do_invokeAction(request)


# --- answers in binary frames


@SHELF("frames-without-items", "loses what is in its frames", "extension.binary-items")
class FramesWithoutItems(ScriptedConnection):
    def send_frame(self, run: Run, item: bytes) -> bytes:
        return super().send_frame(run, item[:100])


@SHELF("frames-uncounted", "numbers all frames alike", "extension.binary-items")
class FramesUncounted(ScriptedConnection):
    def send_frame(self, run: Run, item: bytes) -> bytes:
        sequence, run.sequence = run.sequence, 0
        sent = super().send_frame(run, item)
        run.sequence = sequence + 1
        return sent


@SHELF("opens-nothing", "sends frames of a stream that it has not opened", "extension.binary-open",
       "extension.binary-items")  # fmt: skip
class OpensNothing(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        return "" if kind == "streamOpen" else super().send(kind, thing_id, correlation, members)


@SHELF("odd-answers", "gives its own streams odd numbers", "extension.binary-open")
class OddAnswers(ScriptedConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.next_stream = 101


@SHELF("frames-without-end", "does not count its frames at the end", "extension.binary-open")
class FramesWithoutEnd(ScriptedConnection):
    def finish_stream(self, run: Run) -> None:
        return


@SHELF("unstoppable", "goes on with items that are no longer wanted", "extension.binary-stop")
class Unstoppable(ScriptedConnection):
    def send_items(self, run: Run) -> None:
        run.is_stopped = False
        super().send_items(run)


@SHELF("stop-is-the-end", "ends a run whose answer is no longer wanted", "extension.binary-stop")
class StopIsTheEnd(ScriptedConnection):
    def send_items(self, run: Run) -> None:
        if run.is_stopped and run.is_open:
            self.put(SendFrame(BINARY, ItemFrame(run.stream, run.sequence, b"").packed()))
            self.end(run, completed(ABSENT))
            return
        super().send_items(run)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
