"""Text for terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """Spell out what a terminal would obey and not show, line ends too, and halves of surrogate pairs."""
    return text if text.isprintable() else "".join(map(_spelt, text))


def _spelt(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
