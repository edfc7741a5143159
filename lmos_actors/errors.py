"""Every exception of the package, in one tree under `LmosActorsError`, and its warnings.

The class shows where the fault is. `AgentError` and its subclasses are answers of an agent, or of the runtime
in its place, to a request. `SupervisionError` means that a tree could not start or continue. `ConfigError`
means a mistake in a file or an argument that a person wrote. The classes that most programs catch are also
names of `lmos_actors`. This module imports no other module of the package. It is one file despite its length,
so that related exceptions can be found side by side.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


def group_of(error: BaseException) -> BaseExceptionGroup[BaseException] | None:
    """Return the error if it is an exception group, or else None."""
    if isinstance(error, BaseExceptionGroup):
        return error  # pyright: ignore[reportUnknownVariableType] # of what, isinstance cannot tell
    return None


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is Ctrl-C, alone or in a group.

    Ctrl-C ends the node, even if it interrupts an agent's code. Any other error of an agent's code ends only
    that agent, even `SystemExit`, a panic of an extension, or a cancellation of asyncio.
    """
    group = group_of(error)
    return isinstance(error, KeyboardInterrupt) if group is None else any(map(is_interrupt, group.exceptions))


def raise_interrupt(error: BaseException) -> None:
    """Raise an error from an agent's code again if it is Ctrl-C."""
    if is_interrupt(error):
        raise error


def text_of(error: BaseException) -> str:
    """Return the text of an error, or "" if its `__str__` raises: the class may be written by any user."""
    try:
        text = str(error)
        return text if type(text) is str else str.__str__(text)
    except BaseException as other:  # noqa: ASYNC103 -- not in trio: a value's own code raised it
        raise_interrupt(other)
        return ""


NEAREST_OF = 1000  # known words looked at: comparing takes microseconds each
LONGEST_WORD = 100  # characters: comparing takes the product of the lengths


class LmosActorsError(Exception):
    """Base of every exception this package raises on purpose. All of them can be pickled and copied."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would unpickle it from its text, which is not what the constructors here take
        return _remade, (type(self), self.args), self._remembered()

    def _remembered(self) -> dict[str, Any]:
        return self.__dict__


def _remade(cls: type[LmosActorsError], args: tuple[Any, ...]) -> LmosActorsError:
    error = cls.__new__(cls, *args)
    error.args = args
    return error


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, or None if no word is similar.

    A path or public name, such as `cellar/bell` or `cellar.bell`, is most like `bell` if it ends with that
    word. If no other word is similar, `base_url` is most like `url`, and `port_number` most like `port`.
    """
    if len(word) > LONGEST_WORD:
        return None
    words = [each for each in islice(known, NEAREST_OF) if len(each) <= LONGEST_WORD]
    below = (each for each in words if each.endswith((f"/{word}", f".{word}")))
    within = (each for each in words if each and f"_{each}_" in f"_{word}_")
    return next(chain(below, get_close_matches(word, words, n=1, cutoff=0.6), within), None)


def hint_at(word: str, known: Iterable[str], quote: str = "") -> str:
    """Return ", did you mean ...?" with the known word most like `word`, or "" if no word is similar.

    The word is quoted as in Python, or with `quote`.
    """
    near = nearest(word, known)
    if near is None:
        return ""
    return f", did you mean {f'{quote}{near}{quote}' if quote else repr(near)}?"


class AgentError(LmosActorsError):
    """A request failed: its answer is an error instead of a value."""


class NotFound(AgentError):
    """No such agent, child or affordance; `nearest` is the known name most like it, if any.

    `known`: the names among which `nearest` is sought, unless `near` gives it; the text puts `below` before
    it. `criteria`: what else was looked for, in words; `name` is empty if that is all. `remedy`: what helps.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        where: str = "",
        known: Iterable[str] = (),
        near: str | None = None,
        below: str = "",
        criteria: str = "",
        remedy: str = "",
    ) -> None:
        self.kind = kind
        self.name = name
        self.nearest = nearest(name, known) if near is None else near
        if criteria:
            criteria = f" ({criteria})" if name else f" with {criteria}"
        sought = f" {name!r}" if name or not criteria else ""
        place = f" on {where}" if where else ""
        hint = f", did you mean {below + self.nearest!r}?" if self.nearest else ""
        more = f"; {remedy}" if remedy else ""
        super().__init__(f"no {kind}{sought}{criteria}{place}{hint}{more}")


class InvalidInput(AgentError):
    """A value does not fit its declared type; `path` is its place in the input, such as `$.city`."""

    def __init__(self, message: str, path: str = "$") -> None:
        self.message = message
        self.path = path
        super().__init__(f"{message} - at {path}")


class SourceFailed(InvalidInput):
    """An input stream broke off: its source raised or sent an item of another type, or its caller is gone.

    Raised in the handler that iterates the stream. `stream` is the name of the parameter; `reason` is a text
    of at most 1,000 characters. If a handler does not catch the error, its run ends, but not its agent.
    """

    def __init__(self, stream: str, reason: str) -> None:
        self.stream = stream
        self.reason = reason if len(reason) <= REASON else f"{reason[:REASON]}…"
        super().__init__(f"the input stream {stream!r} broke off: {self.reason}", f"$.{stream}")


class ToolFailed(LmosActorsError):
    """A tool of a chat agent has not returned a result; the turn that used it may go on.

    `tool` is the tool's name. `reason` says why: the arguments were wrong, the tool raised, or the client
    that has it refused or did not answer in time. Any part of `reason` that is not Unicode is replaced.
    """

    def __init__(self, tool: str, reason: str) -> None:
        self.tool = tool
        self.reason = reason = reason.encode("utf-8", "replace").decode()
        super().__init__(f"the tool {tool!r} failed: {reason}")


class NotAllowed(AgentError):
    """The affordance exists, but does not allow the request, such as a write to a read-only property."""


class ActionFailed(AgentError):
    """The action ended in a failure that it declares; raise it in a handler. `output` is plain data.

    A text words the failure. An object has more, as `{"code": "full", "detail": "no seat left", "row": 7}`:
    `code` is for programs, `detail` (or `message`) for people, `status` the status over HTTP, 409 unless it
    is named; everything else is its `data`. Callers in this process and elsewhere get the same members.
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
        """The failure in words: the output if it is a text, else its member `detail` or `message`."""
        if isinstance(self.output, str):
            return self.output
        own: str | None = _member(self.output, "detail", str)
        message: str | None = _member(self.output, "message", str)
        return own if own is not None else message

    @property
    def status(self) -> int:
        """The status over HTTP: the member `status` of the output from 400 to 599, else 409.

        401 and 407 are replaced by 409, as they concern credentials, which an action does not handle.
        """
        status: int | None = _member(self.output, "status", int)
        known = status is not None and 400 <= status <= 599 and status not in (401, 407)
        return status if known and status is not None else self.STATUS

    @property
    def data(self) -> dict[str, Any]:
        """All other members of the output; empty if it is not an object."""
        used = ("code", "status", "detail" if _member(self.output, "detail", str) is not None else "message")
        return {name: value for name, value in _members(self.output).items() if name not in used}


def _members(output: object) -> dict[str, Any]:
    return cast("dict[str, Any]", output) if isinstance(output, dict) else {}


def _member(output: object, name: str, kind: type[Any]) -> Any:
    value = _members(output).get(name)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _failure_text(output: object) -> str:
    """Return the text of a failure: its code and its description, or else its data as JSON."""
    if output is None or isinstance(output, str):
        return "action failed" if output is None else output
    code: str | None = _member(output, "code", str)
    detail: str | None = _member(output, "detail", str)
    words: str | None = detail if detail is not None else _member(output, "message", str)
    if words is not None:
        return words if code is None else f"{code}: {words}"
    if code is not None:
        return code
    try:
        return json.dumps(output, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return "action failed"


class ActionCancelled(AgentError):
    """The invocation was cancelled on request; `reason` is the one given in the request."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason or "action cancelled")


class MailboxFull(AgentError):
    """The agent's mailbox was full, or dropped this message to make room for another.

    `share` is the number of seats that the asking peer had, if other peers wanted some too: then the peer
    with the most seats loses a request that has not begun. None if there was no other peer.

    `circle` has the waits of a deadlock that the message would be part of if it waited for a seat, in the
    words of `node.waiting_graph()`: at most 50, its own wait first. Empty if there is none.
    """

    def __init__(self, agent: str, size: int, share: int | None = None, circle: tuple[str, ...] = ()) -> None:
        self.agent, self.size, self.share, self.circle = agent, size, share, circle
        held = f"is full ({size})"
        if share is not None:
            held = f"is full ({size}, {share} of them this peer's, and others want some)"
        if circle:
            held = f"{held}, and to wait for a seat would be a deadlock: {'; '.join(circle)}"
        super().__init__(f"mailbox of {agent!r} {held}")


class WouldDeadlock(AgentError):
    """Waiting for this answer would close a circle of requests that wait for each other, a deadlock.

    Raised on a node with `circles="fail"`, at the request that would close the circle; the other requests
    continue. `circle` contains the waits in the words of `node.waiting_graph()`, each with its line, at most
    50. As with a cancelled call, the run of the request may have begun, but usually it has not.
    """

    def __init__(self, agent: str, affordance: str, circle: tuple[str, ...]) -> None:
        self.agent, self.affordance, self.circle = agent, affordance, circle
        waits = f": {'; '.join(circle)}" if circle else ""
        super().__init__(
            f"to wait for {affordance!r} of {agent!r} would be a deadlock{waits}. Send one way, "
            "raise the concurrency of an action, or ask with ref.within(seconds)"
        )


class AgentUnavailable(AgentError):
    """The agent is restarting, stopping, or gone; the request has not begun to run.

    `retry_in` is a hint in seconds when one is known.
    """

    started = False

    def __init__(self, agent: str, why: str = "not running", *, retry_in: float | None = None) -> None:
        self.agent, self.why, self.retry_in = agent, why, retry_in
        super().__init__(f"agent {agent!r} is unavailable: {why}")


class _Located(Protocol):
    """An object with a path in a tree."""

    @property
    def path(self) -> str: ...


REASON = 1000  # characters of an exit reason in an answer: each agent that passes one on adds to it


class AgentDied(AgentError):
    """The agent ended before it answered.

    `reason` is the exit reason as text, 1,000 characters of it at most. `started` is whether the request
    had begun to run: if not, it is safe to repeat it.
    """

    def __init__(self, reason: str, *, started: bool, agent: str | _Located = "") -> None:
        self._agent = agent
        self.reason = reason if len(reason) <= REASON else f"{reason[:REASON]}…"
        self.started = started
        super().__init__(reason)

    def _remembered(self) -> dict[str, Any]:
        return {**self.__dict__, "_agent": self.agent}

    # Both are made when read: where agents crash by the thousand, most are never read.

    @property
    def agent(self) -> str:
        """The path of the agent, "" if it is not known."""
        agent = self._agent
        return agent if isinstance(agent, str) else agent.path

    def __str__(self) -> str:
        who = f"agent {self.agent}" if self.agent else "agent"
        return f"{who} died ({self.reason}), request {'had begun' if self.started else 'had not begun'}"


class LinkedAgentDied(AgentError):
    """An agent that a task was linked to has ended, for a reason other than `normal`.

    `agent`: its path. `incarnation`: the number of the life that ended. `reason`: its `ExitReason`; the
    exception in that, if any, is also the `__cause__`.
    """

    def __init__(self, agent: str, incarnation: int, reason: Any) -> None:
        self.agent, self.incarnation = agent, incarnation
        self.reason = reason
        super().__init__(f"linked agent {agent!r} has ended: {reason}")


class DeadlineExceeded(AgentError, TimeoutError):
    """A call through `ref.within(seconds)` was not answered in time; its run is cancelled.

    `why` is what `ref.ready()` waited for, or what kept a request from being sent; "" if nothing did.
    """

    def __init__(self, agent: str, seconds: float, *, why: str = "", ready: bool = False) -> None:
        self.agent, self.seconds, self.why = agent, seconds, why
        what = f"{agent!r} was not ready" if ready else f"no answer from {agent!r}"
        super().__init__(f"{what} within {seconds:g} s{f': {why}' if why else ''}")


class OutcomeUnknown(AgentError):
    """The connection ended after the request was sent and before its answer: it may have run or not."""

    def __init__(self, agent: str, why: str = "the connection ended before the answer") -> None:
        self.agent = agent
        self.why = why
        super().__init__(f"what became of the request to {agent!r} is unknown: {why}")


class KeyReused(AgentError):
    """The key of a request is taken by one of another action or input, or one whose answer could not be kept.

    This request has not begun to run. `key` is the one given to `ref.retrying(key=...)`.
    """

    started = False

    def __init__(self, agent: str, key: str, why: str) -> None:
        self.agent = agent
        self.key = key
        self.why = why
        super().__init__(f"{agent!r} has the key {key!r} already: {why}")


class Unauthorized(AgentError):
    """The request had no valid credentials; it has not begun to run."""


class Forbidden(AgentError):
    """The client is known, but may not do this; the request has not begun to run."""


class RateLimited(AgentError):
    """The client has made too many requests; this one has not begun to run.

    `retry_in` is how many seconds to wait, None if that is not known.
    """

    started = False

    def __init__(self, retry_in: float | None = None) -> None:
        self.retry_in = retry_in
        hint = "" if retry_in is None else f", retry in {retry_in:g} s"
        super().__init__(f"too many requests{hint}")


class ProtocolError(LmosActorsError):
    """A received message, or a message to be sent, breaks the protocol."""


class LocalProtocolError(ProtocolError):
    """This side misused the protocol: a bug in this program."""


class _Problem(Protocol):
    """The content of an `error` message."""

    @property
    def title(self) -> str: ...
    @property
    def detail(self) -> str: ...


class RemoteProtocolError(ProtocolError, AgentError):
    """The peer answered a request with a `problem` that no other class represents."""

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        super().__init__(f"{problem.title}: {problem.detail}")


class StateMismatch(LmosActorsError):
    """The stored state does not fit the class of a durable agent; `key` is the key of that state.

    Nothing is overwritten: the agent does not start until its class, or the state, has been changed.
    """

    def __init__(self, key: str, why: str) -> None:
        self.key = key
        super().__init__(f"the stored state of {key!r} cannot be given back: {why}")


class SupervisionError(LmosActorsError):
    """A supervision tree could not start or continue, or it lacks a requested part."""

    is_permanent: bool = False


class NameTaken(SupervisionError):
    """The supervisor already has a child with that name, or a running agent keeps its state at that key.

    `name` is the name or the key; `holder` is the path of the supervisor, or of the agent that has the key.
    """

    def __init__(self, name: str, holder: str, *, wanted_by: str = "") -> None:
        self.name = name
        self.holder = holder
        if wanted_by:
            text = (
                f"{wanted_by!r} cannot keep its state at the key {name!r}: {holder!r} runs and keeps its own "
                "there; give one of them another key, ChildSpec(key=...)"
            )
        else:
            text = f"{holder!r} already has a child named {name!r}"
        super().__init__(text)


class IdTaken(SupervisionError):
    """An agent of the node already has that id; `agent` is its path."""

    def __init__(self, id: str, agent: str) -> None:
        self.id = id
        self.agent = agent
        super().__init__(f"{agent!r} already has the id {id!r}")


class WrongState(SupervisionError):
    """The child is not in the state that the call needs; `state` is its current state."""

    def __init__(self, path: str, state: str, needs: str) -> None:
        self.path = path
        self.state = state
        super().__init__(f"{path} is {state}; {needs}")


class StartFailed(SupervisionError):
    """A child could not be started; the original error is the `__cause__`. `path` is its path in the tree.

    `is_permanent` means that another try fails, too, until a person corrects the cause: the configuration is
    wrong, the stored state does not fit, or the class cannot be called with its arguments.
    """

    def __init__(self, path: str, message: str = "", *, is_permanent: bool = False) -> None:
        self.path = path
        self.is_permanent = is_permanent
        super().__init__(f"{path} could not start" + (f": {message}" if message else ""))


class StopFailed(SupervisionError):
    """A child that was stopped raised an exception as it ended; that exception is the `__cause__`."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} has stopped, but raised while it ended")


class RestartIntensityExceeded(SupervisionError):
    """Children ended more often than `max_restarts` in `max_seconds` allows.

    `path` is the supervisor's path in the tree. `causes` are the last 100 exceptions within the window,
    oldest first; they are also grouped as the `__cause__`.
    """

    def __init__(
        self, path: str, max_restarts: int, max_seconds: float, causes: tuple[BaseException, ...] = ()
    ) -> None:
        self.path, self.causes = path, causes
        self.max_restarts, self.max_seconds = max_restarts, max_seconds
        super().__init__(f"{path}: more than {max_restarts} restarts in {max_seconds:g} s")
        if causes:
            self.__cause__ = BaseExceptionGroup(f"what ended the children of {path}", causes)


class TransportError(LmosActorsError):
    """A connection to another process could not be made, or could not continue."""


class ConnectFailed(TransportError):
    """No connection to `url` could be made, or the server refused it; `why` is what went wrong.

    `status` is the HTTP status if something answered. `certificate` is "server" if the server's certificate
    was refused here, and "client" if the server refused or missed the client's certificate. `leads_here`
    means that another host named a URL that leads to this machine (`local=True` of `node.consume` allows
    that). `retry_in` is the number of seconds after which the server asks to try again, or None.
    """

    def __init__(
        self,
        url: str,
        why: str,
        *,
        status: int | None = None,
        certificate: Literal["server", "client"] | None = None,
        leads_here: bool = False,
        retry_in: float | None = None,
    ) -> None:
        self.url, self.why = url, why
        self.status, self.leads_here, self.retry_in = status, leads_here, retry_in
        self.certificate: Literal["server", "client"] | None = certificate
        super().__init__(f"cannot connect to {url}: {why}")

    def at(self, url: str) -> ConnectFailed:
        """Return the same failure under another URL of the same server."""
        return ConnectFailed(
            url,
            self.why,
            status=self.status,
            certificate=self.certificate,
            leads_here=self.leads_here,
            retry_in=self.retry_in,
        )


class ConnectionLost(TransportError):
    """The other side ended the connection, or broke the protocol, before the connection was usable."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"connection lost: {why}")


class StoreFailed(LmosActorsError):
    """A store of kept state could not be opened, read or written.

    `store` names the store, by the path of its file if it has one. `why` is what went wrong, and `way_out` is
    what to do. Data of a failed commit cannot be read; it can reappear only after a crash at that moment.
    """

    WAY_OUT = "look at the disk and at the log of the system"

    def __init__(self, store: str, why: str, way_out: str = "") -> None:
        self.store, self.why = store, why
        self.way_out = way_out or self.WAY_OUT
        super().__init__(f"the store {store} failed: {why}; {self.way_out}")


class StoreInUse(StoreFailed):
    """Another process, or another part of this one, has the store open."""

    WAY_OUT = "close it there, or name another store here"


class StoreForeign(StoreFailed):
    """The file is not a store: it belongs to another program, or is not a database. It is not changed."""

    WAY_OUT = "name another file"


class StoreNewer(StoreFailed):
    """The store was written by a newer version of this package. It is not changed."""

    WAY_OUT = "use that version, or name another file"


class StoreDamaged(StoreFailed):
    """The store has lost content, or its content is not what was written."""

    WAY_OUT = "keep a copy of the file, and go on with a backup of it"


class StoreFull(StoreFailed):
    """The disk has no room for a commit, which is tried again and succeeds once there is room."""

    WAY_OUT = "make room on the disk"


class StoreInaccessible(StoreFailed):
    """The file cannot be made, read or written: no such folder, or no permission."""

    WAY_OUT = "name another file, or allow this one"


class StoreReplaced(StoreFailed):
    """The file was removed or replaced while it was open: data written to it would be lost at the end."""

    WAY_OUT = "put it back, or open the store again"


class StoreLost(StoreFailed):
    """A server has lost commits that it had confirmed: it, or a replica in its place, has older content.

    What was computed from the lost content is wrong, so the node that meets this ends. Or the server does
    not have the store that `id` in its URL names: it was emptied, or is another server.
    """

    WAY_OUT = "look at the server and its log; a node that is started again goes on with what is left"


class StoreFenced(StoreFailed):
    """Another writer has opened the store since, so this writer may no longer write to it."""

    WAY_OUT = "end one of the two writers"


class WriteConflict(LmosActorsError):
    """A write expected a value other than the one at `space` and `key`; nothing of its batch is kept."""

    def __init__(self, space: str, key: str) -> None:
        self.space = space
        self.key = key
        super().__init__(f"the store has another value at {key!r} in {space!r} than this write expects")


class LeaseHeld(LmosActorsError):
    """Another node holds the lease of an agent's key, so the agent does not start here.

    `holder` is that node, by its URL if it has one, and `epoch` is the number of its lease. `until` is when
    the lease ends unless it is renewed, in UTC by the holder's clock.
    """

    def __init__(self, key: str, holder: str, epoch: int, until: datetime) -> None:
        self.key = key
        self.holder = holder
        self.epoch = epoch
        self.until = until
        end = f"{until:%Y-%m-%d %H:%M:%S} UTC"
        super().__init__(
            f"{holder} holds the lease of the key {key!r} (epoch {epoch}), until {end} unless it is renewed: "
            "stop the agent there, or wait until it has ended"
        )


class LeaseLost(LmosActorsError):
    """The node has lost the lease of an agent's key, so the agent has ended here.

    Another node may run it. `epoch` is the number of the lease. Uncommitted work of the agent is lost. The
    end does not count as a restart: the agent waits until the node can have the lease again.
    """

    def __init__(self, key: str, epoch: int, why: str) -> None:
        self.key = key
        self.epoch = epoch
        self.why = why
        super().__init__(f"the lease of the key {key!r} (epoch {epoch}) is lost: {why}")


class Deadlocked(LmosActorsError):
    """On virtual time nothing can ever happen again, or requests wait for each other in a circle.

    In the first case the body of the simulation or test ends, in the second the agents' node, at once.
    """


class ForbiddenCall(LmosActorsError):
    """Code in a simulated world called something outside of that world.

    The text names the line of the user's code, not the line of a library that it calls, and the solution.
    """


class WrongEventLoop(LmosActorsError):
    """Code of an agent needed the event loop of asyncio, but agents run on trio.

    The text names the line of the user's code, and the solutions; the original error is the `__cause__`.
    """


class WorkerDied(LmosActorsError):
    """The process that ran a `self.to_process` function ended before it answered, or could not start.

    It is not known how far the function got. If anything is known about the cause, it is the `__cause__`.
    """


class ConfigError(LmosActorsError):
    """A file or an argument is wrong; `path` is the place of the mistake, such as `weather.yaml:12:5`."""

    def __init__(self, message: str, path: str = "") -> None:
        self.message = message
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class DeadlockWarning(RuntimeWarning):
    """Requests wait for each other in a circle that nothing in it ends. The text shows all waits and lines.

    Issued in real time, once in a node for the same lines; with `circles="fail"` the request that would close
    the circle fails with WouldDeadlock instead, and on virtual time the node ends with Deadlocked.
    """


class SlowTurnWarning(RuntimeWarning):
    """A `def` turn or a tool took longer than 100 ms, or other code has blocked the event loop for 0.6 s."""


class UnkeptRunWarning(RuntimeWarning):
    """A run of a durable agent has been open for longer than 1 s, and its state is kept only when it ends.

    Issued once in a node for each action of a class with `durable=True` and `serial=True`.
    """


class RepeatedCallWarning(RuntimeWarning):
    """A turn of a chat agent makes a request that would be carried out twice if the turn were resumed.

    Issued once in a node for each action and each class that requests it, before the turn has recorded
    anything. With `strict_resume=True` the request is refused with NotAllowed instead.
    """


# --- raising collected exceptions as one group, without duplicates


def raise_together(errors: list[BaseException], what: str) -> None:
    """Raise collected errors: a single one as itself, several as a group named `what`. Empties the list.

    Duplicates are left out: every KeyboardInterrupt but the first, a StartFailed whose cause is in the list,
    and a group that contains nothing but such errors.
    """
    distinct = list({id(error): error for error in errors}.values())
    again = [error for error in distinct if isinstance(error, KeyboardInterrupt)][1:]
    distinct = [error for error in distinct if error not in again]
    alone = {id(error) for error in distinct if not isinstance(error, BaseExceptionGroup)}
    distinct = [error for error in distinct if not _is_duplicate(error, alone)]
    if not distinct:
        return
    try:
        if len(distinct) == 1:
            raise distinct[0]
        raise BaseExceptionGroup(what, distinct)
    finally:
        distinct.clear()
        errors.clear()


def _is_duplicate(error: BaseException, alone: set[int]) -> bool:
    if isinstance(error, StartFailed) and id(error.__cause__) in alone:
        return True  # a cause that is no Exception, such as SystemExit, is in the list itself
    return group_of(error) is not None and all(id(leaf) in alone for leaf in _leaves(error))


def _leaves(error: BaseException) -> list[BaseException]:
    group = group_of(error)
    if group is None:
        return [error]
    return [leaf for part in group.exceptions for leaf in _leaves(part)]


BROKEN_CODE: Final = (ImportError, SyntaxError, TypeError, NameError, AttributeError)
"""What code raises if it is wrong under all circumstances."""


def is_permanent(error: BaseException | None) -> bool:
    """Return whether each further start fails with this error, too, until somebody corrects what is wrong.

    So it is with a wrong configuration, unless the system refused what may be free later, such as a port.
    """
    while error is not None:
        if isinstance(error, SupervisionError) and error.is_permanent:
            return True
        if isinstance(error, ConfigError | StateMismatch):
            return not isinstance(error.__cause__, OSError)
        error = error.__cause__
    return False
