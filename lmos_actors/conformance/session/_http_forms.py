"""HTTP forms in cases: selecting a form, sending its request, judging the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lmos_actors.conformance.inputs import samples

from ._messages import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.conformance.target import HttpForm
    from lmos_actors.conformance.wire import HttpAnswer

    from ._case import CaseContext
    from ._session import Session

OF_CLIENT: Final = range(400, 500)
GOOD: Final = range(200, 300)


def forms_for(
    context: CaseContext, kind: str, op: str, names: tuple[str, ...]
) -> Iterator[tuple[str, HttpForm]]:
    for name in names:
        form = context.target.http_form(kind, name, op)
        if form is not None:
            yield name, form


def first_form(
    context: CaseContext, kind: str, op: str, names: tuple[str, ...], what: str
) -> tuple[str, HttpForm]:
    for found in forms_for(context, kind, op, names):
        return found
    context.not_offered(f"it describes no form for HTTP that {what}")


def reading_form(context: CaseContext) -> tuple[str, HttpForm]:
    return first_form(context, "properties", "readproperty", context.target.readable(), "reads a property")


def accepting(form: HttpForm) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"Accept", (form.content_type or "application/json").encode("latin-1", "replace")),)


async def carry_out(context: CaseContext, form: HttpForm, value: Any = ABSENT) -> HttpAnswer:
    """Send the request of a form, with a value as its body unless the value is `ABSENT`."""
    if value is ABSENT:
        return await context.http(form.method, form.url, headers=accepting(form))
    kind = (b"Content-Type", (form.content_type or "application/json").encode("latin-1", "replace"))
    body = json.dumps(value).encode()
    return await context.http(form.method, form.url, headers=(*accepting(form), kind), body=body)


def value_of(context: CaseContext, answer: HttpAnswer, what: str) -> Any:
    if answer.status != 200:
        context.fail(f"{what} is answered with {answer.status}")
    try:
        return answer.json()
    except ValueError as error:
        context.fail(f"what {what} is answered with is not JSON: {error}")


def must_be_refused(context: CaseContext, answer: HttpAnswer, what: str) -> None:
    if answer.status not in OF_CLIENT:
        context.fail(f"{what} is answered with {answer.status}")


async def read_by_socket(session: Session, name: str) -> Any:
    """Read a property over the WebSocket; return ABSENT if there is no value."""
    received = await session.ask("readProperty", name=name)
    return received.value if received.kind == "propertyReading" else ABSENT


def wrong_for(context: CaseContext, schema: dict[str, Any]) -> Any:
    found = [each.value for each in samples(schema, context.random) if each.kind == "invalid"]
    return found[0] if found else ABSENT


def shown(value: Any) -> str:
    return "nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)[:100]
