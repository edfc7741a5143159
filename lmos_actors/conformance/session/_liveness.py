"""Checks that a server still answers after input that it may refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.wire import ConnectionEnd, ConnectionGone

from ._probe import NoAnswer
from ._session import Sent, Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._case import CaseContext
    from ._messages import ReceivedMessage

FITTING: Final = (1002, 1005, None)
"""Ends of a connection that fit after a frame against the rules: this code, no code, no Close."""


async def answers(context: CaseContext, session: Session) -> bool:
    """Send several requests in turn, and return whether any was answered. Raises ConnectionGone.

    Other cases judge whether the answer is right.
    """
    asked = [("readProperty", name) for name in context.target.readable()[:1]]
    asked.append(("readProperty", context.target.unknown_property()))
    asked.append(("invokeAction", context.target.unknown_action()))
    for kind, name in asked:
        await session.send(kind, name=name)
        if await session.next() is not None:
            return True
    return False


async def must_answer(context: CaseContext, session: Session, after: str) -> None:
    """Fail unless the server answers on a connection. `after`: what happened before, in words."""
    try:
        alive = await answers(context, session)
    except ConnectionGone as gone:
        context.fail(f"after {after} {gone}")
    if not alive:
        context.fail(f"after {after} nothing is answered on the connection")


async def must_be_there(context: CaseContext, after: str) -> None:
    """Fail unless the server answers on a new connection."""
    await must_answer(context, await context.session(), f"{after}, on a new connection,")


async def must_be_read(
    context: CaseContext,
    what: str,
    send: Callable[[Session, str], Awaitable[None]],
    *,
    name: str | None = None,
    refusal: str | None = None,
) -> Session:
    """Fail unless a read in an unusual form is answered like a normal one; return the session.

    The parameter `send` sends the text of the request in the form that `what` names. `name`: the property
    that is read. `refusal`: the deviation to note if the answer is an error; without it an error is a
    failure.
    """
    session = await context.session()
    name = name or context.target.any_property()
    with context.left_to("properties.read"):
        plain = await session.ask("readProperty", name=name)
    message_id = session.new_id()
    text = session.text("readProperty", name=name, message_id=message_id, correlation=message_id)
    sent = Sent("readProperty", name, message_id, message_id, text, len(session.received))
    try:
        await send(session, text)
        received = await session.answer(sent)
    except NoAnswer:
        context.fail(f"{what} is not answered")
    except ConnectionGone as gone:
        context.fail(f"after {what} {gone}")
    if (received.kind, received.status) == (plain.kind, plain.status):
        return session
    if refusal is None or received.kind != "error":
        context.fail(f"{what} is answered by {received}")
    context.differs(refusal, str(received))
    return session


async def must_end(context: CaseContext, session: Session, what: str, *codes: int | None) -> ConnectionEnd:
    """Fail unless the server ends the connection; note a deviation if its code is not one of `codes`.

    Without `codes`, those in `FITTING` are accepted.
    """
    gone = await session.closed()
    if gone is None:
        context.fail(f"after {what} the connection is still open")
    if gone.code not in (codes or FITTING):
        context.differs("close-code", f"after {what} {gone}")
    return gone


def note_close(context: CaseContext, gone: ConnectionEnd, what: str, *allowed: int) -> None:
    """Judge the code with which a connection ended: 1003 is noted, an allowed one passes, others fail."""
    if gone.code == 1003:
        context.differs("closes-1003", f"after {what}")
    elif gone.code not in allowed:
        context.fail(f"after {what} {gone}")


@attrs.frozen(kw_only=True)
class MalformedMessage:
    """A message that cannot be read, named `what` in reports.

    `only_error`: the answer must be an error. `has_id`: a client waits for the answer, so silence is a
    failure and not only a deviation.
    """

    what: str
    text: str
    has_id: bool = True
    only_error: bool = True


async def judge_malformed(context: CaseContext, session: Session, bad: MalformedMessage) -> Session:
    """Send a malformed message, and judge the reaction. Return the session to continue with."""
    received: ReceivedMessage | None = None
    try:
        await session.socket.send_text(bad.text)
        received = await session.next()
    except ConnectionGone as ended:
        note_close(context, ended.gone, bad.what)
        session = await context.session()
    else:
        if received is None and bad.has_id:
            context.fail(f"{bad.what} is not answered")
        if received is None:
            context.differs("bad-unanswered", f"{bad.what} is passed over")
        elif bad.only_error and received.kind != "error":
            context.fail(f"{bad.what} is answered by {received}")
    await must_answer(context, session, bad.what)
    return session
