"""Servers whose description is wrong, or served in a wrong way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import HttpRequest, Reply, ScriptedPages, ScriptedServer, given
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import ScriptedThing

SHELF = Shelf()
HERE = "/agents/conformance"


class Describes(ScriptedPages):
    """Describes the first of its things in a wrong way: `wrong` makes it so."""

    def described(self, thing: ScriptedThing, base: str) -> Any:
        found = json.loads(json.dumps(super().described(thing, base)))
        if thing is self.server.main:
            self.wrong(found)
        return found

    def wrong(self, data: dict[str, Any]) -> None:
        """Change the description."""


@SHELF("serves-plain-text", "serves its description as plain text", "description.served")
class ServesPlainText(ScriptedPages):
    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        reply = super().route(method, request, base)
        if request.path != HERE:
            return reply
        return Reply(reply.status, reply.body, (("Content-Type", "text/plain"),))


@SHELF("knows-no-head", "refuses HEAD of its description", "description.head")
class KnowsNoHead(ScriptedPages):
    def answer(self, request: HttpRequest, base: str) -> Reply:
        return Reply(405) if request.method == "HEAD" else super().answer(request, base)


@SHELF("answers-head-otherwise", "answers HEAD with other headers than GET", "description.head")
class AnswersHeadOtherwise(ScriptedPages):
    def answer(self, request: HttpRequest, base: str) -> Reply:
        reply = super().answer(request, base)
        return Reply(reply.status, b"", reply.headers) if request.method == "HEAD" else reply


@SHELF("lists-at-well-known", "has a list at /.well-known/wot", "description.well-known")
class ListsAtWellKnown(ScriptedPages):
    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        if request.path == "/.well-known/wot":
            return given([self.described(self.server.main, base)])
        return super().route(method, request, base)


@SHELF("fails-at-well-known", "has an internal error at /.well-known/wot", "description.well-known")
class FailsAtWellKnown(ScriptedPages):
    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        return Reply(500) if request.path == "/.well-known/wot" else super().route(method, request, base)


@SHELF("says-a-name-twice", "has a name twice in one object", "description.readable")
class SaysANameTwice(ScriptedPages):
    def route(self, method: str, request: HttpRequest, base: str) -> Reply:
        reply = super().route(method, request, base)
        if request.path != HERE:
            return reply
        return Reply(reply.status, b'{"title": "twice", ' + reply.body[1:], reply.headers)


@SHELF("has-no-list-of-links", "has a number where its links should be", "description.readable")
class HasNoListOfLinks(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        data["links"] = 7


@SHELF("has-no-title", "has no title", "description.schema")
class HasNoTitle(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        del data["title"]


@SHELF("misspells", "writes synchronus", "description.schema")
class Misspells(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        data["actions"]["echo"]["synchronus"] = True


@SHELF("has-no-context", "does not name the vocabulary of LMOS", "description.context")
class HasNoContext(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        first, prefixes = data["@context"]
        data["@context"] = [first, {"lmosx": prefixes["lmosx"]}]


@SHELF("is-no-agent", "does not say that it is an agent", "description.type")
class IsNoAgent(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        data["@type"] = "Thing"


@SHELF("has-a-bare-id", "has an id that is no URI", "description.id", "letter.thing")
class HasABareId(ScriptedServer):
    def add(self, name: str, describe: Callable[[str], dict[str, Any]]) -> ScriptedThing:
        return super().add(name, lambda base: {**describe(base), "id": name})


@SHELF("has-no-security", "does not say who is let in", "description.security")
class HasNoSecurity(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        del data["security"], data["securityDefinitions"]


@SHELF("names-no-such-security", "names a security that it does not define", "description.security")
class NamesNoSuchSecurity(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        data["security"] = "basic_sc"


@SHELF("has-a-form-without-subprotocol", "has no subprotocol in a form", "description.subprotocol")
class HasAFormWithoutSubprotocol(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        for form in data["events"]["alarm"]["forms"]:
            del form["subprotocol"]


@SHELF("writes-what-is-read-only", "has a form that writes what is read-only", "description.operations")
class WritesWhatIsReadOnly(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        data["properties"]["version"]["forms"][0]["op"].append("writeproperty")


@SHELF("has-no-such-address", "has a form whose href is no URI", "description.addresses")
class HasNoSuchAddress(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        form = {"href": "http://kit.example/has a space", "subprotocol": "sse", "op": "subscribeevent"}
        data["events"]["alarm"]["forms"].append(form)


@SHELF("has-no-such-port", "has a form whose port cannot be", "description.addresses")
class HasNoSuchPort(Describes):
    def wrong(self, data: dict[str, Any]) -> None:
        form = {"href": "http://kit.example:99999/alarm", "subprotocol": "sse", "op": "subscribeevent"}
        data["events"]["alarm"]["forms"].append(form)


BROKEN = SHELF.all()


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
