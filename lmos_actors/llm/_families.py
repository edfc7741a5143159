"""The families of endpoints: what each accepts, and requests and histories in a form that it accepts.

A history may come from anywhere: from another provider, from a model that makes up names of tools, or from a
turn that was broken off. Strict providers refuse a request for one id that is too long. So each request is
mapped here, once, before it is written in a provider's format, and the names of tools in the answer are
mapped back. The mapping depends on the request alone, and its result for the first messages does not change
when more follow, because providers cache what they have read.

- **Names of tools** are changed one to one, so that they can always be mapped back. Names that fit stay. In
  the others each character that does not fit becomes `_`, with a digest if the result is too long or taken.
- **Ids of calls** stay unchanged if they fit and are new in the history; others become a digest.
- **Results** stand directly behind their calls, one for each; a result without a call becomes a text.
- **Texts** are not blank. A blank message of the model is left out; a blank message of the user gets a text
  that says so.
- **Turns** begin with the user; two messages of the model in a row become one.
"""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs
from msgspec.structs import replace

from lmos_actors.errors import ConfigError

from ._messages import ModelMessage, ToolMessage, ToolOffer, ToolRequest, UserMessage
from ._schemas import ToolSchema, Unsendable
from ._texts import NO_TEXT, result_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ._messages import Message, ModelItem, ModelRequest

GO_ON: Final = "Go on."
"""Follows a final message of the model if the user must have the last word."""

NO_RESULT: Final = "there is no result of it"

NOT_NOW: Final = "Not there now."
"""Describes a tool of earlier calls if no tool is offered: gateways refuse calls without tools."""

LONGEST_NAME: Final = 64
"""Characters of the name of a tool: no family takes more."""

_DIGEST: Final = 9
"""Characters of a digest: the one length of an id that all families take."""

_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@attrs.frozen
class Rules:
    """The rules of one family of endpoints for requests.

    - `blank`: the content of a model message that consists of calls alone.
    - `ends_with_user`: the last message must be the user's.
    - `answers_results`: a model message must stand between results and a user message.
    - `names_results`: a result has the name of its tool, too.
    - `offers_used`: a request with calls must offer tools, at least those that were called.
    - `arguments` and `few_words` are passed to `ToolSchema`.
    """

    ids: re.Pattern[str]
    names: re.Pattern[str] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    blank: str | None = None
    ends_with_user: bool = False
    answers_results: bool = False
    names_results: bool = False
    arguments: re.Pattern[str] | None = None
    few_words: bool = False
    offers_used: bool = False


_SHORT: Final = re.compile(r"[!-~]{1,40}")

FAMILIES: Final = {
    "openai": Rules(_SHORT),
    "anthropic": Rules(
        re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        ends_with_user=True,
        arguments=re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
        offers_used=True,
    ),
    "gemini": Rules(
        _SHORT,
        re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"),
        ends_with_user=True,
        names_results=True,
        few_words=True,
    ),
    "mistral": Rules(
        re.compile(r"[a-zA-Z0-9]{9}"),
        blank="",
        ends_with_user=True,
        answers_results=True,
        names_results=True,
    ),
    "ollama": Rules(_SHORT, blank=""),
}

_KNOWN: Final = (
    ("mistral", ".mistral.ai", ("mistral", "mixtral", "ministral", "magistral", "codestral", "devstral")),
    ("gemini", ".googleapis.com", ("gemini",)),
    ("anthropic", ".anthropic.com", ("claude",)),
)
"""Families by the end of the host, and by parts of the names of their models, which gateways keep."""


def family_of(model: str, url: str) -> str:
    """Return the family of an endpoint, by the name of its model and its URL."""
    place, name = urlsplit(url), model.lower()
    for found, host, words in _KNOWN:
        if f".{place.hostname}".endswith(host) or any(word in name for word in words):
            return found
    return "ollama" if place.port == 11434 else "openai"  # the port that Ollama listens on


def check_family(family: object, path: str) -> None:
    """Raise ConfigError unless `family` is the name of a family."""
    if not isinstance(family, str) or family not in FAMILIES:
        raise ConfigError(f"must be one of {', '.join(FAMILIES)}, not {family!r}", path)


class Sendable:
    """A request in a form that a family's endpoints accept; `back` maps the items of the answer back.

    `left_out` has the reason for each tool or argument that is not sent to the model.
    """

    def __init__(self, request: ModelRequest, rules: Rules) -> None:
        self.left_out: dict[str, str] = {}
        self._names = _Names(rules.names, [offer.name for offer in request.tools])
        self.messages = _numbered(_in_order(request.messages, rules), rules.ids, self._names.sent)
        self.request = replace(
            request,
            messages=self.messages,
            instructions=request.instructions if request.instructions.strip() else "",
            tools=list(self._offers(request.tools, rules)),
        )

    def _offers(self, offers: Sequence[ToolOffer], rules: Rules) -> Iterator[ToolOffer]:
        offered: set[str] = set()
        for offer in offers:
            if offer.name in offered:
                self.left_out[f"one of two tools {offer.name!r}"] = "they cannot be told apart"
                continue
            try:
                made = ToolSchema(offer.schema, rules.arguments, few_words=rules.few_words)
            except Unsendable as error:
                self.left_out[f"the tool {offer.name!r}"] = str(error)
                continue
            for name, why in made.left_out.items():
                self.left_out[f"the argument {name!r} of the tool {offer.name!r}"] = why
            offered.add(offer.name)
            yield replace(offer, name=self._names.sent(offer.name), schema=made.schema)
        if not offered and rules.offers_used:
            calls = [
                call for message in self.messages if type(message) is ModelMessage for call in message.tools
            ]
            for name in dict.fromkeys(call.name for call in calls):
                yield ToolOffer(name, NOT_NOW, {"type": "object", "properties": {}})

    def back(self, item: ModelItem) -> ModelItem:
        """Return an item of the answer with the original name of its tool."""
        if type(item) is ToolRequest and (meant := self._names.meant(item.name)) != item.name:
            return replace(item, name=meant)
        return item


class _Names:
    """The names of tools, mapped one to one; offered names that fit are assigned first."""

    def __init__(self, fitting: re.Pattern[str], offered: Sequence[str]) -> None:
        self._fitting = fitting
        self._sent: dict[str, str] = {}
        self._meant: dict[str, str] = {}
        for name in sorted(offered, key=lambda name: not fitting.fullmatch(name)):
            self.sent(name)

    def sent(self, name: str) -> str:
        """Return the name to send to the provider."""
        if name not in self._sent:
            fits = self._fitting.fullmatch(name)
            made = name if fits and name not in self._meant else self._made(name)
            self._sent[name], self._meant[made] = made, name
        return self._sent[name]

    def meant(self, name: str) -> str:
        """Return the original name for a name that the provider uses."""
        return self._meant.get(name, name)

    def _made(self, name: str) -> str:
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        plain = plain if self._fitting.fullmatch(plain[:1]) else f"_{plain}"
        if len(plain) <= LONGEST_NAME and plain not in self._meant:
            return plain
        plain = plain[: LONGEST_NAME - _DIGEST - 1]
        made = (f"{plain}_{_digest(f'{name}#{number}')}" for number in count())
        return next(each for each in made if each not in self._meant)


def _digest(text: str) -> str:
    """Return a digest of a text: nine letters and digits."""
    number, made = int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()), ""
    for _ in range(_DIGEST):
        number, place = divmod(number, len(_LETTERS))
        made += _LETTERS[place]
    return made


def _numbered(
    turns: Iterable[_Turn], fitting: re.Pattern[str], name_of: Callable[[str], str]
) -> list[Message]:
    """Return the messages of turns in order, with names and ids of calls that fit; no id occurs twice."""
    made: list[Message] = []
    taken: set[str] = set()
    for turn in turns:
        said = turn.said
        if isinstance(said, ModelMessage) and said.tools:
            calls: list[ToolRequest] = []
            for call in said.tools:
                ids = (call.id if n < 0 else _digest(f"{call.id}#{n}") for n in count(-1))
                own = next(each for each in ids if fitting.fullmatch(each) and each not in taken)
                taken.add(own)
                calls.append(replace(call, id=own, name=name_of(call.name)))
            made.append(replace(said, tools=calls))
            made += [
                ToolMessage(call.id, call.name, error=NO_RESULT)
                if result is None
                else replace(result, id=call.id, name=call.name)
                for call, result in zip(calls, turn.results, strict=True)
            ]
        else:
            made.append(said)
    return made


@attrs.define
class _Turn:
    """A message of the user, or a message of the model with the results of its calls."""

    said: UserMessage | ModelMessage
    results: list[ToolMessage | None] = attrs.field(factory=list["ToolMessage | None"])


def _in_order(messages: Sequence[Message], rules: Rules) -> list[_Turn]:
    """Return the turns of a history, in an order that all endpoints of a family accept."""
    turns: list[_Turn] = []
    for turn in _paired(messages):
        said, last = turn.said, turns[-1] if turns else None
        if isinstance(said, UserMessage):
            if rules.answers_results and last is not None and last.results:
                turns.append(_Turn(ModelMessage(NO_TEXT)))
        elif last is None:
            turns.append(_Turn(UserMessage(NO_TEXT)))
        elif isinstance(last.said, ModelMessage) and not last.results:
            texts = [text for text in (last.said.text, said.text) if text]
            turn.said = replace(
                said, text="\n\n".join(texts), reasoning=[*last.said.reasoning, *said.reasoning]
            )
            turns.pop()
        turns.append(turn)
    last_said = turns[-1].said if turns else None
    if last_said is None or (
        rules.ends_with_user and isinstance(last_said, ModelMessage) and not last_said.tools
    ):
        turns.append(_Turn(UserMessage(NO_TEXT if last_said is None else GO_ON)))
    return turns


def _paired(messages: Sequence[Message]) -> list[_Turn]:
    """Group messages into turns without blank texts, each call with its first result."""
    turns: list[_Turn] = []
    open_calls: dict[str, list[tuple[_Turn, int]]] = {}
    for message in messages:
        if isinstance(message, UserMessage):
            spoken = message.text.strip() or message.files
            turns.append(_Turn(message if spoken else UserMessage(NO_TEXT)))
        elif isinstance(message, ModelMessage):
            said = message if message.text.strip() else replace(message, text="")
            if not said.text and not said.tools:
                continue
            turn = _Turn(said, [None] * len(said.tools))
            turns.append(turn)
            open_calls |= {call.id: [] for call in said.tools}
            for place, call in enumerate(said.tools):
                open_calls[call.id].append((turn, place))
        elif calls := open_calls.get(message.id):
            turn, place = calls.pop(0)
            turn.results[place] = message
        else:
            turns.append(_Turn(UserMessage(f"The result of the tool {message.name}: {result_text(message)}")))
    return turns
