"""Search queries as JSONPath, and the validation of what directories return. No I/O.

A directory is another party: its answers are checked before they are used (`checked_result`). An entry must
be a valid description with an id, match the query (a directory may ignore it), and fit the class. Its
addresses must not lead to this node, or, if another host names them, to this machine's loopback: that would
make a client send requests with its own rights to local services (server-side request forgery).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar, cast
from urllib.parse import quote, urlsplit

import attrs

from lmos_actors.actors import Agent, describe
from lmos_actors.bindings import hrefs_of, names_of
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import Description, check, differences, load, pointer
from lmos_actors.transport import endpoint_of, is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmos_actors.actors import AgentQuery, Ref

A = TypeVar("A", bound="Agent")

LEASE: Final = "lmosx:lease"
"""Member of an entry for an agent with a key of its own: key and epoch of its node's lease."""

SCHEMES: Final = ("ws://", "wss://", "http://", "https://")
MAX_ID: Final = 2048


@attrs.frozen
class Found:
    """Agent that a search has found.

    `directory` is the URL of the directory that listed it, None for an agent of this node. `url` is the URL
    of its description, for `node.consume_thing`; None for an agent of a node that does not listen.
    """

    name: str
    title: str
    id: str | None
    description: Description
    directory: str | None = None
    url: str | None = None
    epoch: int = 0
    """Epoch of the lease of an agent with a key of its own, from its entry."""
    key: str | None = None
    """Key of the agent, if it has one of its own."""
    refer: Callable[[Any], Any] = attrs.field(repr=False, eq=False, kw_only=True)
    """Function that makes the ref from a class; see `ref`."""

    @property
    def is_near(self) -> bool:
        """Whether the agent belongs to this node."""
        return self.directory is None

    def ref(self, cls: type[A], /) -> Ref[A]:
        """Return a ref to the agent, as an agent of a class. Never waits: the ref connects in the background.

        `Agent` stands for any class: with the description, a model can then use the agent's actions as tools.
        Raises TypeError for anything but an agent class, and ConfigError if the description has no usable
        form.
        """
        if cls is not Agent and getattr(cls, "__contract__", None) is None:
            raise TypeError(f"ref() needs an agent class, not {cls!r}")
        found: Ref[A] = self.refer(cls)
        return found


class ResultRejected(Exception):
    """Entry of a directory that is not used, with the reason."""


# ---- queries


def jsonpath_of(query: AgentQuery) -> str:
    """Return the JSONPath (RFC 9535) that selects the matching descriptions of an array."""
    title = wanted_title(query)
    tests = [] if title is None else [f"@.title=={_quoted(title)}"]
    if query.type is not None:
        word = _quoted(query.type)
        tests.append(f"(@['@type']=={word} || @['@type'][?@=={word}])")
    if query.capability is not None:
        tests.append(f"@['lmosx:capabilities'][?@=={_quoted(query.capability)}]")
    if query.affordance is not None:
        name = _quoted(query.affordance)
        kinds = (f"@.{kind}[{name}]" for kind in ("properties", "actions", "events"))
        tests.append(f"({' || '.join(kinds)})")
    if query.id is not None:
        tests.append(f"@['{LEASE}'].key=={_quoted(query.id)}")
    return f"$[?{' && '.join(tests)}]" if tests else "$[*]"


def wanted_title(query: AgentQuery) -> str | None:
    """Return the title that a query demands: the class's own if the query names nothing else."""
    if query.title is not None or not query.is_plain or query.cls is None:
        return query.title
    contract: Any = getattr(query.cls, "__contract__", None)
    return None if contract is None else str(contract.title)


def _quoted(text: str) -> str:
    """Return a text as a string literal of JSONPath, in single quotes (RFC 9535, 2.3.1.1)."""
    letters = (
        _ESCAPED.get(letter) or (letter if letter >= " " else f"\\u{ord(letter):04x}") for letter in text
    )
    return f"'{''.join(letters)}'"


_ESCAPED: Final = {"\\": "\\\\", "'": "\\'"}


# ---- results


def checked_result(
    data: Any, query: AgentQuery, directory: str, ours: Sequence[str], refer: Callable[..., Any]
) -> Found | None:
    """Check an entry of a directory, and return it as a result; None if it does not match the query.

    `ours` are the addresses of this node; an entry that leads there is rejected, as the node finds its own
    agents directly. `refer` returns the ref of a description. Raises ResultRejected if the entry is not safe
    to use.
    """
    if not isinstance(data, dict):
        raise ResultRejected("it is not a description")
    entry = {name: value for name, value in cast("dict[str, Any]", data).items() if name != "registration"}
    description = _valid_description(entry)
    thing_id = description.id
    if thing_id is None or len(thing_id) > MAX_ID:
        raise ResultRejected("it has no id that could be used")
    names = names_of(description, directory)
    key, epoch = _lease_in(entry)
    if not _matches(description, names, query) or query.id not in (None, key):
        return None
    _check_targets(description, directory, ours)
    _check_class(description, query)
    return Found(
        name=names[0] if names else description.title or thing_id,
        title=description.title or "",
        id=thing_id,
        description=description,
        directory=directory,
        url=f"{directory}/things/{quote(thing_id, safe='')}",
        epoch=epoch,
        key=key,
        refer=partial(refer, description, directory),
    )


def _lease_in(entry: dict[str, Any]) -> tuple[str | None, int]:
    """Return key and epoch of the lease in an entry; None and 0 without a valid lease."""
    lease: Any = entry.get(LEASE)
    if not isinstance(lease, dict):
        return None, 0
    members = cast("dict[str, Any]", lease)
    key, epoch = members.get("key"), members.get("epoch")
    if isinstance(key, str) and type(epoch) is int and epoch > 0:
        return key, epoch
    return None, 0


def _valid_description(entry: dict[str, Any]) -> Description:
    try:
        description = load(entry)
        errors = [each for each in check(entry) if each.severity == "error"]
    except ConfigError as error:
        raise ResultRejected(f"its description is wrong: {error}") from None
    if errors:
        raise ResultRejected(
            f"its description is wrong: {pointer(errors[0].place) or '/'} {errors[0].message}"
        )
    return description


def _matches(description: Description, names: Sequence[str], query: AgentQuery) -> bool:
    types = description.type or ()
    affordances = (
        *(description.properties or {}),
        *(description.actions or {}),
        *(description.events or {}),
    )
    title = wanted_title(query)
    if title is not None and description.title != title:
        return False
    if query.name is not None and query.name.replace("/", ".") not in (*names, description.title):
        return False
    return query.is_met(
        description.title,
        (types,) if isinstance(types, str) else types,
        description.capabilities or (),
        affordances,
    )


def _check_class(description: Description, query: AgentQuery) -> None:
    if query.cls is None or getattr(query.cls, "__contract__", None) is None:
        return
    cls = cast("type[Agent]", query.cls)
    for each in differences(description, describe(cls)):
        if each.weight == "breaks":
            raise ResultRejected(
                f"it is not what {cls.__name__} expects: {pointer(each.place)} {each.message}"
            )


def _check_targets(description: Description, directory: str, ours: Sequence[str]) -> None:
    """Check all addresses of a description.

    Raises ResultRejected for an address that is not a server's, that leads to this node, or that leads to
    this machine's loopback although another host named it.
    """
    may_be_here = is_here(endpoint_of(directory).host)
    for href in hrefs_of(description, directory):
        if not href.startswith(SCHEMES) or "{" in urlsplit(href).netloc:
            raise ResultRejected(f"its address {href[:80]!r} is not that of a server")
        try:
            endpoint = endpoint_of(href.partition("{")[0])
        except ConfigError as error:
            raise ResultRejected(f"it leads nowhere: {error}") from None
        if endpoint.authority in ours:
            raise ResultRejected("it belonged to this node, and has gone")
        if is_here(endpoint.host) and not may_be_here:
            raise ResultRejected(f"it leads to {endpoint.host!r}, which is another host there than here")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value of JSON is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value of JSON is an array."""
    return isinstance(value, list)
