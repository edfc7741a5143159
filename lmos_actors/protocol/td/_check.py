"""A description held against the JSON schema of TD 1.1 and against what no schema can say."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from ._meaning import findings_of_meaning
from ._model import Description, dump, read
from ._reading import DescriptionError, Place, plain_data
from ._vocabulary import as_object
from ._wording import Finding, faults, finding_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema_rs import Draft7Validator

MOST: Final = 1000  # findings, and security schemes: the validator tries every kind for each
SCHEMA_FILE: Final = "td-json-schema-validation.json"


def check(
    description: Description | str | bytes | Mapping[str, Any], *, strict: bool = False
) -> tuple[Finding, ...]:
    """Return everything that is wrong with a description, errors first, each in the order of the places.

    The description is one that was loaded, a JSON text or plain data. First it is held against the JSON
    schema of TD 1.1 (W3C, 12 March 2025), then against what the schema cannot say: names that nothing
    defines, operations that contradict their property, hrefs that lead nowhere, data schemas that no value
    fits, the vocabulary of LMOS. What consumers of this package take as it is gives warnings: no security,
    no `@context` or another, `Agent` without its prefix, an `id` that is no URI, members that are null. With
    `strict` these are errors. What cannot be read at all is one error. After 1,000 findings an error says
    that there are more. It raises nothing.
    """
    try:
        data = plain_data(dump(description) if isinstance(description, Description) else description)
    except DescriptionError as exc:
        return (Finding(exc.place, exc.message, "mend this first: the rest cannot be read"),)
    found = list(islice(_findings(data), MOST + 1))
    if len(found) > MOST:
        found[MOST] = Finding((), f"more than {MOST} findings", "mend these first: the rest is not told")
    graded = [_graded(finding, strict) for finding in found]
    unique = {(finding.place, finding.message): finding for finding in graded}
    return tuple(sorted(unique.values(), key=_order))


def _graded(finding: Finding, strict: bool) -> Finding:
    if finding.tolerated and not strict:
        return attrs.evolve(finding, severity="warning")
    return finding


def _order(finding: Finding) -> tuple[Any, ...]:
    """Sort by severity, then by place, numbers as numbers."""
    parts = tuple(
        (isinstance(part, str), part if isinstance(part, int) else 0, str(part)) for part in finding.place
    )
    return finding.severity, parts, finding.message


def _findings(data: dict[str, Any]) -> Iterator[Finding]:
    if len(as_object(data.get("securityDefinitions"))) > MOST:
        fix = "leave some out: the rest is not looked at"
        yield Finding(("securityDefinitions",), f"more than {MOST} security definitions", fix)
        return
    wrong = [finding_of(fault) for fault in faults(_validator().iter_errors(data))]
    yield from wrong
    yield from findings_of_meaning(data)
    yield from _unreadable(data, [finding.place for finding in wrong if not finding.tolerated])


def _unreadable(data: dict[str, Any], told: list[Place]) -> Iterator[Finding]:
    """Return what stops `load`, unless an error above it, at it or right in it has been told."""
    try:
        read(data)
    except DescriptionError as exc:
        if not any(exc.place[: len(place)] == place or exc.place == place[:-1] for place in told):
            yield Finding(exc.place, exc.message, "mend it: a description with this cannot be read")


@cache
def _validator() -> Draft7Validator:
    """Compile the schema once, when it is first asked for: most programs never check."""
    from jsonschema_rs import Draft7Validator

    schema = msgspec.json.decode(Path(__file__).with_name(SCHEMA_FILE).read_bytes())
    return Draft7Validator(schema, validate_formats=True)
