"""Descriptions of a node's agents: made from classes, so they exist while an agent is down."""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

import attrs

from lmos_actors._core import Bounded
from lmos_actors.actors import describe
from lmos_actors.protocol.td import (
    JSON,
    OFFERS,
    OLD_TD_CONTEXT_URI,
    TD_CONTEXT_URI,
    Description,
    Form,
    Link,
    PropertyAffordance,
    SecurityScheme,
    dump_text,
    with_forms,
)

from ._description_security import Sees, anything, secured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmos_actors.actors import Agent
    from lmos_actors.security import Security

KEPT: Final = 1_024
"""The number of descriptions that are kept as text; those of further agents are made again on request."""

PLACES: Final = 8
"""The number of the node's addresses for which texts are kept, `KEPT // PLACES` texts for each."""

LINKS: Final = 1_000
"""The maximum number of links in the description of a node."""

TD_JSON: Final = "application/td+json"


class Listed(Protocol):
    """An agent or a pool as it is seen over a network."""

    @property
    def name(self) -> str:
        """The public name of the agent or pool: its path, with "." for "/"."""
        ...

    @property
    def thing_id(self) -> str:
        """The URI by which the agent or pool is known."""
        ...

    @property
    def cls(self) -> type[Agent]:
        """The class of the agent, even while no such agent runs."""
        ...


class Catalogue(Protocol):
    """The exposed things of a node."""

    def __iter__(self) -> Iterator[Listed]:
        """Return everything that is exposed, in start order."""
        ...

    def named(self, name: str) -> Listed | None:
        """Return the agent or pool that is exposed under a public name, None if there is none."""
        ...


@attrs.frozen
class TaggedText:
    """A description as it is sent: its text, and an entity tag that changes with it."""

    text: bytes
    tag: str


def served_text(data: str) -> TaggedText:
    """Return a text with the entity tag that belongs to it."""
    text = data.encode()
    return TaggedText(text, f'"{sha256(text).hexdigest()[:32]}"')


def description_of(exposed: Listed, bases: Sequence[str], security: Security | None = None) -> Description:
    """Return the description of an agent with its id, its forms at these addresses, and our extensions.

    The description also names the accepted credentials, and the forms that need none.
    """
    described = attrs.evolve(describe(exposed.cls, id=exposed.thing_id), offers=OFFERS)
    formed = with_forms(described, exposed.name, bases)
    return formed if security is None else secured(formed, security, exposed.name)


def http_of(base: str) -> str:
    """Return the HTTP address of a base address, without a trailing slash."""
    scheme, _, place = base.partition("://")
    return f"{'https' if scheme in ('wss', 'https') else 'http'}://{place.rstrip('/')}"


def url_of(base: str, name: str) -> str:
    """Return the address of an agent's description."""
    return f"{http_of(base)}/agents/{quote(name, safe='')}"


class Descriptions:
    """The descriptions of what a node exposes, as it serves them at its addresses.

    With a `public_url` the node is reached only there, whatever a proxy says.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        bases: Sequence[str],
        security: Security | None = None,
        public_url: str | None = None,
        *,
        kept: int = KEPT,
    ) -> None:
        self.catalogue = catalogue
        self.bases = tuple(bases)
        self.security = security
        self._is_public = public_url is not None
        self._places: Bounded[str, Descriptions] = Bounded(PLACES)
        self._kept: Bounded[tuple[type[Any], str, str], TaggedText] = Bounded(kept)

    def at(self, host: str | None, *, secure: bool) -> Descriptions:
        """Return the descriptions for a client that asked at `host`, the value of its Host header.

        Their forms lead to the address that the client used, because the client can reach this address and
        has credentials for it.
        """
        asked = f"{'wss' if secure else 'ws'}://{host}"
        # some clients, and proxies, leave the port out
        base = next((each for each in self.bases if each.startswith(f"{asked}:")), asked)
        if self._is_public or not host or self.bases == (base,):
            return self
        return self._places.use(
            base, lambda: Descriptions(self.catalogue, (base,), self.security, kept=KEPT // PLACES)
        )

    def served(self, exposed: Listed) -> TaggedText:
        """Return the description of an exposed thing."""
        key = (exposed.cls, exposed.name, exposed.thing_id)
        return self._kept.use(key, lambda: self._text_of(exposed))

    def _text_of(self, exposed: Listed) -> TaggedText:
        return served_text(dump_text(description_of(exposed, self.bases, self.security)))

    def sole(self, sees: Sees = anything) -> Listed | None:
        """Return the only exposed thing that the client may see, None if there are more or none."""
        first_two = list(islice(self.seen(sees), 2))
        return first_two[0] if len(first_two) == 1 else None

    def seen(self, sees: Sees) -> Iterator[Listed]:
        """Return every exposed thing that the client may see, in start order."""
        return (each for each in self.catalogue if sees(each.name))

    def own(self, sees: Sees = anything) -> TaggedText:
        """Return the node's own description, with links to the first 1,000 things that the client may see."""
        base = http_of(self.bases[0])
        listed = Form(href=f"{base}/", op=("readproperty",), content_type=JSON)
        things = PropertyAffordance(
            description="The descriptions of all agents of the node.",
            schema={"type": "array", "items": {"type": "object"}},
            read_only=True,
            forms=(listed,),
        )
        described = Description(
            context=[OLD_TD_CONTEXT_URI, TD_CONTEXT_URI],
            id=f"{base}/",
            title="lmos_actors node",
            description="Links to the descriptions of the agents that this node serves.",
            links=tuple(
                Link(rel="item", href=url_of(base, each.name), type=TD_JSON)
                for each in islice(self.seen(sees), LINKS)
            ),
            security_definitions={"nosec_sc": SecurityScheme(scheme="nosec")},
            security="nosec_sc",
            properties={"things": things},
        )
        if self.security is not None:
            described = secured(described, self.security)
        return served_text(dump_text(described))
