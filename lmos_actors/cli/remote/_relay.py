"""The commands of `relay` that act as an agent on a relay: register, ping, send, listen, revoke."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors._core import printable, read_json
from lmos_actors.errors import (
    ActionFailed,
    ConfigError,
    ConnectFailed,
    LmosActorsError,
)
from lmos_actors.facades import (
    RelayAnswer,
    RelayFault,
    RelayMessage,
    open_relay,
    register_on_relay,
    revoke_on_relay,
)

from .._answers import OutputLine
from .._exit_codes import FAILED, NOT_REACHED, OK, TIME_LIMIT
from .._loop import run_loop
from .._texts import ONE_RELAY, ONE_SERVER, explained
from ._session import code_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmos_actors._core import Spelling
    from lmos_actors.facades import Relay, Welcomed

    from .._answers import AnswerPrinter
    from ..options._connection import Server
    from ..options._relay import AgentOptions

REFUSAL_SECONDS: Final = 2.0
"""Seconds in which a relay without receipts may refuse a message."""

PONG_SECONDS: Final = 3.0
"""Seconds to wait for a pong: one relay knows no ping."""


def run_on_relay(
    server: Server,
    options: AgentOptions,
    work: Callable[[Relay, AnswerPrinter], Awaitable[int]],
    follow: Sequence[str] = (),
) -> int:
    """Act as an agent on a relay, do the work, and return the exit code. Raises ConfigError, OSError."""
    answers = options.answers()

    async def joined() -> int:
        async with open_relay(
            server.url, credentials=server.credentials, tls=server.tls, follow=tuple(follow)
        ) as relay:
            await _look_at(relay, answers)
            return await work(relay, answers)

    return run_within(options.within, answers, joined, ONE_RELAY)


async def _look_at(relay: Relay, answers: AnswerPrinter) -> None:
    """Send a command to a server that has sent no welcome, to find out whether it is a relay."""
    await relay.wait_ready()
    if relay.welcome is None:
        with trio.move_on_after(PONG_SECONDS) as waiting, suppress(ActionFailed):
            await relay.command("list_subscriptions")
        if waiting.cancelled_caught:
            answers.note(f"{relay.url} has answered nothing yet: {ONE_RELAY.presence}")


def run_within(
    within: float | None,
    answers: AnswerPrinter,
    work: Callable[[], Awaitable[int]],
    options: Spelling = ONE_SERVER,
) -> int:
    """Do the work within a time limit, and return the exit code. Raises ConfigError, OSError.

    `options` are named in the remedy of an error.
    """

    async def run() -> int:
        with trio.move_on_after(math.inf if within is None else within):
            return await work()
        answers.wrong(f"time limit: {within:g}s have passed")
        return TIME_LIMIT

    try:
        return run_loop(run)
    except ConfigError:
        raise
    except LmosActorsError as error:
        answers.wrong(reason_of(error, options))
        return code_of(error)


def reason_of(error: LmosActorsError, options: Spelling = ONE_RELAY) -> str:
    """Return an error in one line."""
    if isinstance(error, ActionFailed) and error.code is not None:
        return f"{error.code}: {error.detail or 'refused'}"
    if isinstance(error, ConnectFailed) and error.why.startswith("closed with"):
        return str(error)
    return explained(error, options)


# ---- register and revoke


def run_register(
    url: str, options: AgentOptions, id: str | None, register_url: str | None, invitation: str | None
) -> int:
    """Register an agent, and print its id and token."""
    server, answers = options.at(url), options.answers()

    async def work() -> int:
        found = await register_on_relay(
            server.url, id, register_url=register_url, invitation=invitation, tls=server.tls
        )
        if answers.form == "text":
            await answers.write(f"{printable(found.id)}\n{printable(found.token)}\n")
            answers.note("keep the token, it is not shown again; commands find it in ARC_TOKEN")
        else:
            await answers.write(json.dumps({"agent_id": found.id, "token": found.token}) + "\n")
        return OK

    return run_within(options.within, answers, work, ONE_RELAY)


def run_revoke(url: str, options: AgentOptions, id: str | None) -> int:
    """Revoke a token."""
    server, answers = options.at(url), options.answers()

    async def work() -> int:
        await revoke_on_relay(server.url, id, credentials=server.credentials, tls=server.tls)
        answers.note(f"the token of {id} is no longer good" if id else "the token is no longer good")
        return OK

    return run_within(options.within, answers, work, ONE_RELAY)


# ---- ping


def run_ping(url: str, options: AgentOptions) -> int:
    """Print what a relay is, and how long its answer takes."""

    async def work(relay: Relay, answers: AnswerPrinter) -> int:
        began = trio.current_time()
        answered = "pong"
        with trio.move_on_after(PONG_SECONDS) as waiting:
            try:
                await relay.command("ping")
            except ActionFailed as refusal:
                answered = f"refused: {refusal.code}"
        if waiting.cancelled_caught:
            answered, began = "no pong", trio.current_time()
            with trio.move_on_after(PONG_SECONDS) as waiting:
                await relay.command("list_subscriptions")
        seconds = trio.current_time() - began
        if waiting.cancelled_caught:
            answered = "no answer"
        welcome = relay.welcome
        line = {
            "agent": relay.id,
            "relay": "" if welcome is None else welcome.relay,
            "capabilities": [] if welcome is None else list(welcome.capabilities),
            "extensions": [] if welcome is None else list(welcome.extensions),
            "limits": {} if welcome is None else dict(welcome.limits),
            "answered": answered,
            "milliseconds": round(seconds * 1_000, 1),
        }
        if answers.form == "json":
            await answers.write(json.dumps(line) + "\n")
        else:
            lines = (*_about(relay, welcome), f"{answered} after {seconds * 1_000:.1f} ms")
            await answers.write("".join(f"{printable(each)}\n" for each in lines))
        return FAILED if waiting.cancelled_caught else OK

    return run_on_relay(options.at(url), options, work)


def _about(relay: Relay, welcome: Welcomed | None) -> tuple[str, ...]:
    """Return a relay's description of itself, as lines."""
    if welcome is None:
        return (f"no welcome; the agent is {relay.id or 'not known'}",)
    able = ", ".join(welcome.capabilities) or "nothing that it says"
    more = ", ".join(welcome.extensions) or "no extensions"
    return f"{welcome.relay or 'a relay'}: {able}; {more}", f"the agent is {relay.id}"


# ---- send


@attrs.frozen(kw_only=True)
class Outgoing:
    """A message to send; to everybody if `to` is empty."""

    payload: Any
    to: Sequence[str] = ()
    type: str | None = None
    ref: str | None = None

    def __attrs_post_init__(self) -> None:
        for text in (self.payload, *self.to, self.type, self.ref):
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise ConfigError(f"is no UTF-8: {printable(str(text))[:100]}", "relay send") from None


def payload_of(text: str, *, is_json: bool) -> Any:
    """Return the payload that a text stands for: the text itself, or its JSON value. Raises ConfigError."""
    if not is_json:
        return text
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON: {error}", "--json-payload") from None


def run_send(url: str, options: AgentOptions, message: Outgoing) -> int:
    """Send a message, and wait a limited time until the relay has read or refused it."""

    async def work(relay: Relay, answers: AnswerPrinter) -> int:
        receipt = await relay.say(
            message.payload, list(message.to) or "*", type=message.type, ref=message.ref
        )
        if receipt is None:  # a relay answers in order: with this it has read the message
            with trio.move_on_after(REFUSAL_SECONDS) as waiting:
                await relay.command("list_subscriptions")
            if waiting.cancelled_caught:
                return await _not_confirmed(answers)
        if answers.form == "json":
            shown: dict[str, Any] = {"sent": True}
            if receipt is not None:
                shown["id"], shown["delivered"] = receipt.id, receipt.delivered
                shown["unknown"] = list(receipt.unknown)
            await answers.write(json.dumps(shown) + "\n")
        elif receipt is not None:
            await answers.write(f"{printable(receipt.id)}  delivered to {receipt.delivered}\n")
            if receipt.unknown:
                answers.note(f"not there: {', '.join(receipt.unknown)}")
        return OK

    return run_on_relay(options.at(url), options, work)


async def _not_confirmed(answers: AnswerPrinter) -> int:
    """Report that it is unknown whether the relay has the message. Return the exit code."""
    if answers.form == "json":
        await answers.write(json.dumps({"confirmed": False}) + "\n")
    answers.wrong(
        f"not confirmed: the relay did not answer within {REFUSAL_SECONDS:g} s; it may have the message"
    )
    return NOT_REACHED


# ---- listen


def run_listen(url: str, options: AgentOptions, follow: Sequence[str], count: int | None) -> int:
    """Print the messages that the agent receives, until `count` of them have arrived or the command ends."""

    async def work(relay: Relay, answers: AnswerPrinter) -> int:
        heard = 0
        async for event in relay:
            if isinstance(event, RelayMessage):
                heard += 1
                await answers.print(line_of(event))
            elif isinstance(event, RelayAnswer):
                await answers.print(line_of_relay(event))
            elif isinstance(event, RelayFault):
                answers.wrong(f"{event.code}: {event.message}")
            elif relay.connections > 1:
                answers.note("connected again")
            if heard == count:
                return OK
        return OK  # not reached: it ends with an exception

    return run_on_relay(options.at(url), options, work, follow)


def line_of(message: RelayMessage) -> OutputLine:
    """Return a message as a line."""
    members: dict[str, Any] = {"id": message.id, "from": message.sender, "to": list(message.to)}
    members |= {name: value for name, value in (("type", message.type), ("ref", message.ref)) if value}
    members |= {"payload": message.payload, **message.members, "ts": message.ts}
    direct = "" if message.is_broadcast else " (direct)"
    head = (clock(message.ts), f"{message.sender}{direct}", message.type or "-")
    return OutputLine(members, message.payload, head)


def line_of_relay(answer: RelayAnswer) -> OutputLine:
    """Return a message of the relay itself as a line."""
    members: dict[str, Any] = {"from": "relay", "type": answer.type, "payload": answer.payload}
    if answer.ref:
        members["ref"] = answer.ref
    return OutputLine(members, answer.payload, ("relay", answer.type))


def clock(ts: int) -> str:
    """Return the time of day of a message, if it has one."""
    try:
        return datetime.fromtimestamp(ts / 1_000, UTC).astimezone().strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "-"
