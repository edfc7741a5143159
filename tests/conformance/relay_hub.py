"""A right hub of AgentRelay, written by hand: the cases for relays are tried on it.

It shares the frames of a WebSocket with the scripted server of LMOS, and nothing with our own hub. It is
wrong in as many ways as it has faults: each is a word, which stands where it makes a difference. A relay that
was recorded is a set of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import trio

from lmos_actors.conformance.scripted import (
    Reply,
    Scheduler,
    SendClose,
    SendText,
    WebServer,
    WebSocketCodec,
    is_deep,
    refusal,
)
from lmos_actors.conformance.wire import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.conformance.scripted import RequestHead

MOST: Final = 64 << 10
RATE: Final = 200
ID: Final = re.compile(r"[a-z0-9]([a-z0-9-]{1,62})[a-z0-9]")
EXTENSIONS: Final = ("receipts", "presence", "history", "semantic", "voting")

Frame = dict[str, Any]


class Wrong(Exception):
    """A frame that cannot be understood."""

    def __init__(self, code: str = "invalid_message") -> None:
        self.code = code


class Hub(Scheduler):
    """Agents, their tokens, and what they follow; what is scheduled."""

    def __init__(self, faults: frozenset[str]) -> None:
        super().__init__(trio.current_time)
        self.faults = faults
        self.tokens: dict[str, str] = {}
        self.open: dict[str, HubPeer] = {}
        self.follows: dict[str, list[str]] = {}
        self.kept: list[tuple[Frame, frozenset[str]]] = []
        self.skills: dict[str, str] = {}
        self.votes: dict[str, dict[str, bool]] = {}
        self.visitors: set[str] = set()
        self.is_gone = False
        self._random = Random(7)
        self._made = count(1)

    def has(self, fault: str) -> bool:
        return fault in self.faults

    def new_id(self) -> str:
        return "same" if self.has("same ids") else f"m-{next(self._made)}"

    def now(self) -> int:
        seconds = 1_800_000_000 + trio.current_time()
        return int(seconds if self.has("ts in seconds") else seconds * 1000)

    # ---- registration

    def register(self, body: bytes) -> Reply:
        try:
            asked = json.loads(body or b"{}")
        except ValueError:
            return self._no("invalid_json", 500 if self.has("500 for no JSON") else 400)
        if asked is None:
            self.is_gone = self.has("ended by a null registration")
            return self._no("invalid_json") if not self.has("registers null") else self._registered("agent-n")
        wanted = asked.get("agent_id") if isinstance(asked, dict) else None
        if wanted is None:
            made_up = f"a{self._random.getrandbits(64):x}"
            return self._registered(f"{made_up}_-" if self.has("odd ids") else made_up)
        if not isinstance(wanted, str):
            is_taken = self.has("ids that are no text") and not isinstance(wanted, dict)
            return self._registered(str(wanted)) if is_taken else self._no("invalid_agent_id")
        if wanted == "relay" and not self.has("relay is registered"):
            return self._no("invalid_agent_id")
        if not ID.fullmatch(wanted) and not self.has("any id"):
            return self._no("invalid_agent_id")
        if wanted in self.tokens.values() and not self.has("taken ids"):
            return self._no("agent_id_taken", 400 if self.has("400 for a taken id") else 409)
        return self._registered("another" if self.has("another id") else wanted)

    def _registered(self, id: str) -> Reply:
        token = f"tok_{self._random.getrandbits(64):016x}"
        self.tokens[token] = id
        return Reply(200, json.dumps({"agent_id": id, "token": token}).encode(), ())

    def _no(self, error: str, status: int = 400) -> Reply:
        return Reply(status, json.dumps({"error": error, "message": "no"}).encode(), ())

    # ---- extensions

    def result(self, id: str, *, status: str) -> None:
        if id not in self.votes:
            return
        votes = Counter(self.votes.pop(id).values())
        counted = {"approve": votes[True], "reject": votes[False]}
        if self.has("counts no votes"):
            counted["approve"] = 0
        for _ in range(2 if self.has("two results") else 1):
            for peer in self.open.values():
                payload = {"status": status, "votes": counted, "quorum": 10}
                peer.own("vote_result", payload, ref=id, to=["*"])


class HubPeer:
    """One connection: frames in, frames out."""

    def __init__(self, hub: Hub, id: str) -> None:
        self.hub, self.id = hub, id
        self.out: deque[Any] = deque()
        self.wake: Callable[[], object] = lambda: None
        self.sent = 0
        self.told = False
        self.is_closed = False
        older = hub.open.get(id)
        hub.open[id] = self
        if older is not None and not hub.has("second beside"):
            older.put(SendClose(1000 if hub.has("1000 for the older") else 4009, "replaced"))
        if hub.has("loses the newer") and older is not None:
            hub.open[id] = older
        if hub.has("reaches nobody again") and id in hub.visitors:
            del hub.open[id]
        hub.visitors.add(id)
        if not hub.has("no welcome"):
            self.greet()
        if older is None and "presence" in self.extensions():
            self.tell_followers("joined")

    def extensions(self) -> tuple[str, ...]:
        return () if self.hub.has("no extensions") else EXTENSIONS

    def greet(self) -> None:
        known: Frame = {"relay": "kit", "version": "1", "capabilities": ["broadcast", "direct", "subscribe"]}
        if self.hub.has("bare welcome"):
            known = {"relay": "kit"}
        known["extensions"] = list(self.extensions())
        if not self.hub.has("no limits"):
            known["limits"] = {"max_message_size": MOST, "rate_limit": f"{RATE}/m"}
        kind = "hello" if self.hub.has("hello") else "welcome"
        self.own(kind, known, to=["somebody"] if self.hub.has("another's welcome") else None)

    # ---- out

    def put(self, out: Any) -> None:
        self.is_closed |= isinstance(out, SendClose)
        self.out.append(out)
        self.wake()

    def send(self, frame: Frame) -> None:
        self.put(SendText(json.dumps(frame)))

    def own(self, type: str, payload: Any, *, ref: Any = None, to: list[str] | None = None) -> None:
        frame = {"id": self.hub.new_id(), "from": "relay", "to": to or [self.id], "type": type}
        frame |= {"payload": payload, "ts": self.hub.now()}
        self.send(frame if ref is None else {**frame, "ref": ref})

    def error(self, code: str) -> None:
        if self.hub.has("errors to everybody"):
            for peer in self.hub.open.values():
                if peer is not self:
                    peer.own("error", {"code": code, "message": "no"}, to=[self.id])
        if self.hub.has("flat errors"):
            self.send({"from": "relay", "type": "error", "error": code, "message": "no"})
        elif not self.hub.has("silent"):
            code = "oops" if self.hub.has("other codes") and code == "invalid_message" else code
            members = {"code": code, "message": "no"}
            self.own("error", {"code": code} if self.hub.has("errors without message") else members)

    # ---- in

    def text(self, text: str) -> None:
        hub = self.hub
        if self.is_closed:
            return
        self.sent += 1
        if not hub.has("no rate") and self.sent > RATE and not self.told:
            self.told = not hub.has("an error each")
            self.error("rate_limit")
        try:
            self.take(self.read(text), text)
        except Wrong as wrong:
            if hub.has("closes after an error"):
                self.put(SendClose(1008))
            else:
                self.error(wrong.code)

    def binary(self, data: bytes) -> None:
        if self.hub.has("no binary"):
            self.put(SendClose(1003))
        else:
            self.text(data.decode())

    def read(self, text: str) -> Frame:
        hub = self.hub
        if hub.has("reads the first value"):
            text = text.partition(" x")[0]
        try:
            frame = json.loads(text, parse_int=self.number, parse_constant=self.constant)
            if is_deep([frame]):  # how deep `json` itself reads is not the same in all versions of Python
                raise RecursionError
        except RecursionError:
            hub.is_gone = hub.has("ended by nesting")
            raise Wrong from None
        except ValueError:
            raise Wrong from None
        if frame is None:
            hub.is_gone = hub.has("ended by null")
        if not isinstance(frame, dict) or not frame:
            if hub.has(f"takes {text}"):
                return {"to": ["nobody-at-all"], "payload": None}
            raise Wrong
        return frame

    def number(self, text: str) -> int:
        return int(float(text)) if self.hub.has("rounds") and len(text) > 15 else int(text)

    def constant(self, text: str) -> float:
        if self.hub.has("takes NaN"):
            return 0.0
        raise Wrong

    def take(self, frame: Frame, text: str) -> None:
        hub = self.hub
        if frame.get("from", self.id) != self.id and not hub.faults & {"replaces from", "forged from"}:
            raise Wrong("auth_mismatch")
        if hub.has("demands from" if "from" not in frame else "refuses from"):
            raise Wrong
        to = self.targets(frame)
        is_command = "relay" in to and not (hub.has("commands are heard") and "*" in to)
        if "payload" not in frame and not (is_command and not hub.has("demands payloads")):
            if hub.has("takes no payload"):
                return
            raise Wrong
        if is_command:
            self.command(frame)
        elif self.is_dead_end(to):
            self.put(SendClose(1011))
        else:
            self.pass_on(frame, to)

    def is_dead_end(self, to: list[str]) -> bool:
        away = set(self.hub.tokens.values()) - set(self.hub.open)
        is_unknown = to == ["no-such-agent-of-anybody"]
        return (is_unknown and self.hub.has("drops nobody loudly")) or (
            bool(away & set(to)) and self.hub.has("closes for those who left")
        )

    def targets(self, frame: Frame) -> list[str]:
        hub, to = self.hub, frame.get("to")
        if "to" not in frame:
            if hub.has("takes no to"):
                return []
            raise Wrong
        if not isinstance(to, list):
            if hub.has(f"takes to {to!r}"):
                return []
            raise Wrong
        texts = [each for each in to if isinstance(each, str)]
        if len(texts) < len(to) and any(isinstance(each, dict) for each in to):
            hub.is_gone = hub.has("ended by an object")
        if (not to or len(texts) < len(to)) and not hub.has("silent targets"):
            raise Wrong
        return texts

    # ---- messages

    def passed(self, frame: Frame, to: list[str]) -> Frame:
        hub = self.hub
        sent = {"id": hub.new_id(), "from": self.id, "to": to, "payload": frame["payload"], "ts": hub.now()}
        if hub.has("targets are hidden") and "*" not in to:
            sent["to"] = to[:1]
        kept = ("type", "ref") if hub.has("drops members") else tuple(frame)
        more = {name: frame[name] for name in kept if name in frame and name not in sent}
        for fault, name in (("forged from", "from"), ("keeps ids", "id"), ("keeps ids", "ts")):
            if hub.has(fault) and name in frame:
                sent[name] = frame[name]
        if hub.has("anonymous"):
            sent["from"] = "somebody"
        if hub.has("no type") or (hub.has("known types") and str(frame.get("type")).startswith("no-such")):
            more.pop("type", None)
        if hub.has("always a type"):
            more.setdefault("type", "thought")
        if hub.has("no ref"):
            more.pop("ref", None)
        if hub.has("null is no payload") and sent["payload"] is None:
            sent["payload"] = ""
        if hub.has("control types are the relay's") and frame.get("type") in ("welcome", "vote_result"):
            sent["from"] = "relay"
        return {**sent, **more}

    def pass_on(self, frame: Frame, to: list[str]) -> None:
        hub = self.hub
        sent = self.passed(frame, to)
        is_broadcast = "*" in to or hub.has("broadcasts alone") or hub.has("everybody hears all")
        if is_broadcast and not (hub.has("broadcasts alone") and "*" not in to):
            heard = [each for each in hub.open if each != self.id or hub.has("hears itself")]
            heard += [id for id, whom in hub.follows.items() if self.id in whom and hub.has("twice")]
            if hub.has("oneself in broadcasts") and self.id in hub.follows.get(self.id, []):
                heard.append(self.id)
            if hub.has("names beside * twice"):
                heard += [name for name in to if name in hub.open]
            if hub.has("follower twice"):
                heard += [id for id, whom in hub.follows.items() if self.id in whom and id != self.id]
            if hub.has("* alone") and len(to) > 1:
                heard = []
        elif is_broadcast:
            heard = []
        else:
            heard = self.direct(to)
        if hub.has("forgets each tenth") and self.sent % 10 == 9:
            heard = []
        for id in heard:
            if id in hub.open:
                hub.open[id].send(sent)
        self.extend(sent, frame, heard, is_broadcast=is_broadcast)

    def direct(self, to: list[str]) -> list[str]:
        hub = self.hub
        if hub.has("no direct messages"):
            return []
        heard = to if hub.faults & {"twice", "named twice"} else list(dict.fromkeys(to))
        if hub.has("the first alone"):
            heard = heard[:1]
        if hub.has("not oneself"):
            heard = [id for id in heard if id != self.id]
        followed = {id for id, whom in hub.follows.items() if set(whom) & set(to)}
        following = {id for id, whom in hub.follows.items() if self.id in whom}
        if hub.has("copies to followers"):
            heard = [*heard, *sorted(followed - set(heard))]
        if hub.has("copies of the followed"):
            heard = [*heard, *sorted(following - set(heard))]
        return heard

    # ---- commands

    def command(self, frame: Frame) -> None:
        hub, kind, payload = self.hub, frame.get("type"), frame.get("payload")
        if kind == "ping":
            if not hub.has("no pong"):
                self.own("pong", None)
        elif kind in ("subscribe", "unsubscribe") and not hub.has("broadcasts alone"):
            self.follow(kind, payload)
        elif kind == "list_subscriptions" and not hub.has("broadcasts alone"):
            if not hub.has("no list"):
                self.own("subscriptions", {"agents": hub.follows.get(self.id, [])})
        elif not self.extended(frame) and not hub.faults & {"silent commands", "broadcasts alone"}:
            raise Wrong("unknown_command")

    def follow(self, kind: str, payload: Any) -> None:
        names = payload.get("agents") if isinstance(payload, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            if self.hub.faults & {"silent commands", "broadcasts alone"}:
                return
            raise Wrong
        followed = self.hub.follows.setdefault(self.id, [])
        for name in names:
            if kind == "subscribe" and name not in followed:
                followed.append(name)
            elif kind == "unsubscribe" and name in followed and not self.hub.has("follows for ever"):
                followed.remove(name)
        if self.hub.has(f"no {kind}d"):
            return
        self.own(f"{kind}d", {"agents": [] if self.hub.has(f"bare {kind}d") else names, "count": len(names)})

    # ---- extensions

    def extend(self, sent: Frame, frame: Frame, heard: list[str], *, is_broadcast: bool) -> None:
        hub = self.hub
        if hub.has("no extensions"):
            return
        if "receipt" in frame:
            there = [id for id in heard if id in hub.open]
            unknown = [id for id in sent["to"] if id not in hub.open and id != "*"]
            payload = {"receipt": frame["receipt"], "delivered": len(there), "unknown": unknown}
            payload |= {"unknown": []} if hub.has("unknown is hidden") else {}
            self.own("receipt", payload, ref=hub.new_id() if hub.has("receipts of others") else sent["id"])
        if not frame.get("no_store") or hub.has("keeps all"):
            everybody = is_broadcast or hub.has("history of others")
            hub.kept.append((sent, frozenset() if everybody else frozenset((self.id, *heard))))
        if is_broadcast and frame.get("type") == "discovery":
            hub.skills[self.id] = "" if hub.has("finds nobody") else json.dumps(frame["payload"])
        if is_broadcast and frame.get("type") == "proposal":
            hub.votes[sent["id"]] = {}
            seconds = (frame["deadline"] - hub.now()) / 1000
            hub.after(seconds, lambda: hub.result(sent["id"], status="expired"))
        if hub.has("results of anybody") and frame.get("type") == "vote_result":
            hub.result(str(frame.get("ref")), status="passed")

    def extended(self, frame: Frame) -> bool:
        hub, kind, payload, ref = self.hub, frame.get("type"), frame.get("payload"), frame.get("ref")
        if hub.has("no extensions"):
            return False
        if kind == "command" and payload["command"] == "history":
            mine = [sent for sent, whose in hub.kept if not whose or self.id in whose]
            found = mine[-payload["limit"] :]
            found = found[::-1] if hub.has("newest first") else found
            self.own("command_result", {"command": "history", "messages": found, "more": False}, ref=ref)
        elif kind == "query":
            agents = [{"agent": id, "score": 1.0} for id, text in hub.skills.items() if payload in text]
            self.own("query_result", {"agents": agents, "messages": []}, ref=ref)
        elif kind == "vote":
            if ref not in hub.votes or not isinstance(payload.get("approve"), bool):
                if hub.has("any vote"):
                    return True
                raise Wrong("not_allowed")
            hub.votes[ref][self.id] = payload["approve"]
        else:
            return False
        return True

    def tell_followers(self, kind: str) -> None:
        if self.hub.has("no presence") and kind == "left":
            return
        for id, whom in self.hub.follows.items():
            if self.id in whom and id in self.hub.open and id != self.id:
                self.hub.open[id].own(kind, {"agent": self.id})

    def lost(self) -> None:
        hub = self.hub
        mine = hub.open.get(self.id) is self
        if mine or hub.faults & {"second beside", "second lost"}:
            hub.open.pop(self.id, None)
        if hub.has("forgets"):
            hub.follows.pop(self.id, None)
        if mine and "presence" in self.extensions():
            self.tell_followers("left")


class HubCodec(WebSocketCodec):
    """Frames, with the limit that is announced."""

    connection: Any

    def on_message(self, opcode: int, data: bytes) -> None:
        hub = self.connection.hub
        if len(data) > MOST and not hub.has("unlimited"):
            self.on_violation(1008 if hub.has("1008 for a long one") else 1009, "too large")
        elif len(data) > 50_000 and hub.has("a small limit"):
            self.on_violation(1009, "too large")
        elif opcode == TEXT and hub.has("any bytes"):
            self.connection.text(data.decode(errors="replace"))
        else:
            super().on_message(opcode, data)

    def on_violation(self, code: int, reason: str) -> None:
        is_utf8 = code == 1007 and self.connection.hub.has("1002 for no UTF-8")
        super().on_violation(1002 if is_utf8 else code, reason)

    def on_part(self, frame: Any) -> None:
        if self.connection.hub.has("no fragments") and not frame.fin:
            self.on_violation(1003, "whole messages, please")
        else:
            super().on_part(frame)

    def on_ping(self, payload: bytes) -> None:
        if not self.connection.hub.has("no pong frames"):
            super().on_ping(b"other" if self.connection.hub.has("other pongs") else payload)

    def on_close(self, payload: bytes) -> None:
        if self.connection.hub.has("no Close"):
            self.over = True
            self.connection.wake()
        else:
            super().on_close(payload)


class HubServer(WebServer):
    """A hub on a network, right but for its faults."""

    peer_class = HubPeer

    def __init__(self, *faults: str) -> None:
        self.hub = Hub(frozenset(faults))
        self.hub.tokens["tok_of_the_file"] = "agent-of-the-file"
        super().__init__(self.hub)

    async def _serve(self, stream: trio.abc.Stream, peer: str) -> None:
        if self.hub.is_gone:
            await trio.aclose_forcefully(stream)
        else:
            await super()._serve(stream, peer)

    def token_in(self, head: RequestHead) -> str:
        shown = (head.header("authorization") or "").removeprefix("Bearer ")
        query = dict(parse_qsl(urlsplit(head.target).query))
        return shown or ("" if self.hub.has("no query") else query.get("token", ""))

    def refused(self, head: RequestHead) -> Reply | None:
        hub = self.hub
        if head.path != "/arc" and not hub.has("any path"):
            return refusal(404, "not here")
        token = self.token_in(head)
        if not token and hub.faults & {"refuses late", "no token needed"}:
            return None
        if token not in hub.tokens and hub.faults & {"refuses late", "any token"}:
            return None
        return None if token in hub.tokens else refusal(401, "no token")

    def subprotocol(self, head: RequestHead) -> str:
        offered = head.words("sec-websocket-protocol")
        if self.hub.has("any subprotocol"):
            return offered[0] if offered else ""
        return "arc" if self.hub.has("always arc") else ""

    def open(self, head: RequestHead) -> WebSocketCodec:
        token = self.token_in(head)
        peer = self.peer_class(self.hub, self.hub.tokens.get(token, f"guest-{self.hub.new_id()}"))
        if token not in self.hub.tokens and self.hub.has("refuses late"):
            peer.out.clear()
            peer.put(SendClose(4001, "Invalid or unregistered token"))
        if self.hub.has("hangs up"):
            self.hub.after(0.5, lambda: peer.put(SendClose(1001)))
        return HubCodec(peer)

    def switching_headers(self, head: RequestHead) -> list[tuple[str, str]]:
        wrong = "x" if self.hub.has("a wrong key") else ""
        headers = super().switching_headers(head)
        return [(name, value + wrong * name.endswith("Accept")) for name, value in headers]

    def on_http(self, head: RequestHead, body: bytes) -> Reply:
        hub = self.hub
        if head.path == "/register" and not hub.has("no registration"):
            if head.method == "POST" or hub.has("registers by GET"):
                return hub.register(body)
            return refusal(405, "POST")
        if head.path == "/health" and not hub.has("no health"):
            return Reply(200, b'{"status": "ok"}', ())
        if head.path == "/stats" and not hub.has("no stats"):
            named = list(hub.open) if hub.has("names") else []
            found: Any = {"connected": len(hub.open), "agents": named}
            return Reply(200, b"none" if hub.has("stats as text") else json.dumps(found).encode(), ())
        return refusal(404, "not here")


REFERENCE: Final = (
    "refuses late", "any subprotocol", "no extensions", "no limits", "odd ids", "ids that are no text",
    "relay is registered", "400 for a taken id", "twice", "oneself in broadcasts", "rounds", "drops members",
    "replaces from", "no pong", "demands payloads", "silent commands", "silent targets", "unlimited",
    "no rate", "second beside", "no health", "names", "forgets", "ended by null", "ended by an object",
    "ended by nesting", "ended by a null registration",
)  # fmt: skip
"""What the reference relay was recorded to do otherwise."""

RAWK: Final = (
    "refuses late", "any subprotocol", "no extensions", "no limits", "odd ids", "ids that are no text",
    "relay is registered", "400 for a taken id", "twice", "oneself in broadcasts", "rounds", "forged from",
    "keeps ids", "copies to followers", "silent commands", "silent targets", "unlimited", "no rate",
    "second beside", "names", "forgets", "ended by null", "ended by an object", "ended by nesting",
)  # fmt: skip
"""What rawk's relay was recorded to do otherwise."""

SEED_DAY: Final = (
    "refuses late", "any subprotocol", "no extensions", "no limits", "rounds", "demands from", "no pong",
    "demands payloads", "silent commands", "silent targets", "broadcasts alone", "no direct messages",
    "commands are heard", "keeps ids", "unlimited", "no rate", "second beside", "no health", "names",
    "no registration", "ended by null", "ended by an object", "ended by nesting",
)  # fmt: skip
"""What the reference relay did when the protocol's text was written."""
