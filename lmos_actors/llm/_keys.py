"""The key of a provider: read from its reference, read again when it changes, and never shown.

`lmos_actors.security` is imported only when a client is made, as code that uses only the contract does not
need it.
"""

from __future__ import annotations

import logging
import math
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import trio

from lmos_actors._core import SecretBytes
from lmos_actors.errors import ConfigError

from ._failures import KEY_REFUSED, model_failure

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmos_actors.security import SecretSource

OPENAI_URL: Final = "https://api.openai.com/v1"
ANTHROPIC_URL: Final = "https://api.anthropic.com"

NO_EXTRA: Final = "models of providers need the extra llm: pip install 'lmos-actors[llm]'"

CLOSING: Final = 1.0
"""Seconds that closing connections may take, also in a task that is cancelled."""

SHOWN: Final = 500
"""Characters that are shown of a text of the provider."""

_LEAST: Final = 4  # characters: a shorter key may stand in any text


class ProviderKey:
    """The key of one provider, or none; `repr` shows the reference only."""

    def __init__(self, reference: str | None) -> None:
        from lmos_actors.security import Reference, SecretSource

        self._source = None if reference is None else SecretSource(Reference.parse(reference))
        self._value: SecretBytes | None = None

    def __repr__(self) -> str:
        return f"ProviderKey({self.reference!r})"

    @property
    def reference(self) -> str | None:
        """The source of the secret, such as `env:NAME`."""
        return None if self._source is None else str(self._source.reference)

    @property
    def current(self) -> SecretBytes | None:
        """The key that was read last."""
        return self._value

    def value(self) -> SecretBytes | None:
        """Return the key, None if no key is to be sent. Blocks on the disk when a file has changed.

        Raise the failure MODEL_KEY_REFUSED, which names the reference, if the key cannot be read.
        """
        source = self._source
        if source is None:
            return None
        if (source.is_due(trio.current_time()) or self._value is None) and source.may_have_changed():
            self._read(source)
        if self._value is None:
            problem = source.problem or f"{source.reference}: is no key"
            raise model_failure(KEY_REFUSED, f"there is no key for the provider: {problem}")
        return self._value

    def has_changed(self) -> bool:
        """Read the key again now, and return whether it has changed."""
        before = self._value
        if self._source is not None:
            self._read(self._source)
        return self._value is not None and self._value != before

    def without(self, text: str) -> str:
        """Return the beginning of a text of the provider, with `***` in place of the key."""
        text = self.hidden(text)
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

    def hidden(self, text: str) -> str:
        """Return a text with `***` in place of the key."""
        if self._value is not None and len(self._value) >= _LEAST:
            return text.replace(self._value.decode("latin-1"), "***")
        return text

    def _read(self, source: SecretSource) -> None:
        read = source.read()
        lines = [] if read is None else [SecretBytes(line.strip()) for line in read.splitlines()]
        # a value that no header may have would be shown by the error that refuses it
        usable = (line for line in lines if line and line.isascii() and line.decode("ascii").isprintable())
        self._value = next(usable, None)


class _KeyFilter(logging.Filter):
    """A filter that replaces keys in log lines by `***`: HTTP libraries log headers from providers."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: weakref.WeakSet[ProviderKey] = weakref.WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (shown := self._hidden(text)) != text:
            record.msg, record.args = shown, ()
        if record.exc_info:  # and exceptions about bytes that are no HTTP have these bytes
            text = logging.Formatter().formatException(record.exc_info)
            if (shown := self._hidden(text)) != text:
                record.exc_info, record.exc_text = None, shown
        return True

    def _hidden(self, text: str) -> str:
        for key in tuple(self.keys):
            text = key.hidden(text)
        return text


_KEY_FILTER: Final = _KeyFilter()


def hide_keys(key: ProviderKey, packages: Collection[str]) -> None:
    """Keep a key out of the log lines of packages, for all loggers that these have created so far."""
    _KEY_FILTER.keys.add(key)
    for name in tuple(logging.root.manager.loggerDict):
        if name.partition(".")[0] in packages:
            logging.getLogger(name).addFilter(_KEY_FILTER)


class Fields(Protocol):
    """The fields that the clients of all providers have."""

    model: str
    key: str | None
    url: str
    max_tokens: int
    temperature: float | None
    options: dict[str, Any]
    rename: dict[str, str]
    concurrency: int
    retries: int
    connect_seconds: float
    idle_seconds: float
    answer_seconds: float


def check_fields(model: Fields) -> None:
    """Check the fields of a client for mistakes. Raises ConfigError, which shows no key."""
    name = type(model).__name__
    _check_name(model.model, f"{name}.model")
    _check_place(model.url, model.key, name)
    for field, least in (("max_tokens", 1), ("retries", 0)):
        value = getattr(model, field)
        if type(value) is not int or value < least:
            raise ConfigError(f"must be a whole number of at least {least}, not {value!r}", f"{name}.{field}")
    for field in ("connect_seconds", "idle_seconds", "answer_seconds"):
        value = getattr(model, field)
        if not _is_number(value) or not 0 < value < math.inf:
            raise ConfigError(f"must be a number of seconds above 0, not {value!r}", f"{name}.{field}")
    heat: Any = model.temperature
    if heat is not None and not (_is_number(heat) and 0 <= heat <= 2):
        raise ConfigError(f"must be a number from 0 to 2, not {heat!r}", f"{name}.temperature")
    try:
        msgspec.convert(model.options, dict[str, Any])
    except msgspec.ValidationError:
        raise ConfigError("must be a dict of members of requests, by name", f"{name}.options") from None
    try:
        msgspec.convert(model.rename, dict[str, str])
    except msgspec.ValidationError:
        raise ConfigError(
            "must be a dict of names of members, by their own names", f"{name}.rename"
        ) from None


def with_options(body: dict[str, Any], model: Fields, omit: object) -> dict[str, Any]:
    """Return the arguments for a request, changed by the `rename` and `options` of the model.

    `omit` replaces an argument that the SDK requires but that must not be sent. The SDKs must always be asked
    for a stream, as they read any other answer themselves, so an option `stream` is put into the body.
    """
    more: dict[str, Any] = body.pop("extra_body", {})
    for name, other in model.rename.items():
        if name in more:
            more[other] = more.pop(name)
        elif name in body:
            more[other], body[name] = body[name], omit
    for name, value in model.options.items():
        if value is not None:
            more[name] = value
        elif name == "stream":
            more[name] = False
        elif more.pop(name, None) is None and name in body:
            body[name] = omit
    return {**body, "extra_body": more} if more else body


def _check_name(value: object, path: str) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"must be the name of a model, not {value!r}", path)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_place(url: object, key: object, name: str) -> None:
    from lmos_actors.security import Reference, in_the_clear, is_private, place_of

    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ConfigError(f"must be the http or https URL of an endpoint, not {url!r}", f"{name}.url")
    try:
        place = place_of(url)
    except ConfigError:
        raise ConfigError(
            "must be the URL of an endpoint, with a host and without a user", f"{name}.url"
        ) from None
    if key is None:
        return
    try:
        Reference.parse(key)
    except ConfigError as error:
        raise ConfigError(str(error), f"{name}.key") from None
    if not is_private(place):
        text = in_the_clear(url, "key=None where the endpoint needs no key")
        raise ConfigError(text, f"{name}.key")
