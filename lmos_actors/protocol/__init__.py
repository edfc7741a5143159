"""Protocols as pure data and state machines, one package each: no sockets, no scheduler, no clock."""

from lmos_actors._late import late

with late(__name__):
    from ._spoken import LMOS as LMOS, OMNIA as OMNIA, RELAY as RELAY, spoken_in as spoken_in
