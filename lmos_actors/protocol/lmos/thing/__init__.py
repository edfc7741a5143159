"""The thing's session: its end of an LMOS connection."""
