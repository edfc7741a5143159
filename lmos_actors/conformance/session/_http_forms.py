"""What cases of forms for HTTP have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.inputs import samples

from ._messages import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.conformance.target import HttpForm
    from lmos_actors.conformance.wire import HttpAnswer

    from ._case import Visit
    from ._session import Talk

OF_CLIENT: Final = range(400, 500)
GOOD: Final = range(200, 300)


def forms_for(visit: Visit, kind: str, op: str, names: tuple[str, ...]) -> Iterator[tuple[str, HttpForm]]:
    for name in names:
        form = visit.target.http_form(kind, name, op)
        if form is not None:
            yield name, form


def first_form(visit: Visit, kind: str, op: str, names: tuple[str, ...], what: str) -> tuple[str, HttpForm]:
    for found in forms_for(visit, kind, op, names):
        return found
    visit.not_offered(f"it describes no form for HTTP that {what}")


def reading_form(visit: Visit) -> tuple[str, HttpForm]:
    return first_form(visit, "properties", "readproperty", visit.target.readable(), "reads a property")


def accepting(form: HttpForm) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"Accept", (form.content_type or "application/json").encode("latin-1", "replace")),)


async def carry_out(visit: Visit, form: HttpForm, value: Any = ABSENT) -> HttpAnswer:
    """Do what a form says, with a value for the body, or none."""
    if value is ABSENT:
        return await visit.http(form.method, form.url, headers=accepting(form))
    kind = (b"Content-Type", (form.content_type or "application/json").encode("latin-1", "replace"))
    body = json.dumps(value).encode()
    return await visit.http(form.method, form.url, headers=(*accepting(form), kind), body=body)


def value_of(visit: Visit, answer: HttpAnswer, what: str) -> Any:
    if answer.status != 200:
        visit.fail(f"{what} is answered with {answer.status}")
    try:
        return answer.json()
    except ValueError as error:
        visit.fail(f"what {what} is answered with is no JSON: {error}")


def must_be_refused(visit: Visit, answer: HttpAnswer, what: str) -> None:
    if answer.status not in OF_CLIENT:
        visit.fail(f"{what} is answered with {answer.status}")


async def read_by_socket(talk: Talk, name: str) -> Any:
    """Read a property over the WebSocket; return ABSENT if there is no value."""
    heard = await talk.ask("readProperty", name=name)
    return heard.value if heard.kind == "propertyReading" else ABSENT


def wrong_for(visit: Visit, schema: dict[str, Any]) -> Any:
    found = [each.value for each in samples(schema, visit.random) if each.kind == "invalid"]
    return found[0] if found else ABSENT


def shown(value: Any) -> str:
    return "nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)[:100]
