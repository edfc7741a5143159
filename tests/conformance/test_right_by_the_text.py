"""Servers that are right in another way than the scripted one: what the texts leave open fails nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.conformance import Verdict
from lmos_actors.conformance.scripted import (
    NetworkServer,
    RequestHead,
    ScriptedConnection,
    ScriptedServer,
    completed,
    invalid,
    not_allowed,
    not_found,
)
from tests.conformance.breaking import card_of, right, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import Json, Reply, Request, Run, ScriptedThing


class SpeaksDraftsToo(NetworkServer):
    """Speaks version 8 beside 13, as the WebSocket server of Node.js that most use does."""

    def refused(self, head: RequestHead) -> Reply | None:
        refused = super().refused(head)
        return None if refused and head.header("sec-websocket-version") == "8" else refused


class GoesByTables(ScriptedConnection):
    """Refuses `thingId`: the text demands `thingID`."""

    def request(self, message: Json) -> Request:
        if "thingId" in message:
            raise invalid("thingID: a text is needed", "$.thingID")
        return super().request(message)


class CorrelatesWhenAsked(ScriptedConnection):
    """Leaves out a correlationID that no request had: it is optional."""

    def correlation(self, request: Request) -> str | None:
        if request.given is None and request.kind in ("readProperty", "invokeAction"):
            return None
        return super().correlation(request)


class KeepsNoRuns(ScriptedConnection):
    """Does not know a run that is over, of an action whose forms offer no query and no cancel."""

    def requested_run(self, request: Request) -> tuple[Run, str | None]:
        run, correlation = super().requested_run(request)
        if run.final is not None:
            raise not_found("run of action", request.name)
        return run, correlation


class OffersInvokingAlone(ScriptedServer):
    """Its forms offer neither to ask about a run nor to cancel one."""

    def add(self, name: str, describe: Callable[[str], Json]) -> ScriptedThing:
        def reduced(base: str) -> Json:
            document = describe(base)
            for action in document["actions"].values():
                for form in action["forms"]:
                    form["op"] = ["invokeaction"]
            return document

        return super().add(name, reduced)


class RefusesNow(ScriptedConnection):
    """Does not carry out an action that is not safe: it may not be done at the moment."""

    def do_invokeAction(self, request: Request) -> None:
        if request.name == "reset":
            raise not_allowed("it may not be reset now")
        super().do_invokeAction(request)


KEEPS_NO_RUNS: dict[str, Any] = {"connection": KeepsNoRuns, "server": OffersInvokingAlone}


@pytest.mark.parametrize(
    ("case", "parts", "verdict"),
    [
        ("query.finished", KEEPS_NO_RUNS, Verdict.NOT_OFFERED),
        ("cancel.finished", KEEPS_NO_RUNS, Verdict.NOT_OFFERED),
        ("actions.completed", {"connection": RefusesNow}, Verdict.PASSED),
        ("handshake.version", {"serving": SpeaksDraftsToo}, Verdict.PASSED),
        ("spelling.example-ids", {"connection": GoesByTables}, Verdict.NOT_OFFERED),
        ("correlation.by-message-id", {"connection": CorrelatesWhenAsked}, Verdict.NOT_OFFERED),
    ],
)
def test_what_the_texts_leave_open_does_not_fail(case: str, parts: dict[str, Any], verdict: Verdict) -> None:
    card = card_of(lambda: right(**parts), cases=(case,))
    assert card.results[0].verdict is verdict, told(card)


class EndsBeforeAQuery(ScriptedConnection):
    """Its runs happen to end just before they are asked about."""

    def do_queryAction(self, request: Request) -> None:
        for run in tuple(self.live):
            self.end(run, completed({"waited": 1}))
        self.reply(request)

    def reply(self, request: Request) -> None:
        """Answer the query."""
        super().do_queryAction(request)


class AnswersNoQuery(EndsBeforeAQuery):
    """And it answers no query."""

    def reply(self, request: Request) -> None:
        """Say nothing."""


def test_a_run_that_ends_as_it_is_asked_about_needs_a_longer_one() -> None:
    card = card_of(lambda: right(connection=EndsBeforeAQuery), cases=("query.running",))
    assert card.results[0].verdict is Verdict.NOT_RUN, told(card)
    assert "name a longer one as slow" in card.results[0].seen


def test_the_end_of_a_run_is_no_answer_to_a_query() -> None:
    card = card_of(lambda: right(connection=AnswersNoQuery), cases=("query.running",))
    assert card.results[0].verdict is Verdict.FAILED, told(card)
    assert "without an answer to queryAction" in card.results[0].seen
