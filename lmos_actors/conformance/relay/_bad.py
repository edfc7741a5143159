"""Cases of what a relay has to refuse: invalid frames, floods, and frames that have crashed relays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.conformance.card import relay, relay_page, rfc8259
from lmos_actors.conformance.session import Chapter, NoAnswer
from lmos_actors.conformance.wire import ConnectionGone, Refused, Unreachable

from ._context import code_of, inside, of_relay
from ._doors import must_be_open

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.conformance.card import Section

    from ._context import Frame, RelayAgent, RelayContext

RATES: Final[Chapter[RelayContext]] = Chapter()

_ERROR: Final = relay("error")
_INVALID: Final = ("invalid_message", "too_large")
_DEEP: Final = 100_000
_MOST_SENT: Final = 5_000  # frames that are sent to reach a limit
_RATE: Final = re.compile(r"(\d{1,9})/(\d*)(ms|s|m|min|h)?")

_BAD: Final[tuple[tuple[str, str, str, Section], ...]] = (
    ("json", "What is no JSON is refused", "{oops", rfc8259("2")),
    ("empty", "A text without anything is refused", "", rfc8259("2")),
    ("trailing", "JSON with something behind it is refused", '{"to":["*"],"payload":1} x', rfc8259("2")),
    ("nan", "NaN is no JSON", '{"to":["*"],"payload":NaN}', rfc8259("6")),
    ("array", "An array is no message", "[]", _ERROR),
    ("text", "A text is no message", '"text"', _ERROR),
    ("number", "A number is no message", "5", _ERROR),
    ("object", "An object without members is no message", "{}", _ERROR),
    ("no-to", "A message without `to` is refused", '{"payload":1}', _ERROR),
    ("no-payload", "A message without a payload is refused", '{"to":["*"]}', _ERROR),
    ("to-text", "A `to` that is a text is refused", '{"to":"*","payload":1}', _ERROR),
    ("to-null", "A `to` that is null is refused", '{"to":null,"payload":1}', _ERROR),
    ("to-nobody", "A `to` without anybody is refused", '{"to":[],"payload":1}', _ERROR),
    ("to-numbers", "A `to` with a number is refused", '{"to":[5],"payload":1}', _ERROR),
)

BAD: Final[Chapter[RelayContext]] = Chapter(section=_ERROR)
ENDING: Final[Chapter[RelayContext]] = Chapter(section=_ERROR)


def _refusing(frame: str) -> Callable[[RelayContext], Awaitable[None]]:
    async def run(context: RelayContext) -> None:
        one, other = await context.agents("a", "b")
        await context.must_refuse(one, other, _of(one, frame), codes=_INVALID)

    return run


def _of(agent: RelayAgent, frame: str) -> str:
    """Return a frame with the sender's id added: one relay refuses every frame without it."""
    return frame.replace("{", f'{{"from":"{agent.id}",', 1) if frame.startswith('{"') else frame


for _name, _title, _frame, _section in _BAD:
    BAD.add(
        f"relaybad.{_name}",
        _title,
        _refusing(_frame),
        section=_section,
        expected="an error with code invalid_message, and the connection goes on",
    )


@BAD.case(
    "relaybad.error",
    "An error has a code and a message",
    expected="`error` from `relay`, to the agent, with code and message in its payload",
)
async def error_members(context: RelayContext) -> None:
    one, _ = await context.agents("a", "b")
    await one.send("[1]")
    error = await one.of_relay("error")
    context.judge_error(error)
    if error.get("to") not in ([one.id], None) or not isinstance(
        inside(error, "payload").get("message"), str
    ):
        context.differs("relay-error-shape", json.dumps(error))


@BAD.case(
    "relaybad.unheard",
    "Nobody hears what is refused",
    expected="an error at the sender, and nothing at other agents",
)
async def unheard(context: RelayContext) -> None:
    one, other = await context.agents("a", "b")
    for frame in ("[1]", "{oops", '{"payload":1}'):
        await one.send(frame)
    heard = await context.heard_by(other, one)
    if any(of_relay(frame, "error") or frame.get("from") == one.id for frame in heard):
        context.fail(f"{other.id} hears {json.dumps(heard)[:200]}")


# ---- floods


@RATES.case(
    "relayrate.limit",
    "Who sends too much is told so, and not too often",
    section=relay_page("limits"),
    expected="`rate_limit` once the announced rate is passed, and fewer errors than frames beyond it",
    needs="a rate in the welcome's limits",
    unsafe=True,
)
async def rate_limit(context: RelayContext) -> None:
    agent = await context.agent("flood")
    limit = inside(inside(agent.welcome, "payload"), "limits").get("rate_limit")
    found = _RATE.match(limit) if isinstance(limit, str) else None
    if found is None:
        context.not_offered("its welcome has no limits with a rate_limit")
    allowed = int(found[1])
    if allowed > _MOST_SENT:
        context.not_offered(f"the kit sends {_MOST_SENT} frames at most")
    beyond = max(50, allowed // 10)
    errors = await _flooded(context, allowed + beyond)
    if not errors:
        context.fail(f"{allowed + beyond} frames are taken, and {limit} is announced")
    if len(errors) > beyond // 2:
        context.fail(f"{len(errors)} errors answer the {beyond} frames beyond {limit}")


async def _flooded(context: RelayContext, count: int) -> list[Frame]:
    """Send a number of pings as a new agent, and return the errors sent in response."""
    agent = await context.agent("flood")
    errors: list[Frame] = []
    try:
        for number in range(count):
            await agent.command("ping")
            if number % 50 == 49:
                while (frame := await agent.next(0.001)) is not None:
                    errors += [frame] if of_relay(frame, "error") else []
        while (frame := await agent.next()) is not None:
            errors += [frame] if of_relay(frame, "error") else []
    except ConnectionGone as gone:
        if gone.gone.code != 4029:
            context.fail(str(gone))
    for error in errors:
        if code_of(error) not in ("rate_limit", "unknown_command"):
            context.fail(json.dumps(error))
    return [error for error in errors if code_of(error) == "rate_limit"]


# ---- what has ended relays


def _surviving(frame: str) -> Callable[[RelayContext], Awaitable[None]]:
    async def run(context: RelayContext) -> None:
        one, other = await context.agents("a", "b")
        try:
            await one.send(_of(one, frame))
            error = await one.refusal()
        except ConnectionGone as gone:
            await _must_be_there(context, gone)
            if gone.gone.code not in (1007, 1008, 1009):
                context.fail(f"its connection ends: {gone}")
            return
        await _must_be_there(context, None)
        if error is None:
            context.differs("relay-silent", "nothing answers it")
        else:
            context.judge_error(error, _INVALID)
        await context.must_go_on(one, other, "it")

    return run


async def _must_be_there(context: RelayContext, gone: ConnectionGone | None) -> None:
    """Fail unless the relay takes new connections."""
    await trio.sleep(0.2)  # a process that is ending takes a moment
    try:
        await context.agent("c")
    except (Unreachable, Refused, ConnectionGone, NoAnswer) as why:
        context.fail(f"it ends the relay: {gone or why}")


for _name, _title, _frame in (
    ("null", "`null` is no message", "null"),
    ("to-number", "A `to` that is a number is refused", '{"to":5,"payload":1}'),
    ("to-object", "A `to` with an object is refused", '{"to":[{"toString":1}],"payload":1}'),
):
    ENDING.add(
        f"relayend.{_name}",
        _title,
        _surviving(_frame),
        expected="an error, or a Close, and the relay is there for others",
        unsafe=True,
    )


async def _nesting(context: RelayContext) -> None:
    """Send arrays nested as deeply as the maximum message size allows, which crashes some relays."""
    size = inside(inside((await context.agent()).welcome, "payload"), "limits").get("max_message_size")
    deep = min(_DEEP, max(1_000, (size - 200) // 2)) if isinstance(size, int) else _DEEP
    await _surviving(f'{{"to":["*"],"payload":{"[" * deep}{"]" * deep}}}')(context)


ENDING.add(
    "relayend.nesting",
    "Arrays within arrays without end are refused",
    _nesting,
    expected="an error, or a Close, for 100,000 nested arrays, or as many as fit, and the relay is there",
    unsafe=True,
)


@ENDING.case(
    "relayend.register-null",
    "`null` registers nobody",
    section=relay_page("registration"),
    expected="400, and the relay is there",
    needs="registration",
    unsafe=True,
)
async def register_null(context: RelayContext) -> None:
    await must_be_open(context)
    try:
        answer = await context.register(body=b"null")
    except Unreachable as why:
        await _must_be_there(context, None)
        context.fail(str(why))
    await _must_be_there(context, None)
    if answer.status != 400:
        context.fail(f"it is answered with {answer.status}")
