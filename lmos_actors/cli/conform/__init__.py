"""The conformance kit as a command."""
