"""The faults of a hub, and the cases that fail for each: those that are meant for it, and no others."""

from __future__ import annotations

from typing import Final

BAD: Final = (
    "relaybad.json relaybad.empty relaybad.trailing relaybad.nan relaybad.array relaybad.text "
    "relaybad.number relaybad.object relaybad.no-to relaybad.no-payload relaybad.to-*"
)
ENDED: Final = "relayend.null relayend.to-* relayend.nesting"
UNACKNOWLEDGED: Final = (
    "relayfollow.subscribe relayfollow.unsubscribe relayfollow.list relayfollow.once relayfollow.oneself "
    "relayfollow.direct-to relayfollow.direct-of relaypresence.both"
)

FAULTS: Final[dict[str, str]] = {
    # --- handshakes
    "a wrong key": "relayopen.upgrade",
    "always arc": "relayopen.subprotocol relayopen.other-subprotocol",
    "any subprotocol": "relayopen.other-subprotocol",
    "no welcome": "relayopen.welcome",
    "hello": "relayopen.welcome",
    "another's welcome": "relayopen.own-id",
    "bare welcome": "relayopen.capabilities",
    "no query": "relayopen.query",
    "refuses late": "relayopen.no-token relayopen.bad-token",
    "no token needed": "relayopen.no-token",
    "any token": "relayopen.no-token relayopen.bad-token",
    "any path": "relayopen.path",
    # --- registration
    "another id": "relayregister.named ...",
    "odd ids": "relayregister.made-up",
    "taken ids": "relayregister.taken",
    "400 for a taken id": "relayregister.taken",
    "any id": "relayregister.rule",
    "ids that are no text": "relayregister.text",
    "relay is registered": "relayregister.relay",
    "500 for no JSON": "relayregister.json",
    "registers by GET": "relayregister.get",
    "registers null": "relayend.register-null",
    # --- messages
    "hears itself": "relaysend.broadcast relayfollow.oneself",
    "everybody hears all": "relaysend.direct relaysend.oneself relaysend.nobody relayfollow.direct-to "
    "relayfollow.direct-of relayhistory.private",
    "no direct messages": "relaysend.direct relaysend.several relaysend.oneself relaysend.repeated "
    "relayhistory.private relayreceipts.receipt",
    "targets are hidden": "relaysend.several",
    "the first alone": "relaysend.several",
    "not oneself": "relaysend.oneself",
    "named twice": "relaysend.repeated",
    "twice": "relaysend.repeated relayfollow.once relayfollow.oneself",
    "* alone": "relaysend.star-and-names",
    "names beside * twice": "relaysend.star-and-names",
    "drops nobody loudly": "relaysend.nobody relayreceipts.unknown",
    "forgets each tenth": "relaysend.order relaysend.payloads",
    "same ids": "relaysend.envelope",
    "ts in seconds": "relaysend.envelope",
    "anonymous": "relaysend.envelope relayfrom.none relayfrom.control-types relaysemantic.query",
    "no type": "relaysend.type relaysemantic.query",
    "known types": "relaysend.type",
    "always a type": "relaysend.type",
    "no ref": "relaysend.ref relaysend.payloads relaysend.numbers",
    "null is no payload": "relaysend.payloads",
    "rounds": "relaysend.numbers",
    "drops members": "relaysend.members",
    # --- whose they are
    "demands from": "relayfrom.none",
    "refuses from": "relayfrom.own ...",
    "replaces from": "relayfrom.another relayfrom.relay",
    "forged from": "relayfrom.another relayfrom.relay",
    "keeps ids": "relayfrom.id-and-ts",
    "control types are the relay's": "relayfrom.control-types relayvoting.forged",
    # --- following
    "no subscribed": UNACKNOWLEDGED,
    "no unsubscribed": UNACKNOWLEDGED,
    "bare subscribed": "relayfollow.subscribe",
    "bare unsubscribed": "relayfollow.unsubscribe",
    "follows for ever": "relayfollow.unsubscribe",
    "no list": "relayfollow.list",
    "follower twice": "relayfollow.once",
    "oneself in broadcasts": "relayfollow.oneself",
    "copies to followers": "relayfollow.direct-to",
    "copies of the followed": "relayfollow.direct-of",
    # --- commands
    "no pong": "relaycommand.ping",
    "demands payloads": "relaycommand.ping relayfollow.list",
    "silent commands": "relaycommand.unknown relayfollow.wrong",
    "commands are heard": "relaycommand.unheard",
    # --- what is refused
    "reads the first value": "relaybad.trailing",
    "takes NaN": "relaybad.nan",
    "takes []": "relaybad.array",
    'takes "text"': "relaybad.text",
    "takes 5": "relaybad.number",
    "takes {}": "relaybad.object",
    "takes no to": "relaybad.no-to",
    "takes no payload": "relaybad.no-payload",
    "takes to '*'": "relaybad.to-text",
    "takes to None": "relaybad.to-null",
    "takes to 5": "relayend.to-number",
    "silent targets": "relaybad.to-nobody relaybad.to-numbers relayend.to-object",
    "errors without message": "relaybad.error",
    "errors to everybody": "relaybad.unheard",
    "other codes": f"{BAD} {ENDED}",
    "flat errors": f"{BAD} {ENDED} relaybad.error relaycommand.unknown relayfollow.wrong",
    "silent": f"{BAD} {ENDED} relaybad.error relaycommand.unknown relayfollow.wrong relayfrom.another "
    "relayfrom.relay relayrate.limit relayvoting.wrong",
    "closes after an error": f"{BAD} relaybad.error relaybad.unheard relaycommand.unknown relayfollow.wrong "
    "relayfrom.another relayfrom.relay relayvoting.wrong",
    "no rate": "relayrate.limit",
    "an error each": "relayrate.limit",
    # --- bytes and connections
    "no pong frames": "relaybytes.ping",
    "other pongs": "relaybytes.ping",
    "no fragments": "relaybytes.fragments",
    "no binary": "relaybytes.binary",
    "any bytes": "relaybytes.utf-8",
    "1002 for no UTF-8": "relaybytes.utf-8",
    "unlimited": "relaybytes.too-long",
    "1008 for a long one": "relaybytes.too-long",
    "a small limit": "relaybytes.long",
    "no Close": "relayconnection.close",
    "hangs up": "relayconnection.stays relayrate.limit relayvoting.result",
    "closes for those who left": "relayconnection.left",
    "reaches nobody again": "relayconnection.back ...",
    "loses the newer": "relayconnection.second relayconnection.second-stays",
    "1000 for the older": "relayconnection.first-ends",
    "second beside": "relayconnection.first-ends relayconnection.second-stays",
    "second lost": "relayconnection.second-stays",
    # --- pages
    "no health": "relayhttp.health",
    "no stats": "relayhttp.stats",
    "stats as text": "relayhttp.stats",
    "names": "relayhttp.names",
    # --- extensions
    "receipts of others": "relayreceipts.receipt",
    "unknown is hidden": "relayreceipts.unknown",
    "no presence": "relaypresence.both",
    "newest first": "relayhistory.broadcasts",
    "history of others": "relayhistory.private",
    "keeps all": "relayhistory.no-store",
    "finds nobody": "relaysemantic.query",
    "counts no votes": "relayvoting.result",
    "two results": "relayvoting.result",
    "any vote": "relayvoting.wrong",
    "results of anybody": "relayvoting.forged",
    # --- what ends it
    "ended by null": "relayend.null",
    "ended by an object": "relayend.to-object",
    "ended by nesting": "relayend.nesting",
    "ended by a null registration": "relayend.register-null",
}
"""Each fault, and patterns of the cases that fail at the level `spec`; `...`: and most others, too."""

NO_FAULTS: Final = ("no extensions", "no limits", "forgets")
"""What a right hub may do."""
