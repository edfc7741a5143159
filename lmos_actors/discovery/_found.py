"""What is asked of a directory, and what of its answers is taken: both pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, urlsplit

import attrs

from lmos_actors.actors import describe
from lmos_actors.bindings import hrefs_of, names_of
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import Description, check, differences, load, pointer
from lmos_actors.transport import endpoint_of, is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.actors import Agent, AgentQuery, Ref

A = TypeVar("A", bound="Agent")

SCHEMES: Final = ("ws://", "wss://", "http://", "https://")
LONGEST_ID: Final = 2048


@attrs.frozen
class Found:
    """One agent that a search has found.

    `directory` is the URL of the directory that told of it, None for an agent of this node. `url` is where
    its description is, for `node.consume_thing`; None for an agent of a node that does not listen.
    """

    name: str
    title: str
    id: str | None
    description: Description
    directory: str | None = None
    url: str | None = None
    refer: Callable[[Any], Any] = attrs.field(repr=False, eq=False, kw_only=True)
    """What gives the ref; see `ref`."""

    @property
    def is_near(self) -> bool:
        """Whether it is an agent of this node."""
        return self.directory is None

    def ref(self, cls: type[A], /) -> Ref[A]:
        """Return a ref to it as an agent of that class. Never waits: it connects in the background.

        Raises TypeError for what is no agent class, ConfigError where its description leads nowhere.
        """
        if getattr(cls, "__contract__", None) is None:
            raise TypeError(f"an agent is spoken to as a class of agents, not as {cls!r}")
        found: Ref[A] = self.refer(cls)
        return found


class Rejected(Exception):
    """What a directory tells of is not used; the text says why."""


class NotSought(Rejected):
    """It is not what was asked for: nothing is wrong with it."""


# ---- what is asked


def query_of(sought: AgentQuery) -> str:
    """Return the JSONPath (RFC 9535) that chooses what is sought out of an array of descriptions."""
    title = title_of(sought)
    tests = [] if title is None else [f"@.title=={_quoted(title)}"]
    if sought.type is not None:
        word = _quoted(sought.type)
        tests.append(f"(@['@type']=={word} || @['@type'][?@=={word}])")
    if sought.capability is not None:
        tests.append(f"@['lmosx:capabilities'][?@=={_quoted(sought.capability)}]")
    if sought.affordance is not None:
        name = _quoted(sought.affordance)
        kinds = (f"@.{kind}[{name}]" for kind in ("properties", "actions", "events"))
        tests.append(f"({' || '.join(kinds)})")
    return f"$[?{' && '.join(tests)}]" if tests else "$[*]"


def title_of(sought: AgentQuery) -> str | None:
    """Return the title that is sought: where nothing but the class is told, that of the class."""
    if sought.title is not None or not sought.is_plain or sought.cls is None:
        return sought.title
    contract: Any = getattr(sought.cls, "__contract__", None)
    return None if contract is None else str(contract.title)


def _quoted(text: str) -> str:
    """Write a text as a JSONPath does, between single quotes."""
    letters = (
        _ESCAPED.get(letter) or (letter if letter >= " " else f"\\u{ord(letter):04x}") for letter in text
    )
    return f"'{''.join(letters)}'"


_ESCAPED: Final = {"\\": "\\\\", "'": "\\'"}


# ---- what is taken


def taken(
    data: Any, sought: AgentQuery, directory: str, ours: Sequence[str], refer: Callable[..., Any]
) -> Found:
    """Return what a directory tells of, if it is what was sought and may be used. Raises Rejected.

    `ours` are the addresses of this node, whose agents are near; `refer` gives the ref to a description.
    """
    if not isinstance(data, dict):
        raise Rejected("it is no description")
    entry = {name: value for name, value in cast("dict[str, Any]", data).items() if name != "registration"}
    description = _described(entry)
    thing_id = description.id
    if thing_id is None or len(thing_id) > LONGEST_ID:
        raise Rejected("it has no id that could be used")
    names = names_of(description, directory)
    if not _is_sought(description, names, sought):
        raise NotSought("it is not what was asked for")
    _check_places(description, directory, ours)
    _check_class(description, sought)
    return Found(
        name=names[0] if names else description.title or thing_id,
        title=description.title or "",
        id=thing_id,
        description=description,
        directory=directory,
        url=f"{directory}/things/{quote(thing_id, safe='')}",
        refer=partial(refer, description, directory),
    )


def _described(entry: dict[str, Any]) -> Description:
    try:
        description = load(entry)
        errors = [each for each in check(entry) if each.severity == "error"]
    except ConfigError as error:
        raise Rejected(f"its description is wrong: {error}") from None
    if errors:
        raise Rejected(f"its description is wrong: {pointer(errors[0].place) or '/'} {errors[0].message}")
    return description


def _is_sought(description: Description, names: Sequence[str], sought: AgentQuery) -> bool:
    types = description.type or ()
    affordances = (
        *(description.properties or {}),
        *(description.actions or {}),
        *(description.events or {}),
    )
    title = title_of(sought)
    if title is not None and description.title != title:
        return False
    if sought.name is not None and sought.name.replace("/", ".") not in (*names, description.title):
        return False
    return sought.is_met(
        description.title,
        (types,) if isinstance(types, str) else types,
        description.capabilities or (),
        affordances,
    )


def _check_class(description: Description, sought: AgentQuery) -> None:
    if sought.cls is None or getattr(sought.cls, "__contract__", None) is None:
        return
    cls = cast("type[Agent]", sought.cls)
    for each in differences(description, describe(cls)):
        if each.weight == "breaks":
            raise Rejected(f"it is not what {cls.__name__} expects: {pointer(each.place)} {each.message}")


def _check_places(description: Description, directory: str, ours: Sequence[str]) -> None:
    """Refuse what leads to no server, to this node, or, told by another host, to the host that reads it."""
    may_be_here = is_here(endpoint_of(directory).host)
    for href in hrefs_of(description, directory):
        if not href.startswith(SCHEMES) or "{" in urlsplit(href).netloc:
            raise Rejected(f"it leads to {href[:80]!r}, which is no address of a server")
        try:
            endpoint = endpoint_of(href.partition("{")[0])
        except ConfigError as error:
            raise Rejected(f"it leads nowhere: {error}") from None
        if endpoint.authority in ours:
            raise Rejected("it is of this node, and not here any more")
        if is_here(endpoint.host) and not may_be_here:
            raise Rejected(f"it leads to {endpoint.host!r}: where it is said, that is another host than here")
