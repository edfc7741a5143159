"""The consumer's session of an LMOS connection."""
