"""Whether a server is still there, after something that it may not have liked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.conformance.wire import ConnectionGone, Gone

from ._session import NoAnswer, Sent, Talk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._case import Visit
    from ._messages import Heard

FITTING: Final = (1002, 1005, None)
"""How a connection may end over a frame that breaks the rules: the code, none in the Close, no Close."""


async def answers(visit: Visit, talk: Talk) -> bool:
    """Ask several things, in turn, until anything comes. Raises ConnectionGone.

    Whether it is the right answer is for other cases to say.
    """
    asked = [("readProperty", name) for name in visit.target.readable()[:1]]
    asked.append(("readProperty", visit.target.unknown_property()))
    asked.append(("invokeAction", visit.target.unknown_action()))
    for kind, name in asked:
        await talk.send(kind, name=name)
        if await talk.next() is not None:
            return True
    return False


async def must_answer(visit: Visit, talk: Talk, after: str) -> None:
    """Fail unless the server answers on a connection. `after`: what has gone before."""
    try:
        alive = await answers(visit, talk)
    except ConnectionGone as gone:
        visit.fail(f"after {after} {gone}")
    if not alive:
        visit.fail(f"after {after} nothing is answered on the connection")


async def must_be_there(visit: Visit, after: str) -> None:
    """Fail unless the server answers on a new connection."""
    await must_answer(visit, await visit.talk(), f"{after}, on a new connection,")


async def must_be_read(
    visit: Visit,
    what: str,
    send: Callable[[Talk, str], Awaitable[None]],
    *,
    name: str | None = None,
    refusal: str | None = None,
) -> Talk:
    """Fail unless a request is answered as it is when it is sent plainly; return the conversation.

    `send` sends the request, of which it is given the text, in some other way: `what` that is. `name`: of the
    property that is read. `refusal`: the deviation that an error in answer is, where it is no failure.
    """
    talk = await visit.talk()
    name = name or next(iter(visit.target.readable()), None) or visit.target.unknown_property()
    try:
        plain = await talk.ask("readProperty", name=name)
    except NoAnswer:
        visit.not_offered("readProperty is not answered: properties.read says more")
    message_id = talk.new_id()
    text = talk.text("readProperty", name=name, message_id=message_id, correlation=message_id)
    sent = Sent("readProperty", name, message_id, message_id, text, len(talk.heard))
    try:
        await send(talk, text)
        heard = await talk.answer(sent)
    except NoAnswer:
        visit.fail(f"{what} is not answered")
    except ConnectionGone as gone:
        visit.fail(f"after {what} {gone}")
    if (heard.kind, heard.status) == (plain.kind, plain.status):
        return talk
    if refusal is None or heard.kind != "error":
        visit.fail(f"{what} is answered by {heard}")
    visit.differs(refusal, str(heard))
    return talk


async def must_end(visit: Visit, talk: Talk, what: str, *codes: int | None) -> Gone:
    """Fail unless the server ends the connection; note a Close with a code that is none of these."""
    gone = await talk.closed()
    if gone is None:
        visit.fail(f"after {what} the connection is still open")
    if gone.code not in (codes or FITTING):
        visit.differs("close-code", f"after {what} {gone}")
    return gone


def note_close(visit: Visit, gone: Gone, what: str, *allowed: int) -> None:
    """Note that the connection was closed over a message; fail unless by 1003 or a code that is allowed."""
    if gone.code == 1003:
        visit.differs("closes-1003", f"after {what}")
    elif gone.code not in allowed:
        visit.fail(f"after {what} {gone}")


@attrs.frozen(kw_only=True)
class Bad:
    """A message that cannot be read. `what` it is, in words; whether its answer must be an error.

    `has_id`: whether somebody waits for the answer, so that silence is worse than not as written.
    """

    what: str
    text: str
    has_id: bool = True
    only_error: bool = True


async def judge_bad(visit: Visit, talk: Talk, bad: Bad) -> Talk:
    """Send what cannot be read, and see what comes. Return the conversation to go on with."""
    heard: Heard | None = None
    try:
        await talk.socket.send_text(bad.text)
        heard = await talk.next()
    except ConnectionGone as ended:
        note_close(visit, ended.gone, bad.what)
        talk = await visit.talk()
    else:
        _judge_answer(visit, bad, heard)
    await must_answer(visit, talk, bad.what)
    return talk


def _judge_answer(visit: Visit, bad: Bad, heard: Heard | None) -> None:
    if heard is None and bad.has_id:
        visit.fail(f"{bad.what} is not answered")
    if heard is None:
        visit.differs("bad-unanswered", f"{bad.what} is passed over")
    elif bad.only_error and heard.kind != "error":
        visit.fail(f"{bad.what} is answered by {heard}")
