"""Requests for tools that arrive in pieces, joined in the same way for both formats.

A piece has some of these four: an id, an index, a name, a part of the arguments. No endpoint sends all of
them each time, and each of them is wrong somewhere. Two calls have one index, or one id; the index is
missing, or the first piece has another one; the name is repeated in each piece, or itself arrives in pieces;
ids change. So the ids and indexes of a call are recorded, and a piece is looked up by its id, then by its
index, then by its position.

This is safe because arguments are JSON: a call whose arguments are whole takes no more of them. So a piece
without an id, on an index that two calls have, belongs to the call that is not whole yet. Where two calls
could take a piece, the answer is a failure that says so, and never a call with other arguments.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ._fitting import paired
from ._texts import MOST_TOOLS, tool_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._messages import ToolRequest


class Piece(Struct, frozen=True):
    """The part of one event that concerns one call; `arguments` are a piece of JSON."""

    id: str = ""
    index: int | None = None
    name: str = ""
    arguments: str = ""


class _Call:
    """One call, as received so far; `settled` is the index in the pieces after its first one."""

    __slots__ = ("arguments", "grow", "id", "name", "numbered", "settled")

    def __init__(self) -> None:
        self.id = self.name = ""
        self.arguments: list[str] = []
        self.grow = True  # whether each piece of the arguments begins with the one before
        self.numbered = False  # whether it has any index
        self.settled: int | None = None

    def is_whole(self) -> bool:
        """Return whether the arguments are a JSON object, and so complete."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        return _is_object(self.text())

    def text(self) -> str:
        """Return the arguments received so far.

        Some endpoints repeat all earlier arguments in each piece. If the last piece is a JSON object, and the
        joined pieces cannot be the beginning of any JSON text, only the last piece counts.
        """
        together = paired("".join(self.arguments))
        if len(self.arguments) > 1 and self.grow and _is_broken(together):
            last = paired(self.arguments[-1])
            return last if _is_object(last) else together
        return together

    def take_name(self, name: str, offered: frozenset[str]) -> None:
        """Add a name, or a piece of a name. Raises ValueError if the call has another name."""
        if name.startswith(self.name):  # the first one, the same again, or all of it so far
            self.name = name
        elif not self.arguments and not {name, self.name} <= offered:
            self.name += name
        else:
            raise ValueError(f"one call has two names, {self.name!r} and {name!r}")

    def take_arguments(self, arguments: str) -> None:
        """Add a piece of the arguments.

        An empty object at the beginning is replaced by what follows; whole arguments sent again are ignored.
        """
        if self.arguments == ["{}"]:
            self.arguments.clear()
        elif arguments.startswith("{") and self.is_whole() and self.text() == paired(arguments):
            return
        self.grow = self.grow and (not self.arguments or arguments.startswith(self.arguments[-1]))
        self.arguments.append(arguments)


class ToolPieces:
    """The calls in one answer to a request that offered tools of the names in `offered`."""

    def __init__(self, offered: frozenset[str]) -> None:
        self._offered = offered
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, list[_Call]] = {}
        self._together: list[_Call] = []  # those of the last event

    def add(self, pieces: Sequence[Piece]) -> None:
        """Add all pieces of one event. Raise ValueError if it is not clear to which call a piece belongs."""
        together: list[_Call] = []
        for position, piece in enumerate(pieces):
            if piece.id or piece.name or piece.arguments:
                same_place = self._together[position] if len(self._together) == len(pieces) > 1 else None
                call = self._found(piece, same_place, first=position == 0)
                if call is None:
                    together.append(self._begun(piece, together))
                    continue
                if piece.index is not None and piece.arguments:
                    call.settled = piece.index
                together.append(self._learned(call, piece))
        self._together = together or self._together

    def requests(self) -> list[ToolRequest]:
        """Return the requests for tools, each with a unique id. Raise ValueError if one has no name."""
        asked: dict[str, ToolRequest] = {}
        for call in self._calls:
            arguments = call.text()
            if call.name:
                number = _new_id(call.id, len(asked), asked)
                asked[number] = tool_request(number, call.name, arguments)
            elif arguments.strip():
                raise ValueError("it asks for a tool without a name")
        return list(asked.values())

    # ---- which call a piece belongs to

    def _found(self, piece: Piece, same_place: _Call | None, *, first: bool) -> _Call | None:
        """Return the call to which a piece belongs; None if the piece begins a new call."""
        if piece.id:
            known = self._by_id.get(piece.id)
            return self._with_new_id(piece) if known is None else _same_id(known, piece)
        if on_index := self._on_index(piece.index):
            call = on_index[0] if len(on_index) == 1 else self._only_open(on_index, piece)
            begins = piece.name and call.is_whole() and (piece.arguments or piece.name != call.name)
            return None if begins else call
        if same_place is not None and piece.index is None and piece.name in ("", same_place.name):
            return same_place
        if piece.name:
            return self._named_again(piece) if first and piece.index is None else None
        if piece.index is None:
            return self._only_open(self._calls, piece)
        return self._only_open([call for call in self._calls if call.settled is None], piece)

    def _on_index(self, index: int | None) -> list[_Call]:
        """Return the calls that an index may belong to: those not known to have another index."""
        if index is None or index not in self._by_index:
            return []
        claimed = [call for call in self._by_index[index] if call.settled in (None, index)]
        return claimed + [call for call in self._calls if not call.numbered] if claimed else []

    def _with_new_id(self, piece: Piece) -> _Call | None:
        """Return the call to which a piece with a new id belongs; None if there is none.

        It is a call without an id, or a call whose ids change.
        """
        on_index, numbered = self._on_index(piece.index), piece.index is not None
        among = on_index or [call for call in self._calls if not (call.id or (call.numbered and numbered))]
        still = [call for call in among if not call.is_whole()]
        if piece.name:
            still = [call for call in still if not call.id and call.name in ("", piece.name)]
        if not still and not piece.name and not piece.arguments:
            return next((call for call in on_index if not call.id), None)
        return self._only_open(still, piece) if still and (on_index or not piece.name) else None

    def _named_again(self, piece: Piece) -> _Call | None:
        """Return the call whose name is repeated by a piece without id and index.

        Return None if the piece may begin another call.
        """
        named = [call for call in self._open() if call.name == piece.name]
        if len(named) != 1 or (named[0].arguments and piece.arguments.lstrip().startswith("{")):
            return None
        return named[0] if named[0].id or named[0].arguments else None

    def _open(self) -> list[_Call]:
        return [call for call in self._calls if not call.is_whole()]

    def _only_open(self, calls: Iterable[_Call], piece: Piece) -> _Call:
        """Return the only call that is not whole. Raise ValueError if there are none or several."""
        among = list(calls)
        still = [call for call in among if not call.is_whole()]
        if not still and not piece.arguments.strip() and among:
            return among[-1]
        if len(still) != 1:
            which = "no call" if not still else f"any of {len(still)} calls"
            raise ValueError(f"its calls cannot be told apart: {piece.arguments[:40]!r} may be of {which}")
        return still[0]

    # ---- what a piece says

    def _begun(self, piece: Piece, together: Sequence[_Call]) -> _Call:
        """Begin a call. Raise ValueError if the piece may belong to an existing call."""
        for call in self._calls if piece.name else ():
            other_index = call.numbered and piece.index is not None
            if call.id and not piece.id and call.settled is None:
                other_index = False  # the index of a first piece may be wrong
            other = (call.id and piece.id) or other_index or call in together
            if call.name == piece.name and not other and not call.is_whole():
                raise ValueError(f"its calls cannot be told apart: it asks for {piece.name!r} once or twice")
        if len(self._calls) >= MOST_TOOLS:
            raise ValueError(f"it asks for more than {MOST_TOOLS} tools")
        call = _Call()
        self._calls.append(call)
        return self._learned(call, piece)

    def _learned(self, call: _Call, piece: Piece) -> _Call:
        if piece.id:
            if call.arguments and not call.id:
                call.grow = False  # as this may be a piece of another call
            call.id = call.id or piece.id
            self._by_id[piece.id] = call
        if piece.index is not None:
            call.numbered = True
            on_index = self._by_index.setdefault(piece.index, [])
            if call not in on_index:
                on_index.append(call)
        if piece.name:
            call.take_name(piece.name, self._offered)
        if piece.arguments:
            call.take_arguments(piece.arguments)
        return call


def _same_id(call: _Call, piece: Piece) -> _Call | None:
    """Return `call`, whose id the piece has, or None if the piece begins another call with that id.

    Some endpoints give one id to all calls. A piece that repeats a whole call begins no other, as some
    endpoints repeat a call at the end, even on another index.
    """
    if not piece.name or not call.is_whole():
        return call
    if piece.name != call.name:
        return None
    return call if piece.arguments in ("", call.text()) else None


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (ValueError, RecursionError):
        return False


def _is_broken(text: str) -> bool:
    """Return whether no valid JSON can begin with this text."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos < len(text.rstrip()) and not error.msg.startswith("Unterminated")
    except RecursionError:
        pass
    return False


def _new_id(number: str, place: int, taken: Iterable[str]) -> str:
    """Return the id of a call, changed if another call already has it."""
    wanted, base, count = number or f"call-{place}", number or "call", place
    while wanted in taken:
        count += 1
        wanted = f"{base}-{count}"
    return wanted


def json_text(arguments: Any) -> str:
    """Return arguments as text; "" for an empty object."""
    if isinstance(arguments, str):
        return arguments
    return msgspec.json.encode(arguments).decode() if arguments else ""
