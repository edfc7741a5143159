"""The agents of the acceptance files."""
