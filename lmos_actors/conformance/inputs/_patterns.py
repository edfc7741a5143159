"""Texts that match a regular expression, if it is as simple as those in most data schemas.

Lookarounds, back-references and Unicode classes are not supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Made: TypeAlias = "Callable[[Random], str]"

_LONGEST: Final = 10_000  # characters
_DIGITS: Final = "0123456789"
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_WORD: Final = f"{_LETTERS}{_LETTERS.upper()}{_DIGITS}_"
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F)))
_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": " ", "D": _LETTERS, "W": " -", "S": _WORD}
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_HEX: Final = {"x": 2, "u": 4}


class _Unsupported(Exception):
    """The expression contains something that is not supported."""


def matching(pattern: str, random: Random) -> str | None:
    """Return a text that should match, or None if the expression contains something unsupported."""
    if len(pattern) > 1_000:
        return None
    try:
        reader = _Reader(pattern)
        made = reader.alternatives()
        if reader.rest:
            return None
        return _short(made(random))
    except (_Unsupported, RecursionError):
        return None


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        raise _Unsupported
    return text


class _Reader:
    """A parser of ECMA 262 expressions. For each part it returns a function that makes matching texts."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._left = _LONGEST  # repetitions, even of an empty text

    @property
    def rest(self) -> str:
        return self._pattern[self._at :]

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise _Unsupported
        self._at += 1
        return self._pattern[self._at - 1]

    def alternatives(self) -> Made:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return lambda random: random.choice(found)(random)

    def _sequence(self) -> Made:
        parts: list[Made] = []
        while self.rest and self.rest[0] not in "|)":
            if not self._take("^") and not self._take("$"):
                parts.append(self._repeated(self._atom()))
        return lambda random: _short("".join(part(random) for part in parts))

    def _atom(self) -> Made:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            letters = self._class()
        elif letter == ".":
            letters = _WORD
        elif letter == "\\":
            letters = self._escape()
        elif letter in "*+?{":
            raise _Unsupported
        else:
            return lambda _: letter
        return lambda random: random.choice(letters)

    def _group(self) -> Made:
        if not self._take("?:") and self._take("?"):
            if not self._take("<") or self.rest[:1] in ("=", "!"):
                raise _Unsupported  # it looks ahead or behind
            while self._next() != ">":
                pass
        self._depth += 1
        if self._depth > 30:
            raise _Unsupported
        found = self.alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise _Unsupported
        return found

    def _escape(self) -> str:
        letter = self._next()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _HEX:
            digits = "".join(self._next() for _ in range(_HEX[letter]))
            if any(each not in "0123456789abcdefABCDEF" for each in digits):
                raise _Unsupported
            return chr(int(digits, 16))
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isalnum():
            raise _Unsupported  # a boundary, a reference, a class of Unicode
        return letter

    def _class(self) -> str:
        is_negated = self._take("^")
        found = ""
        while not self._take("]"):
            found += self._range()
        if is_negated:
            found = "".join(letter for letter in _PLAIN if letter not in found)
        if not found:
            raise _Unsupported
        return found

    def _range(self) -> str:
        first = self._escape() if self._take("\\") else self._next()
        if len(first) > 1 or self.rest[:2] == "-]" or not self._take("-"):
            return first
        last = self._escape() if self._take("\\") else self._next()
        if len(last) > 1 or not 0 <= ord(last) - ord(first) <= _LONGEST:
            raise _Unsupported
        return "".join(map(chr, range(ord(first), ord(last) + 1)))

    def _repeated(self, made: Made) -> Made:
        times = self._times()
        self._take("?")  # lazy: makes no difference here
        if times is None:
            return made
        least, most = times
        if least > _LONGEST or most < least:
            raise _Unsupported

        def repeat(random: Random) -> str:
            count = random.randint(least, most)
            self._left -= count
            if self._left < 0:
                raise _Unsupported
            return _short("".join(made(random) for _ in range(count)))

        return repeat

    def _times(self) -> tuple[int, int] | None:
        for sign, times in (("*", (0, 3)), ("+", (1, 4)), ("?", (0, 1))):
            if self._take(sign):
                return times
        if not self._take("{"):
            return None
        text = ""
        while (letter := self._next()) != "}":
            text += letter
        least, comma, most = text.partition(",")
        if not (least.isdecimal() and (most.isdecimal() or not most)) or len(text) > 12:
            raise _Unsupported
        return int(least), int(most) if most else int(least) + (3 if comma else 0)
