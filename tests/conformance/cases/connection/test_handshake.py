"""Servers that shake hands in a wrong way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmos_actors.conformance.scripted import NetworkServer, Reply, RequestHead, ScriptedPages, refusal
from tests.conformance.breaking import Broken, check_server, each_server
from tests.conformance.shelf import Shelf

if TYPE_CHECKING:
    from lmos_actors.conformance.scripted import ScriptedThing

SHELF = Shelf()


@SHELF("accepts-by-the-key", "gives the key back, in place of what is made of it", "handshake.accept")
class AcceptsByTheKey(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        key = head.header("sec-websocket-key") or ""
        told = dict(super().switching_headers(head))
        return list((told | {"Sec-WebSocket-Accept": key}).items())


@SHELF("does-not-say-upgrade", "does not say to what it switches", "handshake.headers")
class DoesNotSayUpgrade(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        return [(name, value) for name, value in super().switching_headers(head) if name != "Upgrade"]


@SHELF("says-close", "says Connection: close and switches all the same", "handshake.headers")
class SaysClose(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        return list((dict(super().switching_headers(head)) | {"Connection": "close"}).items())


@SHELF("compares-connection", "takes Connection: Upgrade to the letter", "handshake.header-words")
class ComparesConnection(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        if head.header("connection") != "Upgrade":
            return refusal(400, "no WebSocket handshake")
        return super().refused(head)


@SHELF("selects-nothing", "does not say which subprotocol it has selected", "handshake.subprotocol")
class SelectsNothing(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        found = super().switching_headers(head)
        return [(name, value) for name, value in found if name != "Sec-WebSocket-Protocol"]


@SHELF("selects-another", "selects a subprotocol that was not offered", "handshake.subprotocol")
class SelectsAnother(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        told = dict(super().switching_headers(head))
        if "Sec-WebSocket-Protocol" in told:
            told["Sec-WebSocket-Protocol"] = "v1.lmos"
        return list(told.items())


@SHELF("knows-one-word", "takes a list of subprotocols for one", "handshake.subprotocol-among-others")
class KnowsOneWord(NetworkServer):
    def subprotocol(self, head: RequestHead) -> str:
        return super().subprotocol(head) if len(head.words("sec-websocket-protocol")) == 1 else ""


@SHELF("selects-unasked", "selects lmosprotocol for who offers nothing", "handshake.subprotocol-unasked")
class SelectsUnasked(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        unasked = (
            [] if head.header("sec-websocket-protocol") else [("Sec-WebSocket-Protocol", "lmosprotocol")]
        )
        return super().switching_headers(head) + unasked


@SHELF("selects-whatever", "selects whatever is offered", "handshake.subprotocol-unknown")
class SelectsWhatever(NetworkServer):
    def subprotocol(self, head: RequestHead) -> str:
        return super().subprotocol(head) or "".join(head.words("sec-websocket-protocol")[-1:])


@SHELF("fails-at-unknown", "has an internal error at an unknown subprotocol", "handshake.subprotocol-unknown")
class FailsAtUnknown(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        if head.header("sec-websocket-protocol") and not self.subprotocol(head):
            return refusal(500, "no such subprotocol")
        return super().refused(head)


@SHELF("takes-any-version", "takes any version of WebSocket for 13", "handshake.version")
class TakesAnyVersion(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        refused = super().refused(head)
        return None if refused is not None and refused.status == 426 else refused


@SHELF("hides-its-version", "refuses another version, and does not say which it speaks", "handshake.version")
class HidesItsVersion(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        refused = super().refused(head)
        return refusal(400, "no") if refused is not None and refused.status == 426 else refused


@SHELF("needs-no-key", "accepts a handshake without a key", "handshake.key")
class NeedsNoKey(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        refused = super().refused(head)
        return None if refused is not None and not head.header("sec-websocket-key") else refused


@SHELF("compresses-unasked", "puts an extension to use that nobody asked for", "handshake.extensions")
class CompressesUnasked(NetworkServer):
    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        return [*super().switching_headers(head), ("Sec-WebSocket-Extensions", "permessage-deflate")]


class LeadsAstray(ScriptedPages):
    def described(self, thing: ScriptedThing, base: str) -> Any:
        found = super().described(thing, base)
        alarm = found["events"].get("alarm", {"forms": [{}]})
        alarm["forms"] = [{**form, "href": f"{base}/nowhere"} for form in alarm["forms"]]
        return found


class IsNotThere(NetworkServer):
    def refused(self, head: RequestHead) -> Reply | None:
        return refusal(404, "not here") if head.path == "/nowhere" else super().refused(head)


BROKEN = (
    *SHELF.all(),
    Broken(
        id="leads-astray",
        what="has a form that leads to no WebSocket",
        caught_by="handshake.addresses",
        parts={"pages": LeadsAstray, "serving": IsNotThere},
    ),
)


@each_server(BROKEN)
def test_a_broken_server_is_caught_by_its_case_and_no_other(broken: Broken, whole: bool) -> None:
    check_server(broken, whole)
