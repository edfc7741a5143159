"""The things that documents describe, correctly or incorrectly, and their WebSocket URLs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from lmos_actors.conformance.inputs import is_array, is_object
from lmos_actors.conformance.wire import read_json
from lmos_actors.errors import ConfigError
from lmos_actors.protocol.td import SUBPROTOCOL, Description, effective_forms, load, resolve
from lmos_actors.transport import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmos_actors.protocol.td import Form

    from ._lookup import Document

_AFFORDANCES: Final = ("properties", "actions", "events")
_TELLING: Final = (*_AFFORDANCES, "@context", "forms", "securityDefinitions")
_SALVAGED: Final = 500  # members of an object that are looked at one by one
_ID: Final = re.compile(r'"id"\s*:\s*"([^"\\]{1,2048})"')


@attrs.frozen(kw_only=True)
class Thing:
    """A thing, built from a description that may be invalid.

    `text` is the description as served; if the document contains several, it is serialized again. `data` is
    the same as plain data, empty if the description is not a JSON object. `description` is None if it cannot
    be loaded; `problem` is then the reason. `media_type` is as served, "" for a file. `where` is the URL
    after redirects, or the file.
    """

    id: str
    text: str
    data: dict[str, Any]
    description: Description | None
    where: str
    media_type: str = ""
    problem: str = ""

    @property
    def title(self) -> str:
        """The title of the thing, "" without one."""
        found = self.data.get("title")
        return found if isinstance(found, str) else ""

    def is_called(self, name: str) -> bool:
        """Return whether a given name is a name of this thing.

        The name may be its id, its title, or the last part of its id.
        """
        return name in (self.id, self.title, re.split(r"[/:]", self.id)[-1])


def things_in(document: Document) -> tuple[Thing, ...]:
    """Return the things that a document describes.

    The document describes one thing, or several in an array. A document that cannot be read yields one thing
    with a `problem`.
    """
    try:
        data: object = read_json(document.text, dict)  # the case `description.readable` finds a name twice
        problem = document.problem
    except ValueError as error:
        return (_unreadable(document, document.problem or f"not JSON: {error}"),)
    if is_array(data):
        listed = [each for each in data if is_object(each)]
        return tuple(_thing(document, each, json.dumps(each, ensure_ascii=False), problem) for each in listed)
    if is_object(data):
        return (_thing(document, data, document.text, problem),)
    return (_unreadable(document, "a description is a JSON object, this is none"),)


def _sendable(text: str) -> str:
    """Return a text with lone surrogates replaced, since no message can contain them."""
    return text.encode("utf-8", "replace").decode()


def describes(thing: Thing) -> bool:
    """Return whether a thing's data has any typical member of a description.

    This is for documents that were not requested as descriptions.
    """
    return any(word in thing.data for word in _TELLING)


def is_meant_as_json(document: Document) -> bool:
    """Return whether a document has a JSON media type, or begins with a brace or a bracket."""
    kind = document.media_type
    return kind.endswith(("json", "+json")) or document.text.lstrip()[:1] in ("{", "[")


def _unreadable(document: Document, problem: str) -> Thing:
    found = _ID.search(document.text)
    return Thing(
        id=found[1] if found else document.where,
        text=document.text,
        data={},
        description=None,
        where=document.where,
        media_type=document.media_type,
        problem=problem,
    )


def _thing(document: Document, data: dict[str, Any], text: str, problem: str) -> Thing:
    described = None
    try:
        described = load(data)
    except ConfigError as error:
        problem = problem or str(error)
    given = data.get("id")
    return Thing(
        id=_sendable(given) if isinstance(given, str) and given else document.where,
        text=text,
        data=data,
        description=described,
        where=document.where,
        media_type=document.media_type,
        problem=problem,
    )


# --- what of a description can be read


def readable_part(thing: Thing, url: str | None) -> Description:
    """Return the readable part of a description, with an absolute base if that can be known."""
    found = thing.description
    if found is None:
        try:
            found = load(_loadable(dict(list(thing.data.items())[:_SALVAGED])))
        except ConfigError:
            found = Description()  # the parts are too many, or wrong together
    return attrs.evolve(found, base=resolve(url, found.base) if found.base else url)


def _loadable(data: dict[str, Any]) -> dict[str, Any]:
    """Return data without the parts that prevent the rest from being loaded.

    The removed parts are members, affordances, or members and forms of affordances.
    """
    kept: dict[str, Any] = {}
    for name, value in data.items():
        if _loads({name: value}):
            kept[name] = value
        elif name in _AFFORDANCES and is_object(value):
            some = list(value.items())[:_SALVAGED]
            kept[name] = {key: part for key, each in some if (part := _part(name, key, each))}
    return kept


def _part(kind: str, name: str, data: object) -> dict[str, Any] | None:
    if not is_object(data):
        return None
    kept: dict[str, Any] = {}
    for word, value in data.items():
        if _loads({kind: {name: {word: value}}}):
            kept[word] = value
        elif word == "forms" and is_array(value):
            kept[word] = [each for each in value if _loads({kind: {name: {word: [each]}}})]
    return kept


def _loads(data: dict[str, Any]) -> bool:
    try:
        load(data)
    except ConfigError:
        return False
    return True


# --- sockets


def sockets_of(described: Description) -> tuple[tuple[str, Form], ...]:
    """Return the `ws` and `wss` URLs at which a thing offers LMOS, each with its first form.

    These are the URLs of forms that name the subprotocol of LMOS. If there are none, they are the URLs of
    forms without a subprotocol.
    """
    forms = [form for form in _forms(described) if "{" not in form.href]
    named = [form for form in forms if form.subprotocol == SUBPROTOCOL]
    plain = [form for form in forms if not form.subprotocol and form.href.lower().startswith(("ws:", "wss:"))]
    found: dict[str, Form] = {}
    for form in named or plain:
        try:
            found.setdefault(endpoint_of(form.href).url, form)
        except ConfigError:
            continue  # judged by the cases of the description
    return tuple(found.items())


def _forms(described: Description) -> Iterator[Form]:
    for each in (
        *(described.properties or {}).values(),
        *(described.actions or {}).values(),
        *(described.events or {}).values(),
        None,
    ):
        yield from effective_forms(described, each)


def links_of(thing: Thing) -> tuple[str, ...]:
    """Return the URLs of a thing's `item` links; none if the thing has a socket itself."""
    url = thing.where if "://" in thing.where else None
    described = readable_part(thing, url)
    if sockets_of(described):
        return ()
    return tuple(resolve(described.base, link.href) for link in described.links or () if link.rel == "item")
