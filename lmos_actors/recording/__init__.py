"""Recordings: a proxy that writes its traffic to a message log, and scenario files made from logs."""

from lmos_actors._late import late

with late(__name__):
    from ._as_scenario import as_scenario as as_scenario
    from ._log import RecordingFile as RecordingFile
    from ._recording import Recorded as Recorded, RecordRequest as RecordRequest, record as record
