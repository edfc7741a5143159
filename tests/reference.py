"""Writes `docs/reference/api.md` from the docstrings: `python -m tests.reference`.

A test compares the page with what this would write, so that no signature and no sentence of a docstring can
differ from what the reference says.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from functools import cache
from types import ModuleType, UnionType
from typing import Any

import msgspec

import lmos_actors
import lmos_actors.conformance
import lmos_actors.errors
import lmos_actors.facades
import lmos_actors.llm
import lmos_actors.mcp
import lmos_actors.memories
import lmos_actors.testing
import lmos_actors.thinking
import lmos_actors.types
from lmos_actors.protocol import lmos, td
from tests.source import ROOT

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "reference" / "api.md"
FACES: tuple[ModuleType, ...] = (
    lmos_actors,
    lmos_actors.errors,
    lmos_actors.types,
    lmos_actors.facades,
    lmos_actors.llm,
    lmos_actors.thinking,
    lmos_actors.mcp,
    lmos_actors.memories,
    lmos_actors.testing,
    lmos_actors.conformance,
    td,
    lmos,
)

HEAD = """# Every public name

Signatures and docstrings, as `help()` shows them. This page is written by `python -m tests.reference`;
the other pages of the reference put the same names in tables by subject, constants among them.
"""


ALIASES = {
    "Secret": "`Secret[T]` marks a value of type `T` that is shown to nobody: fields, properties, inputs, "
    "results, members of structs. See [Values](values.md#secret).\n",
}
"""What aliases mean, as they cannot have a docstring."""


def write_page() -> str:
    """Give the whole page."""
    parts, told = [HEAD], set[int]()
    for face in FACES:
        parts.append(f"\n## `{face.__name__}`\n")
        entries = {name: getattr(face, name) for name in names_of(face)}
        parts += [_entry(name, value) for name, value in entries.items() if id(value) not in told]
        told |= {id(value) for value in entries.values()}
    return "\n".join(parts)


def names_of(face: ModuleType) -> list[str]:
    """Give the public names of a face, in alphabetical order without regard to case."""
    # not `vars`: a face may load its names when they are asked for
    values = {name: getattr(face, name) for name in dir(face) if not name.startswith("_")}
    if face is lmos_actors.errors:  # beside its exceptions it has functions for other packages
        values = {name: value for name, value in values.items() if _is_raised(value)}
    found = [name for name, value in values.items() if _is_ours(value, name)]
    return sorted(found, key=lambda name: (name.lower(), name))


def _is_raised(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _is_ours(value: Any, name: str) -> bool:
    if isinstance(value, ModuleType):
        return False
    if isinstance(value, (str, int, tuple)):
        return False  # a constant: its value is in the tables
    module = getattr(value, "__module__", "")
    return module.startswith("lmos_actors") or (name[:1].isupper() and not inspect.ismodule(value))


def _entry(name: str, value: Any) -> str:
    if name in ALIASES:
        return f"### `{name}`\n\n{ALIASES[name]}"
    lines = [f"### `{name}`\n", _head(name, value), _text(value)]
    if inspect.isclass(value) and not issubclass(value, BaseException):
        lines += [_member(value, member) for member in _members(value)]
    return "\n".join(line for line in lines if line)


def _head(name: str, value: Any) -> str:
    several = _several(value)
    if several:
        return f"One of {', '.join(f'`{one}`' for one in several)}.\n"
    bases = ""
    if inspect.isclass(value):
        if issubclass(value, BaseException):
            bases = f"\nA kind of `{value.__mro__[1].__name__}`.\n"
        kind = "class "
    else:
        kind = "async def " if inspect.iscoroutinefunction(value) else "def "
    shown = _signature(value)
    if shown is None:
        return bases
    return f"```text\n{kind}{name}{shown}\n```\n{bases}"


def _several(value: Any) -> list[str]:
    """Give what an alias, or an enumeration, stands for."""
    if inspect.isclass(value):
        return list(value.__members__) if issubclass(value, enum.Enum) else []
    if isinstance(value, UnionType) or typing.get_origin(value) in (typing.Union, typing.Literal):
        return [getattr(one, "__name__", str(one)) for one in typing.get_args(value)]
    return []


def _signature(value: Any) -> str | None:
    try:
        if getattr(value, "_is_protocol", False) or typing.get_origin(value) is not None:
            return None  # an alias is not called, though some versions give it the signature of its origin
        if inspect.isclass(value) and issubclass(value, msgspec.Struct):
            signature = _struct_signature(value)
        else:
            signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    text = _plain(str(signature))
    text = re.sub(r" -> None$", "", text) if inspect.isclass(value) else text
    return _folded(signature, text) if len(text) > 100 else text


def _struct_signature(cls: type[msgspec.Struct]) -> inspect.Signature:
    """Give the signature as it was written: names that only type checkers import cannot be resolved."""
    hints = {name: hint for part in reversed(cls.__mro__) for name, hint in _hints(part).items()}
    names, given = cls.__struct_fields__, cls.__struct_defaults__
    defaults = (inspect.Parameter.empty,) * (len(names) - len(given)) + given
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if name in cls.__match_args__
            else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is msgspec.NODEFAULT else default,
            annotation=hints[name],
        )
        for name, default in zip(names, defaults, strict=True)
    ]
    return inspect.Signature(parameters)


def _hints(cls: type[Any]) -> dict[str, Any]:
    hints: dict[str, Any] = vars(cls).get("__annotations__", {})
    return hints


def _folded(signature: inspect.Signature, text: str) -> str:
    """Put each parameter on a line of its own."""
    lines, keyword_only = [], False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(line.startswith("    *") for line in lines):
                lines.append("    *,")
        lines.append(f"    {_plain(str(p))},")
    result = text.rpartition(") -> ")[2] if ") -> " in text else ""
    return "(\n" + "\n".join(lines) + "\n)" + (f" -> {result}" if result else "")


def _plain(text: str) -> str:
    text = re.sub(r"<factory>|<(?:object object|function \w+) at 0x[0-9a-f]+>|NOTHING", "...", text)
    text = re.sub(r"<(\w+\.\w+): [^>]+>", r"\1", text)  # members of an enumeration
    text = re.sub(r'(?<=[:>] )"([^"\n]*)"', r"\1", text)  # annotations with quotes in them
    text = re.sub(r"'([^'\n]*\[?[\w\]\[ .,|]*)'(?=[,)\s=]|$)", _unquoted, text)
    return re.sub(r"\b(?:lmos_actors(?:\.\w+)+|collections\.abc|typing)\.(?=[A-Z])", "", text)


def _unquoted(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 2) : found.start()]
    return found[1] if before in (": ", "> ") else found[0]  # annotations, not defaults


def _text(value: Any) -> str:
    text = inspect.getdoc(value)
    if text is None or (inspect.isclass(value) and "__doc__" not in vars(value)):
        return ""
    if typing.get_origin(value) is not None or isinstance(value, str | int | float | tuple | frozenset):
        return ""
    return _fenced(text) + "\n"


def _fenced(text: str) -> str:
    """Show indented parts of a docstring as code, and its `Raises:` as it stands."""
    parts: list[str] = []
    for paragraph in text.split("\n\n"):
        if all(line.startswith("    ") for line in paragraph.splitlines()):
            parts.append("```text\n" + inspect.cleandoc(paragraph) + "\n```")
        else:
            parts.append(re.sub(r"\n {4}(?=\S)", "\n- ", paragraph).replace("Raises:\n- ", "Raises:\n\n- "))
    return "\n\n".join(parts)


def _members(cls: type[Any]) -> Iterator[str]:
    for name, value in _own(cls).items():
        documented = inspect.getdoc(value) if not isinstance(value, (str, int, tuple)) else None
        if not name.startswith("_") and documented and (callable(value) or isinstance(value, property)):
            yield name


@cache
def _public() -> frozenset[Any]:
    return frozenset(getattr(face, name) for face in FACES for name in names_of(face))


def _own(cls: type[Any]) -> dict[str, Any]:
    """Give the members of a class and of those of its bases that are not public themselves."""
    public = _public() - {cls}
    members: dict[str, Any] = {}
    for part in reversed(cls.__mro__):
        if part.__module__.startswith("lmos_actors") and part not in public:
            members.update(vars(part))
    return members


def _member(cls: type[Any], name: str) -> str:
    value = _own(cls)[name]
    text = inspect.getdoc(value) or ""
    if isinstance(value, property):
        heads = [name]
    else:
        fn = getattr(value, "__func__", value)
        heads = [_call(name, one) for one in (typing.get_overloads(fn) or [fn])]
    shown = "<br>\n".join(f"**`{head}`**" for head in heads)
    return f"{shown}\n\n{_fenced(text)}\n"


def _call(name: str, fn: Any) -> str:
    shown = _signature(fn) or "(...)"
    one_line = re.sub(r"\s+", " ", shown).replace("( ", "(").replace(", )", ")")
    one_line = re.sub(r"^\((?:self|cls)(?:: [^,)]*)?(?:, /)?(?:, )?", "(", one_line)
    return f"{'await ' if inspect.iscoroutinefunction(fn) else ''}{name}{one_line}"


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
