"""History: the messages of a relay, for agents that may read them.

A command of the type `command` with one of the payloads

- `{"command": "history", "limit": N, "since": TS}`: the newest messages, or the first after `since`;
- `{"command": "replay", "since_message_id": ID}`: the first after a message;
- `{"command": "search", "query": TEXT, "limit": N}`: the newest messages with all these words

is answered with `command_result`, whose payload is `{"command", "messages", "more"}`: frames as they were
passed on, oldest first, and whether there are more. An agent gets broadcasts, and messages that it has sent
or received. A message with `"no_store": true` is not stored. The history is limited by number, bytes and age.

No agent sees a message in the history before it is stored. An answer waits for all writes that are open when
the question arrives, so an agent finds its own earlier messages. A message that could not be stored is not in
the history, and its receipt reports this. Without a store the history does not outlive the hub, and the
answers have the member `"kept": false`.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import msgspec
from msgspec import Raw

from .._extension import HubExtension, HubRefusal
from .._frames import EVERYBODY, value_of
from ._text_index import TextIndex, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .._extension import ExtensionStore, Fate, HubControl, HubFrame, Records
    from .._frames import Members

MOST: Final = 500
"""Limit on the messages of one answer."""

ANSWER_BYTES: Final = 48 << 10
"""Limit on the bytes of the messages in one answer, so that it fits into a frame of 64 KiB."""

FOUND: Final = 2_000
"""Limit on the messages that one search of the index returns."""


class Kept(msgspec.Struct, frozen=True):
    """A message in the history."""

    id: str
    sender: str
    to: tuple[str, ...]
    ts: int
    frame: Raw

    def is_for(self, agent: str) -> bool:
        """Return whether an agent may read the message."""
        return EVERYBODY in self.to or agent == self.sender or agent in self.to


@attrs.frozen(kw_only=True)
class HistoryOptions:
    """The bounds of a history: messages, bytes, and seconds of age."""

    messages: int = 10_000
    bytes: int = 16 << 20
    seconds: float = 7 * 86_400.0


class History(HubExtension):
    """The extension `history`; see the module docstring."""

    name = "history"

    def __init__(self, options: HistoryOptions | None = None) -> None:
        self.options = options or HistoryOptions()
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._bytes = 0
        self._next = 0
        self._index = TextIndex()

    def start(self, hub: HubControl, store: ExtensionStore, records: Records) -> None:
        """Start with the messages that were stored before."""
        super().start(hub, store, records)
        for key, value in records:
            self._add(int(key), msgspec.json.decode(value, type=Kept))
        self._bound()

    # ---- keeping

    def done(self, frame: HubFrame, fate: Fate) -> None:
        """Store a message that was passed on."""
        if fate.outcome != "passed" or frame.value("no_store") is True:
            return
        kept = Kept(frame.id, frame.sender, tuple(frame.to), frame.ts, Raw(frame.data))
        number = self._next
        self._next += 1
        self.store.write({_key(number): msgspec.json.encode(kept)}, partial(self._written, number, kept))

    def _written(self, number: int, kept: Kept) -> None:
        self._add(number, kept)
        self._bound()

    def _add(self, number: int, kept: Kept) -> None:
        self._kept[number] = kept
        self._numbers[kept.id] = number
        self._bytes += len(kept.frame)
        self._next = max(self._next, number + 1)
        self._index.add(number, _text_in(kept))

    def _bound(self) -> None:
        """Forget the oldest messages until the history is within its limits."""
        options, gone = self.options, dict[str, None]()
        oldest = self.hub.now() - int(options.seconds * 1_000)
        while self._kept:
            number, kept = next(iter(self._kept.items()))
            is_within = len(self._kept) <= options.messages and self._bytes <= options.bytes
            if is_within and kept.ts >= oldest:
                break
            del self._kept[number], self._numbers[kept.id]
            self._bytes -= len(kept.frame)
            self._index.remove(number)
            gone[_key(number)] = None
        if gone:
            self.store.write(gone)

    # ---- asking

    def command(self, frame: HubFrame) -> bool:
        """Answer a query of the history."""
        payload = frame.value("payload")
        if frame.type != "command" or not isinstance(payload, dict):
            return False
        asked = cast("dict[str, Any]", payload)
        name = asked.get("command")
        if name not in ("history", "replay", "search"):
            return False
        limit = asked.get("limit", 50)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise HubRefusal("invalid_message", "`limit` is a number above 0")
        self.when_settled(partial(self._answered, frame, name, asked, min(limit, MOST)))
        return True

    def _answered(self, frame: HubFrame, name: str, asked: dict[str, Any], limit: int) -> None:
        self._bound()
        try:
            found, more = self._answer(name, asked, frame.sender, limit)
        except HubRefusal as refusal:
            if self.hub.handled is frame:
                raise
            error = {"code": refusal.code, "message": str(refusal)}
            self.hub.answer(frame.sender, "error", error)
            return
        answer = {"command": name, "messages": [each.frame for each in found], "more": more}
        if not self.store.is_lasting:
            answer["kept"] = False
        self.hub.answer(frame.sender, "command_result", answer, frame.ref or None)

    def _answer(self, name: str, asked: dict[str, Any], agent: str, limit: int) -> tuple[list[Kept], bool]:
        if name == "search":
            return self._searched(asked.get("query"), agent, limit)
        if name == "replay":
            id = asked.get("since_message_id")
            number = self._numbers.get(id) if isinstance(id, str) else None
            if number is None:
                raise HubRefusal("invalid_message", "`since_message_id` is no message that is kept")
            numbers = dropwhile(lambda each: each <= number, self._kept)  # numbers of lost ones are missing
            behind = (self._kept[each] for each in numbers)
            return _fitting(self._visible(behind, agent), limit)
        since = asked.get("since")
        if since is None:
            found, more = _fitting(self._visible(reversed(self._kept.values()), agent), limit)
            return found[::-1], more
        if not isinstance(since, int | float):
            raise HubRefusal("invalid_message", "`since` is Unix time in milliseconds")
        later = (each for each in self._kept.values() if each.ts > since)
        return _fitting(self._visible(later, agent), limit)

    def _searched(self, query: Any, agent: str, limit: int) -> tuple[list[Kept], bool]:
        if not isinstance(query, str):
            raise HubRefusal("invalid_message", "`query` is a text")
        numbers = sorted(number for number, _ in self._index.search(query, every=True, limit=FOUND))
        newest = (self._kept[number] for number in reversed(numbers))
        found, more = _fitting(self._visible(newest, agent), limit)
        return found[::-1], more

    def best(self, query: str, agent: str, limit: int) -> list[tuple[Kept, float]]:
        """Return the messages that best match a query, and their scores; `semantic` calls this."""
        scored = self._index.search(query, every=False, limit=FOUND)
        found = ((self._kept[number], score) for number, score in scored)
        return list(islice((each for each in found if each[0].is_for(agent)), limit))

    @staticmethod
    def _visible(messages: Iterable[Kept], agent: str) -> Iterator[Kept]:
        return (each for each in messages if each.is_for(agent))


def _fitting(messages: Iterator[Kept], limit: int) -> tuple[list[Kept], bool]:
    """Return the first messages that fit into one answer, and whether there are more."""
    found: list[Kept] = []
    size = 0
    for each in messages:
        size += len(each.frame)
        if len(found) == limit or (found and size > ANSWER_BYTES):
            return found, True
        found.append(each)
    return found, False


def _text_in(kept: Kept) -> str:
    """Return the text of a message, or "" for an unreadable payload, such as a huge number."""
    members: Members = msgspec.json.decode(kept.frame, type=dict[str, Raw])
    try:
        return text_of(value_of(members, "payload"))
    except ValueError:
        return ""


def _key(number: int) -> str:
    return f"{number:016}"
