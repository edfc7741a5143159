"""The types that classes and functions declare, read the same way on every supported Python.

An annotation may be a value that was computed with the class body (below Python 3.14), or a text, in quotes
or through `from __future__ import annotations`. Newer versions compute annotations only on demand. A name in
an annotation may have no meaning yet, because it is defined further down in the file, in a later cell of a
notebook, or under `if TYPE_CHECKING` for type checkers alone.

What this file keeps true:

- Reading raises nothing. `Unknown` replaces a name that has no meaning now, however deep it is in a type:
  `Ref[Teller]` is a `Ref`, whatever `Teller` is. The name may be known when the type is read again.
- Names are looked up where Python looks: among type parameters, in the class body, in the enclosing
  function, in the module, among builtins. A field of the body does not hide a type: in
  `date: date | None = None` the annotation means the class.
- Of the function that encloses a class, only the names that the annotations of the class mention are kept,
  with the values that they have when the class is made. The function's frame is never kept.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable
from types import FunctionType, NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    Union,
    cast,
    get_args,
    get_origin,
)

if sys.version_info >= (3, 14):
    from inspect import signature

    from annotationlib import Format, get_annotations

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping
    from types import FrameType

_AROUND: Final = "__lmos_names__"
"""The attribute of a class that holds the names of the function around it: `remember_names`."""

_LAZY: Final = sys.version_info >= (3, 14)


class Unknown:
    """A type, or a part of one, whose name means nothing now. A type made of it is unknown, too.

    `why` is what Python says; `for_good`: no later definition can mend it.
    """

    __slots__ = ("for_good", "text", "why")

    def __init__(self, text: str, why: str, *, for_good: bool = False) -> None:
        self.text = text
        self.why = why
        self.for_good = for_good

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self.text}.{name}", self.why)

    def __getitem__(self, _: object) -> Unknown:
        return Unknown(f"{self.text}[...]", self.why)

    def __or__(self, other: Any) -> Any:
        return _UNION[self, other]

    def __ror__(self, other: Any) -> Any:
        return _UNION[other, self]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


_UNION: Final[Any] = Union
_CALLABLE: Final[Any] = Callable


# ---- what is asked for


def declared(thing: Any) -> dict[str, Any]:
    """Return the annotations of a class or function itself, unresolved: types, texts, forward references."""
    if sys.version_info >= (3, 14):
        return get_annotations(thing, format=Format.FORWARDREF)
    return inspect.get_annotations(thing)


def types_of_class(cls: type, without: Container[str] = ()) -> dict[str, Any]:
    """Return the annotations of a class and its bases as types, `Unknown` for a name without a meaning.

    Attributes whose names are in `without` are left out.
    """
    found: dict[str, Any] = {}
    for part in reversed(cls.__mro__):
        own = declared(part)
        if own:
            spaces = _spaces_of_class(part, own)
            found |= {name: _read(hint, spaces) for name, hint in own.items() if name not in without}
    return found


def type_of_field(cls: type, name: str) -> Any:
    """Return the type of an attribute as the class or its nearest base declares it, or None."""
    for part in cls.__mro__:
        own = declared(part)
        if name in own:
            return _read(own[name], _spaces_of_class(part, own))
    return None


def types_of_function(fn: Any, owner: type | None = None) -> dict[str, Any]:
    """Return the types of a function's parameters, and that of its result under the key `return`.

    `owner` is the class whose names a method's annotations see.
    """
    own, inner = declared(fn), inspect.unwrap(fn)
    known: Mapping[str, Any] = getattr(inner, "__globals__", {})
    around = _spaces_of_class(owner, declared(owner))[:-1] if owner is not None else []
    spaces = [_type_parameters(inner), _cells(fn), *around, known, vars(builtins)]
    return {name: NoneType if hint is None else _read(hint, spaces) for name, hint in own.items()}


def signature_of(fn: Any) -> inspect.Signature:
    """Return the signature of a function, whatever its annotations name. Raises ValueError, TypeError."""
    if sys.version_info >= (3, 14):
        return signature(fn, annotation_format=Format.FORWARDREF)
    return inspect.signature(fn)


def unknown_in(hint: Any) -> Unknown | None:
    """Return the first unknown part of a type, or None if all of it is known."""
    if isinstance(hint, Unknown):
        return hint
    return next(filter(None, map(unknown_in, _parts(hint))), None)


def _parts(hint: Any) -> Iterable[Any]:
    """Return the types in the brackets of a type."""
    if isinstance(hint, list):  # the parameters of a Callable
        return cast("list[Any]", hint)  # type: ignore[redundant-cast] # pyright sees a list of something
    return () if get_origin(hint) is Literal else get_args(hint)


# ---- where names are looked for


def remember_names(cls: type, frame: FrameType | None) -> None:
    """Store the names that a class's annotations mention, with their values in the defining frame."""
    while frame is not None and frame.f_code.co_name == "__init_subclass__":
        frame = frame.f_back
    local: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name.startswith("<generic parameters of"):
        local |= frame.f_locals
        frame = frame.f_back
    if frame is None:
        return
    module = frame.f_globals
    if frame.f_locals is not module:
        local = {**frame.f_locals, **local}
    words = {word for text in _texts_in(cls) for word in _WORD.findall(text)} if local else ()
    spaces: list[Mapping[str, Any]] = [{word: local[word] for word in words if word in local}]
    if module.get("__name__") == cls.__module__ and module is not _module(cls):
        spaces.append(module)  # code that is executed in a dict of its own
    if any(spaces):
        setattr(cls, _AROUND, spaces)


def _module(thing: Any) -> dict[str, Any]:
    """Return the namespace of the module in which a class is defined; empty if it is not imported."""
    found = sys.modules.get(thing.__module__)
    return vars(found) if found is not None else {}


_WORD: Final = re.compile(r"\w+")


def _texts_in(cls: type) -> Iterator[str]:
    """Yield the texts among, and inside, the annotations of a class and its methods."""
    for thing in (cls, *vars(cls).values()):
        inner = getattr(thing, "__wrapped__", thing)
        if inner is cls or isinstance(inner, FunctionType):
            for hint in declared(inner).values():
                yield from _texts(hint)


def _texts(hint: Any) -> Iterator[str]:
    if isinstance(hint, str | ForwardRef):
        yield hint if isinstance(hint, str) else hint.__forward_arg__
    for part in _parts(hint):
        yield from _texts(part)


def _spaces_of_class(cls: type, fields: Container[str]) -> list[Mapping[str, Any]]:
    """Return the names that the annotations of a class see, the nearest first; `fields` have annotations."""
    body = vars(cls)
    types = {
        name: value
        for name, value in body.items()
        if name not in fields and not isinstance(value, FunctionType) and not hasattr(value, "__wrapped__")
    }
    around: list[Mapping[str, Any]] = body.get(_AROUND, [])
    own = {cls.__name__: cls}  # the function around binds this name once the class is made
    return [_type_parameters(cls), types, _cells(cls), *around, _module(cls), own, vars(builtins), body]


def _type_parameters(thing: Any) -> Mapping[str, Any]:
    return {each.__name__: each for each in getattr(thing, "__type_params__", ())}


def _cells(thing: Any) -> Mapping[str, Any]:
    """Return the variables of the enclosing function that annotations of a class or function use."""
    annotate = getattr(thing, "__annotate__", None) if _LAZY else None
    names: dict[str, Any] = {}
    for name, cell in zip(
        getattr(getattr(annotate, "__code__", None), "co_freevars", ()),
        getattr(annotate, "__closure__", None) or (),
        strict=False,
    ):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # defined later
            continue
    return names


# ---- reading


class _Names(dict[str, Any]):
    """The names that one annotation sees; a name without a meaning becomes `Unknown` and is recorded."""

    def __init__(self, spaces: list[Mapping[str, Any]]) -> None:
        self._spaces = spaces
        self.unknown: list[str] = []

    def __missing__(self, name: str) -> Any:
        for space in self._spaces:
            if name in space:
                return space[name]
        self.unknown.append(name)
        return Unknown(name, _undefined(name))


def _undefined(name: str) -> str:
    return f"name {name!r} is not defined"


def _read(hint: Any, spaces: list[Mapping[str, Any]], inside: tuple[str, ...] = ()) -> Any:
    """Return a type with all texts in it evaluated, or the type itself if it contains none.

    `inside` holds the enclosing texts, as a type may name itself.
    """
    if isinstance(hint, ForwardRef | str):
        text = hint if isinstance(hint, str) else hint.__forward_arg__
        extra: Mapping[str, Any] = getattr(hint, "__extra_names__", None) or {}
        if text in inside:
            return hint
        return _read(_evaluated(text, [extra, *spaces]), spaces, (*inside, text))
    if isinstance(hint, list):
        return [_read(part, spaces, inside) for part in _parts(hint)]
    origin, parts = get_origin(hint), get_args(hint)
    if type(origin or hint).__name__ == "TypeAliasType":  # made by `type X = ...`, from 3.12 on
        try:
            (origin or hint).__value__  # noqa: B018 -- it is made when it is asked for
        except NameError as error:
            return Unknown(str(hint), str(error))
    if origin is None or origin is Literal:
        return hint
    if origin is Annotated:
        read = _read(parts[0], spaces, inside)
        return hint if read is parts[0] else Annotated[(read, *parts[1:])]
    read_parts = tuple([_read(part, spaces, inside) for part in parts])
    return hint if read_parts == parts else _with_parts(hint, origin, read_parts)


def _evaluated(text: str, spaces: list[Mapping[str, Any]]) -> Any:
    names = _Names(spaces)
    try:
        return eval(text, {"__builtins__": builtins}, names)
    except Exception as error:
        if names.unknown:
            return Unknown(text, _undefined(names.unknown[0]))
        # an attribute may come later, as in a module that is being imported
        return Unknown(text, str(error), for_good=not isinstance(error, AttributeError))


def _with_parts(hint: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    """Return a copy of a type with other arguments, or the type itself if it does not take them."""
    if origin is Union or type(hint).__name__ == "UnionType":
        return _UNION[parts]
    try:
        if isinstance(parts[0], list):
            return _CALLABLE[parts[0], parts[1]]
        return origin[parts]
    except TypeError:  # a form that takes no such parts
        return hint


# ---- the line of an annotation, for errors


def place_of(cls: type, name: str) -> str:
    """Return where a class declares an attribute or a method, as `file:line`; empty if that is not known."""
    part = next((part for part in cls.__mro__ if name in declared(part) or name in vars(part)), cls)
    member: Any = vars(part).get(name)
    member = getattr(member, "__wrapped__", member)
    if isinstance(member, FunctionType):
        return place_of_function(member)
    try:
        lines, start = inspect.getsourcelines(part)
        body: Any = ast.parse(textwrap.dedent("".join(lines))).body[0]
        found = {getattr(getattr(line, "target", None), "id", ""): line.lineno for line in body.body}
        return f"{_shown(inspect.getsourcefile(part) or '')}:{start + found[name] - 1}"
    except (OSError, TypeError, SyntaxError, LookupError):  # typed in, or not declared there
        return ""


def place_of_function(fn: Any) -> str:
    """Return where a function is defined, as `file:line`; empty if that is not known."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{_shown(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def _shown(file: str) -> str:
    """Return the path of a file, relative to the working directory if it is below that."""
    here = os.path.join(os.getcwd(), "")
    return file.removeprefix(here)
