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
EXTENSIONS: Final = "LMOS extensions of lmos_actors"


def lmos(place: str) -> Section:
    """Give a place in the text of the messages."""
    return Section(PROTOCOL, place)


def binding(place: str) -> Section:
    """Give a place in the text of the WebSocket subprotocol."""
    return Section(BINDING, place)


def rfc6455(place: str) -> Section:
    """Give a place in RFC 6455."""
    return Section(WEBSOCKET, place)


def extension(place: str) -> Section:
    """Give a place in the extensions, which are no LMOS text."""
    return Section(EXTENSIONS, place)


@attrs.frozen(kw_only=True)
class Deviation:
    """A way to differ from the letter.

    `breaks`: whoever goes by the letter cannot work with it, so that no level but `kotlin-wot` tolerates it.
    `kotlin`: kotlin-wot's server is known for it, so that it counts as passed at that level.
    """

    key: str
    title: str
    section: Section
    breaks: bool = False
    kotlin: bool = False

    def fails(self, level: Level) -> bool:
        """Whether a case in which it is seen fails."""
        if level is Level.KOTLIN_WOT and self.kotlin:
            return False
        return self.breaks or level is Level.SPEC

    def counts(self, level: Level) -> bool:
        """Whether a case in which it is seen is not simply passed."""
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
    # --- the handshake
    Deviation(
        key="no-subprotocol",
        title="the subprotocol is not selected",
        section=binding("WebSocket Protocol Handshake"),
        kotlin=True,
    ),
    # --- unreadable messages
    Deviation(
        key="closes-1003",
        title="the connection is closed with 1003 in place of an error",
        section=lmos("error"),
        breaks=True,
        kotlin=True,
    ),
)

DEVIATIONS: Final = {row.key: row for row in ROWS}
