"""Resolution of URI references (RFC 3986, 5) and expansion of URI templates (RFC 6570, level 3).

The code is independent of schemes: `coap:` resolves as `http:` does, unlike in `urllib.parse.urljoin`. Braces
of a template are kept whole while a reference is split, because an expression may contain any delimiter
(`{?a,b}`, `{#x}`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from ._reading import DescriptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PARTS: Final = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_FORBIDDEN: Final = re.compile(r"[\s\x00-\x1f<>\"\\^`|]")
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"((?:[A-Za-z0-9_.]|%[0-9A-Fa-f]{2})+)(?::([1-9][0-9]{0,3})|\*)?\Z")
_ENCODED_TWICE: Final = re.compile(r"%25(?=[0-9A-Fa-f]{2})")
"""The percent sign of a triplet in a value, encoded; reserved expansion keeps triplets (RFC 6570, 3.2.3)."""
_RESERVED: Final = ":/?#[]@!$&'()*+,;="


class _Uri(NamedTuple):
    scheme: str | None
    authority: str | None
    path: str
    query: str | None
    fragment: str | None

    def __str__(self) -> str:
        scheme = "" if self.scheme is None else f"{self.scheme}:"
        authority = "" if self.authority is None else f"//{self.authority}"
        query = "" if self.query is None else f"?{self.query}"
        return f"{scheme}{authority}{self.path}{query}" + (f"#{self.fragment}" if self.fragment else "")


def _split(text: str) -> _Uri:
    """Return the parts of a reference; expressions in braces are kept whole."""
    if "{" not in text:
        return _parts(text)
    expressions = (found.group() for found in _EXPRESSION.finditer(text))
    parts = (_with_expressions(part, expressions) for part in _parts(_EXPRESSION.sub("{}", text)))
    scheme, authority, path, query, fragment = parts
    return _Uri(scheme, authority, path or "", query, fragment)


def _parts(text: str) -> _Uri:
    found = _PARTS.fullmatch(text)
    assert found is not None  # the pattern matches every text (RFC 3986, appendix B)
    return _Uri(*found.groups())


def _with_expressions(part: str | None, expressions: Iterator[str]) -> str | None:
    return part if part is None else re.sub(r"\{\}", lambda _: next(expressions), part)


def scheme_of(uri: str) -> str:
    """Return the scheme in lower case, "" for a relative reference."""
    scheme = _split(uri).scheme
    return scheme.lower() if scheme and _SCHEME.match(scheme) else ""


def is_uri(text: str) -> bool:
    """Return whether a text can be a URI.

    It needs a scheme, something after the scheme, and no character that is forbidden in URIs.
    """
    return bool(scheme_of(text)) and not text.endswith(":") and not _FORBIDDEN.search(text)


def is_reference(text: str) -> bool:
    """Return whether a text can be a URI, a relative reference, or a template of either."""
    return not _FORBIDDEN.search(text)


def resolve(base: str | None, href: str) -> str:
    """Return `href` resolved against `base` (RFC 3986, 5.2.2); unchanged without a base."""
    if not base or scheme_of(href):
        return href
    root, ref = _split(base), _split(href)
    if ref.authority is not None:
        return str(ref._replace(scheme=root.scheme, path=_without_dots(ref.path)))
    if not ref.path:
        query = root.query if ref.query is None else ref.query
        return str(root._replace(query=query, fragment=ref.fragment))
    path = ref.path if ref.path.startswith("/") else _merged(root, ref.path)
    return str(root._replace(path=_without_dots(path), query=ref.query, fragment=ref.fragment))


def _merged(base: _Uri, path: str) -> str:
    if base.authority is not None and not base.path:
        return f"/{path}"
    return base.path[: base.path.rfind("/") + 1] + path


def _without_dots(path: str) -> str:
    """Return a path without the segments `.` and `..` (RFC 3986, 5.2.4)."""
    expressions: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == ".." and len(expressions) > 1:
            expressions.pop()
        elif segment not in (".", ".."):
            expressions.append(segment)
    if segments[-1] in (".", ".."):
        expressions.append("")
    return "/".join(expressions)


# --- templates


class _Operator(NamedTuple):
    first: str
    between: str
    named: bool
    empty: str
    safe: str


_OPERATORS: Final = {
    "": _Operator("", ",", False, "", ""),
    "+": _Operator("", ",", False, "", _RESERVED),
    "#": _Operator("#", ",", False, "", _RESERVED),
    ".": _Operator(".", ".", False, "", ""),
    "/": _Operator("/", "/", False, "", ""),
    ";": _Operator(";", ";", True, "", ""),
    "?": _Operator("?", "&", True, "=", ""),
    "&": _Operator("&", "&", True, "=", ""),
}


class _Expression(NamedTuple):
    operator: _Operator
    variables: tuple[tuple[str, int | None], ...]  # name, and the length of its prefix (RFC 6570, 2.4.1)


def _expression(text: str) -> _Expression | None:
    """Return the parsed text between braces, None for one that RFC 6570 does not allow."""
    sign = text[:1] if text[:1] in _OPERATORS else ""
    found = [_VARIABLE.match(each) for each in text.removeprefix(sign).split(",")]
    names = tuple((each[1], int(each[2]) if each[2] else None) for each in found if each)
    return _Expression(_OPERATORS[sign], names) if len(names) == len(found) else None


def check_template(template: str) -> None:
    """Raise DescriptionError for a template that RFC 6570 does not allow."""
    if re.search(r"[{}]", _EXPRESSION.sub("", template)):
        raise DescriptionError(f"{template!r} has an unmatched brace")
    for each in _EXPRESSION.finditer(template):
        if _expression(each.group(1)) is None:
            raise DescriptionError(f"{each.group()} is not an expression of a URI template")


def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of a template's variables, each once, in order."""
    found = [_expression(each.group(1)) for each in _EXPRESSION.finditer(template)]
    return tuple(dict.fromkeys(name for each in found if each is not None for name, _ in each.variables))


def expand(template: str, values: Mapping[str, str | float | bool]) -> str:
    """Return an expanded URI template. Variables without a value are left out.

    Values are texts, numbers or booleans, written as in JSON. Text outside of braces is unchanged, and so is
    an expression that RFC 6570 does not allow. Raise DescriptionError for a value that is not valid Unicode.
    """
    return _EXPRESSION.sub(lambda found: _expanded(found, values), template)


def _expanded(found: re.Match[str], values: Mapping[str, str | float | bool]) -> str:
    expression = _expression(found.group(1))
    if expression is None:
        return found.group()
    operator = expression.operator
    parts = [
        _part(operator, name, _shown(values[name])[:length])
        for name, length in expression.variables
        if name in values
    ]
    return operator.first + operator.between.join(parts) if parts else ""


def _shown(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _part(operator: _Operator, name: str, value: str) -> str:
    try:
        content = quote(value, safe=f"{operator.safe}-._~")
    except UnicodeError:
        raise DescriptionError(f"the value of {name!r} has half of a surrogate pair") from None
    if operator.safe:
        content = _ENCODED_TWICE.sub("%", content)
    if not operator.named:
        return content
    return f"{name}={content}" if value else f"{name}{operator.empty}"
