"""Semantic queries: which agents know about a subject, and which messages were about it.

- A message of the type `query` to the relay, its payload a text or `{"query": TEXT, "limit": N}`, is answered
  with `query_result`: `{"agents": [{"agent", "score"}], "messages": [{"score", "message"}]}`, best first.
  Agents are found by their newest `discovery` message. Messages are found in the history, if the hub has one
  and the asking agent may read them. Scores are BM25: larger is better, and scores of different answers
  cannot be compared.
- `{"command": "semantic_subscribe", "keywords": [WORDS]}`, as a `command`, subscribes to keywords: a
  broadcast with a member `keywords` goes only to agents that are subscribed to one of its words. An agent's
  keywords replace its former ones, and are kept until it leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .._extension import HubExtension, HubRefusal
from ._history import History
from ._text_index import TextIndex, text_of

if TYPE_CHECKING:
    from .._extension import ExtensionStore, Fate, HubControl, HubFrame, Records

AGENTS: Final = 10_000
"""Limit on the agents whose discovery message is kept: those that sent one last."""

MOST: Final = 50
KEYWORDS: Final = 64
LONGEST: Final = 64
"""Limit on the characters of a keyword."""

ANSWER_BYTES: Final = 40 << 10


class _Discovery(msgspec.Struct, frozen=True):
    agent: str
    text: str


class Semantic(HubExtension):
    """The extension `semantic`; see the module docstring."""

    name = "semantic"

    def __init__(self) -> None:
        self._index = TextIndex()
        self._known: OrderedDict[str, int] = OrderedDict()  # agents to the numbers of their texts
        self._agents: dict[int, str] = {}
        self._next = 0
        self._keywords: dict[str, frozenset[str]] = {}

    def start(self, hub: HubControl, store: ExtensionStore, records: Records) -> None:
        """Start with the discovery messages that were stored before."""
        super().start(hub, store, records)
        for key, value in records:
            self._written(int(key), msgspec.json.decode(value, type=_Discovery))

    def left(self, agent: str) -> None:
        """Forget the keywords of an agent."""
        self._keywords.pop(agent, None)

    # ---- discovery messages

    def done(self, frame: HubFrame, fate: Fate) -> None:
        """Store the text of a `discovery` message that an agent has sent to everybody."""
        if frame.type != "discovery" or fate.outcome != "passed" or not frame.is_broadcast:
            return
        found = _Discovery(frame.sender, f"{frame.sender} {text_of(frame.value('payload'))}")
        number = self._next
        self._next += 1
        self.store.write({_key(number): msgspec.json.encode(found)}, partial(self._written, number, found))

    def _written(self, number: int, found: _Discovery) -> None:
        """Index a stored description, in place of the agent's older one."""
        self._next = max(self._next, number + 1)
        self._remove(found.agent)
        self._known[found.agent] = number
        self._agents[number] = found.agent
        self._index.add(number, found.text)
        if len(self._known) > AGENTS:
            self._remove(next(iter(self._known)))

    def _remove(self, agent: str) -> None:
        number = self._known.pop(agent, None)
        if number is not None:
            del self._agents[number]
            self._index.remove(number)
            self.store.write({_key(number): None})

    # ---- asking

    def command(self, frame: HubFrame) -> bool:
        """Answer a query, or replace the keywords of an agent."""
        payload = frame.value("payload")
        if frame.type == "query":
            self._query(frame, payload)
            return True
        asked = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
        if frame.type == "command" and asked.get("command") == "semantic_subscribe":
            self._subscribe(frame, asked.get("keywords"))
            return True
        return False

    def _query(self, frame: HubFrame, payload: Any) -> None:
        asked = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {"query": payload}
        query, limit = asked.get("query"), asked.get("limit", 10)
        if not isinstance(query, str):
            raise HubRefusal("invalid_message", "the payload of a query is a text, or {query, limit}")
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise HubRefusal("invalid_message", "`limit` is a number above 0")
        found = partial(self._found, frame, query, min(limit, MOST))
        history = self._history
        self.when_settled(found if history is None else partial(history.when_settled, found))

    @property
    def _history(self) -> History | None:
        return next((each for each in self.hub.extensions if isinstance(each, History)), None)

    def _found(self, frame: HubFrame, query: str, limit: int) -> None:
        history = self._history
        agents = [
            {"agent": self._agents[number], "score": round(score, 6)}
            for number, score in self._index.search(query, every=False, limit=limit)
        ]
        messages: list[dict[str, Any]] = []
        size = 0
        for kept, score in [] if history is None else history.best(query, frame.sender, limit):
            size += len(kept.frame)
            if messages and size > ANSWER_BYTES:
                break
            messages.append({"score": round(score, 6), "message": kept.frame})
        self.hub.answer(
            frame.sender, "query_result", {"agents": agents, "messages": messages}, frame.ref or None
        )

    # ---- keywords

    def _subscribe(self, frame: HubFrame, keywords: Any) -> None:
        words = _keywords_in(keywords)
        if words is None or len(words) > KEYWORDS:
            raise HubRefusal("invalid_message", f"`keywords` is an array of {KEYWORDS} texts at most")
        if words:
            self._keywords[frame.sender] = words
        else:
            self._keywords.pop(frame.sender, None)
        answer = {"command": "semantic_subscribe", "keywords": sorted(words)}
        self.hub.answer(frame.sender, "command_result", answer, frame.ref or None)

    def hears(self, frame: HubFrame, agent: str) -> bool:
        """Return whether an agent subscribes to a keyword of a broadcast; True if the broadcast has none."""
        words = _keywords_in(frame.value("keywords")) if "keywords" in frame.members else None
        return not words or not words.isdisjoint(self._keywords.get(agent, ()))


def _keywords_in(value: Any) -> frozenset[str] | None:
    """Return the keywords, or None for anything but an array of texts of 1 to `LONGEST` characters."""
    if not isinstance(value, list):
        return None
    found: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    if not all(isinstance(each, str) and 0 < len(each) <= LONGEST for each in found):
        return None
    return frozenset(each.casefold() for each in found)


def _key(number: int) -> str:
    return f"{number:016}"
