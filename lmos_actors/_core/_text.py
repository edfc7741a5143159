"""Text of strangers, for people: on terminals, in reports, on pages (there `legible` of `live/page/base.js`).

What a terminal or a browser would obey and not show is spelt out as in a Python literal: control characters
(C0, C1), characters that turn the text after them around (U+202E) or hide (U+200B, tags, fillers, variation
selectors beyond emoji's), halves of surrogate pairs, unassigned characters. Spaces of other widths stay.
So do the two joiners (U+200C, U+200D), one at a time, after a character that is neither ASCII nor Latin:
Persian, Hindi and emoji are written with them, and Latin letters hide them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"
_FILLERS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\U000e0100-\U000e01ef"
_HIDING: Final = re.compile(f"(?<![^\\x00-\u024f{_JOINERS}{_FILLERS}])[{_JOINERS}]|[{_FILLERS}]")


def printable(text: str, *, keep: str = "", before: str = "") -> str:
    """Spell out what a terminal or a page would obey or hide; `keep` are line ends and tabs that stay.

    `before` is the text before this one, if this is a piece of a longer text.
    """
    if before and text and text[0] in _JOINERS and not _HIDING.search(before[-1] + text[0]):
        return text[0] + printable(text[1:], keep=keep, before=text[0])
    if text.isprintable() and (text.isascii() or not _HIDING.search(text)):
        return text
    text = _HIDING.sub(lambda found: _spelt(found[0]), text)
    return "".join(
        each
        if each.isprintable() or each in keep or each in _JOINERS or unicodedata.category(each) == "Zs"
        else _spelt(each)
        for each in text
    )


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
