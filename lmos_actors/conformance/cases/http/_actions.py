"""HTTP forms of actions, compared with the WebSocket of the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.conformance.card import http, td
from lmos_actors.conformance.inputs import fits
from lmos_actors.conformance.session import (
    ABSENT,
    GOOD,
    Chapter,
    accepting,
    carry_out,
    must_be_refused,
    shown,
    value_of,
    wrong_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.conformance.session import CaseContext
    from lmos_actors.conformance.target import Call, HttpForm

HTTP_ACTIONS: Final[Chapter[CaseContext]] = Chapter(section=td("5.3.1.4 ActionAffordance"))

_BAD: Final = http("15.5.1")


def _calls(context: CaseContext, output: bool | None = None) -> Iterator[tuple[Call, HttpForm]]:
    """Return calls of actions that may be invoked and have a form for HTTP."""
    for call in context.roles.safe_calls():
        form = context.target.http_form("actions", call.action, "invokeaction")
        has = context.target.actions[call.action].output is not None
        if form is not None and output in (None, has):
            yield call, form


def _call(context: CaseContext, output: bool | None = None) -> tuple[Call, HttpForm]:
    for found in _calls(context, output):
        return found
    context.not_offered("it describes no form for HTTP that invokes a safe action")


@HTTP_ACTIONS.case(
    "http.invoke",
    "An action is invoked over HTTP",
    expected="200 with the output, 204 without one, or 201 for a run that goes on",
    needs="a form for HTTP that invokes a safe action",
)
async def invoke(context: CaseContext) -> None:
    call, form = _call(context)
    answer = await carry_out(context, form, call.input if call.has_input else ABSENT)
    message = f"{form.method} of {call.action} is answered with {answer.status}"
    if 400 <= answer.status < 500 and call.action not in context.target.safe_actions():
        context.not_run(f"{message}: name an input that will do under inputs, --hints")
    if answer.status not in GOOD:
        context.fail(message)
    schema = context.target.actions[call.action].output
    if answer.status != 200 or schema is None:
        return
    output = value_of(context, answer, f"{form.method} of {call.action}")
    wrong = fits(schema, output)
    if wrong is not None:
        context.fail(f"the output of {call.action} does not fit its description: {wrong}")


@HTTP_ACTIONS.case(
    "http.invoke-equal",
    "An action has the same output over HTTP and over the WebSocket",
    expected="for the same input, the output that an actionStatus has",
    needs="a form for HTTP that invokes a safe action with an output",
)
async def invoke_equal(context: CaseContext) -> None:
    session = await context.session()
    for call, form in _calls(context, True):
        outputs = [(await context.invoke(session, call)).get("output") for _ in range(2)]
        if outputs[0] is ABSENT or outputs[0] != outputs[1]:
            continue
        answer = await carry_out(context, form, call.input if call.has_input else ABSENT)
        if answer.status == 200 and (output := value_of(context, answer, call.action)) != outputs[0]:
            message = f"{shown(output)} over HTTP, and {shown(outputs[0])} over the WebSocket"
            context.fail(f"{call.action}, with {shown(call.members())}, gives {message}")
        return
    context.not_offered(
        "it describes no form for HTTP that invokes an action which gives one output for one input"
    )


@HTTP_ACTIONS.case(
    "http.wrong-input",
    "An input that does not fit is refused",
    section=_BAD,
    expected="400, or another 4xx",
    needs="a form for HTTP that invokes a safe action with an input of a certain kind",
)
async def wrong_input(context: CaseContext) -> None:
    for call, form in _calls(context):
        schema = context.target.actions[call.action].input
        wrong = ABSENT if schema is None else wrong_for(context, schema)
        if wrong is not ABSENT:
            answer = await carry_out(context, form, wrong)
            must_be_refused(context, answer, f"{form.method} of {call.action} with {shown(wrong)}")
            return
    context.not_offered(
        "it describes no form for HTTP that invokes a safe action with an input of a certain kind"
    )


@HTTP_ACTIONS.case(
    "http.not-json",
    "A body that is not JSON is refused",
    section=_BAD,
    expected="400, or another 4xx",
    needs="a form for HTTP that invokes a safe action with an input",
)
async def not_json(context: CaseContext) -> None:
    for call, form in _calls(context):
        if context.target.actions[call.action].input is not None:
            kind = (b"Content-Type", b"application/json")
            answer = await context.http(
                form.method, form.url, headers=(*accepting(form), kind), body=b'{"a": '
            )
            must_be_refused(context, answer, f"{form.method} of {call.action} with a body that is not JSON")
            return
    context.not_offered("it describes no form for HTTP that invokes a safe action with an input")
