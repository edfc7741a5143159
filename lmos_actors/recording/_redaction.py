"""Redaction of recorded connections: credentials and values that a description marks as secret are not
written.

Three independent rules apply:

- **By place.** Headers and bodies of HTTP are not written at all, and of queries only the values of a few
  members. A value whose schema is marked, in a description of the thing, is `***`. So is every value of a
  thing without a known description, and a member of a frame without a schema that has the name of a
  credential.
- **By value.** A credential that has been seen, in a header, a cookie, a query or the answer to a
  registration, is replaced wherever a text contains it, as plain text or as encoded in JSON and URLs.
- **By form.** A text that looks like the token of an AgentRelay is replaced.

Data that is passed on is never changed by these rules.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote

import msgspec

from lmos_actors._core import HIDDEN
from lmos_actors.files import is_list, is_mapping, listed, mapped
from lmos_actors.protocol.td import SECRET_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SHORTEST: Final = 4
"""Minimum characters of a secret that is searched for in texts."""

MOST: Final = 2_048
"""Maximum secrets that are searched for; if there are more, no text is written at all."""

SENSITIVE: Final = frozenset(
    {
        "authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key",
        "x-auth-token", "x-access-token",
    }
)  # fmt: skip
"""Headers whose values are credentials."""

SHOWN_IN_QUERIES: Final = frozenset({"agent", "namespace", "binary", "client_tools", "watch"})
"""Members of a query whose values are written."""

NAMED: Final = frozenset(
    {
        "access_token", "api_key", "apikey", "authorization", "cookie", "credentials", "invitation",
        "passwd", "password", "refresh_token", "secret", "token", "upload_url",
    }
)  # fmt: skip
"""Members of frames without a schema that are credentials, as is the address of an upload."""

_TOKEN: Final = r"tok_[A-Za-z0-9_\-]{4,}"


class Redaction:
    """The secrets seen so far, with methods that hide them in values and texts."""

    def __init__(self) -> None:
        self._forms: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None
        self._names: set[str] = set()

    # ---- what is secret

    def keep(self, secret: str) -> None:
        """Remember a secret, so that it is hidden from now on."""
        if len(secret) < SHORTEST or secret in self._forms:
            return
        json = msgspec.json.encode(secret.encode("utf-8", "replace").decode()).decode()[1:-1]
        plain = secret.encode("utf-8", "replace")
        for form in (secret, json, quote(plain, safe=""), quote_plus(plain)):
            self._forms[form] = None
        self._pattern = None

    def keep_parts(self, value: Any) -> None:
        """Remember all texts in a value that is secret as a whole."""
        if isinstance(value, str):
            self.keep(value)
        elif is_mapping(value) or is_list(value):
            for item in value.values() if is_mapping(value) else value:
                self.keep_parts(item)

    def name_header(self, name: str) -> None:
        """Note the name of a header or query member that carries credentials, according to a description."""
        self._names.add(name.lower())

    def keep_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Remember the credentials among the headers of a request or of an answer."""
        for name, value in headers:
            known = name.decode("latin-1").lower()
            if known in SENSITIVE or known in self._names:
                self._keep_header(known, value.decode("latin-1").strip())

    def _keep_header(self, name: str, value: str) -> None:
        self.keep(value)
        if name in ("cookie", "set-cookie"):
            pairs = value.split(";") if name == "cookie" else value.split(";")[:1]
            for pair in pairs:
                self.keep(pair.partition("=")[2].strip().strip('"'))
            return
        scheme, _, rest = value.partition(" ")
        self.keep(rest.strip())
        if scheme.lower() == "basic":
            try:
                pair = base64.b64decode(rest.strip(), validate=True).decode("utf-8", "replace")
            except (binascii.Error, ValueError):
                return
            self.keep(pair.partition(":")[2])

    def keep_query(self, target: str) -> None:
        """Remember the credentials in the query of a target."""
        for part in target.partition("?")[2].split("&"):
            name, _, value = part.partition("=")
            known = unquote(name).lower()
            is_credential = known in NAMED or known in self._names or "token" in known
            if is_credential and known not in SHOWN_IN_QUERIES:
                self.keep(value)
                self.keep(unquote(value))
                self.keep(unquote(value.replace("+", " ")))

    # ---- what is written

    def target(self, target: str) -> str:
        """Return a path and its query as they are recorded, with most values in the query hidden."""
        path, mark, query = target.partition("?")
        if not mark:
            return self.text(path)
        pairs = parse_qsl(query, keep_blank_values=True)
        shown = (
            f"{quote_plus(name)}={quote_plus(value) if name.lower() in SHOWN_IN_QUERIES else HIDDEN}"
            for name, value in pairs
        )
        return self.text(f"{path}?{'&'.join(shown)}")

    def text(self, text: str) -> str:
        """Return a text with all known secrets hidden."""
        if len(self._forms) > 4 * MOST:
            return HIDDEN
        if self._pattern is None:
            longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join((*map(re.escape, longest_first), _TOKEN)))
        return self._pattern.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """Return a value with all known secrets in its texts hidden."""
        try:
            return self._cleaned(value)
        except RecursionError:
            return HIDDEN

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if is_mapping(value):
            return {self.text(name): self._cleaned(item) for name, item in value.items()}
        return [self._cleaned(item) for item in value] if is_list(value) else value

    def frame(self, value: Any) -> Any:
        """Return the content of a frame without a known schema. Members named like credentials are hidden."""
        try:
            return self._by_name(value)
        except RecursionError:
            return HIDDEN

    def _by_name(self, value: Any) -> Any:
        if is_mapping(value):
            return {name: self._member(name, item) for name, item in value.items()}
        return [self._by_name(item) for item in value] if is_list(value) else value

    def _member(self, name: str, item: Any) -> Any:
        if name.lower() in NAMED and isinstance(item, str | int | float):
            self.keep_parts(item)
            return HIDDEN
        return self._by_name(item)

    def described(self, value: Any, schema: Mapping[str, Any] | None) -> Any:
        """Hide the parts of a value that its schema marks as secret; without a schema, hide all of it."""
        try:
            return self._concealed(value, schema)
        except RecursionError:
            return HIDDEN

    def _concealed(self, value: Any, schema: Any) -> Any:
        if schema is None:
            return None if value is None else HIDDEN
        if not is_mapping(schema):
            return value
        if is_secret(schema):
            self.keep_parts(value)
            return HIDDEN
        for several in ("oneOf", "anyOf", "allOf"):
            for each in listed(schema.get(several)):
                value = self._concealed(value, each)
        if is_mapping(value):
            named, others = mapped(schema.get("properties")), mapped(schema.get("additionalProperties"))
            return {name: self._concealed(item, named.get(name, others)) for name, item in value.items()}
        if is_list(value):
            items = schema.get("items")
            by_place: list[Any] = items if is_list(items) else [items or {}] * len(value)
            rest: list[Any] = [{}] * max(0, len(value) - len(by_place))
            return [self._concealed(one, each) for one, each in zip(value, [*by_place, *rest], strict=False)]
        return value


def is_secret(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema marks its values as secret."""
    return (
        schema.get(SECRET_MARK) is True
        or schema.get("writeOnly") is True
        or schema.get("format") == "password"
    )
