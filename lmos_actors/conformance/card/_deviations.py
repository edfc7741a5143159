"""Named deviations of servers from the specification, and their verdicts by level."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from ._verdicts import Level, Section, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._verdicts import Departure

PROTOCOL: Final = "LMOS communication protocol"
BINDING: Final = "LMOS WebSocket binding"
AGENT: Final = "LMOS agent description"
TD: Final = "WoT Thing Description 1.1"
DISCOVERY: Final = "WoT Discovery"
WEBSOCKET: Final = "RFC 6455"
HTTP: Final = "RFC 9110"
EXTENSIONS: Final = "LMOS extensions of lmos_actors"
KOTLIN: Final = "kotlin-wot, as its source has it"
OMNIA: Final = "Omnia WebSocket protocol"
FACADE: Final = "Omnia's newest facade, as recorded"
RELAY: Final = "AgentRelay message types"
RELAY_PAGES: Final = "AgentRelay's pages"
RELAYS: Final = "AgentRelay's relays, as recorded"
RELAY_EXTENSIONS: Final = "Relay extensions of lmos_actors"
JSON: Final = "RFC 8259"


# Places in the texts: `lmos("readProperty")`. Extensions and kotlin-wot's habits bind no other server.
lmos: Final = partial(Section, PROTOCOL)
binding: Final = partial(Section, BINDING)
agent: Final = partial(Section, AGENT)
td: Final = partial(Section, TD)
discovery: Final = partial(Section, DISCOVERY)
rfc6455: Final = partial(Section, WEBSOCKET)
http: Final = partial(Section, HTTP)
extension: Final = partial(Section, EXTENSIONS)
kotlin: Final = partial(Section, KOTLIN)
omnia: Final = partial(Section, OMNIA)
facade: Final = partial(Section, FACADE)
relay: Final = partial(Section, RELAY)
relay_page: Final = partial(Section, RELAY_PAGES)
relays: Final = partial(Section, RELAYS)
relay_extension: Final = partial(Section, RELAY_EXTENSIONS)
rfc8259: Final = partial(Section, JSON)


@attrs.frozen
class Deviation:
    """A named way in which a server may differ from the specification.

    `breaks`: a peer that follows the specification cannot work with such a server, so this fails at every
    level except those in `habit_of`. `habit_of`: the levels of programs that have this habit; at these levels
    it counts as passed.
    """

    key: str
    title: str
    section: Section
    breaks: bool = attrs.field(default=False, kw_only=True)
    habit_of: tuple[Level, ...] = attrs.field(default=(), kw_only=True)

    def fails(self, level: Level) -> bool:
        """Return whether a case in which this deviation is seen fails at a level."""
        return level not in self.habit_of and (self.breaks or level is Level.SPEC)

    def counts(self, level: Level) -> bool:
        """Return whether a case in which this deviation is seen does not count as passed at a level."""
        return level not in self.habit_of


_KOTLIN: Final = (Level.KOTLIN_WOT,)
_REFERENCE: Final = (Level.REFERENCE,)
_RAWK: Final = (Level.RAWK,)
_BOTH: Final = (Level.REFERENCE, Level.RAWK)
_COMMON: Final = lmos("Common Message Members Table")
_REQUIREMENTS: Final = lmos("Common Message Requirements")

# fmt: off
ROWS: Final = (
    # --- how members are written
    Deviation("ids-spelled-Id", "members are spelt thingId, messageId, correlationId",
              _COMMON, habit_of=_KOTLIN),
    Deviation("names-spelled-property", "the name of a property is in the member `property`",
              lmos("propertyReading"), habit_of=_KOTLIN),
    Deviation("value-spelled-data", "the value of a reading is in the member `data`",
              lmos("propertyReading"), habit_of=_KOTLIN),
    Deviation("member-missing", "a mandatory member is missing", _COMMON, breaks=True),
    Deviation("member-type", "a member has another type than demanded", _COMMON, breaks=True),
    Deviation("member-twice", "a member is duplicated", _REQUIREMENTS),
    Deviation("id-no-uuid", "an id is no UUID of version 4", _REQUIREMENTS),
    Deviation("thing-no-uri", "a thingID is no URI", _REQUIREMENTS, habit_of=_KOTLIN),
    Deviation("time-number", "a time is written as a number", _REQUIREMENTS, habit_of=_KOTLIN),
    Deviation("time-format", "a time is no date-time of RFC 9557", _REQUIREMENTS, breaks=True),
    Deviation("status-word", "a status of a run is not one of those listed", lmos("actionStatus")),
    Deviation("error-status", "the status of an error is no HTTP status in a text", lmos("error")),
    Deviation("error-uri", "the type or instance of an error is no URI reference", lmos("error")),
    Deviation("table-spelling-unread", "requests with thingID, messageID, correlationID are not understood",
              _COMMON, breaks=True, habit_of=_KOTLIN),
    Deviation("example-spelling-unread",
              "requests with thingId, messageId, correlationId are neither understood nor refused",
              lmos("invokeAction, Example Request")),
    # --- correlation
    Deviation("correlation-by-messageID",
              "an answer is correlated by the messageID of a request that has a correlationID",
              _REQUIREMENTS, habit_of=_KOTLIN),
    Deviation("correlation-missing", "an answer is not correlated", _REQUIREMENTS, breaks=True),
    # --- properties and actions
    Deviation("takes-wrong-value", "a value that does not match the schema is accepted",
              td("5.3.2.1 DataSchema"), habit_of=_KOTLIN),
    Deviation("takes-wrong-input", "an input that does not match the schema is accepted",
              td("5.3.1.4 ActionAffordance"), habit_of=_KOTLIN),
    Deviation("refuses-valid-input", "an input that matches the schema is refused as wrong",
              td("5.3.1.4 ActionAffordance")),
    Deviation("no-pending", "a run has no status until it is over", lmos("Request-Reply"), habit_of=_KOTLIN),
    Deviation("run-forgotten", "a run that is over cannot be queried", lmos("queryAction")),
    Deviation("cancel-error", "a cancel is answered by an error in place of an actionStatus",
              lmos("cancelAction")),
    Deviation("cancels-other-run", "a cancel ends a different run of the action",
              extension("Members, Queries and cancels")),
    Deviation("error-blames-server", "an error about a wrong request has the status of a server fault",
              lmos("error")),
    # --- clients
    Deviation("subscribeevent", "subscribeEvent is written subscribeevent",
              lmos("LMOS Message Types"), habit_of=_KOTLIN),
    Deviation("ends-without-close", "the stream is ended without a Close",
              rfc6455("7.1.2"), habit_of=_KOTLIN),
    # --- the handshake
    Deviation("no-subprotocol", "the subprotocol is not selected",
              binding("WebSocket Protocol Handshake"), habit_of=_KOTLIN),
    Deviation("version-unsaid", "a refusal does not name the supported version of WebSocket",
              rfc6455("4.2.2")),
    # --- the description
    Deviation("td-media-type", "the media type of the description is not of JSON",
              discovery("Thing Description Server")),
    Deviation("no-head", "HEAD is not answered as GET is", discovery("Thing Description Server")),
    Deviation("td-context", "@context is not as demanded", agent("@context")),
    Deviation("td-type", "@type is not as demanded", agent("@type")),
    Deviation("td-id", "the id is no URI", td("5.3.1.1 Thing"), habit_of=_KOTLIN),
    Deviation("td-security", "no security is described", td("5.3.1.1 Thing"), habit_of=_KOTLIN),
    Deviation("td-doubtful", "something in the description is doubtful", td("5.3 Class Definitions")),
    Deviation("form-no-subprotocol", "a form for a WebSocket has no subprotocol",
              binding("WebSocket Protocol Handshake")),
    # --- unreadable messages
    Deviation("bad-unanswered", "an unreadable message is silently ignored", lmos("error")),
    Deviation("refuses-unknown-members", "a message with an unknown member is refused", _COMMON),
    Deviation("binary-ignored", "a binary message is silently ignored", rfc6455("7.4.1"), habit_of=_KOTLIN),
    # --- frames and connections
    Deviation("close-code", "the code of a Close is not the one for the reason", rfc6455("7.4.1")),
    Deviation("frame-unlimited", "a frame of any length is accepted", rfc6455("10.4")),
    Deviation("stream-left-open", "the stream is left open after the closing handshake", rfc6455("7.1.1")),
    # --- HTTP
    Deviation("http-media-type", "the media type of an answer is not the one of its form",
              td("5.3.4.2 Form")),
    Deviation("no-allow", "405 without an Allow header", http("15.5.6")),
    Deviation("closes-1003", "the connection is closed with 1003 in place of an error",
              lmos("error"), breaks=True, habit_of=_KOTLIN),
    # --- observations and subscriptions
    Deviation("event-by-messageID",
              "events carry the messageID of their subscription in place of its correlationID",
              lmos("event"), habit_of=_KOTLIN),
    Deviation("event-uncorrelated", "events have no correlationID where the subscription had none",
              lmos("event")),
    Deviation("observation-uncorrelated", "the readings of an observation do not carry its correlationID",
              lmos("propertyReading"), habit_of=_KOTLIN),
    Deviation("own-change-untold",
              "an observer gets no readings of its own changes beside the answers to them",
              lmos("One Request-Multiple Responses")),
    # --- Omnia's chat protocol
    Deviation("announced-late", "a session is announced only once a message has come", omnia("Connected")),
    Deviation("no-capabilities", "the announcement names no capabilities", facade("connected")),
    Deviation("no-agent-needed", "a connection without an agent is opened", omnia("URL Format")),
    Deviation("any-agent", "an agent that does not exist is connected to", omnia("URL Format")),
    Deviation("any-origin", "a page of another origin may connect", facade("handshakes")),
    Deviation("no-timestamp", "frames have no timestamp", facade("timestamp")),
    Deviation("frame-without-session", "frames of a turn have no session_id", facade("session_id")),
    Deviation("refused-after-done", "a message that is sent right after `done` is refused",
              omnia("Message Flow")),
    Deviation("second-refused", "a message that is sent during a turn is refused", omnia("Message Flow")),
    Deviation("new-session-each", "a message without session_id begins a session of its own",
              facade("session_id")),
    Deviation("expired-session", "an unknown session is SESSION_EXPIRED in place of a new one",
              omnia("Session Expiration")),
    Deviation("any-session", "the id of an unknown session is taken as it is", omnia("Session Expiration")),
    Deviation("empty-taken", "a message without content is answered", omnia("Message")),
    Deviation("unknown-type-taken", "a frame of another type is taken for a message", omnia("Message")),
    Deviation("fault-with-session", "an error about a frame names a session", facade("error")),
    Deviation("invalid-utf8-taken", "text that is not UTF-8 is accepted", rfc6455("8.1")),
    Deviation("binary-read-as-text", "a message in a binary frame is answered", facade("binary frames")),
    Deviation("tools-hidden", "the use of a tool is not shown", omnia("With Tool Calls")),
    Deviation("upload-unreported", "a finished upload is not reported", facade("upload_complete")),
    Deviation("upload-longer-taken", "an upload may be longer than it was announced",
              facade("upload_request")),
    Deviation("film-taken", "a call of film is begun", facade("UNSATISFIABLE_FORMAT")),
    Deviation("call-not-resumed", "a call that was resumed refuses its sound", facade("resume")),
    # --- AgentRelay
    Deviation("relay-refused-late", "a connection without a good token is opened, and closed with 4001",
              relay_page("authentication"), habit_of=_BOTH),
    Deviation("relay-any-subprotocol", "a subprotocol is selected that is not `arc`",
              rfc6455("4.2.2"), habit_of=_BOTH),
    Deviation("relay-welcome-payload", "the welcome lacks the relay, its version or its capabilities",
              relay("welcome")),
    Deviation("relay-no-welcome", "no welcome comes", relay("welcome")),
    Deviation("relay-taken-400", "the refusal of an id that is taken has another status than 409",
              relay_page("registration"), habit_of=_BOTH),
    Deviation("relay-id-made-up", "an id that the relay makes up is none that may be asked for",
              relay_page("registration"), habit_of=_BOTH),
    Deviation("relay-id-no-text", "an id that is no text is registered",
              relay_page("registration"), habit_of=_BOTH),
    Deviation("relay-id-relay", "`relay` can be registered as the id of an agent",
              relay_page("registration"), breaks=True, habit_of=_BOTH),
    Deviation("relay-heard-twice", "a recipient has one message twice",
              relay_page("routing"), habit_of=_BOTH),
    Deviation("relay-echoed", "an agent that follows itself hears its own broadcasts",
              relay_page("routing"), habit_of=_BOTH),
    Deviation("relay-direct-copied", "a message to one agent is passed to those who follow that agent, too",
              relay_page("routing"), habit_of=_RAWK),
    Deviation("relay-rounded", "a whole number above 2^53 is changed on its way",
              rfc8259("6"), habit_of=_BOTH),
    Deviation("relay-members-dropped", "members that are not of the protocol are dropped",
              relay_page("message format"), habit_of=_REFERENCE),
    Deviation("relay-from-demanded", "a message without `from` is refused", relay_page("message format")),
    Deviation("relay-from-replaced", "a message with another agent's `from` is passed on, as the sender's",
              relay_page("message format"), habit_of=_REFERENCE),
    Deviation("relay-from-forged", "a message is passed on with another agent's `from`",
              relay_page("message format"), breaks=True, habit_of=_RAWK),
    Deviation("relay-id-kept", "the sender decides the `id` or the `ts` of a message",
              relay_page("message format"), habit_of=_RAWK),
    Deviation("relay-unacknowledged", "following is not acknowledged", relays("subscribed")),
    Deviation("relay-payload-demanded", "a command that needs no payload is refused without one",
              relay("ping / pong"), habit_of=_REFERENCE),
    Deviation("relay-no-pong", "a ping is not answered", relay("ping / pong"), habit_of=_REFERENCE),
    Deviation("relay-silent", "what the relay does not understand is silently ignored",
              relay("error"), habit_of=_BOTH),
    Deviation("relay-error-shape", "an error has no code in its payload", relay("error")),
    Deviation("relay-unlimited", "a message of any length is passed on",
              relay_page("limits"), habit_of=_BOTH),
    Deviation("relay-no-binary", "JSON in a binary frame is not taken", relays("frames")),
    Deviation("relay-second-beside", "a second connection of an agent leaves the first one open",
              relays("second connection of one identity"), habit_of=_BOTH),
    Deviation("relay-second-lost", "an agent is unreachable once the older of its connections has ended",
              relays("second connection of one identity"), breaks=True, habit_of=_BOTH),
    Deviation("relay-no-health", "`/health` is not answered", relay_page("server"), habit_of=_REFERENCE),
    Deviation("relay-no-stats", "`/stats` is not answered", relay_page("server")),
    Deviation("relay-names", "`/stats` names the agents to anybody",
              relay_page("server"), habit_of=_BOTH),
    Deviation("relay-client-decides", "a client sends the `id` or the `ts` of its message",
              relay_page("message format")),
    Deviation("relay-client-binary", "a client sends JSON in a binary frame", relays("frames")),
    # --- order
    Deviation("held-up", "a run delays later requests on its connection",
              lmos("One Request-Multiple Responses"), habit_of=_KOTLIN),
    Deviation("out-of-order", "requests of one connection are not carried out in their order",
              lmos("readProperty")),
)
# fmt: on

DEVIATIONS: Final = {row.key: row for row in ROWS}


def weigh(departures: Sequence[Departure], level: Level) -> tuple[Verdict, list[Departure]]:
    """Return the verdict on departures from the specification, and the departures that lead to it."""
    failing = [each for each in departures if DEVIATIONS[each.key].fails(level)]
    counting = [each for each in departures if DEVIATIONS[each.key].counts(level)]
    verdict = Verdict.FAILED if failing else Verdict.TOLERATED if counting else Verdict.PASSED
    return verdict, failing or counting
