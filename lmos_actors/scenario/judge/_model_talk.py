"""Requests of agents to language models in a run, and the outcomes of the tools that models call.

A model is an agent, so the records of a run have everything: a request is a message `generate`, its answer
comes item by item, and the result of a tool is in a later request of the asking agent. A call counts as
carried out when the model gets its result, not when the model requests the call. So an agent that ignores its
model, or reports that a tool has failed, has called nothing.

A hand-over has no result. It counts once the message goes to the other agent. It no longer counts if that
agent hands it back unanswered, which the model gets as an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from lmos_actors._core import plain
from lmos_actors.files import is_list, is_mapping, mapped
from lmos_actors.system.values import show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._judge import AgentDirectory, View

GENERATE: Final = "generate"
"""The action that every model has."""

HANDED_OVER: Final = "handed_over"
"""The metadata member of a handed-over message; it has the reason that the model gave."""

RECORDS: Final = ("sent", "item", "answered", "cancelled", "dropped", "refused")
"""The kinds of records with requests to models and their answers."""

CHARACTERS: Final = 4
"""Estimated characters per token, for an answer that broke off before its end gave the number."""

MOST: Final = 100_000
"""Maximum number of requests that are kept; with more, a check fails."""

CallState: TypeAlias = Literal["asked", "returned", "failed"]


@attrs.define(eq=False)
class ModelRequestMade:
    """One request to a model. `usage` has its input and output tokens; None until the answer has ended."""

    number: int
    trace: int
    asker: str
    model: str
    at: float
    offered: tuple[str, ...]
    texts: tuple[str, ...]
    size: int
    calls: list[ToolCallMade] = attrs.Factory(list["ToolCallMade"])
    usage: tuple[int, int] | None = None
    characters: int = 0

    @property
    def tokens(self) -> tuple[int, int]:
        """The numbers of input and output tokens.

        They are estimates if the answer broke off after it had begun.
        """
        if self.usage is not None:
            return self.usage
        if not self.characters:
            return 0, 0
        return -(-self.size // CHARACTERS), -(-self.characters // CHARACTERS)


@attrs.define(eq=False)
class ToolCallMade:
    """One tool call: what the model requested, and whether the model has received the result."""

    id: str
    name: str
    arguments: Any
    at: float
    state: CallState = "asked"
    error: str = ""

    def __str__(self) -> str:
        what = f"{self.name} {show(self.arguments)}"
        if self.state == "returned":
            return what
        return f"{what} (no result)" if self.state == "asked" else f"{what} (failed: {self.error})"


class ModelTalk:
    """The requests to models of a run, collected from its records."""

    def __init__(self, view: View, directory: AgentDirectory) -> None:
        self._view = view
        self._directory = directory
        self.owner: object = None
        """The judge that passes the records on, one of those that share this object."""
        self.requests: list[ModelRequestMade] = []
        self.is_full = False
        self._open: dict[int, ModelRequestMade] = {}
        self._calls: dict[tuple[str, str], ToolCallMade] = {}
        self._latest: dict[str, ModelRequestMade] = {}
        """The last request of each asking agent."""

    def record(self, kind: str, path: str, fields: Mapping[str, Any], now: float) -> None:
        """Collect the data on requests and tool calls in one record."""
        number = fields.get("id")
        if not isinstance(number, int):
            return
        if kind == "sent":
            if fields.get("affordance") == GENERATE and fields.get("verb") == "invoke":
                self._sent(number, path, fields, now)
            elif (request := self._latest.get(str(fields.get("from")))) is not None:
                _note_hand_over(request, fields)
            return
        request = self._open.get(number)
        if request is None:
            return
        if kind == "item":
            self._item(request, mapped(plain(fields.get("value"))), now)
        else:
            del self._open[number]

    def _sent(self, number: int, path: str, fields: Mapping[str, Any], now: float) -> None:
        asked = mapped(plain(fields.get("input")))
        messages = asked.get("messages")
        if not is_list(messages) or not all(is_mapping(one) and "role" in one for one in messages):
            return  # another action of the same name
        if len(self.requests) == MOST:
            self.is_full = True
            return
        asker, trace = str(fields.get("from")), fields.get("trace")
        for message in reversed(messages):  # ids may repeat in later answers of the same turn
            if message["role"] == "model":
                break
            if message["role"] == "tool":
                self._returned(asker, message)
        offered = tuple(str(mapped(tool).get("name")) for tool in asked.get("tools") or ())
        texts = tuple(json.dumps(one, ensure_ascii=False) for one in (asked.get("instructions"), *messages))
        size = len(json.dumps(asked, ensure_ascii=False))
        made = ModelRequestMade(
            number, trace if isinstance(trace, int) else number, asker, path, now, offered, texts, size
        )
        self.requests.append(made)
        self._open[number] = made
        self._latest[asker] = made

    def _returned(self, asker: str, message: Mapping[str, Any]) -> None:
        call = self._calls.pop((asker, str(message.get("id"))), None)
        if call is not None:
            call.error = str(message.get("error") or "")
            call.state = "failed" if call.error else "returned"

    def _item(self, request: ModelRequestMade, item: Mapping[str, Any], now: float) -> None:
        kind = item.get("type")
        if kind == "end":
            usage = mapped(item.get("usage"))
            request.usage = int(usage.get("input_tokens", 0)), int(usage.get("output_tokens", 0))
            return
        request.characters += len(json.dumps(item, ensure_ascii=False))
        if kind == "tool_request":
            arguments = item.get("unreadable") or item.get("arguments", {})
            id = str(item.get("id") or len(request.calls))  # as `think` numbers them
            call = ToolCallMade(id, str(item.get("name")), arguments, now)
            request.calls.append(call)
            self._calls[request.asker, call.id] = call

    def of(self, name: str) -> list[list[ModelRequestMade]]:
        """Return the requests of a step, in one list per run; for an agent or a model, in a single list."""
        steps = self._view.messages_of(name)
        if steps:
            found: dict[int, list[ModelRequestMade]] = {number: [] for number in steps}
            for request in self.requests:
                if request.trace in found:
                    found[request.trace].append(request)
            return list(found.values())
        own = [each for each in self.requests if self._is(each.asker, name) or self._is(each.model, name)]
        return [own] if own else []

    def _is(self, path: str, name: str) -> bool:
        """Return whether the agent at a path has the given name, or is below the agent with that name."""
        if self._directory.is_called(path, name):
            return True
        above = self._view.path(name)
        return above is not None and path.startswith(f"{above}/")

    def offered(self) -> list[str]:
        """Return the names of all tools that a model was offered."""
        return list(dict.fromkeys(name for request in self.requests for name in request.offered))


def _note_hand_over(request: ModelRequestMade, fields: Mapping[str, Any]) -> None:
    """Mark the hand-over that a message of the agent carries out as done, if `request` has led to it."""
    waiting = [call for call in request.calls if call.state == "asked"]
    if not waiting or fields.get("trace") != request.trace:
        return
    metadata = mapped(mapped(plain(fields.get("input"))).get("metadata"))
    if HANDED_OVER not in metadata:
        return
    reason = mapped(metadata[HANDED_OVER]).get("reason")
    for call in waiting:
        if str(mapped(call.arguments).get("reason", "")) == reason:
            call.state = "returned"
            return


def calls_of(requests: Sequence[ModelRequestMade]) -> list[ToolCallMade]:
    """Return the tool calls that requests have led to, in order."""
    return [call for request in requests for call in request.calls]
