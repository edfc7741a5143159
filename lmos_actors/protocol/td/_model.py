"""Thing, Agent and Tool Descriptions as values (TD 1.1; LMOS Agent Description Format).

Reading is lenient: `check` reports what TD 1.1 demands beyond the types of members, such as security. Every
class keeps the members without a field in `extra`, so that `dump(load(data)) == data`. None represents an
absent member. If TD 1.1 defines a default for it, the class has a property with that default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from ._reading import (
    MAX_BYTES,
    DescriptionError,
    Place,
    anything,
    flag,
    list_of,
    map_of,
    member,
    members,
    plain_data,
    pointer,
    read_struct,
    struct,
    text,
    text_list,
    texts,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._schema import Schema

TD_CONTEXT_URI: Final = "https://www.w3.org/2022/wot/td/v1.1"
OLD_TD_CONTEXT_URI: Final = "https://www.w3.org/2019/wot/td/v1"
LMOS_PREFIX: Final = "lmos"
LMOS_CONTEXT_URI: Final = "https://eclipse.dev/lmos/protocol/v1"
EXTENSIONS_PREFIX: Final = "lmosx"
EXTENSIONS_URI: Final = "urn:lmos-actors:v1#"
AGENT_TYPE: Final = "lmos:Agent"
TOOL_TYPE: Final = "lmos:Tool"
AGENT_TYPES: Final = (AGENT_TYPE, "Agent")
TOOL_TYPES: Final = (TOOL_TYPE, "Tool")

OFFERS: Final = (
    "acks", "gaps", "streams", "deadlines", "exited", "retries", "tells", "keys", "waits", "questions",
)  # fmt: skip
"""Features that `lmosx:offers` can name."""

SCHEMA_WORDS: Final = frozenset(
    {
        "type", "oneOf", "unit", "enum", "const", "default", "format", "contentEncoding", "contentMediaType",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
        "pattern", "items", "minItems", "maxItems", "uniqueItems", "properties", "required",
        "additionalProperties", "propertyNames", "minProperties", "maxProperties", "examples",
        "lmosx:secret",
    }
)  # fmt: skip
"""Members of a property affordance that form its data schema; titles and `readOnly` belong to both."""


def default_context() -> list[Any]:
    """Return the `@context` of our descriptions: TD 1.0 and 1.1, the prefixes of LMOS and of our extensions.

    1.0 comes first, because TD 1.1 demands this for consumers of 1.0, such as node-wot.
    """
    prefixes = {LMOS_PREFIX: LMOS_CONTEXT_URI, EXTENSIONS_PREFIX: EXTENSIONS_URI}
    return [OLD_TD_CONTEXT_URI, TD_CONTEXT_URI, prefixes]


def _none() -> dict[str, Any]:
    return {}


def as_texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return a member that is a text or an array of texts as a tuple, which is empty if it is absent."""
    return (value,) if isinstance(value, str) else value or ()


@attrs.frozen(kw_only=True)
class Form:
    """A form, which describes how operations are performed (TD 1.1, 5.3.4.2).

    `href` is as written, possibly relative or a template. `op` and `security` are as written, one text or
    several. `ops` returns the operations as a tuple; it is empty if the form names none, and then the
    defaults of its affordance apply.
    """

    href: str = attrs.field(metadata=member("href", text))
    op: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("op", texts))
    content_type: str | None = attrs.field(default=None, metadata=member("contentType", text))
    subprotocol: str | None = attrs.field(default=None, metadata=member("subprotocol", text))
    security: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("security", texts))
    scopes: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("scopes", texts))
    response: dict[str, Any] | None = attrs.field(default=None, metadata=member("response", members))
    extra: dict[str, Any] = attrs.field(factory=_none)

    @property
    def ops(self) -> tuple[str, ...]:
        """Operations that the form itself names."""
        return as_texts(self.op)


@attrs.frozen(kw_only=True)
class Link:
    """Link to a resource about the thing (TD 1.1, 5.3.4.1)."""

    rel: str | None = attrs.field(default=None, metadata=member("rel", text))
    href: str = attrs.field(metadata=member("href", text))
    type: str | None = attrs.field(default=None, metadata=member("type", text))
    hreflang: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("hreflang", texts))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class SecurityScheme:
    """Entry of `securityDefinitions` (TD 1.1, 5.3.3); `location` is its member `in`."""

    scheme: str = attrs.field(metadata=member("scheme", text))
    location: str | None = attrs.field(default=None, metadata=member("in", text))
    name: str | None = attrs.field(default=None, metadata=member("name", text))
    description: str | None = attrs.field(default=None, metadata=member("description", text))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Stream:
    """Stream of an action: its media type, and the data schema of an item if that is JSON."""

    content_type: str = attrs.field(metadata=member("contentType", text))
    schema: Schema | None = attrs.field(default=None, metadata=member("schema", members))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Streams:
    """Streams of an action in `lmosx:streams`: inputs by parameter name, and the output."""

    input: dict[str, Stream] | None = attrs.field(
        default=None, metadata=member("input", map_of(struct(Stream)))
    )
    output: Stream | None = attrs.field(default=None, metadata=member("output", struct(Stream)))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Affordance:
    """Members common to all kinds of interaction affordances (TD 1.1, 5.3.1.2)."""

    title: str | None = attrs.field(default=None, metadata=member("title", text))
    titles: dict[str, str] | None = attrs.field(default=None, metadata=member("titles", map_of(text)))
    description: str | None = attrs.field(default=None, metadata=member("description", text))
    descriptions: dict[str, str] | None = attrs.field(
        default=None, metadata=member("descriptions", map_of(text))
    )
    type: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("@type", texts))
    uri_variables: dict[str, Schema] | None = attrs.field(
        default=None, metadata=member("uriVariables", map_of(members))
    )


@attrs.frozen(kw_only=True)
class PropertyAffordance(Affordance):
    """A property: state that can be read, written or observed; `schema` is the data schema of its value.

    The JSON member `type` is in `schema`; the field `type` is `@type`.
    """

    schema: Schema = attrs.field(factory=_none, metadata={"flat": True})
    read_only: bool | None = attrs.field(default=None, metadata=member("readOnly", flag))
    write_only: bool | None = attrs.field(default=None, metadata=member("writeOnly", flag))
    observable: bool | None = attrs.field(default=None, metadata=member("observable", flag))
    forms: tuple[Form, ...] | None = attrs.field(
        default=None, metadata=member("forms", list_of(struct(Form)))
    )
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class ActionAffordance(Affordance):
    """An action, a function of the thing. If absent, `safe` and `idempotent` are false, `synchronous`
    unknown.

    `progress` and `streams` are the action's own members. `Description.progress_of` and `streams_of` also
    read the thing's members. This package writes them there, because kotlin-wot refuses actions with unknown
    members.
    """

    input: Schema | None = attrs.field(default=None, metadata=member("input", members))
    output: Schema | None = attrs.field(default=None, metadata=member("output", members))
    safe: bool | None = attrs.field(default=None, metadata=member("safe", flag))
    idempotent: bool | None = attrs.field(default=None, metadata=member("idempotent", flag))
    synchronous: bool | None = attrs.field(default=None, metadata=member("synchronous", flag))
    progress: Schema | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:progress", members, lax=True)
    )
    streams: Streams | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:streams", struct(Streams), lax=True)
    )
    forms: tuple[Form, ...] | None = attrs.field(
        default=None, metadata=member("forms", list_of(struct(Form)))
    )
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class EventAffordance(Affordance):
    """Event source, with the data schemas of subscriptions, events, responses and cancellations."""

    subscription: Schema | None = attrs.field(default=None, metadata=member("subscription", members))
    data: Schema | None = attrs.field(default=None, metadata=member("data", members))
    data_response: Schema | None = attrs.field(default=None, metadata=member("dataResponse", members))
    cancellation: Schema | None = attrs.field(default=None, metadata=member("cancellation", members))
    forms: tuple[Form, ...] | None = attrs.field(
        default=None, metadata=member("forms", list_of(struct(Form)))
    )
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Vendor:
    """Provider of the agent: `lmos:vendor` in `lmos:metadata`."""

    name: str | None = attrs.field(default=None, metadata=member("lmos:name", text))
    url: str | None = attrs.field(default=None, metadata=member("lmos:url", text))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class ModelInfo:
    """The agent's language model: `lmos:model` in `lmos:metadata`."""

    name: str | None = attrs.field(default=None, metadata=member("lmos:name", text))
    provider: str | None = attrs.field(default=None, metadata=member("lmos:provider", text))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Metadata:
    """The member `lmos:metadata`, an open vocabulary. Only vendor and model have fields here."""

    vendor: Vendor | None = attrs.field(
        default=None, metadata=member("lmos:vendor", struct(Vendor), lax=True)
    )
    model: ModelInfo | None = attrs.field(
        default=None, metadata=member("lmos:model", struct(ModelInfo), lax=True)
    )
    extra: dict[str, Any] = attrs.field(factory=_none)


def _property(value: Any, place: Place) -> PropertyAffordance:
    """Return a property affordance, with the members of its data schema in `schema`."""
    data = members(value, place)
    schema = {word: each for word, each in data.items() if word in SCHEMA_WORDS}
    rest = {word: each for word, each in data.items() if word not in SCHEMA_WORDS}
    return attrs.evolve(read_struct(PropertyAffordance, rest, place), schema=schema)


@attrs.frozen(kw_only=True)
class Description:
    """A Thing Description, or an Agent or Tool Description if `@type` names one.

    `context` is as written: `default_context()` by default, None if read from data without one. Treat the
    values inside as immutable; use `attrs.evolve`.
    """

    context: Any = attrs.field(factory=default_context, metadata=member("@context", anything))
    type: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("@type", texts))
    id: str | None = attrs.field(default=None, metadata=member("id", text))
    title: str | None = attrs.field(default=None, metadata=member("title", text))
    titles: dict[str, str] | None = attrs.field(default=None, metadata=member("titles", map_of(text)))
    description: str | None = attrs.field(default=None, metadata=member("description", text))
    descriptions: dict[str, str] | None = attrs.field(
        default=None, metadata=member("descriptions", map_of(text))
    )
    version: dict[str, Any] | None = attrs.field(default=None, metadata=member("version", members))
    created: str | None = attrs.field(default=None, metadata=member("created", text))
    modified: str | None = attrs.field(default=None, metadata=member("modified", text))
    support: str | None = attrs.field(default=None, metadata=member("support", text))
    base: str | None = attrs.field(default=None, metadata=member("base", text))
    profile: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("profile", texts))
    metadata: Metadata | None = attrs.field(
        default=None, metadata=member("lmos:metadata", struct(Metadata), lax=True)
    )
    offers: tuple[str, ...] | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:offers", text_list, lax=True)
    )
    capabilities: tuple[str, ...] | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:capabilities", text_list, lax=True)
    )
    progress: dict[str, Schema] | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:progress", map_of(members), lax=True)
    )
    streams: dict[str, Streams] | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:streams", map_of(struct(Streams)), lax=True)
    )
    answers: dict[str, Any] | None = attrs.field(
        default=None, metadata=member(f"{EXTENSIONS_PREFIX}:answers", members, lax=True)
    )
    links: tuple[Link, ...] | None = attrs.field(
        default=None, metadata=member("links", list_of(struct(Link)))
    )
    security_definitions: dict[str, SecurityScheme] | None = attrs.field(
        default=None, metadata=member("securityDefinitions", map_of(struct(SecurityScheme)))
    )
    security: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("security", texts))
    schema_definitions: dict[str, Schema] | None = attrs.field(
        default=None, metadata=member("schemaDefinitions", map_of(members))
    )
    uri_variables: dict[str, Schema] | None = attrs.field(
        default=None, metadata=member("uriVariables", map_of(members))
    )
    forms: tuple[Form, ...] | None = attrs.field(
        default=None, metadata=member("forms", list_of(struct(Form)))
    )
    properties: dict[str, PropertyAffordance] | None = attrs.field(
        default=None, metadata=member("properties", map_of(_property))
    )
    actions: dict[str, ActionAffordance] | None = attrs.field(
        default=None, metadata=member("actions", map_of(struct(ActionAffordance)))
    )
    events: dict[str, EventAffordance] | None = attrs.field(
        default=None, metadata=member("events", map_of(struct(EventAffordance)))
    )
    extra: dict[str, Any] = attrs.field(factory=_none)
    faults: tuple[DescriptionError, ...] = attrs.field(default=(), eq=False, repr=False)
    """The mistakes in it, if it was read with `load_usable`."""

    @property
    def is_agent(self) -> bool:
        """Whether `@type` names an agent, with or without the prefix."""
        return any(word in AGENT_TYPES for word in as_texts(self.type))

    @property
    def is_tool(self) -> bool:
        """Whether `@type` names a tool, with or without the prefix."""
        return any(word in TOOL_TYPES for word in as_texts(self.type))

    def has_offer(self, feature: str) -> bool:
        """Return whether `lmosx:offers` names a feature of `OFFERS`."""
        return feature in (self.offers or ())

    def why_unusable(self, kind: str, name: str) -> str:
        """Return the first three mistakes in an affordance, or "" if there are none.

        `kind` is the member that contains the affordance.
        """
        found = [each for each in self.faults if each.place[:2] == (kind, name)]
        return "; ".join(f"{pointer(each.place[2:])} {each.message}".lstrip() for each in found[:3])

    def progress_of(self, action: str) -> Schema | None:
        """Return the data schema of an action's progress, from the thing or else from the action."""
        at_action = (self.actions or {}).get(action)
        at_thing = (self.progress or {}).get(action)
        return at_thing if at_thing is not None or at_action is None else at_action.progress

    def streams_of(self, action: str) -> Streams | None:
        """Return the streams of an action, from the thing or else from the action."""
        at_action = (self.actions or {}).get(action)
        at_thing = (self.streams or {}).get(action)
        return at_thing if at_thing is not None or at_action is None else at_action.streams


def load(data: str | bytes | Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> Description:
    """Return the description in a JSON text or in plain data, which is copied.

    Reading is lenient: security may be missing, `op` may be a text or an array, `href` may be relative, `id`
    may be any text, and null members count as absent.

    Raise DescriptionError, with the place, for a text that is not JSON or longer than `max_bytes` bytes, data
    nested deeper than 64 or of more than 100,000 values, numbers that are not finite or have more than 1,000
    digits, and members of TD 1.1 of the wrong type.
    """
    return read(plain_data(data, max_bytes))


def read(plain: dict[str, Any]) -> Description:
    """Return the description in a result of `plain_data`, sharing parts of it. Raises DescriptionError."""
    found = read_struct(Description, plain, ())
    return found if plain.get("@context") is not None else attrs.evolve(found, context=None)


def dump(description: Description) -> dict[str, Any]:
    """Return a description as new plain data: members in the order of the fields, then `extra`."""
    found: dict[str, Any] = write(description)
    return found


def dump_text(description: Description, *, indent: int | None = 2) -> str:
    """Return a description as JSON, on one line with `indent=None`. Equal descriptions give equal texts."""
    encoded = msgspec.json.encode(dump(description))
    return (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()
