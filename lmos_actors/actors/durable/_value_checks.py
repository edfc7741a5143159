"""Checks that values of kept state have their declared types: others could not be restored.

A check is made with the class, and run when a state has changed, before it is written. It is a function that
raises `Misfit`, which collects the path to the value on its way out; a value that fits costs no text. Lists
and dicts of plain values are checked by msgspec, at the speed of C, and walked only to name what is wrong.
"""

from __future__ import annotations

import datetime
import math
import types
from collections.abc import Callable, Mapping, MutableMapping, Sequence, Set as AbstractSet
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NewType,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec

from lmos_actors._core import types_of_class

from ..finding._registry import address_of
from ..refs._ref import Ref
from ..values import record_of

Check: TypeAlias = Callable[[Any], None]

LEAST: Final = -(1 << 63)
"""The least int that can be kept."""

MOST: Final = (1 << 64) - 1
"""The greatest int that can be kept."""

_UNION: Final[Any] = Union
_UNIONS: Final[tuple[Any, ...]] = (_UNION, types.UnionType)
_SETS: Final[tuple[Any, ...]] = (set, frozenset, AbstractSet)
_LISTS: Final[tuple[Any, ...]] = (list, tuple, Sequence)
_MAPPINGS: Final[tuple[Any, ...]] = (dict, Mapping, MutableMapping)
_AT_ONCE: Final = (int, str, bool, type(None))
"""The types whose containers, of any size, are checked at once."""


class Misfit(Exception):
    """Raised for a value that is not of its declared type; `path` is the path to it, such as `[3].name`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path = ""
        super().__init__(text)

    def within(self, place: str) -> Misfit:
        """Return the error with this place added at the front of its path."""
        self.path = place + self.path
        return self


def run_check(check: Check, value: Any, what: str) -> None:
    """Raise TypeError for a value that fails a check; `what` names the value in the error's text."""
    try:
        check(value)
    except Misfit as misfit:
        raise TypeError(f"{what}{misfit.path} {misfit.text}") from None


def checked(what: str, hint: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that converts values of a type, and raises TypeError for others."""
    check = value_check(hint)

    def convert_checked(value: Any) -> Any:
        run_check(check, value, what)
        return convert(value)

    return convert_checked


def value_check(hint: Any, known: dict[Any, Check] | None = None) -> Check:
    """Return the check of a type; `known` are the checks of the types around it, which may recur in it."""
    known = {} if known is None else known
    if isinstance(hint, NewType):
        return value_check(hint.__supertype__, known)
    origin: Any = get_origin(hint)
    if origin is Annotated:
        return value_check(get_args(hint)[0], known)
    if hint is Ref or origin is Ref:
        return _ref_check
    if origin is Literal:
        return _literal_check(get_args(hint))
    if any(origin is union for union in _UNIONS):
        return _union_check([(arm, value_check(arm, known)) for arm in get_args(hint)])
    if any(origin is kind for kind in (*_LISTS, *_SETS, *_MAPPINGS)):
        walk = _container_check(origin, get_args(hint), known)
        return _quick_check(hint, walk) if _is_plain(hint) else walk
    if isinstance(hint, type):
        return _class_check(hint, known)
    return _instance_check(origin) if isinstance(origin, type) else _anything


def _anything(value: Any) -> None:
    """Accept any value of a type that is known only to a hook of the user."""


# ---- values without parts


def _instance_check(cls: Any) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, cls):
            raise _misfit(cls.__name__, value)

    return check


_is_ref: Final = _instance_check(Ref)


def _ref_check(value: Any) -> None:
    _is_ref(value)
    try:
        address_of(value)
    except TypeError as error:
        raise Misfit(f"is {value!r}, {error}") from None


def _misfit(wanted: str, value: Any) -> Misfit:
    return Misfit(f"must be {wanted}, not {value!r}")


def _literal_check(words: tuple[Any, ...]) -> Check:
    def check(value: Any) -> None:
        if not any(value == word and type(value) is type(word) for word in words):
            raise _misfit(" or ".join(map(repr, words)), value)

    return check


def _an_int(value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _misfit("int", value)
    if not LEAST <= value <= MOST:
        raise Misfit(f"is {value!r}, and an int of more than 64 bits cannot be kept")


def _a_float(value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _misfit("float", value)
    if not math.isfinite(value):
        raise Misfit(f"is {value!r}, which cannot be kept: it must be a finite number")


def _a_date(value: Any) -> None:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise _misfit("date", value)


_LEAVES: Final[dict[Any, Check]] = {int: _an_int, float: _a_float, datetime.date: _a_date}


# ---- values with parts


def _class_check(cls: type, known: dict[Any, Check]) -> Check:
    found = _LEAVES.get(cls) or known.get(cls)
    if found is not None:
        return found
    if is_typeddict(cls):
        return _members_check(cls, known, wanted="dict", is_fit=lambda value: isinstance(value, dict))
    if record_of(cls) is None:
        return _instance_check(cls)
    # for a subclass only the fields of its base would be kept
    return _members_check(cls, known, wanted=cls.__name__, is_fit=lambda value: type(value) is cls)


def _members_check(
    cls: type, known: dict[Any, Check], *, wanted: str, is_fit: Callable[[Any], bool]
) -> Check:
    checks: list[tuple[str, Check]] = []
    is_dict = is_typeddict(cls)

    def check(value: Any) -> None:
        if not is_fit(value):
            raise _misfit(wanted, value)
        for name, of_member in checks:
            try:
                if not is_dict:
                    of_member(getattr(value, name))
                elif name in value:
                    of_member(value[name])
            except Misfit as misfit:
                raise misfit.within(f"[{name!r}]" if is_dict else f".{name}") from None

    known[cls] = check  # a class may have values of its own kind as fields
    for name, part in types_of_class(cls).items():
        if part is not ClassVar and get_origin(part) is not ClassVar:
            checks.append((name, value_check(part, known)))
    return check


def _container_check(origin: Any, args: tuple[Any, ...], known: dict[Any, Check]) -> Check:
    if any(origin is mapping for mapping in _MAPPINGS):
        return _mapping_check(value_check(args[0], known), value_check(args[1], known))
    if any(origin is kind for kind in _SETS):
        return _items_check(value_check(args[0], known), (set, frozenset), "set", numbered=False)
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        return _row_check([value_check(arg, known) for arg in args if arg != ()])
    return _items_check(value_check(args[0], known), (list, tuple), origin.__name__.lower(), numbered=True)


def _items_check(item: Check, classes: tuple[type, ...], wanted: str, *, numbered: bool) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, classes):
            raise _misfit(wanted, value)
        items: Any = value
        for place, each in enumerate(items):
            try:
                item(each)
            except Misfit as misfit:
                raise misfit.within(f"[{place}]" if numbered else f"[{each!r}]") from None

    return check


def _row_check(items: list[Check]) -> Check:
    def check(value: Any) -> None:
        row: Any = value
        if not isinstance(value, (list, tuple)) or len(row) != len(items):
            raise _misfit(f"a tuple of {len(items)}", value)
        for place, (each, item) in enumerate(zip(row, items, strict=True)):
            try:
                item(each)
            except Misfit as misfit:
                raise misfit.within(f"[{place}]") from None

    return check


def _mapping_check(of_key: Check, of_value: Check) -> Check:
    def check(value: Any) -> None:
        members: Any = value
        if not isinstance(value, Mapping):
            raise _misfit("dict", value)
        for key, each in members.items():
            try:
                of_key(key)
            except Misfit as misfit:
                raise Misfit(f"has the key {key!r}, which {misfit.text}") from None
            try:
                of_value(each)
            except Misfit as misfit:
                raise misfit.within(f"[{key!r}]") from None

    return check


def _union_check(arms: list[tuple[Any, Check]]) -> Check:
    names = " or ".join(
        "None" if arm is type(None) else getattr(arm, "__name__", str(arm)) for arm, _ in arms
    )

    def check(value: Any) -> None:
        deep: Misfit | None = None
        for arm, of_arm in arms:
            try:
                of_arm(value)
            except Misfit as misfit:
                if type(value) is (get_origin(arm) or arm):
                    deep = misfit
            else:
                return
        raise deep or _misfit(names, value)

    return check


# ---- containers of plain values


def _is_plain(hint: Any) -> bool:
    """Return whether a type is made of plain values, lists and dicts only, with at least one list or dict."""
    if hint in _AT_ONCE:
        return True
    origin, args = get_origin(hint), get_args(hint)
    if origin is list or (origin is dict and args[0] is str):
        return all(map(_is_plain, args))
    return any(origin is union for union in _UNIONS) and all(arm in _AT_ONCE for arm in args)


def _quick_check(hint: Any, walk: Check) -> Check:
    origin = get_origin(hint)

    def check(value: Any) -> None:
        if type(value) is not origin:  # msgspec takes a set for a list
            walk(value)
            return
        try:
            msgspec.convert(value, hint)
        except (msgspec.ValidationError, OverflowError):
            walk(value)  # which names what is wrong; a tuple in the place of a list is fine

    return check
