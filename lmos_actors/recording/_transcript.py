"""The records of a recording: requests, answers and other occurrences, in the form of message logs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._core import HIDDEN

from ._redaction import Redaction
from ._things import Thing, Things

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._log import RecordingFile

USER: Final = "user"
"""The name of the recorded client."""

MISSING: Final[Any] = object()
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Transcript:
    """The writer of all records of one recording. It hides the secrets whose text is known.

    `note` is called with remarks that people should see at once.
    """

    def __init__(self, file: RecordingFile, note: Callable[[str], None]) -> None:
        self.redaction = Redaction()
        self.things = Things(self.redaction)
        self.requests = 0
        """Requests that were written."""
        self.unread = 0
        """Frames and bodies that could not be read, or were too long."""
        self._file = file
        self._note = note
        self._unknown: set[str] = set()
        self._seen: set[str] = set()

    def _record(self, kind: str, agent: str, **fields: Any) -> None:
        shown = {name: self.redaction.value(value) for name, value in fields.items()}
        self._file.record(kind, self.redaction.text(agent), **shown)

    # ---- agents

    def of_thing(self, thing_id: str) -> tuple[str, Thing | None]:
        """Return the name of a thing, and the thing itself if its description is known, else None."""
        thing = self.things.find(thing_id)
        if thing is not None:
            return thing.name, thing
        if thing_id not in self._unknown and len(self._unknown) < 20:  # so many are named
            self._unknown.add(thing_id)
            shown = self.redaction.text(thing_id)
            self._note(
                f"no description of {shown}: its values are written as {HIDDEN}; --description has one"
            )
        return self.things.name_of(thing_id), None

    def begin(self, agent: str) -> None:
        """Record that an agent exists, unless that was recorded before."""
        if agent not in self._seen:
            self._seen.add(agent)
            self._record("started", agent, incarnation=1)

    def sent(
        self,
        agent: str,
        verb: str,
        affordance: str,
        given: Any = MISSING,
        sender: str = USER,
        more: Mapping[str, Any] = NOTHING,
    ) -> int:
        """Record that a request was sent and has begun; return its number. `more` are further fields."""
        self.begin(agent)
        self.requests += 1
        number = self.requests
        fields: dict[str, Any] = dict(more) if given is MISSING else {"input": given, **more}
        self._record(
            "sent",
            agent,
            affordance=affordance,
            id=number,
            trace=number,
            verb=verb,
            **fields,
            **{"from": sender},
        )
        self._record("delivered", agent, affordance=affordance, id=number)
        return number

    def item(self, agent: str, affordance: str, number: int, value: Any) -> None:
        """Record one item of an answer."""
        self._record("item", agent, affordance=affordance, id=number, value=value)

    def progress(self, agent: str, affordance: str, number: int, value: Any) -> None:
        """Record the progress of a request."""
        self._record("progress", agent, affordance=affordance, id=number, progress=value)

    def answered(
        self, agent: str, affordance: str, number: int, value: Any, more: Mapping[str, Any] = NOTHING
    ) -> None:
        """Record the answer to a request; `more` are further fields."""
        self._record("answered", agent, affordance=affordance, id=number, value=value, **more)

    def failed(self, agent: str, affordance: str, number: int, error: Exception, output: Any) -> None:
        """Record the failure of a request; `output` is the action's own report of the failure, if any."""
        text = f"{type(error).__name__}: {error}"
        fields = {} if output is None else {"output": output}
        self._record("answered", agent, affordance=affordance, id=number, error=text, **fields)

    def cancelled(self, agent: str, affordance: str, number: int) -> None:
        """Record that a request was cancelled."""
        self._record("cancelled", agent, affordance=affordance, id=number)

    def event(self, agent: str, event: str, data: Any) -> None:
        """Record an event of an agent."""
        self.begin(agent)
        self._record("event", agent, event=event, data=data)

    def changed(self, agent: str, name: str, value: Any) -> None:
        """Record a new value of a property."""
        self.begin(agent)
        self._record("changed", agent, property=name, value=value)

    # ---- connections

    def connected(self, connection: int, target: str, status: int, speaks: str | None) -> None:
        """Record a client's request for a WebSocket, and the status of the server's answer."""
        fields = {} if speaks is None else {"speaks": speaks}
        shown = self.redaction.target(target)
        self._record("connected", "", connection=connection, target=shown, status=status, **fields)

    def frame(self, connection: int, sender: str, content: Any, size: int) -> None:
        """Record a frame of `client` or `server`. `content` is MISSING if only the size is recorded."""
        fields: dict[str, Any] = {"bytes": size} if content is MISSING else {"data": content}
        self._record("frame", "", connection=connection, **fields, **{"from": sender})

    def closed(self, connection: int, by: str, code: int | None, reason: str) -> None:
        """Record the end of a connection. Without a code it was cut off."""
        self._record("closed", "", connection=connection, by=by, code=code, reason=reason)

    def asked(self, method: str, target: str, status: int | None) -> None:
        """Record a request over HTTP, with the status of its answer, or None without an answer."""
        self._record("http", "", method=method, target=self.redaction.target(target), status=status)
