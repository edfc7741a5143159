"""HTTP answers of the scripted server: descriptions, and the forms of its things. It does no I/O."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import attrs

from lmos_actors.conformance.wire import read_json

from ._messages import LMOS_ERRORS, is_object
from ._thing import (
    ABSENT,
    Done,
    Failed,
    Outcome,
    Problem,
    ScriptedThing,
    invalid,
    not_allowed,
    not_found,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._server import ScriptedServer

_JSON: Final = "application/json"
_TD: Final = "application/td+json"


@attrs.frozen(kw_only=True)
class HttpRequest:
    """An HTTP request. The names in `headers` are in lower case; `path` has no query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@attrs.frozen
class Reply:
    """An answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class ScriptedPages:
    """The HTTP answers of a scripted server.

    `base` is the address as a `ws` URL, which the forms of descriptions use.
    """

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server

    def answer(self, request: HttpRequest, base: str) -> Reply:
        """Answer a request. HEAD is answered like GET; the caller removes the body."""
        method = "GET" if request.method == "HEAD" else request.method
        try:
            return self.route(method, request, base)
        except Problem as problem:
            return self.problem(problem)

    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        """Return the reply for the place that is requested. Raises Problem."""
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        match parts:
            case [""]:
                return self.front_page(method, request, base)
            case [".well-known", "wot"]:
                return self.description(method, self.server.main, base)
            case ["agents", name]:
                return self.description(method, self.named(name), base)
            case ["agents", name, "properties"]:
                return self.properties(method, self.named(name), request)
            case ["agents", name, "properties", prop]:
                return self.property(method, self.named(name), prop, request)
            case ["agents", name, "actions", action]:
                return self.action(method, self.named(name), action, request)
            case _:
                raise not_found("place", request.path)

    def named(self, name: str) -> ScriptedThing:
        """Return the thing with a name. Raises Problem."""
        for thing in self.server.things.values():
            if thing.name == name:
                return thing
        raise not_found("thing", name)

    # ---- descriptions

    def front_page(self, method: str, request: HttpRequest, base: str) -> Reply:
        """Return the descriptions of all things as an array, or a page if the client is a browser."""
        only(method, "GET")
        if "text/html" in request.headers.get("accept", ""):
            page = self.page(base).encode()
            return Reply(200, page, (("Content-Type", "text/html; charset=utf-8"),))
        return given([self.described(thing, base) for thing in self.server.things.values()])

    def page(self, base: str) -> str:
        """Return the page for browsers."""
        items = "".join(
            f'<li><a href="/agents/{thing.name}">{html.escape(thing.describe(base)["title"])}</a></li>'
            for thing in self.server.things.values()
        )
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>LMOS conformance</title>'
            f"<h1>LMOS conformance</h1><p>Things at {html.escape(base)}/ws</p><ul>{items}</ul></html>"
        )

    def description(self, method: str, thing: ScriptedThing, base: str) -> Reply:
        """Return the description of a thing."""
        only(method, "GET")
        return given(self.described(thing, base), kind=_TD)

    def described(self, thing: ScriptedThing, base: str) -> Any:
        """Return a description as plain data."""
        return thing.describe(base)

    # ---- forms

    def properties(self, method: str, thing: ScriptedThing, request: HttpRequest) -> Reply:
        """Read all properties that can be read, or write some."""
        only(method, "GET", "PUT")
        if method == "GET":
            return given({name: thing.read(name) for name in thing.readable()})
        data = brought(request)
        if not is_object(data):
            raise invalid("an object is needed")
        for name, value in data.items():
            thing.check_write(name, value, f"$.{name}")
        thing.write(data)
        return Reply(204)

    def property(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        """Read a property, or write it."""
        thing.property(name)
        only(method, "GET", "PUT")
        if method == "GET":
            return given(thing.read(name))
        value = brought(request)
        thing.check_write(name, value, "$")
        thing.write({name: value})
        return Reply(204)

    def action(self, method: str, thing: ScriptedThing, name: str, request: HttpRequest) -> Reply:
        """Invoke an action."""
        thing.action(name)
        only(method, "POST")
        value = brought(request) if request.body else ABSENT
        thing.check_input(name, value)
        return self.outcome(thing.act(name, value))

    def outcome(self, outcome: Outcome) -> Reply:
        """Return the reply for the outcome of an action."""
        if isinstance(outcome, Failed):
            raise refused(outcome.output)
        if not isinstance(outcome, Done):
            raise not_allowed("this action is invoked over LMOS only")
        return Reply(204) if outcome.output is ABSENT else given(outcome.output)

    def problem(self, problem: Problem) -> Reply:
        """Return the problem details of RFC 9457."""
        instance = LMOS_ERRORS + self.server.new_id()
        document = {
            "type": problem.type,
            "title": problem.title,
            "status": problem.status,
            "detail": problem.detail,
            "instance": instance,
            **problem.more,
        }
        allow = problem.more.get("allow")
        more = (("Allow", ", ".join(allow)),) if allow else ()
        body = json.dumps(document).encode()
        return Reply(problem.status, body, (("Content-Type", "application/problem+json"), *more))


def only(method: str, *allowed: str) -> None:
    """Raise Problem 405 unless the method is one of those allowed."""
    if method not in allowed:
        problem = not_allowed(f"this place takes {' and '.join(allowed)}")
        problem.more["allow"] = list(allowed)
        raise problem


def given(value: Any, *, kind: str = _JSON) -> Reply:
    """Return a reply with a JSON value."""
    return Reply(200, json.dumps(value).encode(), (("Content-Type", kind),))


def brought(request: HttpRequest) -> Any:
    """Return the JSON value in the body of a request. Raises Problem."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise Problem("about:blank", "Unsupported Media Type", 415, f"{_JSON} is needed")
    try:
        return read_json(request.body)
    except ValueError as error:
        raise invalid(f"not JSON: {error}"[:500]) from None
