"""The options that several commands have, in groups."""
