"""Problems and the exceptions they stand for: one table, both ways."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmos_actors import (
    ActionFailed,
    AgentDied,
    AgentUnavailable,
    DeadlineExceeded,
    InvalidInput,
    LmosActorsError,
    MailboxFull,
    NotAllowed,
    NotFound,
)
from lmos_actors.errors import ActionCancelled, Forbidden, RateLimited, RemoteProtocolError, Unauthorized
from lmos_actors.protocol import lmos
from tests.protocol.lmos.consumer_by_hand import Talk

THING = "urn:thing"
LMOS = "https://eclipse.dev/lmos/protocol/v1/errors#"
OURS = "urn:lmos-actors:errors#"
INVOKE = lmos.InvokeAction(thing_id=THING, message_id="m", action="forecast")
READ = lmos.ReadProperty(thing_id=THING, message_id="m", name="units")

TOLD: list[tuple[LmosActorsError, str, int, str]] = [
    (NotFound("agent", THING), f"{LMOS}not-found", 404, "Thing Not Found"),
    (NotFound("property", "unit", known=["units"]), f"{LMOS}not-found", 404, "Property Not Found"),
    (NotFound("action", "x", where="desk"), f"{LMOS}not-found", 404, "Action Not Found"),
    (NotFound("event", "it's"), f"{LMOS}not-found", 404, "Event Not Found"),
    (NotAllowed("read-only"), f"{LMOS}operation-not-allowed", 405, "Operation Not Allowed"),
    (InvalidInput("Expected `int`", "$.count"), f"{OURS}invalid-input", 400, "Invalid Input"),
    (ActionFailed(), f"{OURS}action-failed", 409, "Action Failed"),
    (ActionFailed("sold out"), f"{OURS}action-failed", 409, "Action Failed"),
    (ActionFailed({"code": 1}), f"{OURS}action-failed", 409, "Action Failed"),
    (ActionFailed({"code": "gone", "status": 410}), f"{OURS}action-failed", 410, "Action Failed"),
    (ActionCancelled(), f"{OURS}action-cancelled", 500, "Action Cancelled"),
    (ActionCancelled("enough"), f"{OURS}action-cancelled", 500, "Action Cancelled"),
    (MailboxFull(THING, 3), f"{OURS}mailbox-full", 503, "Mailbox Full"),
    (AgentUnavailable(THING, "stopping", retry_in=1.5), f"{OURS}agent-unavailable", 503, "Agent Unavailable"),
    (AgentDied("ValueError: x", started=False, agent=THING), f"{OURS}agent-died", 500, "Agent Died"),
    (AgentDied("killed", started=True, agent=THING), f"{OURS}agent-died", 500, "Agent Died"),
    (DeadlineExceeded(THING, 0.5), f"{OURS}deadline-exceeded", 503, "Deadline Exceeded"),
    (Unauthorized("who are you"), f"{OURS}unauthorized", 401, "Unauthorized"),
    (Forbidden("not you"), f"{OURS}forbidden", 403, "Forbidden"),
    (RateLimited(), f"{OURS}rate-limited", 429, "Rate Limited"),
    (RateLimited(1.5), f"{OURS}rate-limited", 429, "Rate Limited"),
]


def over_the_wire(problem: lmos.Problem, *, habits: Any = "spec") -> lmos.Error:
    message = lmos.error_message(problem, thing_id=THING, message_id="m", instance_id="i")
    text = lmos.Codec(lmos.Dialect.of_consumer(True, habits)).encode(message)
    found = lmos.Codec(lmos.Dialect.of_consumer(True, habits)).decode(text)
    assert isinstance(found, lmos.Error)
    return found


def answered(habits: Any, error: LmosActorsError) -> lmos.Error:
    """The message by which a session tells a consumer of such habits that its action has failed."""
    talk = Talk(habits)
    talk.session.fail(talk.ask("invokeAction", action="forecast"), error)
    (frame,) = talk.session.frames(1 << 30)
    found = lmos.Codec(lmos.Dialect.of_consumer(True, habits)).decode(frame.decode())
    assert isinstance(found, lmos.Error)
    return found


def attributes(error: LmosActorsError) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if name != "__cause__"}


@pytest.mark.parametrize(("error", "type_", "status", "title"), TOLD, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("habits", ["spec", "kotlin-wot"])
def test_an_exception_is_itself_again_on_the_other_side(
    error: LmosActorsError, type_: str, status: int, title: str, habits: str
) -> None:
    problem = lmos.problem_of(error)
    assert (problem.type, problem.status, problem.title) == (type_, status, title)
    found = lmos.error_of(over_the_wire(problem, habits=habits))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert attributes(found) == attributes(error)


@pytest.mark.parametrize("output", [None, "sold out", {"code": "taken", "detail": "by Ada", "row": 7}, [1]])
def test_a_failure_is_a_500_in_the_habits_of_kotlin_wot_and_is_read_alike(output: Any) -> None:
    heard = answered("kotlin-wot", ActionFailed(output))
    assert (heard.type, heard.status) == (f"{LMOS}internal-server-error", "500")
    found: Any = lmos.error_of(heard, INVOKE)
    assert (type(found), found.output) == (ActionFailed, output)


def test_other_failures_are_the_same_in_the_habits_of_kotlin_wot() -> None:
    error = NotAllowed("x")
    expected = over_the_wire(lmos.problem_of(error), habits="kotlin-wot")
    for name in ("type", "title", "status", "detail", "started", "about"):
        assert getattr(answered("kotlin-wot", error), name) == getattr(expected, name)


def test_what_a_failure_says() -> None:
    plain, full = ActionFailed("sold out"), ActionFailed({"code": "taken", "message": "by Ada", "row": 7})
    assert (plain.code, plain.detail, plain.status, plain.data) == (None, "sold out", 409, {})
    assert (full.code, full.detail, full.status, full.data) == ("taken", "by Ada", 409, {"row": 7})
    assert (str(plain), str(full)) == ("sold out", "taken: by Ada")
    assert str(ActionFailed({"why": "Größe"})) == '{"why": "Größe"}'
    assert ActionFailed({"detail": "d", "message": 3}).data == {"message": 3}
    named = [ActionFailed({"status": each}).status for each in (410, 599, 200, 401, 407, True, "410", None)]
    assert named == [410, 599, 409, 409, 409, 409, 409, 409]


@pytest.mark.parametrize(("status", "request_", "expected"), [
    ("409", INVOKE, ActionFailed), ("409", READ, RemoteProtocolError), ("418", INVOKE, RemoteProtocolError),
])  # fmt: skip
def test_a_conflict_told_by_others_is_a_failure_of_the_action(
    status: str, request_: Any, expected: type[Exception]
) -> None:
    assert type(lmos.error_of(foreign(status), request_)) is expected


def test_an_error_has_all_five_members() -> None:
    message = lmos.error_message(
        lmos.problem_of(NotAllowed("read-only")),
        thing_id=THING,
        message_id="m",
        instance_id="i",
        correlation_id="c",
        in_reply_to="q",
    )
    assert json.loads(lmos.Codec(lmos.Dialect.of_consumer(True)).encode(message)) == {
        "messageType": "error",
        "thingID": THING,
        "messageID": "m",
        "correlationID": "c",
        "type": f"{LMOS}operation-not-allowed",
        "title": "Operation Not Allowed",
        "status": "405",
        "detail": "read-only",
        "instance": "https://eclipse.dev/lmos/protocol/v1/errors/i",
        "started": False,
        "inReplyTo": "q",
    }


@pytest.mark.parametrize(
    "error", [ValueError("the password is 1234"), LmosActorsError("1234"), KeyError("1234")]
)
def test_a_mistake_of_the_program_is_not_told(error: Exception) -> None:
    problem = lmos.problem_of(error)
    assert (problem.status, problem.type) == (500, f"{LMOS}internal-server-error")
    assert "1234" not in repr(problem)


def test_the_place_of_an_agent_is_not_told() -> None:
    for error in (
        AgentDied("normal", started=True, agent="root/vault"),
        AgentUnavailable("root/vault"),
        MailboxFull("root/vault", 3),
        DeadlineExceeded("root/vault", 1.0),
    ):
        assert "vault" not in repr(lmos.problem_of(error))


def foreign(status: str, *, type_: str = "https://example.com/oops", title: str = "Oops") -> lmos.Error:
    return lmos.Error(
        thing_id=THING,
        message_id="m",
        type=type_,
        title=title,
        status=status,
        detail="went wrong",
        instance="urn:i",
    )


@pytest.mark.parametrize(
    ("status", "request_", "cls"),
    [
        ("400", READ, InvalidInput),
        ("401", READ, Unauthorized),
        ("403", READ, Forbidden),
        ("404", READ, NotFound),
        ("405", READ, NotAllowed),
        ("429", READ, RateLimited),
        ("500", READ, RemoteProtocolError),
        ("500", None, RemoteProtocolError),
        ("500", INVOKE, ActionFailed),
        ("503", READ, AgentUnavailable),
        ("418", INVOKE, RemoteProtocolError),
        ("", READ, RemoteProtocolError),
        ("9" * 5000, READ, RemoteProtocolError),
    ],
    ids=range(13),
)
def test_a_foreign_problem_is_taken_by_its_status(status: str, request_: Any, cls: type[Exception]) -> None:
    found = lmos.error_of(foreign(status), request_)
    assert type(found) is cls
    assert "went wrong" in str(found)


@pytest.mark.parametrize("status", ["404", "five hundred"])
def test_an_answer_that_no_class_stands_for_keeps_its_problem(status: str) -> None:
    found: Any = lmos.error_of(foreign(status, type_=f"{LMOS}internal-server-error"), READ)
    assert (found.problem.title, found.problem.detail) == ("Oops", "went wrong")
    assert found.problem.status == (404 if status == "404" else 500)
    assert lmos.problem_of(found) == found.problem


@pytest.mark.parametrize(
    ("title", "request_", "kind", "name"),
    [
        ("Property Not Found", READ, "property", "units"),
        ("Action Not Found", INVOKE, "action", "forecast"),
        ("Thing Not Found", READ, "agent", THING),
        ("Gone", READ, "affordance", "units"),
        ("Gone", None, "affordance", ""),
    ],
)
def test_what_kotlin_wot_has_not_found_is_known_from_the_request(
    title: str, request_: Any, kind: str, name: str
) -> None:
    found: Any = lmos.error_of(foreign("404", type_=f"{LMOS}not-found", title=title), request_)
    assert (type(found), found.kind, found.name, found.nearest) == (NotFound, kind, name, None)


def test_a_type_of_message_that_a_peer_does_not_take_is_not_allowed() -> None:
    assert type(lmos.error_of(foreign("400", type_=f"{LMOS}unsupported-message-type"), READ)) is NotAllowed


@pytest.mark.parametrize(
    "about", [None, {}, {"size": "many", "kind": 3, "seconds": True, "name": [], "reason": 1}]
)
@pytest.mark.parametrize(("error", "type_", "status", "title"), TOLD, ids=lambda value: str(value)[:40])
def test_what_a_peer_says_about_an_exception_may_be_anything(
    error: LmosActorsError, type_: str, status: int, title: str, about: Any
) -> None:
    message = foreign(str(status), type_=type_, title=title)
    message = lmos.Error(
        **{name: getattr(message, name) for name in message.__struct_fields__} | {"about": about}
    )
    found = lmos.error_of(message, INVOKE)
    assert isinstance(found, type(error))
    assert str(found)
    assert [value for value in vars(found).values() if value is True] == [True] * isinstance(found, AgentDied)


def test_a_death_that_does_not_say_when_may_have_begun() -> None:
    found: Any = lmos.error_of(foreign("500", type_=f"{OURS}agent-died"))
    assert found.started
