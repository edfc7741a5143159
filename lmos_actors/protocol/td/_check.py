"""Checks of a description: the JSON schema of TD 1.1, then rules that no schema can express.

What this module guarantees:

- **It never raises, and always ends.** A description may come from anywhere. The number of findings is
  bounded (`MAX_FINDINGS`), and so is the number of security schemes, because the validator tries every
  alternative for each.
- **One mistake, one finding.** Schema errors of alternatives are reduced to the plausible one
  (`_findings.faults`), and equal findings are merged. The error of `load` is added only if no schema error at
  or near its place explains it.
- **Lenient by default, as consumers are.** Deviations that consumers of this package accept are warnings;
  `strict` makes them errors. `tolerated` marks the findings of this kind.
- **A stable order**: severity, then place, so that two runs can be compared.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from ._findings import Finding, faults, finding_of
from ._model import Description, dump, read
from ._reading import DescriptionError, is_lenient, plain_data
from ._semantics import semantic_findings
from ._vocabulary import as_object, has_any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema_rs import Draft7Validator

MAX_FINDINGS: Final = 1000  # also the limit of security schemes
THING_MODEL: Final = "tm:ThingModel"
SCHEMA_FILE: Final = "td-json-schema-validation.json"


def check(
    description: Description | str | bytes | Mapping[str, Any],
    *,
    strict: bool = False,
    source: str | None = None,
) -> tuple[Finding, ...]:
    """Return the findings about a description, errors first, then by place. Never raise.

    The description is a `Description`, a JSON text or plain data. Relative addresses in it are resolved
    against `source`, the URL that it was fetched from. It is checked against the JSON schema of TD 1.1 (W3C,
    12 March 2025), then against rules beyond the schema: undefined names, operations that contradict their
    property, relative hrefs without a base, data schemas that no value fits, the vocabulary of LMOS.

    Deviations that consumers of this package accept are warnings: no security, a missing or other `@context`,
    `Agent` without its prefix, an `id` that is not a URI, members that are null. `strict` makes them errors.
    An unreadable description is one error. After 1,000 findings an error reports that there are more.
    """
    try:
        data = plain_data(dump(description) if isinstance(description, Description) else description)
    except DescriptionError as exc:
        return (Finding(exc.place, exc.message, "correct this first: the rest cannot be read"),)
    found = list(islice(_all_findings(data, source), MAX_FINDINGS + 1))
    if len(found) > MAX_FINDINGS:
        found[MAX_FINDINGS] = Finding(
            (), f"more than {MAX_FINDINGS} findings", "correct these first: the rest is not shown"
        )
    graded = [
        attrs.evolve(finding, severity="warning") if finding.tolerated and not strict else finding
        for finding in found
    ]
    unique = {(finding.place, finding.message): finding for finding in graded}
    return tuple(sorted(unique.values(), key=_sort_key))


def _sort_key(finding: Finding) -> tuple[Any, ...]:
    """Return the sort key: severity, then place, with indices as numbers."""
    parts = tuple(
        (isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in finding.place
    )
    return finding.severity, parts, finding.message


def _all_findings(data: dict[str, Any], source: str | None) -> Iterator[Finding]:
    if len(as_object(data.get("securityDefinitions"))) > MAX_FINDINGS:
        fix = "leave some out: the description is not checked further"
        yield Finding(("securityDefinitions",), f"more than {MAX_FINDINGS} security definitions", fix)
        return
    violations = [finding_of(fault) for fault in faults(_validator().iter_errors(data))]
    yield from violations
    yield from semantic_findings(data, source)
    reported = [finding.place for finding in violations if not finding.tolerated]
    try:
        read(data)
    except DescriptionError as exc:  # left out if an error above its place, at it or directly in it is known
        if not any(exc.place[: len(place)] == place or exc.place == place[:-1] for place in reported):
            yield Finding(exc.place, exc.message, "correct it: a description with this cannot be read")


def load_usable(data: str | bytes | Mapping[str, Any], source: str | None = None) -> Description:
    """Return the description in a JSON text or in plain data, without its unreadable parts.

    `source` is as for `check`. The errors that `check` would report are the `faults` of the result. Raise
    DescriptionError if nothing can be used: for anything but a JSON object within the limits of `load`, and
    for a Thing Model.
    """
    plain = plain_data(data)
    if has_any(plain.get("@type"), (THING_MODEL,)):
        raise DescriptionError("this is a Thing Model, not a description", ("@type",))
    token = is_lenient.set(True)
    try:
        found = read(plain)
    finally:
        is_lenient.reset(token)
    errors = (each for each in check(plain, source=source) if each.severity == "error")
    return attrs.evolve(found, faults=tuple(DescriptionError(each.message, each.place) for each in errors))


@cache
def _validator() -> Draft7Validator:
    """Return the schema, compiled on first use because most programs never check a description."""
    from jsonschema_rs import Draft7Validator

    schema = msgspec.json.decode(Path(__file__).with_name(SCHEMA_FILE).read_bytes())
    return Draft7Validator(schema, validate_formats=True)
