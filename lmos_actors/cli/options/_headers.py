"""Headers on a command line."""

from __future__ import annotations

from lmos_actors.errors import ConfigError


def headers_of(given: list[str] | None) -> dict[str, str]:
    """Read what `--header` was given. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in given or ():
        name, colon, value = text.partition(":")
        if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f'"{text}" is not NAME:VALUE', "--header")
        if not value.isascii() or not value.isprintable():
            raise ConfigError(f"the value of {name} is to be printable ASCII", "--header")
        if name.lower() in map(str.lower, found):
            raise ConfigError(f"{name} is given twice", "--header")
        found[name] = value.strip()
    return found
