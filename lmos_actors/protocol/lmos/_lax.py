"""Reading for peers in the usual spelling whose frames have members that nobody here knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ._dialects import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._messages import Message


def lax_reader(*, named: bool) -> Callable[[str | bytes], Message]:
    """Make what reads a message in the usual spelling, and leaves out what else stands in it.

    It raises KeyError for what has to be looked at more closely: another spelling beside the usual one and,
    unless `named`, a message that shows how its peer spells properties. It raises what msgspec does, too.
    """
    plain, convert, shapes = msgspec.json.Decoder().decode, msgspec.convert, SHAPES

    def read(text: str | bytes) -> Message:
        raw: dict[str, Any] = plain(text)
        shape = shapes[raw["messageType"]]
        if shape.named and not named:
            raise KeyError("name")
        members, fields = shape.members, {}
        for key, value in raw.items():
            name = members.get(key)
            if name is None:
                continue
            if name != key:
                raise KeyError(key)
            fields[key] = value
        message: Message = convert(fields, shape.struct)
        return message

    return read
