"""The audit log: who requested which operation, when, and with what outcome.

The log is kept in the node's store, or in memory if there is no store; only the last entries are kept. An
operation neither waits for the log nor fails with it, as a node whose store fails may need an operation.
Refused operations are listed apart, in memory, so that nobody can displace entries by requesting forbidden
operations. An entry has `kept: false` if the store does not have it in the form that is shown.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from functools import partial
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from lmos_actors._core import printable
from lmos_actors.errors import StoreFailed

from ._node_views import decisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.actors import Runtime
    from lmos_actors.supervision import Supervisor

    from ._merge_patch import State
    from ._sight import Sight
    from ._trouble_views import NoArguments

SPACE: Final = "live-audit"
REFUSALS: Final = 100
SHOWN: Final = 200
CHARACTERS: Final = 500

EntryState: TypeAlias = Literal["under way", "done", "failed", "refused"]


class AuditEntry(msgspec.Struct, kw_only=True):
    """One operation. `who` is the name of the viewer, "" for a viewer without a name."""

    key: str
    node: str
    time: float
    who: str
    what: str
    path: str
    state: EntryState = "under way"
    outcome: str = ""
    """In words."""
    ended: float | None = None


class Audit:
    """The audit log of one node; `node` is the node's name among nodes with the same store.

    The last `most` entries are kept. `noted` is called with the entry of each operation that has ended; it
    must not block.
    """

    def __init__(self, rt: Runtime, node: str, noted: Callable[[AuditEntry], None], most: int) -> None:
        self._most = most
        self._rt = rt
        self.node = node
        self._noted = noted
        self._entries: OrderedDict[str, AuditEntry] = OrderedDict()
        self._refused: deque[AuditEntry] = deque(maxlen=REFUSALS)
        self._unkept: dict[str, bytes] = {}  # entries as they are to be stored, and are not yet
        self._is_loaded = rt.keeping is None

    async def load(self) -> None:
        """Read the stored entries, once; if that fails, the log continues without them."""
        if self._is_loaded or self._rt.keeping is None:
            return
        self._is_loaded = True
        found: list[AuditEntry] = []
        with suppress(StoreFailed):
            for _, value in await self._rt.keeping.writer.records(SPACE):
                with suppress(msgspec.DecodeError, UnicodeDecodeError):  # others may write there, too
                    found.append(msgspec.json.decode(value, type=AuditEntry))
        for entry in sorted([*found, *self._entries.values()], key=_by_time):
            self._entries[entry.key] = entry
            self._entries.move_to_end(entry.key)
        self._prune()

    def begin(self, who: str, what: str, path: str) -> AuditEntry:
        """Record that an operation begins."""
        entry = self._entry(who, what, path)
        self._entries[entry.key] = entry
        self._keep(entry)
        self._prune()
        return entry

    def end(self, entry: AuditEntry, state: EntryState, outcome: str) -> None:
        """Record the outcome of an operation that has ended."""
        entry.state, entry.outcome = state, printable(outcome[:CHARACTERS], keep="\n")
        entry.ended = self._now()
        self._keep(entry)
        self._noted(entry)

    def refuse(self, who: str, what: str, path: str, why: str) -> None:
        """Record that somebody requested an operation without the right to it."""
        entry = self._entry(who, what, path)
        entry.state, entry.outcome = "refused", why[:CHARACTERS]
        self._refused.append(entry)

    @property
    def has_store(self) -> bool:
        """Whether the node has a store."""
        return self._rt.keeping is not None

    def is_kept(self, entry: AuditEntry) -> bool:
        """Return whether the store contains an entry in its current form."""
        return self.has_store and entry.state != "refused" and entry.key not in self._unkept

    def newest(self) -> list[AuditEntry]:
        """Return the last entries, the newest first."""
        few = [*islice(reversed(self._entries.values()), SHOWN), *self._refused]
        return sorted(few, key=_by_time, reverse=True)[:SHOWN]

    def _entry(self, who: str, what: str, path: str) -> AuditEntry:
        now = self._now()
        key = f"{now:017.6f}-{self._rt.entropy.new_id()}"  # in the order of time, for all nodes of a store
        return AuditEntry(key=key, node=self.node, time=now, who=who, what=what, path=path)

    def _now(self) -> float:
        return self._rt.entropy.now().timestamp()

    def _keep(self, entry: AuditEntry) -> None:
        keeping = self._rt.keeping
        if keeping is not None:
            from lmos_actors.persistence import Put

            written = self._unkept[entry.key] = msgspec.json.encode(entry)
            done = partial(self._written, entry.key, written)
            with suppress(StoreFailed):
                keeping.writer.submit([Put(SPACE, entry.key, written)], done=done)

    def _written(self, key: str, written: bytes, error: Exception | None) -> None:
        if error is None and self._unkept.get(key) is written:
            del self._unkept[key]

    def _prune(self) -> None:
        while len(self._entries) > self._most:
            key, _ = self._entries.popitem(last=False)
            self._unkept.pop(key, None)
            if self._rt.keeping is not None:
                from lmos_actors.persistence import Delete

                with suppress(StoreFailed):
                    self._rt.keeping.writer.submit([Delete(SPACE, key)])


def _by_time(entry: AuditEntry) -> tuple[float, str]:
    return entry.time, entry.key


def audit_state(root: Supervisor, audit: Audit, sees: Sight, _arguments: NoArguments) -> State:
    """Return the state of the view: the last operations and decisions by key, the newest first.

    The agent `approvals` stores the decisions. The text of a decision about an agent is shown only to viewers
    who may inspect the agent.
    """
    last = nlargest(SHOWN, decisions(root), key=_by_decision)
    found = [(entry.time, entry.key, _row(audit, entry)) for entry in audit.newest()]
    found += [(each.decided, each.id, _decision(audit, sees, each)) for each in last]
    found.sort(key=itemgetter(0, 1), reverse=True)
    rows = {key: row for _, key, row in found[:SHOWN]}
    return {"order": list(rows), "rows": rows}


def _row(audit: Audit, entry: AuditEntry) -> State:
    members = {**msgspec.structs.asdict(entry), "kept": None if audit.is_kept(entry) else False}
    return {name: value for name, value in members.items() if value is not None and name != "key"}


def _decision(audit: Audit, sees: Sight, approval: Any) -> State:
    """Return a decision in the form of an operation on the agent that asked for it."""
    return {
        **({} if audit.has_store else {"kept": False}),
        "node": audit.node,
        "time": approval.decided,
        "who": approval.by or "",
        "what": "approve" if approval.state == "approved" else "refuse",
        "path": approval.agent,
        "state": "done",
        "outcome": approval.text[:CHARACTERS] if sees(approval.agent) else "",
    }


def _by_decision(approval: Any) -> tuple[float, str]:
    return approval.decided, approval.id
