"""Groups 6.5 to 6.23: texts of one frame, and whether their bytes are UTF-8.

The rows are those of Markus Kuhn's decoder test in the order of the suite. Which are UTF-8 is written here,
row by row, and not asked of any decoder.
"""

from __future__ import annotations

from typing import Final, TypeAlias

KOSME: Final = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"  # ends of code points: 2, 5, 7, 9, 11

Row: TypeAlias = "tuple[bool, bytes]"


def good(*rows: str) -> tuple[Row, ...]:
    return tuple((True, bytes.fromhex(row)) for row in rows)


def bad(*rows: str) -> tuple[Row, ...]:
    return tuple((False, bytes.fromhex(row)) for row in rows)


def prefixes() -> tuple[Row, ...]:
    return tuple((end in (2, 5, 7, 9, 11), KOSME[:end]) for end in range(1, 12))


def lonely() -> tuple[Row, ...]:
    """All bytes that begin a sequence of 2, 3, 4, 5 and 6, but the last of each, a space behind each."""
    first = [(0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD)]
    return tuple((False, b"".join(b"%c " % byte for byte in range(*each))) for each in first)


UNFINISHED: Final = (
    "c0", "e080", "f08080", "f8808080", "fc80808080", "df", "efbf", "f7bfbf", "fbbfbfbf", "fdbfbfbfbf",
)  # fmt: skip

ROWS: Final[dict[int, tuple[Row, ...]]] = {
    5: good(
        "68656c6c6f 24 776f726c64",
        "68656c6c6f c2a2 776f726c64",
        "68656c6c6f e282ac 776f726c64",
        "68656c6c6f f0a4ada2 776f726c64",
        KOSME.hex(),
    ),
    6: prefixes(),
    # the first and the last of each length, and those beyond U+10FFFF
    7: good("00", "c280", "e0a080", "f0908080"),
    8: bad("f888808080", "fc8480808080"),
    9: good("7f", "dfbf", "efbfbf", "f48fbfbf"),
    10: bad("f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf"),
    11: good("ed9fbf", "ee8080", "efbfbd", "f48fbfbf") + bad("f4908080"),
    # continuations of nothing
    12: bad(
        "80", "bf", "80bf", "80bf80", "80bf80bf", "80bf80bf80", "80bf80bf80bf",
        bytes(range(0x80, 0xBF)).hex(),
    ),
    13: lonely(),
    14: bad(*UNFINISHED),
    15: bad("".join(UNFINISHED)),
    16: bad("fe", "ff", "fefeffff"),
    # overlong: a slash, the longest of each length, NUL
    17: bad("c0af", "e080af", "f08080af", "f8808080af", "fc80808080af"),
    18: bad("c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf"),
    19: bad("c080", "e08080", "f0808080", "f880808080", "fc8080808080"),
    # surrogates, single and in pairs
    20: bad("eda080", "edadbf", "edae80", "edafbf", "edb080", "edbe80", "edbfbf"),
    21: bad(
        "eda080 edb080", "eda080 edbfbf", "edadbf edb080", "edadbf edbfbf",
        "edae80 edb080", "edae80 edbfbf", "edafbf edb080", "edafbf edbfbf",
    ),
    # code points that are no characters, and the specials, are UTF-8
    22: good(
        "efbfbe", "efbfbf",
        "f09fbfbe", "f09fbfbf", "f0afbfbe", "f0afbfbf", "f0bfbfbe", "f0bfbfbf",
        "f18fbfbe", "f18fbfbf", "f19fbfbe", "f19fbfbf", "f1afbfbe", "f1afbfbf", "f1bfbfbe", "f1bfbfbf",
        "f28fbfbe", "f28fbfbf", "f29fbfbe", "f29fbfbf", "f2afbfbe", "f2afbfbf", "f2bfbfbe", "f2bfbfbf",
        "f38fbfbe", "f38fbfbf", "f39fbfbe", "f39fbfbf", "f3afbfbe", "f3afbfbf", "f3bfbfbe", "f3bfbfbf",
        "f48fbfbe", "f48fbfbf",
    ),
    23: good("efbfb9", "efbfba", "efbfbb", "efbfbc", "efbfbd", "efbfbe", "efbfbf"),
}  # fmt: skip
