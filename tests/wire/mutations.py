"""Damaged frames: what a broken, careless or hostile peer may send, made from good ones.

Everything comes out of one `random.Random`, so Hypothesis, a fuzzer that follows coverage and a plain loop
with a seed can all drive it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

NUMBERS = (
    "0", "-0", "-1", "1e308", "1e309", "-1e999", "1E-400", "NaN", "Infinity", "-Infinity", "0x10", "1.", "01",
    "9" * 19, "9" * 999, "9" * 1001, "9" * 5000, "0." + "3" * 5000, "1e" + "9" * 30, "9007199254740993",
)  # fmt: skip
TEXTS = (
    '""', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\q"', '"\x01"', '"', "'a'", '"\\u12"', '"ß"',
    '"' + "a" * 10_000 + '"', '"2024-01-13T23:20:50Z[!u-ca=x]"', '"2024-02-30T00:00:00Z"', '"urn:x"',
)  # fmt: skip
OTHERS = ("null", "true", "[]", "{}", "[null]", '{"a":1,"a":2}', "", ",", "[" * 100_000, '{"a":' * 5000)
DEPTHS = (1, 63, 64, 65, 66, 500, 2000, 50_000)
KEYS = (
    "thingID", "thingId", "thingid", "messageID", "messageId", "messageType", "correlationID",
    "correlationId", "name", "property", "properties", "action", "event", "data", "value", "input",
    "output", "status", "timestamp", "type", "title", "detail", "instance", "reason", "message",
    "lastEvent", "lastPropertyReading", "ack", "gaps", "credit", "streams", "remaining", "attempt",
    "progress", "inReplyTo", "cancelled", "stream", "sequence", "items", "bytes", "binary", "contentType",
    "traceparent", "tracestate", "missed", "path", "started", "retryIn",
)  # fmt: skip


def mutated(random: Random, text: str) -> str | bytes:
    """Give the text with one to four kinds of damage, as text or as bytes."""
    found: str | bytes = text
    for _ in range(random.randint(1, 4)):
        if isinstance(found, bytes):
            return found
        found = random.choice(DAMAGES)(random, found)
    return found


def _members(random: Random, text: str) -> tuple[list[tuple[str, str]], int]:
    """Give the members of the object, each as text, and one place among them."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return [], 0
    if not isinstance(plain, dict) or not plain:
        return [], 0
    pairs: list[tuple[str, str]] = []
    for key, value in plain.items():
        try:
            pairs.append((key, json.dumps(value)))
        except (ValueError, RecursionError):
            return [], 0
    return pairs, random.randrange(len(pairs))


def _joined(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs) + "}"


def _on_members(change: Callable[[Random, list[tuple[str, str]], int], None]) -> Any:
    def damage(random: Random, text: str) -> str:
        pairs, place = _members(random, text)
        if not pairs:
            return text + random.choice(OTHERS)
        change(random, pairs, place)
        return _joined(pairs)

    return damage


def _wrong(random: Random) -> str:
    return random.choice(random.choice((NUMBERS, TEXTS, OTHERS)))


def _wrong_value(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    pairs[place] = (pairs[place][0], _wrong(random))


def _without(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    del pairs[place]


def _twice(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    key, value = pairs[place]
    pairs.insert(random.randrange(len(pairs) + 1), (key, random.choice((value, _wrong(random)))))


def _other_key(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    pairs[place] = (random.choice(KEYS), pairs[place][1])


def _more(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    pairs.append((random.choice(KEYS), random.choice((_wrong(random), '"a"', '"urn:x"', "1", '{"a":1}'))))


def _both_spellings(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    for key, value in list(pairs):
        if key.endswith(("ID", "Id")):
            other = key[:-2] + ("Id" if key.endswith("ID") else "ID")
            pairs.append((other, random.choice((value, '"other"'))))


def _in_other_order(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    random.shuffle(pairs)


def _deep(random: Random, pairs: list[tuple[str, str]], place: int) -> None:
    depth = random.choice(DEPTHS)
    opened, closed = random.choice((("[", "]"), ('{"a":', "}")))
    pairs[place] = (pairs[place][0], opened * depth + "1" + closed * random.choice((depth, depth - 1)))


def _cut(random: Random, text: str) -> str:
    return text[: random.randrange(len(text) + 1)]


def _odd_character(random: Random, text: str) -> str:
    place = random.randrange(len(text) + 1)
    return text[:place] + random.choice('\ud800\udfff\x00\ufeff"\\{}[],:\n\u2028é😀') + text[place:]


def _as_bytes(random: Random, text: str) -> bytes:
    found = bytearray(text.encode("utf-8", "surrogatepass"))
    if found:
        for _ in range(random.randint(0, 3)):
            found[random.randrange(len(found))] = random.randrange(256)
    return bytes(found[: random.randrange(len(found) + 1)] if random.random() < 0.3 else found)


def _not_an_object(random: Random, text: str) -> str:
    return random.choice((f"[{text}]", json.dumps(text), f"{text}{text}", " " * 1000 + text, f"\ufeff{text}"))


DAMAGES: tuple[Callable[[Random, str], str | bytes], ...] = (
    _on_members(_wrong_value),
    _on_members(_wrong_value),
    _on_members(_without),
    _on_members(_twice),
    _on_members(_other_key),
    _on_members(_more),
    _on_members(_both_spellings),
    _on_members(_in_other_order),
    _on_members(_deep),
    _cut,
    _odd_character,
    _as_bytes,
    _not_an_object,
)
