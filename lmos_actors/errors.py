"""Every exception of the package, in one tree under `LmosActorsError`.

Who is to blame is in the class: `AgentError` and below is the answer an agent, or the runtime in its
place, gave to a request; `SupervisionError` is a tree that could not start or could not go on;
`ConfigError` is a file or an argument a person wrote. Nothing here imports anything of ours.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterable


def group_of(error: BaseException) -> BaseExceptionGroup[BaseException] | None:
    """Return the error as a group, None if it is none."""
    if isinstance(error, BaseExceptionGroup):
        return error  # pyright: ignore[reportUnknownVariableType] # of what, isinstance cannot tell
    return None


def text_of(error: BaseException) -> str:
    """Return an error's own text, "" where its class fails to give one: it is not ours to trust."""
    try:
        text = str(error)
        return text if type(text) is str else str.__str__(text)
    except Exception:
        return ""


NEAREST_OF = 1000  # known words looked at: comparing takes microseconds each
LONGEST_WORD = 100  # characters: comparing takes the product of the lengths


class LmosActorsError(Exception):
    """Base of every exception this package raises on purpose. They can be pickled and copied."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would make it anew from its text, which is not what the constructors here take
        return _remade, (type(self), self.args), self._remembered()

    def _remembered(self) -> dict[str, Any]:
        return self.__dict__


def _remade(cls: type[LmosActorsError], args: tuple[Any, ...]) -> LmosActorsError:
    error = cls.__new__(cls, *args)
    error.args = args
    return error


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, or None when nothing is near."""
    if len(word) > LONGEST_WORD:
        return None
    words = [each for each in islice(known, NEAREST_OF) if len(each) <= LONGEST_WORD]
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    return near[0] if near else None


class AgentError(LmosActorsError):
    """A request was answered with something other than its value."""


class NotFound(AgentError):
    """No such agent, child or affordance; `nearest` is the known name most like it, if any."""

    def __init__(self, kind: str, name: str, *, where: str = "", known: Iterable[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest(name, known)
        place = f" on {where}" if where else ""
        hint = f", did you mean {self.nearest!r}?" if self.nearest else ""
        super().__init__(f"no {kind} {name!r}{place}{hint}")


class InvalidInput(AgentError):
    """A value does not fit its declared type. `path` says where in the input, as in `$.city`."""

    def __init__(self, message: str, path: str = "$") -> None:
        self.message = message
        self.path = path
        super().__init__(f"{message} - at {path}")


class NotAllowed(AgentError):
    """The affordance exists but does not allow this, such as writing a read-only property."""


class ActionFailed(AgentError):
    """The action ended in a failure that it declares; raise it in a handler. `output` is plain data.

    A text words the failure. An object says more, as `{"code": "full", "detail": "no seat left", "row": 7}`:
    `code` is for programs, `detail` (or `message`) for people, `status` the status over HTTP, 409 unless it
    is named; everything else is its `data`. Callers find the same near and far.
    """

    STATUS = 409

    def __init__(self, output: object = None) -> None:
        self.output = output
        super().__init__(_failure_text(output))

    @property
    def code(self) -> str | None:
        """The member `code` of the output, if that is a text."""
        code: str | None = _member(self.output, "code", str)
        return code

    @property
    def detail(self) -> str | None:
        """What happened, in words: the output if it is a text, else its member `detail` or `message`."""
        if isinstance(self.output, str):
            return self.output
        own: str | None = _member(self.output, "detail", str)
        message: str | None = _member(self.output, "message", str)
        return own if own is not None else message

    @property
    def status(self) -> int:
        """The status over HTTP: the member `status` of the output from 400 to 599, else 409.

        401 and 407 are of credentials, which an action knows nothing of: they count as not named.
        """
        status: int | None = _member(self.output, "status", int)
        known = status is not None and 400 <= status <= 599 and status not in (401, 407)
        return status if known and status is not None else self.STATUS

    @property
    def data(self) -> dict[str, Any]:
        """All other members of the output, empty where it is no object."""
        used = ("code", "status", "detail" if _member(self.output, "detail", str) is not None else "message")
        return {name: value for name, value in _members(self.output).items() if name not in used}


def _members(output: object) -> dict[str, Any]:
    return cast("dict[str, Any]", output) if isinstance(output, dict) else {}


def _member(output: object, name: str, kind: type[Any]) -> Any:
    value = _members(output).get(name)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _failure_text(output: object) -> str:
    """Word a failure: by its code and what it says in words, else by its data as JSON."""
    if output is None or isinstance(output, str):
        return "action failed" if output is None else output
    code: str | None = _member(output, "code", str)
    detail: str | None = _member(output, "detail", str)
    said: str | None = detail if detail is not None else _member(output, "message", str)
    if said is not None:
        return said if code is None else f"{code}: {said}"
    if code is not None:
        return code
    try:
        return json.dumps(output, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return "action failed"


class ActionCancelled(AgentError):
    """The invocation was cancelled by somebody who asked for it; `reason` is theirs."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason or "action cancelled")


class MailboxFull(AgentError):
    """The agent's mailbox had no room, or dropped this message to make some.

    `share` is how many of its seats the peer had that has asked, where others wanted some of them too: then a
    request goes that has not begun, of whoever has most. None where nobody else was there.
    """

    def __init__(self, agent: str, size: int, share: int | None = None) -> None:
        self.agent = agent
        self.size = size
        self.share = share
        held = f"is full ({size})"
        if share is not None:
            held = f"is full ({size}, {share} of them this peer's, and others want some)"
        super().__init__(f"mailbox of {agent!r} {held}")


class AgentUnavailable(AgentError):
    """The agent is between two lives, stopping, or gone; the request has not begun to run.

    `retry_in` is a hint in seconds when one is known.
    """

    started = False

    def __init__(self, agent: str, why: str = "not running", *, retry_in: float | None = None) -> None:
        self.agent = agent
        self.why = why
        self.retry_in = retry_in
        super().__init__(f"agent {agent!r} is unavailable: {why}")


class _Located(Protocol):
    """Anything with a place in a tree."""

    @property
    def path(self) -> str: ...


REASON = 1000  # characters of an exit reason that a caller is told: each agent that passes one on adds to it


class AgentDied(AgentError):
    """The agent ended before it answered.

    `reason` is the exit reason as text, 1,000 characters of it at most. `started` says whether the request
    had begun to run: if not, it is safe to repeat it.
    """

    def __init__(self, reason: str, *, started: bool, agent: str | _Located = "") -> None:
        self._agent = agent
        self.reason = reason if len(reason) <= REASON else f"{reason[:REASON]}…"
        self.started = started
        super().__init__(reason)

    def _remembered(self) -> dict[str, Any]:
        return {**self.__dict__, "_agent": self.agent}

    # Neither is made before somebody reads it: where agents crash by the thousand, nobody does.

    @property
    def agent(self) -> str:
        """The path of the agent, "" where it is not known."""
        agent = self._agent
        return agent if isinstance(agent, str) else agent.path

    def __str__(self) -> str:
        who = f"agent {self.agent}" if self.agent else "agent"
        return f"{who} died ({self.reason}), request {'had begun' if self.started else 'had not begun'}"


class LinkedAgentDied(AgentError):
    """An agent that a task was linked to has ended, with another reason than `normal`.

    `agent` is its path, `incarnation` which of its lives it was, `reason` its `ExitReason`; the exception
    in that, if any, is also the `__cause__`.
    """

    def __init__(self, agent: str, incarnation: int, reason: Any) -> None:
        self.agent = agent
        self.incarnation = incarnation
        self.reason = reason
        super().__init__(f"linked agent {agent!r} has ended: {reason}")


class DeadlineExceeded(AgentError, TimeoutError):
    """A call through `ref.within(seconds)` was not answered in time; its run is cancelled.

    `why` is what `ref.ready()` waited for, or what kept a request from being sent; "" where nothing did.
    """

    def __init__(self, agent: str, seconds: float, *, why: str = "", ready: bool = False) -> None:
        self.agent = agent
        self.seconds = seconds
        self.why = why
        what = f"{agent!r} was not ready" if ready else f"no answer from {agent!r}"
        super().__init__(f"{what} within {seconds:g} s{f': {why}' if why else ''}")


class OutcomeUnknown(AgentError):
    """The connection ended after the request was sent and before it was answered: it may have run or not."""

    def __init__(self, agent: str, why: str = "the connection ended before the answer") -> None:
        self.agent = agent
        self.why = why
        super().__init__(f"what became of the request to {agent!r} is unknown: {why}")


class Unauthorized(AgentError):
    """The agent does not know who asks; the request has not begun to run."""


class Forbidden(AgentError):
    """The agent knows who asks, and does not allow it to them; the request has not begun to run."""


class RateLimited(AgentError):
    """Whoever asks has asked too often; the request has not begun to run.

    `retry_in` is how many seconds to wait, None where that is not known.
    """

    started = False

    def __init__(self, retry_in: float | None = None) -> None:
        self.retry_in = retry_in
        hint = "" if retry_in is None else f", retry in {retry_in:g} s"
        super().__init__(f"too many requests{hint}")


class ProtocolError(LmosActorsError):
    """Something was said, or was to be said, that the protocol does not know."""


class LocalProtocolError(ProtocolError):
    """This side misused the protocol: a mistake in the program here."""


class _Problem(Protocol):
    """What a peer says in an `error` message."""

    @property
    def title(self) -> str: ...
    @property
    def detail(self) -> str: ...


class RemoteProtocolError(ProtocolError, AgentError):
    """The peer answered a request with a `problem` that none of the other classes stands for."""

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.title}: {problem.detail}")


class SupervisionError(LmosActorsError):
    """A supervision tree could not start, could not go on, or was asked for something it has not."""


class NameTaken(SupervisionError):
    """A child of that name is there already."""

    def __init__(self, name: str, supervisor: str) -> None:
        self.name = name
        super().__init__(f"{supervisor!r} already has a child named {name!r}")


class IdTaken(SupervisionError):
    """An agent of the node has that id already; `agent` is its path."""

    def __init__(self, id: str, agent: str) -> None:
        self.id = id
        self.agent = agent
        super().__init__(f"{agent!r} already has the id {id!r}")


class WrongState(SupervisionError):
    """The child is not in the state that this needs; `state` is the one it is in."""

    def __init__(self, path: str, state: str, needs: str) -> None:
        self.path = path
        self.state = state
        super().__init__(f"{path} is {state}; {needs}")


class StartFailed(SupervisionError):
    """A child could not be started; what it raised is the `__cause__`. `path` names it in the tree."""

    def __init__(self, path: str, message: str = "") -> None:
        self.path = path
        super().__init__(f"{path} could not start" + (f": {message}" if message else ""))


class StopFailed(SupervisionError):
    """A child has been stopped, and raised while it ended; what it raised is the `__cause__`."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} has stopped, but raised while it ended")


class RestartIntensityExceeded(SupervisionError):
    """Children ended more often than `max_restarts` in `max_seconds` allows.

    `path` is the supervisor's place in the tree; `causes` are the exceptions within the window, oldest
    first, also grouped as the `__cause__`.
    """

    def __init__(
        self, path: str, max_restarts: int, max_seconds: float, causes: tuple[BaseException, ...] = ()
    ) -> None:
        self.path = path
        self.max_restarts = max_restarts
        self.max_seconds = max_seconds
        self.causes = causes
        super().__init__(f"{path}: more than {max_restarts} restarts in {max_seconds:g} s")
        if causes:
            self.__cause__ = BaseExceptionGroup(f"what ended the children of {path}", causes)


class TransportError(LmosActorsError):
    """A connection to another process could not be made, or could not go on."""


class ConnectFailed(TransportError):
    """Nothing could be reached at `url`, or what was there refused; `why` says what went wrong.

    `status` is that of HTTP where something answered. `certificate` is "server" where that of the server was
    not accepted here, "client" where the server refused or missed that of the client. `leads_here`: by its
    name it is this machine, of which another host has told (`local=True` of `node.consume` allows it).
    """

    def __init__(
        self,
        url: str,
        why: str,
        *,
        status: int | None = None,
        certificate: Literal["server", "client"] | None = None,
        leads_here: bool = False,
    ) -> None:
        self.url = url
        self.why = why
        self.status = status
        self.leads_here = leads_here
        self.certificate: Literal["server", "client"] | None = certificate
        super().__init__(f"cannot connect to {url}: {why}")

    def at(self, url: str) -> ConnectFailed:
        """Return the same failure under another URL of the same place."""
        return ConnectFailed(
            url, self.why, status=self.status, certificate=self.certificate, leads_here=self.leads_here
        )


class ConnectionLost(TransportError):
    """The other side went away, or did not keep to the protocol, before the connection was of use."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"connection lost: {why}")


class Deadlocked(LmosActorsError):
    """On virtual time nothing can ever happen again and the body has not ended."""


class ForbiddenCall(LmosActorsError):
    """In a simulated world something was called that reaches out of it.

    The text names the line of the user's code, not that of a library it calls, and the way out.
    """


class WrongEventLoop(LmosActorsError):
    """Code of an agent needed the event loop of asyncio, and agents run on trio.

    The text names the line of the user's code, and the ways out; what was raised there is the `__cause__`.
    """


class WorkerDied(LmosActorsError):
    """The process that carried out a `self.to_process` ended, or could not start, before it answered.

    How far the function had come is not known. What is known of the cause is the `__cause__`.
    """


class ConfigError(LmosActorsError):
    """A file or an argument is wrong; `path` is where, as in `weather.yaml:12:5`."""

    def __init__(self, message: str, path: str = "") -> None:
        self.message = message
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


# --- several exceptions that ended one thing, raised as one, each of them once


def raise_together(errors: list[BaseException], what: str) -> None:
    """Raise them: one as itself, several as a group called `what`, none twice. Empties the list.

    Of Ctrl-C there is the first alone. A failed start whose cause is there too says nothing new, and neither
    does a group of such.
    """
    distinct = list({id(error): error for error in errors}.values())
    again = [error for error in distinct if isinstance(error, KeyboardInterrupt)][1:]
    distinct = [error for error in distinct if error not in again]
    alone = {id(error) for error in distinct if not isinstance(error, BaseExceptionGroup)}
    distinct = [error for error in distinct if not _says_nothing_new(error, alone)]
    if not distinct:
        return
    try:
        if len(distinct) == 1:
            raise distinct[0]
        raise BaseExceptionGroup(what, distinct)
    finally:
        distinct.clear()
        errors.clear()


def _says_nothing_new(error: BaseException, alone: set[int]) -> bool:
    if isinstance(error, StartFailed) and id(error.__cause__) in alone:
        return True  # what is no Exception, as SystemExit, has come by itself
    return group_of(error) is not None and all(id(leaf) in alone for leaf in _leaves(error))


def _leaves(error: BaseException) -> list[BaseException]:
    group = group_of(error)
    if group is None:
        return [error]
    return [leaf for part in group.exceptions for leaf in _leaves(part)]
