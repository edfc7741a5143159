"""Execution of `describe`: print the description of an agent class, or check one in a file or at a URL."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import attrs

from lmos_actors._core import printable, read_json
from lmos_actors.actors import describe
from lmos_actors.errors import ConfigError, ConnectFailed
from lmos_actors.files import FileError, listed, mapped, read
from lmos_actors.protocol.td import (
    DescriptionError,
    check,
    check_for_kotlin_wot,
    differences,
    dump,
    is_uri,
    load,
    with_forms,
)
from lmos_actors.supervision import name_of

from ._exit_codes import FAILED, NOT_REACHED
from ._importing import agent_class, complain
from ._loop import run_loop
from ._texts import takes_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmos_actors.actors import Agent
    from lmos_actors.files import Document, Mistake
    from lmos_actors.protocol.td import Description, Difference, Finding

    from .options._describe import DescribeOptions

BASE = "ws://127.0.0.1:8080"
SUFFIXES = (".json", ".jsonld", ".yaml", ".yml", ".toml")
WELL_KNOWN = "/.well-known/wot"


def describe_subject(subject: str, options: DescribeOptions) -> int:
    """Print the description of a class, or check one in a file or at a URL. Returns the exit code."""
    if "://" in subject:
        _refuse_options(options)
        return _describe_url(subject, options)
    stray = options.server.first_given()
    if stray is not None:
        raise ConfigError("goes with a URL", stray)
    if subject.lower().endswith(SUFFIXES):
        _refuse_options(options)
        try:
            document = read(subject)
            if document.mistakes:
                raise FileError(document.mistakes)
        except FileError as error:
            return complain(error)
        return _report(_Subject(subject, document.data, document), options)
    if ":" not in subject:
        raise ConfigError(
            f'"{subject}" is no class, path/file.py:Class, no file that ends in .json, and no URL'
        )
    cls = agent_class(subject)
    if isinstance(cls, int):
        return cls
    served = _served(cls, options)
    if options.against is not None or options.reader is not None:
        return _report(_Subject(subject, dump(served)), options)
    findings = check(served, strict=options.strict)
    for finding in findings:
        print(printable(f"{subject}: {finding.severity}: {finding}"), file=sys.stderr)
    _write(dump(served), indent=2)
    return FAILED if _fails(findings) else 0


def _refuse_options(options: DescribeOptions) -> None:
    for option in ("base", "name", "id"):
        if getattr(options, option) is not None:
            raise ConfigError("goes with a class; a description has it already", f"--{option}")


# ---- classes


def _served(cls: type[Agent], options: DescribeOptions) -> Description:
    """Return the description in the form in which a node at that address serves it."""
    name, base = options.name or name_of(cls), options.base or BASE
    if options.id is not None and not is_uri(options.id):
        raise ConfigError(f'"{options.id}" is no URI, such as urn:uuid:{uuid5(NAMESPACE_URL, name)}', "--id")
    own = options.id or f"urn:uuid:{uuid5(NAMESPACE_URL, f'{base}/agents/{name}')}"
    described = _described(cls, own)
    try:
        return with_forms(described, name, [base])
    except DescriptionError as error:
        raise ConfigError(error.message, "--base") from None


def _described(cls: type[Agent], own: str | None = None) -> Description:
    try:
        return describe(cls, id=own)
    except DescriptionError as error:
        raise ConfigError(str(error), cls.__name__) from None


# ---- files


# ---- descriptions that are served


def _describe_url(url: str, options: DescribeOptions) -> int:
    from lmos_actors.bindings import fetch, headers_with
    from lmos_actors.transport import TcpNetwork, endpoint_of

    if url.startswith(("ws://", "wss://")):
        raise ConfigError("descriptions are read by http:// or https://", url)
    place = f"{url.rstrip('/')}{WELL_KNOWN}" if endpoint_of(url).target == "/" else url
    server = options.server.at(url)
    known = partial(headers_with, server.credentials)
    ask = partial(fetch, TcpNetwork(), place, server.tls, server.header_lines, headers_for=known)
    try:
        text, source = run_loop(ask)
    except ConnectFailed as error:
        print(printable(f"lmos-actors: {error}"), file=sys.stderr)
        return NOT_REACHED
    try:
        data = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not JSON: {error}", place) from None
    return _report(_Subject(url, data, source=source), options)


# ---- findings


@attrs.frozen
class _Subject:
    """The subject of `describe`: a class, a file (its `document`), or the data at a URL, `source`."""

    name: str
    data: Any
    document: Document | None = None
    source: str | None = None

    def line(self, word: str, remark: Finding | Difference) -> str:
        """Return the finding as text, with the line in the file."""
        said = printable(f"{word}: {remark}")
        mistake = self._mistake(remark, said)
        return f"{self.name}: {said}" if mistake is None else str(mistake)

    def as_data(self, remark: Finding | Difference, **more: Any) -> dict[str, Any]:
        """Return the finding as plain data, with its line and column if it is in a file."""
        found: dict[str, Any] = {"path": remark.path, "message": remark.message, **more}
        mistake = self._mistake(remark, "")
        return found if mistake is None else {**found, "line": mistake.line, "column": mistake.column}

    def _mistake(self, remark: Finding | Difference, said: str) -> Mistake | None:
        """Return a finding as a mistake at its key or value in the file; None if there is no file."""
        if self.document is None:
            return None
        value: Any = self.data
        for part in remark.place:
            value = _part(value, part)
        return self.document.mistake(remark.place, said, key=bool(mapped(value) or listed(value)))


def _part(value: Any, key: str | int) -> Any:
    """Return the value at a key or an index, None if there is none."""
    if isinstance(key, str):
        return mapped(value).get(key)
    items = listed(value)
    return items[key] if key < len(items) else None


def _report(subject: _Subject, options: DescribeOptions) -> int:
    """Check and, if requested, compare a description, and print the findings. Returns the exit code."""
    expected = agent_class(options.against) if options.against is not None else None
    if isinstance(expected, int):
        return expected
    findings = check(subject.data, strict=options.strict, source=subject.source)
    differing = _differences(subject, expected) if expected is not None else ()
    unread = READERS[options.reader](subject.data) if options.reader is not None else ()
    differs = any(each.breaks or (options.strict and each.weight != "wording") for each in differing or ())
    failed = _fails(findings) or bool(unread) or differs
    if options.json:
        _write(_as_data(subject, _Findings(findings, differing, unread), FAILED if failed else 0))
    else:
        _print(subject, _Findings(findings, differing, unread), options)
    return FAILED if failed else 0


class _Findings(NamedTuple):
    """Findings about a description: mistakes, differences from a class, parts that a reader cannot read."""

    findings: Sequence[Finding]
    differences: Sequence[Difference] | None
    unread: Sequence[Finding]


READERS = {"kotlin-wot": check_for_kotlin_wot}
"""Implementations that read less than TD 1.1, each with a function that finds what it cannot read."""


def _differences(subject: _Subject, expected: type[Agent]) -> tuple[Difference, ...] | None:
    """Return the differences, most serious first; None if the check has refused the description."""
    try:
        offered = load(subject.data)
    except DescriptionError:
        return None
    weights = list(_WEIGHTS)
    return tuple(
        sorted(differences(offered, _described(expected)), key=lambda each: weights.index(each.weight))
    )


def _fails(findings: Sequence[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _as_data(subject: _Subject, found: _Findings, code: int) -> dict[str, Any]:
    return {
        "subject": subject.name,
        "findings": [subject.as_data(each, severity=each.severity, fix=each.fix) for each in found.findings],
        "differences": found.differences
        and [
            subject.as_data(each, weight=each.weight, offered=each.offered, expected=each.expected)
            for each in found.differences
        ],
        "unreadable": [subject.as_data(each, fix=each.fix) for each in found.unread],
        "exit_code": code,
    }


def _print(subject: _Subject, found: _Findings, options: DescribeOptions) -> None:
    for finding in found.findings:
        print(subject.line(finding.severity, finding))
    for difference in found.differences or ():
        print(subject.line(difference.weight, difference))
    for finding in found.unread:
        print(subject.line("unreadable", finding))
    said = [_counted([each.severity for each in found.findings], _SEVERITIES) or "ok"]
    if options.against is not None:
        weights = _counted([each.weight for each in found.differences or ()], _WEIGHTS) or "nothing differs"
        said.append(f"against {options.against}: {'not compared' if found.differences is None else weights}")
    if options.reader is not None:
        stops = f"stopped by {_counted(['thing'] * len(found.unread), _THINGS)}"
        said.append(f"{options.reader}: {stops if found.unread else 'can read it'}")
    members = mapped(subject.data)
    title = members.get("title")
    offered = _counted([kind for kind in _KINDS for _ in mapped(members.get(kind))], _KINDS)
    # such as `WeatherAgent, 2 properties, 1 action, 1 event`
    head = ", ".join(filter(None, [printable(title) if isinstance(title, str) else "no title", offered]))
    print(f"{subject.name}: {head}: {'; '.join(said)}")


_SEVERITIES = {"error": ("error", "errors"), "warning": ("warning", "warnings")}
_WEIGHTS = {
    "breaks": ("breaks a consumer", "break a consumer"),
    "differs": ("differs", "differ"),
    "wording": ("of wording", "of wording"),
}
_THINGS = {"thing": ("thing", "things")}
_KINDS = {
    "properties": ("property", "properties"),
    "actions": ("action", "actions"),
    "events": ("event", "events"),
}


def _counted(words: Sequence[str], names: Mapping[str, tuple[str, str]]) -> str:
    """Return the counts, in the order of the names: `1 error, 2 warnings`."""
    counts = {name: words.count(name) for name in names}
    return ", ".join(f"{count} {names[name][count > 1]}" for name, count in counts.items() if count)


def _write(data: Any, indent: int | None = None) -> None:
    print(json.dumps(data, indent=indent, ensure_ascii=not takes_all(sys.stdout)))
