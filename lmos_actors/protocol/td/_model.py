"""Thing, Agent and Tool Descriptions as values (TD 1.1; LMOS Agent Description Format).

Reading is lenient: what TD 1.1 demands beyond the shape of the members, such as security, is for `check` to
say. Every class keeps the members it has no field for in `extra`, so that `dump(load(data)) == data`.
A field that is None is a member that is absent; where TD 1.1 gives a default, a property of the class does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from ._reading import (
    MAX_BYTES,
    Place,
    anything,
    flag,
    list_of,
    map_of,
    member,
    members,
    plain_data,
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

OFFERS: Final = ("acks", "gaps", "streams", "deadlines", "exited", "retries", "tells")
"""The features that `lmosx:offers` can name."""

SCHEMA_WORDS: Final = frozenset(
    {
        "type", "oneOf", "unit", "enum", "const", "default", "format", "contentEncoding", "contentMediaType",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
        "pattern", "items", "minItems", "maxItems", "uniqueItems", "properties", "required",
        "additionalProperties", "propertyNames", "minProperties", "maxProperties", "examples",
    }
)  # fmt: skip
"""What of a property affordance is its data schema. Titles, descriptions and `readOnly` belong to both."""


def default_context() -> list[Any]:
    """Return the `@context` of our descriptions: TD 1.0 and 1.1, the prefixes of LMOS and of our extensions.

    1.0 stands first, as TD 1.1 asks of descriptions that consumers of 1.0 may read; node-wot is one of them.
    """
    prefixes = {LMOS_PREFIX: LMOS_CONTEXT_URI, EXTENSIONS_PREFIX: EXTENSIONS_URI}
    return [OLD_TD_CONTEXT_URI, TD_CONTEXT_URI, prefixes]


def _none() -> dict[str, Any]:
    return {}


def as_texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return a member that is a text or an array of such as a tuple, an absent one as an empty one."""
    return (value,) if isinstance(value, str) else value or ()


@attrs.frozen(kw_only=True)
class Form:
    """How to carry out operations (TD 1.1, 5.3.4.2): `href` is as written, relative or a template or both.

    `op` and `security` are as written, a text or several; `ops` gives the operations as a tuple, empty where
    the form says none and the defaults of its affordance hold.
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
        """The operations that the form itself names."""
        return as_texts(self.op)


@attrs.frozen(kw_only=True)
class Link:
    """A link to something about the thing (TD 1.1, 5.3.4.1)."""

    rel: str | None = attrs.field(default=None, metadata=member("rel", text))
    href: str = attrs.field(metadata=member("href", text))
    type: str | None = attrs.field(default=None, metadata=member("type", text))
    hreflang: str | tuple[str, ...] | None = attrs.field(default=None, metadata=member("hreflang", texts))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class SecurityScheme:
    """One entry of `securityDefinitions` (TD 1.1, 5.3.3); `location` is its member `in`."""

    scheme: str = attrs.field(metadata=member("scheme", text))
    location: str | None = attrs.field(default=None, metadata=member("in", text))
    name: str | None = attrs.field(default=None, metadata=member("name", text))
    description: str | None = attrs.field(default=None, metadata=member("description", text))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Stream:
    """What flows in one stream: its media type, and the data schema of an item where it is JSON."""

    content_type: str = attrs.field(metadata=member("contentType", text))
    schema: Schema | None = attrs.field(default=None, metadata=member("schema", members))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Streams:
    """Streams of an action in `lmosx:streams`: those coming in, by parameter name, and the one going out."""

    input: dict[str, Stream] | None = attrs.field(
        default=None, metadata=member("input", map_of(struct(Stream)))
    )
    output: Stream | None = attrs.field(default=None, metadata=member("output", struct(Stream)))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Affordance:
    """What all three kinds of interaction affordance have (TD 1.1, 5.3.1.2)."""

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
    """State that can be read, written or observed; `schema` is the data schema of its value.

    The member `type` that the schema calls for is in `schema`; the field `type` is `@type`.
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
    """A function of the thing. Absent, `safe` and `idempotent` mean false; `synchronous` means not known.

    `progress` and `streams` are what the action itself says; `Description.progress_of` and `streams_of` look
    at the thing's members too, where this package writes them: there are readers that refuse an action with a
    member they do not know.
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
    """A source of events, with the data schemas of what is subscribed with, delivered and answered."""

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
    """Who provides the agent: `lmos:vendor` of `lmos:metadata`."""

    name: str | None = attrs.field(default=None, metadata=member("lmos:name", text))
    url: str | None = attrs.field(default=None, metadata=member("lmos:url", text))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class ModelInfo:
    """The model that an agent uses: `lmos:model` of `lmos:metadata`."""

    name: str | None = attrs.field(default=None, metadata=member("lmos:name", text))
    provider: str | None = attrs.field(default=None, metadata=member("lmos:provider", text))
    extra: dict[str, Any] = attrs.field(factory=_none)


@attrs.frozen(kw_only=True)
class Metadata:
    """Member `lmos:metadata`: an open vocabulary, of which vendor and model have names here."""

    vendor: Vendor | None = attrs.field(
        default=None, metadata=member("lmos:vendor", struct(Vendor), lax=True)
    )
    model: ModelInfo | None = attrs.field(
        default=None, metadata=member("lmos:model", struct(ModelInfo), lax=True)
    )
    extra: dict[str, Any] = attrs.field(factory=_none)


def _property(value: Any, place: Place) -> PropertyAffordance:
    """Read a property affordance: what is of the data schema stands apart."""
    data = members(value, place)
    schema = {word: each for word, each in data.items() if word in SCHEMA_WORDS}
    rest = {word: each for word, each in data.items() if word not in SCHEMA_WORDS}
    return attrs.evolve(read_struct(PropertyAffordance, rest, place), schema=schema)


@attrs.frozen(kw_only=True)
class Description:
    """A Thing Description; an Agent or Tool Description where `@type` says so.

    `context` is as written. Made with none it is `default_context()`; read from data that has none, None.
    The values inside are not to be changed: use `attrs.evolve`.
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

    @property
    def is_agent(self) -> bool:
        """Whether `@type` names an agent, with or without the prefix."""
        return any(word in AGENT_TYPES for word in as_texts(self.type))

    @property
    def is_tool(self) -> bool:
        """Whether `@type` names a tool, with or without the prefix."""
        return any(word in TOOL_TYPES for word in as_texts(self.type))

    def has_offer(self, feature: str) -> bool:
        """Whether `lmosx:offers` names a feature of `OFFERS`."""
        return feature in (self.offers or ())

    def progress_of(self, action: str) -> Schema | None:
        """Return the data schema of an action's progress, as the thing says it or else the action itself."""
        own = (self.actions or {}).get(action)
        said = (self.progress or {}).get(action)
        return said if said is not None or own is None else own.progress

    def streams_of(self, action: str) -> Streams | None:
        """Return the streams of an action, as the thing says them or else the action itself."""
        own = (self.actions or {}).get(action)
        said = (self.streams or {}).get(action)
        return said if said is not None or own is None else own.streams


def load(data: str | bytes | Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> Description:
    """Read a description from a JSON text or from plain data, which is copied.

    Lenient: security may be missing, `op` may be a text or an array, `href` relative, `id` any text, and
    members that are null count as absent. Raises DescriptionError, with the place, for what is no
    description: a text that is not JSON or longer than `max_bytes` bytes, data nested deeper than 64 or of
    more than 100,000 values, numbers of more than 1,000 digits or not finite, members of TD 1.1 of the
    wrong kind.
    """
    return read(plain_data(data, max_bytes))


def read(plain: dict[str, Any]) -> Description:
    """Read what `plain_data` gave; parts of it are kept. Raises DescriptionError."""
    found = read_struct(Description, plain, ())
    return found if plain.get("@context") is not None else attrs.evolve(found, context=None)


def dump(description: Description) -> dict[str, Any]:
    """Return a description as plain data of its own: members in the order of the fields, then the others."""
    found: dict[str, Any] = write(description)
    return found


def dump_text(description: Description, *, indent: int | None = 2) -> str:
    """Return a description as JSON text, always the same for the same one; on one line with `indent=None`."""
    encoded = msgspec.json.encode(dump(description))
    return (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()
