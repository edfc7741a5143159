"""The named ways in which a server may differ from what is written, and what each level makes of them."""

from __future__ import annotations

from typing import Final

import attrs

from ._verdicts import Level, Section

PROTOCOL: Final = "LMOS communication protocol"
BINDING: Final = "LMOS WebSocket binding"
AGENT: Final = "LMOS agent description"
TD: Final = "WoT Thing Description 1.1"
DISCOVERY: Final = "WoT Discovery"
WEBSOCKET: Final = "RFC 6455"
HTTP: Final = "RFC 9110"
EXTENSIONS: Final = "LMOS extensions of lmos_actors"
KOTLIN: Final = "kotlin-wot, as its source has it"


def lmos(place: str) -> Section:
    """Return a place in the text of the messages."""
    return Section(PROTOCOL, place)


def binding(place: str) -> Section:
    """Return a place in the text of the WebSocket subprotocol."""
    return Section(BINDING, place)


def rfc6455(place: str) -> Section:
    """Return a place in RFC 6455."""
    return Section(WEBSOCKET, place)


def agent(place: str) -> Section:
    """Return a place in the text of agent descriptions."""
    return Section(AGENT, place)


def td(place: str) -> Section:
    """Return a place in the recommendation for descriptions."""
    return Section(TD, place)


def discovery(place: str) -> Section:
    """Return a place in the recommendation for finding descriptions."""
    return Section(DISCOVERY, place)


def http(place: str) -> Section:
    """Return a place in the text of HTTP."""
    return Section(HTTP, place)


def extension(place: str) -> Section:
    """Return a place in the extensions, which are no LMOS text."""
    return Section(EXTENSIONS, place)


def kotlin(place: str) -> Section:
    """Return a place in the source of kotlin-wot, which is no text that anybody has to keep to."""
    return Section(KOTLIN, place)


@attrs.frozen(kw_only=True)
class Deviation:
    """A way to differ from the letter.

    `breaks`: a peer that follows the specification cannot work with it, so only the level `kotlin-wot`
    tolerates it. `kotlin`: kotlin-wot's server is known for it, so that it counts as passed at that level.
    """

    key: str
    title: str
    section: Section
    breaks: bool = False
    kotlin: bool = False

    def fails(self, level: Level) -> bool:
        """Return whether a case in which it is seen fails."""
        if level is Level.KOTLIN_WOT and self.kotlin:
            return False
        return self.breaks or level is Level.SPEC

    def counts(self, level: Level) -> bool:
        """Return whether a case in which it is seen is not simply passed."""
        return not (level is Level.KOTLIN_WOT and self.kotlin)


_COMMON: Final = lmos("Common Message Members Table")
_REQUIREMENTS: Final = lmos("Common Message Requirements")

ROWS: Final = (
    # --- how members are written
    Deviation(
        key="ids-spelled-Id",
        title="members are spelt thingId, messageId, correlationId",
        section=_COMMON,
        kotlin=True,
    ),
    Deviation(
        key="names-spelled-property",
        title="the name of a property is in the member `property`",
        section=lmos("propertyReading"),
        kotlin=True,
    ),
    Deviation(
        key="value-spelled-data",
        title="the value of a reading is in the member `data`",
        section=lmos("propertyReading"),
        kotlin=True,
    ),
    Deviation(key="member-missing", title="a mandatory member is missing", section=_COMMON, breaks=True),
    Deviation(
        key="member-type", title="a member has another type than demanded", section=_COMMON, breaks=True
    ),
    Deviation(key="member-twice", title="a member is there twice", section=_REQUIREMENTS),
    Deviation(key="id-no-uuid", title="an id is no UUID of version 4", section=_REQUIREMENTS),
    Deviation(key="thing-no-uri", title="a thingID is no URI", section=_REQUIREMENTS, kotlin=True),
    Deviation(key="time-number", title="a time is written as a number", section=_REQUIREMENTS, kotlin=True),
    Deviation(
        key="time-format", title="a time is no date-time of RFC 9557", section=_REQUIREMENTS, breaks=True
    ),
    Deviation(
        key="status-word", title="a status of a run is not one of those listed", section=lmos("actionStatus")
    ),
    Deviation(
        key="error-status", title="the status of an error is no HTTP status in a text", section=lmos("error")
    ),
    Deviation(
        key="error-uri", title="the type or instance of an error is no URI reference", section=lmos("error")
    ),
    Deviation(
        key="table-spelling-unread",
        title="requests with thingID, messageID, correlationID are not understood",
        section=_COMMON,
        breaks=True,
        kotlin=True,
    ),
    Deviation(
        key="example-spelling-unread",
        title="requests with thingId, messageId, correlationId are neither understood nor refused",
        section=lmos("invokeAction, Example Request"),
    ),
    # --- correlation
    Deviation(
        key="correlation-by-messageID",
        title="an answer is correlated by the messageID of a request that has a correlationID",
        section=_REQUIREMENTS,
        kotlin=True,
    ),
    Deviation(
        key="correlation-missing", title="an answer is not correlated", section=_REQUIREMENTS, breaks=True
    ),
    # --- properties and actions
    Deviation(
        key="takes-wrong-value",
        title="a value that does not match the schema is taken",
        section=td("5.3.2.1 DataSchema"),
        kotlin=True,
    ),
    Deviation(
        key="takes-wrong-input",
        title="an input that does not match the schema is taken",
        section=td("5.3.1.4 ActionAffordance"),
        kotlin=True,
    ),
    Deviation(
        key="refuses-valid-input",
        title="an input that matches the schema is refused as wrong",
        section=td("5.3.1.4 ActionAffordance"),
    ),
    Deviation(
        key="no-pending",
        title="nothing is said of a run until it is over",
        section=lmos("Request-Reply"),
        kotlin=True,
    ),
    Deviation(
        key="run-forgotten", title="a run that is over cannot be asked about", section=lmos("queryAction")
    ),
    Deviation(
        key="cancel-error",
        title="a cancel is answered by an error in place of an actionStatus",
        section=lmos("cancelAction"),
    ),
    Deviation(
        key="cancels-other-run",
        title="a cancel ends another run of the action than it is about",
        section=extension("Members, Queries and cancels"),
    ),
    Deviation(
        key="error-blames-server",
        title="an error about a wrong request has the status of a fault of the server",
        section=lmos("error"),
    ),
    # --- clients
    Deviation(
        key="subscribeevent",
        title="subscribeEvent is written subscribeevent",
        section=lmos("LMOS Message Types"),
        kotlin=True,
    ),
    Deviation(
        key="ends-without-close",
        title="the stream is ended without a Close",
        section=rfc6455("7.1.2"),
        kotlin=True,
    ),
    # --- the handshake
    Deviation(
        key="no-subprotocol",
        title="the subprotocol is not selected",
        section=binding("WebSocket Protocol Handshake"),
        kotlin=True,
    ),
    Deviation(
        key="version-unsaid",
        title="a refusal does not say which version of WebSocket is spoken",
        section=rfc6455("4.2.2"),
    ),
    # --- the description
    Deviation(
        key="td-media-type",
        title="the media type of the description is not of JSON",
        section=discovery("Thing Description Server"),
    ),
    Deviation(
        key="no-head",
        title="HEAD is not answered as GET is",
        section=discovery("Thing Description Server"),
    ),
    Deviation(key="td-context", title="@context is not as demanded", section=agent("@context")),
    Deviation(key="td-type", title="@type is not as demanded", section=agent("@type")),
    Deviation(key="td-id", title="the id is no URI", section=td("5.3.1.1 Thing"), kotlin=True),
    Deviation(
        key="td-security",
        title="no security is described",
        section=td("5.3.1.1 Thing"),
        kotlin=True,
    ),
    Deviation(
        key="td-doubtful",
        title="something in the description cannot have been meant",
        section=td("5.3 Class Definitions"),
    ),
    Deviation(
        key="form-no-subprotocol",
        title="a form for a WebSocket has no subprotocol",
        section=binding("WebSocket Protocol Handshake"),
    ),
    # --- unreadable messages
    Deviation(
        key="bad-unanswered",
        title="nothing says that a message could not be read",
        section=lmos("error"),
    ),
    Deviation(
        key="refuses-unknown-members",
        title="a message with a member that nobody has defined is refused",
        section=_COMMON,
    ),
    Deviation(
        key="binary-ignored",
        title="a binary message is passed over without a word",
        section=rfc6455("7.4.1"),
        kotlin=True,
    ),
    # --- frames and connections
    Deviation(
        key="close-code",
        title="the code of a Close is not the one for the reason",
        section=rfc6455("7.4.1"),
    ),
    Deviation(
        key="frame-unlimited",
        title="a frame of any length is waited for",
        section=rfc6455("10.4"),
    ),
    Deviation(
        key="stream-left-open",
        title="the stream is left open after the closing handshake",
        section=rfc6455("7.1.1"),
    ),
    # --- HTTP
    Deviation(
        key="http-media-type",
        title="the media type of an answer is not the one of its form",
        section=td("5.3.4.2 Form"),
    ),
    Deviation(key="no-allow", title="405 without an Allow header", section=http("15.5.6")),
    Deviation(
        key="closes-1003",
        title="the connection is closed with 1003 in place of an error",
        section=lmos("error"),
        breaks=True,
        kotlin=True,
    ),
    # --- observations and subscriptions
    Deviation(
        key="event-by-messageID",
        title="events carry the messageID of their subscription in place of its correlationID",
        section=lmos("event"),
        kotlin=True,
    ),
    Deviation(
        key="event-uncorrelated",
        title="events have no correlationID where the subscription had none",
        section=lmos("event"),
    ),
    Deviation(
        key="observation-uncorrelated",
        title="the readings of an observation do not carry its correlationID",
        section=lmos("propertyReading"),
        kotlin=True,
    ),
    Deviation(
        key="own-change-untold",
        title="who observes a property is not told of its own changes beside the answers to them",
        section=lmos("One Request-Multiple Responses"),
    ),
    # --- order
    Deviation(
        key="held-up",
        title="a run holds up what is asked behind it on its connection",
        section=lmos("One Request-Multiple Responses"),
        kotlin=True,
    ),
    Deviation(
        key="out-of-order",
        title="what is asked on one connection is not carried out in its order",
        section=lmos("readProperty"),
    ),
)

DEVIATIONS: Final = {row.key: row for row in ROWS}
