"""Messages and what they are sent through: operations, envelopes, runs, listeners."""
