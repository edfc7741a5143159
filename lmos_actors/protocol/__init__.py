"""Protocols as pure data and state machines: no sockets, no scheduler, no clock. Import the rooms below."""

from ._spoken import LMOS as LMOS, OMNIA as OMNIA, RELAY as RELAY, spoken_in as spoken_in
