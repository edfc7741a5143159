"""Servers that offer what is beyond LMOS, and do not do it as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import (
    ABSENT,
    Problem,
    ScriptedConnection,
    ScriptedServer,
    SendClose,
    completed,
    content_of,
    invalid,
    not_found,
    too_late,
)
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import Final_, Json, KeyedRequest, Request, Run

SHELF = Shelf()
SOON = 0.01


@SHELF("announces-less", "announces less in the handshake than in its description", "extension.announced")
class AnnouncesLess(ScriptedServer):
    offers = ("acks",)


# --- acknowledgements


class Acks(ScriptedConnection):
    """Acknowledges something else."""

    def wanted(self, request: Request) -> bool:
        """Whether a request of who does not have the habits of kotlin-wot is acknowledged."""
        return request.message.get("ack") is True

    def acknowledge(self, request: Request) -> None:
        if self.kotlin or self.wanted(request):
            self.answer(request, "acknowledgement", {"message": request.literal})


@SHELF("never-acks", "does not acknowledge subscribeEvent", "extension.ack")
class NeverAcks(Acks):
    def wanted(self, request: Request) -> bool:
        return super().wanted(request) and request.kind != "subscribeEvent"


@SHELF("acks-nameless", "acknowledges without saying what", "extension.ack", "extension.ack-each")
class AcksNameless(ScriptedConnection):
    def acknowledge(self, request: Request) -> None:
        if self.kotlin:
            super().acknowledge(request)
        elif request.message.get("ack") is True:
            self.answer(request, "acknowledgement", {"message": ""})


@SHELF("acks-subscriptions-alone", "acknowledges subscribeEvent alone", "extension.ack-each")
class AcksSubscriptionsAlone(Acks):
    def wanted(self, request: Request) -> bool:
        return super().wanted(request) and request.kind == "subscribeEvent"


@SHELF("acks-late", "acknowledges a little late", "extension.ack-first")
class AcksLate(ScriptedConnection):
    def acknowledge(self, request: Request) -> None:
        if self.kotlin:
            super().acknowledge(request)
        else:
            self.server.after(SOON, lambda: super(AcksLate, self).acknowledge(request))


@SHELF("acks-what-fails", "acknowledges what it refuses", "extension.ack-refused")
class AcksWhatFails(ScriptedConnection):
    def do_subscribeEvent(self, request: Request) -> None:
        if request.name not in request.thing.events:
            self.acknowledge(request)
        super().do_subscribeEvent(request)


@SHELF("acks-unasked", "acknowledges what nobody wants acknowledged", "extension.unasked")
class AcksUnasked(Acks):
    def wanted(self, request: Request) -> bool:
        return True


@SHELF("gaps-refused", "refuses subscriptions that ask for gaps", "extension.gaps")
class GapsRefused(ScriptedConnection):
    def do_subscribeEvent(self, request: Request) -> None:
        if "gaps" in request.message:
            raise invalid("gaps: there is no such member", "$.gaps")
        super().do_subscribeEvent(request)


# --- deadlines


@SHELF("timeless", "does not look at `remaining`", "extension.deadline")
class Timeless(ScriptedConnection):
    def run_of(self, request: Request) -> Run:
        request.message.pop("remaining", None)
        return super().run_of(request)


@SHELF("always-late", "takes all that has `remaining` for late", "extension.deadline-left")
class AlwaysLate(ScriptedConnection):
    def run_of(self, request: Request) -> Run:
        if "remaining" in request.message:
            raise too_late(started=False)
        return super().run_of(request)


@SHELF("percents", "tells progress in percent, where its description has a share", "extension.progress")
class Percents(ScriptedConnection):
    def send_progress(self, run: Run, share: float) -> None:
        super().send_progress(run, share * 100)


# --- repeats


@SHELF("forgets-requests", "carries out again what is repeated", "extension.retry", "extension.retry-peer")
class ForgetsRequests(ScriptedConnection):
    def repeated(self, request: Request) -> bool:
        return False


@SHELF("remaining-is-content", "takes `remaining` for content of a request", "extension.retry")
class RemainingIsContent(ScriptedConnection):
    def repeated(self, request: Request) -> bool:
        return "remaining" not in request.message and super().repeated(request)


@SHELF("repeats-unanswered", "does not answer what is repeated", "extension.retry-answer")
class RepeatsUnanswered(ScriptedConnection):
    def repeated(self, request: Request) -> bool:
        known = self.known.find(request, self.server.now())
        return known is not None and request.kind == "invokeAction"


@SHELF("one-content", "takes requests of one id for the same, whatever they ask", "extension.retry-other")
class OneContent(ScriptedConnection):
    def repeated(self, request: Request) -> bool:
        if request.kind != "invokeAction" or request.id not in self.ids_known:
            self.ids_known[request.id] = content_of(request)
            return super().repeated(request)
        if self.ids_known[request.id] == content_of(request):
            return super().repeated(request)
        self.send_final(request, self.correlation(request), completed(ABSENT))
        return True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ids_known: dict[str, str] = {}


@SHELF("no-peers", "does not know a peer again by its LMOS-Peer", "extension.retry-peer")
class NoPeers(ScriptedServer):
    def connect(self, *, offered: bool, path: str = "/ws", peer: str = "") -> ScriptedConnection:
        return super().connect(offered=offered, path=path)


@SHELF("one-peer", "takes all connections for those of one peer", "extension.retry-stranger")
class OnePeer(ScriptedServer):
    def connect(self, *, offered: bool, path: str = "/ws", peer: str = "") -> ScriptedConnection:
        return super().connect(offered=offered, path=path, peer=peer or "anybody")


# --- keys


@SHELF("forgets-keys", "carries out each request of a key", "extension.key", "extension.key-other")
class ForgetsKeys(ScriptedConnection):
    def known_by_key(self, request: Request) -> KeyedRequest | None:
        return None


@SHELF("keys-of-a-connection", "does not know a key over another connection", "extension.key")
class KeysOfAConnection(ScriptedConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys: set[str] = set()

    def known_by_key(self, request: Request) -> KeyedRequest | None:
        key = request.message["key"]
        if key in self.keys:
            return super().known_by_key(request)
        self.keys.add(key)
        return None


@SHELF("keys-unanswered", "does not answer a second request of a key", "extension.key-answer")
class KeysUnanswered(ScriptedConnection):
    def answered_by_key(self, request: Request) -> bool:
        self.check_key(request)
        return self.known_by_key(request) is not None


@SHELF("keys-of-anything", "answers any request of a key as the first one", "extension.key-other")
class KeysOfAnything(ScriptedConnection):
    def known_by_key(self, request: Request) -> KeyedRequest | None:
        return self.server.kept_answers.find(request)


@SHELF("key-of-any-length", "takes a key of 257 characters", "extension.key-form")
class KeyOfAnyLength(ScriptedConnection):
    def check_key(self, request: Request) -> None:
        if len(str(request.message["key"])) <= 256:
            super().check_key(request)


@SHELF("keys-of-streams", "takes a key where it keeps no answer", "extension.key-unkept")
class KeysOfStreams(ScriptedConnection):
    def key_of(self, request: Request) -> Any:
        return None if request.name in request.thing.streams else super().key_of(request)


# --- streams


@SHELF("output-at-the-end", "gives the last item with the end of a stream", "extension.stream")
class OutputAtTheEnd(ScriptedConnection):
    def end(self, run: Run, final: Final_, *, reply: tuple[ScriptedConnection, str] | None = None) -> None:
        if run.gathered and not self.kotlin and not isinstance(final, Problem):
            final = completed(run.gathered[-1]) if final == completed(ABSENT) else final
        super().end(run, final, reply=reply)


@SHELF("no-end", "gives items, and never ends", "extension.stream")
class NoEnd(ScriptedConnection):
    def end(self, run: Run, final: Final_, *, reply: tuple[ScriptedConnection, str] | None = None) -> None:
        if self.kotlin or run.inputs or not run.gathered or final != completed(ABSENT):
            super().end(run, final, reply=reply)


@SHELF("items-misfit", "gives items that do not fit their schema", "extension.stream")
class ItemsMisfit(ScriptedConnection):
    def send_item(self, run: Run, item: Any) -> str | bytes:
        if isinstance(item, bytes):
            return super().send_item(run, item)
        return self.send_status(run, {"status": "in progress", "output": f"{item}"})


@SHELF("one-too-many", "gives one item more than there is credit for", "extension.stream-credit")
class OneTooMany(ScriptedConnection):
    def run_of(self, request: Request) -> Run:
        run = super().run_of(request)
        if run.credit is not None:
            run.credit[0] += 1
        return run


@SHELF("bytes-free", "does not count bytes", "extension.stream-bytes")
class BytesFree(ScriptedConnection):
    def run_of(self, request: Request) -> Run:
        run = super().run_of(request)
        if run.credit is not None:
            run.credit[1] += 1 << 30
        return run


@SHELF("credit-once", "takes no further credit", "extension.stream-more")
class CreditOnce(ScriptedConnection):
    def do_streamCredit(self, request: Request) -> None:
        if any(run.inputs for run in self.runs_of(request)):
            super().do_streamCredit(request)


@SHELF("loses-an-item", "loses an item when its credit is used up", "extension.stream-whole")
class LosesAnItem(ScriptedConnection):
    def do_streamCredit(self, request: Request) -> None:
        for run in self.live:
            if request.given == run.request.id:
                run.next += 1
        super().do_streamCredit(request)


@SHELF("items-after-the-end", "goes on with items after the end of a run", "extension.stream-cancel")
class ItemsAfterTheEnd(ScriptedConnection):
    def do_streamCredit(self, request: Request) -> None:
        super().do_streamCredit(request)
        for run, _ in self.ended:
            if request.given == run.request.id and run.next < run.to:
                run.received_by[self] = request.given
                self.send_item(run, run.next)


@SHELF("late-credit-refused", "answers credit that comes late by an error", "extension.stream-late")
class LateCreditRefused(ScriptedConnection):
    def do_streamCredit(self, request: Request) -> None:
        if any(run.request.id == request.given and run.next == run.to for run, _ in self.ended):
            raise not_found("run", request.id)
        super().do_streamCredit(request)


@SHELF("violations-free", "lets items pass that belong to no stream", "extension.stream-violation")
class ViolationsFree(ScriptedConnection):
    def do_streamItem(self, request: Request) -> None:
        if any(run.inputs for run in self.runs_of(request)):
            super().do_streamItem(request)


@SHELF("violations-end-all", "ends all runs over an item of no stream", "extension.stream-violation")
class ViolationsEndAll(ScriptedConnection):
    def do_streamItem(self, request: Request) -> None:
        if any(run.inputs for run in self.live):
            super().do_streamItem(request)
            return
        for run in tuple(self.live):
            self.end(run, invalid("this run has no such stream", "$.streams"))


@SHELF("no-binary", "closes the connection over a binary frame of no stream", "extension.binary-late")
class NoBinary(ScriptedConnection):
    def binary(self, data: bytes) -> None:
        if any(run.inputs for run in self.live):
            super().binary(data)
        else:
            self.put(SendClose(1003, "text messages alone"))


# --- one-way messages


@SHELF("answers-tells", "answers one-way messages", "extension.tell", "extension.tell-credit")
class AnswersTells(ScriptedConnection):
    def owe_credit(self, request: Request) -> None:
        self.answer(request, "actionStatus", {"action": request.name, "status": "completed"})
        super().owe_credit(request)


@SHELF("answers-tells-late", "answers one-way messages after their credit", "extension.tell")
class AnswersTellsLate(ScriptedConnection):
    def give_credit(self) -> None:
        owed = tuple(self.owed)
        super().give_credit()
        if len(owed) == 1:
            self.answer(owed[0], "actionStatus", {"action": owed[0].name, "status": "completed"})


@SHELF("keeps-credit", "gives no credit back", "extension.tell", "extension.tell-credit")
class KeepsCredit(ScriptedConnection):
    def give_credit(self) -> None:
        return


@SHELF("misspells-begun", "names one number for each message", "extension.tell", "extension.tell-credit")
class MisspellsBegun(ScriptedConnection):
    def send(self, kind: str, thing_id: str, correlation: str | None, members: Json) -> str:
        if kind == "tellCredit":
            members = {"begun": [first for first, _ in members["begun"]]}
        return super().send(kind, thing_id, correlation, members)


@SHELF("silent-refusals", "refuses one-way messages without a word", "extension.tell-refused")
class SilentRefusals(ScriptedConnection):
    def refuse(self, request: Request, problem: Problem) -> None:
        if "tell" not in request.message or "$.tell" in problem.more.values():
            super().refuse(request, problem)


@SHELF("numbers-free", "takes one-way messages of any number", "extension.tell-number")
class NumbersFree(ScriptedConnection):
    def check_tell(self, number: Any) -> None:
        return


@SHELF("numbers-nameless", "does not say that a number is wrong", "extension.tell-number")
class NumbersNameless(ScriptedConnection):
    def check_tell(self, number: Any) -> None:
        try:
            super().check_tell(number)
        except Problem:
            raise invalid("this message is wrong") from None


@SHELF("small-window", "takes one one-way message before it gives credit", "extension.tell-credit")
class SmallWindow(ScriptedConnection):
    def check_tell(self, number: Any) -> None:
        super().check_tell(number)
        if self.owed:
            raise invalid("there is no credit", "$.tell")


@SHELF("forgets-credit", "gives half of the credit of two messages back", "extension.tell-credit")
class ForgetsCredit(ScriptedConnection):
    def give_credit(self) -> None:
        self.owed = self.owed[: (len(self.owed) + 1) // 2]
        super().give_credit()


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
