"""The thing's session of an LMOS connection."""
