"""The failures that providers report: their class, their text, and how long to wait.

There is no format for failures. They arrive as the body of a refusal, as an event among those of an answer,
in place of an answer with status 200, and as the reason of an end. Each endpoint has its own shapes, and
gateways pack one into the other, even as JSON in a text. So all of them are read in the same way: a report is
the set of nested objects, with all the texts in them.

The class decides whether a request is retried. The surest sign counts, not the first one:

1. *Names that are certain*, and numbers that a provider made up. llama.cpp answers 500 to a request that is
   too long, OpenAI 429 for an empty account. Spelling does not matter: `RateLimitError`,
   `rate_limit_exceeded` and `rateLimitExceeded` are one.
2. *The status* of the answer, or else a number in the report: `429` and `"429"` are one.
3. *Names that may be anything.* They come last, as Mistral for example calls an overload
   `invalid_request_error`.

A failure of no known class may pass. An unknown reason for an end is no failure: after text or whole tools
the answer counts, and the provider's word is kept; without either it is no answer.
"""

from __future__ import annotations

import json
import re
from collections import deque
from contextlib import suppress
from email.utils import parsedate_to_datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors._core import number_of

from ._failures import KEY_REFUSED, MODEL_BUSY, MODEL_MALFORMED, MODEL_UNAVAILABLE, REQUEST_REFUSED
from ._fitting import fitted, paired
from ._messages import ModelEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ._messages import StopReason, ToolRequest, Usage

NO_QUOTA: Final = "no quota"
"""The class of reports that an account is empty."""

NO_RIGHT: Final = "no right"
"""The class of reports that a key is known, but not allowed to do this."""

MOST_PARTS: Final = 64
"""Objects, lists and texts of one report that are looked at."""

MOST_OF_A_NAME: Final = 64
"""Characters of a name that are kept."""

WITHIN: Final = (
    *("error", "errors", "message", "msg", "detail", "details", "error_description", "status_msg"),
    *("metadata", "raw", "innererror", "base_resp", "choices"),
)
"""The members in which a report says something: in words, or by objects within."""

NAMES: Final = (
    *("code", "type", "status", "status_code", "error_type", "reason"),
    *("finish_reason", "native_finish_reason", "stop_reason"),
)
"""The members that say the class: by a name, or by a number."""

CERTAIN: Final = {
    NO_QUOTA: re.compile(
        "insufficient.*(quota|balance|credit|fund)|billing|payment|exceededcurrentquota|arrearage|overdue"
    ),
    MODEL_BUSY: re.compile("ratelimit|toomanyrequests|overload|exhausted|throttl|capacity|systemresource"),
    REQUEST_REFUSED: re.compile("context(length|size|window)|too(long|large)|content(filter|policy)"),
    KEY_REFUSED: re.compile("authenti|authori|apikey"),
    NO_RIGHT: re.compile("permission|^forbidden|accessdenied"),
    MODEL_MALFORMED: re.compile("malformed|unexpectedtoolcall"),
}
"""The classes by a pattern in a name, of which only the letters count."""

OWN_NUMBERS: Final = {
    "status_code": {  # of MiniMax, in `base_resp`
        **dict.fromkeys((1002, 1041, 2045), MODEL_BUSY),
        **dict.fromkeys((1008, 2056), NO_QUOTA),
        **dict.fromkeys((1004, 2049), KEY_REFUSED),
        **dict.fromkeys((1026, 1027, 1042, 2013), REQUEST_REFUSED),
    },
    "code": {  # of Z.ai, which calls an empty account 429, too
        **dict.fromkeys((1302, 1303, 1305, 1312), MODEL_BUSY),
        **dict.fromkeys((1113, 1308, 1309, 1310), NO_QUOTA),
        **dict.fromkeys((1110, 1111, 1112, 1121, 1220, 1311), NO_RIGHT),
        **dict.fromkeys((1211, 1261, 1301), REQUEST_REFUSED),
    },
}
"""The classes by numbers that providers have made up, by the member that has them."""

NUMBERS: Final = {
    **{401: KEY_REFUSED, 402: NO_QUOTA, 403: NO_RIGHT, 429: MODEL_BUSY, 529: MODEL_BUSY},
    **dict.fromkeys((408, 409), MODEL_UNAVAILABLE),
}
"""The classes of some statuses; the class of any other follows from its hundreds."""

WRONG: Final = re.compile(
    "invalid|badrequest|validation|unprocessable|missing|notfound|support|implemented|precondition|outofrange"
)
"""A pattern in names that mean a wrong request, and sometimes in other names."""

ENDS: Final[dict[str, StopReason]] = {
    **dict.fromkeys(("stop", "eos", "endturn", "stopsequence", "pauseturn"), "stop"),
    **dict.fromkeys(("length", "maxtokens", "modellength", "modelcontextwindowexceeded"), "length"),
    **dict.fromkeys(("toolcalls", "functioncall", "tooluse"), "tools"),
    **dict.fromkeys(("contentfilter", "refusal", "sensitive", "guardrailintervened"), "refused"),
    **dict.fromkeys(("safety", "recitation", "blocklist", "prohibitedcontent", "spii"), "refused"),
}
"""The reasons of ends, by their letters alone."""

BROKEN: Final = re.compile("error|abort|cancel|malformed|unexpected|insufficient|overload|timeout|fail")
"""A pattern in a reason that is a failure, whatever came before it."""


class ErrorEvent(Exception):
    """Raised for a failure sent in place of an answer, or within one; `body` is the received value."""

    def __init__(self, body: object) -> None:
        super().__init__(words_in(body) or "a failure without a text")
        self.body = body


@attrs.frozen
class Report:
    """A report of a failure by a provider: class, the provider's name for it, text, and a wait in seconds.

    The class is a code of this package, NO_QUOTA or NO_RIGHT.
    """

    kind: str
    label: str
    words: str
    retry_after: float | None


def report_of(
    body: object, status: int | None, headers: Mapping[str, str], now: Callable[[], datetime]
) -> Report:
    """Return the report in a body and its headers; `status` is None after a success."""
    objects, texts = _parts(body)
    found = [part[name] for part in objects for name in NAMES if name in part]
    names = [paired(str(name)[:MOST_OF_A_NAME]) for name in found if type(name) in (int, str)]
    numbers = [int(name) for name in names if re.fullmatch("[3-5][0-9][0-9]", name)]
    number = next(iter(numbers), None) if status is None else status
    label = next((name for name in names if name not in ("", "error")), "") if number is None else number
    said = (kinds.get(fitted(part.get(name), int)) for part in objects for name, kinds in OWN_NUMBERS.items())
    kind = next(filter(None, said), None) or _kind(names, number)
    return Report(kind, str(label), _joined(texts), _wait(headers, objects, now))


def words_in(body: object) -> str:
    """Return the text of a report, "" if there is none."""
    return _joined(_parts(body)[1])


def told(data: bytes | str) -> Any:
    """Return the JSON value of an event, whatever its form; its text if it is not JSON.

    Return a list if the event holds several objects because line ends between events are missing.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    found: list[Any] = []
    for line in text.splitlines():
        said = line.removeprefix("data:").strip()
        with suppress(ValueError, RecursionError):
            found += [json.loads(said)] if said.startswith("{") else []
    return found or text


def aside(data: bytes) -> object:
    """Return the value of an event outside the answer itself. Raise ErrorEvent if it is an error."""
    said = told(data)
    for part in _parts(said)[0][:1]:
        if "error" in (part.get("object"), part.get("type")):
            raise ErrorEvent(said)
    return said


def checked_reason(said: str, data: bytes = b"") -> str:
    """Return an event's reason for the end of an answer. Raises ErrorEvent if it is a failure.

    `data` is the event, which may have more details of the failure.
    """
    if BROKEN.search(_letters(said)):
        raise ErrorEvent(told(data) if data else {"stop_reason": said})
    return said


def end_of(said: str, usage: Usage, model: str, tools: Sequence[ToolRequest], *, spoke: bool) -> ModelEnd:
    """Return the end of an answer that requests `tools`; `spoke` is whether the answer contains text.

    Raise ValueError if the reason is unknown and the answer has nothing whole.
    """
    reason = ENDS.get(_letters(said))
    if reason is None and (any(tool.unreadable for tool in tools) or not (spoke or tools)):
        raise ValueError(f"it ends for an unknown reason, {said[:MOST_OF_A_NAME]!r}, and with nothing whole")
    own = paired(said[:MOST_OF_A_NAME]) if reason is None else ""
    if tools and reason in ("stop", None):  # as some endpoints end answers with tools
        reason = "tools"
    return ModelEnd(reason or "stop", usage, model, own)


# ---- what is in a report


def _parts(body: object) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects and the texts within a report, the outer ones first."""
    waiting: deque[Any] = deque([body])
    objects: list[dict[str, Any]] = []
    texts: list[str] = []
    for _ in range(MOST_PARTS):
        if not waiting:
            break
        part = _opened(waiting.popleft())
        kind = type(part)  # pyright: ignore[reportUnknownVariableType]
        if kind is list:
            waiting.extend(part[:MOST_PARTS])
        elif kind is dict:
            objects.append(part)
            waiting.extend(_placed(part, name) for name in WITHIN if part.get(name))
        elif kind is str:
            texts.append(part)
    return objects, texts


def _opened(part: Any) -> Any:
    return told(part) if isinstance(part, str) and part.lstrip().startswith(("{", "[")) else part


def _placed(part: dict[str, Any], name: str) -> Any:
    """Return a member; a message is prefixed with the place in the request to which it refers."""
    place, value = part.get("loc", ""), part[name]
    if name == "msg" and type(place) is list and isinstance(value, str):
        return f"{'.'.join(map(str, part['loc']))}: {value}"
    return value


def _joined(texts: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(stripped for text in texts if (stripped := paired(text).strip())))


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name[:MOST_OF_A_NAME].lower())


def _kind(names: Sequence[str], number: int | None) -> str:
    known = [_letters(name) for name in names]
    certain = (kind for kind, pattern in CERTAIN.items() if any(map(pattern.search, known)))
    if (kind := next(certain, None)) is not None:
        return kind
    if number is None:
        return REQUEST_REFUSED if any(map(WRONG.search, known)) else MODEL_UNAVAILABLE
    if number in NUMBERS:
        return NUMBERS[number]
    return MODEL_UNAVAILABLE if number >= 500 else REQUEST_REFUSED


def _wait(
    headers: Mapping[str, str], objects: Sequence[dict[str, Any]], now: Callable[[], datetime]
) -> float | None:
    asked = headers.get("retry-after", "")
    delays = [str(part["retryDelay"]).removesuffix("s") for part in objects if "retryDelay" in part]
    for text, unit in (
        (headers.get("retry-after-ms", ""), 0.001),
        *((text, 1.0) for text in (asked, *delays)),
    ):
        with suppress(ValueError):
            if 0 <= (seconds := number_of(text) * unit) < inf:
                return seconds
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, (parsedate_to_datetime(asked) - now()).total_seconds())
    return None
