"""`record`: a proxy that writes a message log of what goes through it; logs turned into scenario files."""
