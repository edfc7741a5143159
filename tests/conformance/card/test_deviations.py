"""Servers that are right in another way than the scripted one, and what the levels make of wrong ones."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from lmos_actors.conformance import Level, Verdict
from lmos_actors.conformance.scripted import (
    HttpRequest,
    NetworkServer,
    Reply,
    RequestHead,
    ScriptedPages,
    ScriptedThing,
    refusal,
)
from tests.conformance.breaking import HERE, card_of, ids, right, told
from tests.conformance.cases.connection.test_connections import HoldsOn
from tests.conformance.cases.connection.test_framing import (
    ClosesOnBadJson,
    IsSilentOnHalfAMessage,
    WaitsForEver,
)
from tests.conformance.cases.connection.test_handshake import HidesItsVersion, SelectsNothing
from tests.conformance.cases.http.test_description import Describes, HasNoSecurity, ServesPlainText
from tests.conformance.cases.http.test_properties_and_actions import HidesItsMethods

if TYPE_CHECKING:
    from pathlib import Path


def verdict(case: str, *, level: Level = Level.SPEC, **parts: Any) -> Verdict:
    card = card_of(partial(right, **parts), cases=(case,), level=level)
    return card.results[0].verdict


# --- right in another way


class Insists(NetworkServer):
    """Lets nobody in who does not offer the subprotocol: the binding says MUST."""

    def refused(self, head: RequestHead) -> Reply | None:
        return super().refused(head) if self.subprotocol(head) else refusal(400, "lmosprotocol is needed")


class Redirects(ScriptedPages):
    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        if request.path == "/.well-known/wot":
            return Reply(307, b"", (("Location", "/agents/conformance"),))
        return super().route(method, request, base)


class SaysAgent(Describes):
    """Names its type as the table of the text does."""

    def wrong(self, data: dict[str, Any]) -> None:
        data["@type"] = ["Agent"]


class IsRelative(Describes):
    """Has addresses that are resolved against where the description is: RFC 3986, 5.1.3."""

    def wrong(self, data: dict[str, Any]) -> None:
        for name, each in data["properties"].items():
            each["forms"][1]["href"] = f"conformance/properties/{name}"


class ProblemOfItsOwn(ScriptedPages):
    def problem(self, problem: Any) -> Reply:
        return Reply(problem.status, b"no", (("Content-Type", "text/plain"), ("Allow", "GET")))


class Moves(ScriptedThing):
    """Has another value each time it is read."""

    def value(self, name: str) -> Any:
        if name == "level":
            self.values["level"] = (self.values["level"] + 1) % 100
        return super().value(name)


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("handshake.subprotocol-unasked", {"serving": Insists}),
        ("handshake.subprotocol-unknown", {"serving": Insists}),
        ("description.well-known", {"pages": Redirects}),
        ("description.type", {"pages": SaysAgent}),
        ("description.context", {"pages": SaysAgent}),
        ("description.schema", {"pages": IsRelative}),
        ("description.addresses", {"pages": IsRelative}),
        ("http.read", {"pages": IsRelative}),
        ("http.read", {"thing": Moves}),
        ("http.problem", {"pages": ProblemOfItsOwn}),
        ("http.unknown", {"pages": ProblemOfItsOwn}),
    ],
)
def test_there_is_more_than_one_way_to_be_right(case: str, parts: dict[str, Any]) -> None:
    assert verdict(case, **parts) is Verdict.PASSED


# --- what is not there


class HasNothing(ScriptedPages):
    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        if request.path == "/.well-known/wot":
            return Reply(404)
        return super().route(method, request, base)


class OverSocketsAlone(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        holders = [each for kind in ("properties", "actions", "events") for each in data[kind].values()]
        for each in (*holders, data):
            each["forms"] = [form for form in each["forms"] if "subprotocol" in form]


def test_who_has_nothing_at_well_known_need_not() -> None:
    assert verdict("description.well-known", pages=HasNothing) is Verdict.NOT_OFFERED


def test_who_has_no_forms_for_http_is_not_judged_by_them() -> None:
    card = card_of(partial(right, pages=OverSocketsAlone), cases=("http.*",))
    assert ids(card, Verdict.NOT_OFFERED) == {result.id for result in card.results}, told(card)


def test_a_description_out_of_a_file_is_judged_as_it_is(tmp_path: Path) -> None:
    made: list[dict[str, Any]] = []

    async def describe() -> None:
        serving = right()
        made.append(serving.server.main.describe(f"ws://{HERE.authority}"))
        await trio.lowlevel.checkpoint()

    trio.run(describe)
    file = tmp_path / "thing.json"
    file.write_text(json.dumps(made[0]))
    card = card_of(cases=("description.*",), description=str(file))
    served = {"description.served", "description.head", "description.well-known"}
    assert ids(card, Verdict.NOT_OFFERED) == served
    assert ids(card, Verdict.PASSED) == {result.id for result in card.results} - served, told(card)


# --- levels


@pytest.mark.parametrize(
    ("case", "parts", "lenient", "kotlin"),
    [
        ("handshake.subprotocol", {"serving": SelectsNothing}, Verdict.TOLERATED, Verdict.PASSED),
        ("handshake.version", {"serving": HidesItsVersion}, Verdict.TOLERATED, Verdict.TOLERATED),
        ("description.served", {"pages": ServesPlainText}, Verdict.TOLERATED, Verdict.TOLERATED),
        ("description.security", {"pages": HasNoSecurity}, Verdict.TOLERATED, Verdict.PASSED),
        ("frames.not-json", {"connection": ClosesOnBadJson}, Verdict.FAILED, Verdict.PASSED),
        ("frames.not-json", {"connection": IsSilentOnHalfAMessage}, Verdict.TOLERATED, Verdict.TOLERATED),
        ("frames.oversize", {"wire": WaitsForEver}, Verdict.TOLERATED, Verdict.TOLERATED),
        ("connection.close-ends", {"wire": HoldsOn}, Verdict.TOLERATED, Verdict.TOLERATED),
        ("http.method", {"pages": HidesItsMethods}, Verdict.TOLERATED, Verdict.TOLERATED),
    ],
)
def test_what_differs_between_the_levels_has_the_verdict_of_each(
    case: str, parts: dict[str, Any], lenient: Verdict, kotlin: Verdict
) -> None:
    assert verdict(case, level=Level.SPEC, **parts) is Verdict.FAILED
    assert verdict(case, level=Level.LENIENT, **parts) is lenient
    assert verdict(case, level=Level.KOTLIN_WOT, **parts) is kotlin


# --- what is told


def test_what_is_seen_says_what_to_mend() -> None:
    seen = {
        "handshake.version": ({"serving": HidesItsVersion}, "400 with no Sec-WebSocket-Version"),
        "description.security": ({"pages": HasNoSecurity}, 'add "security": "nosec_sc"'),
        "frames.not-json": ({"connection": ClosesOnBadJson}, "after a word that is not JSON"),
        "http.method": ({"pages": HidesItsMethods}, "PATCH of version"),
    }
    for case, (parts, wanted) in seen.items():
        card = card_of(partial(right, **parts), cases=(case,))
        assert wanted in card.results[0].seen, told(card)
