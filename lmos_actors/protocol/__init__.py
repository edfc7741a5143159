"""Protocols as pure data and state machines: no sockets, no scheduler, no clock. Import the rooms below."""
