"""The search for the judged thing, from a URL or a file to its description and its socket.

A user passes any available URL: of a description, of a directory, of an origin, or of the socket itself,
which has no link to its description. The search therefore tries the likeliest places in turn (`_places`), and
ends at the first that leaves no doubt (`_is_sure`): a list of things may link to a better one, and a socket
may be named by only one of them. Documents that are no descriptions are skipped, and the reasons are kept:
they are the error message if nothing is found.

The search never guesses. If several things fit equally well, it raises an error that names them and
`--thing`. A description that cannot be read is used only if the socket is known from elsewhere, so that a
server with a broken description can still be judged by its messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from lmos_actors.conformance.wire import Unreachable
from lmos_actors.errors import ConfigError, nearest
from lmos_actors.protocol.td import MAX_BYTES
from lmos_actors.transport import endpoint_of

from ._lookup import (
    SOCKETS,
    WELL_KNOWN,
    AccessOptions,
    Web,
    is_nobody,
    is_url,
    on_web,
    read_file,
)
from ._target import Target
from ._things import (
    Thing,
    describes,
    is_meant_as_json,
    links_of,
    readable_part,
    sockets_of,
    things_in,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmos_actors.protocol.td import Form

    from ._lookup import Document

_MOST: Final = 20  # links followed, and things named in a message


async def find_target(
    url: str, access: AccessOptions, *, thing: str | None = None, description: str | None = None
) -> Target:
    """Find the requested thing and its description.

    `url`: the URL of a description; an origin, or its `/.well-known/wot`; a `ws` or `wss` address, whose
    description is searched for over HTTP at the same authority; or a file. `thing`: the id, the title or the
    last part of the id of the thing, if there are several. `description`: the URL or file of its description,
    which is then not searched for elsewhere.

    Raises Unreachable if no server or no description is there; ConfigError if the request is ambiguous, or a
    file cannot be read. Both messages name the fix.
    """
    socket = endpoint_of(url).url if url.lower().startswith(SOCKETS) else None
    search = _Search(access, url, thing, description, socket)
    found = await search.thing()
    target = search.target(found)
    return attrs.evolve(target, others=await search.others(target))


class _Search:
    """One search for a thing. Every thing found is kept, as it may share the socket of the judged one."""

    def __init__(
        self, access: AccessOptions, url: str, name: str | None, description: str | None, socket: str | None
    ) -> None:
        self._web = Web(access, (url,) if description is None else (url, description))
        self._url = url
        self._name = name
        self._description = description
        self._socket = socket
        self._found: dict[str, Thing] = {}  # by id, or by text if there is none
        self._urls: dict[str, tuple[str, ...]] = {}  # the URLs of their sockets
        self._broken: list[Thing] = []
        self._why: list[str] = []
        asked = description or url
        self._places = _places(asked, one=description is not None) if is_url(asked) else ()

    # --- the thing itself

    async def thing(self) -> Thing:
        """Return the requested thing; the search ends as soon as the choice is certain."""
        if not self._places:
            self._take(await read_file(self._description or self._url, MAX_BYTES), exact=True)
        for place in self._places:
            try:
                self._take(await self._web.get(place), exact=len(self._places) == 1)
            except Unreachable as error:
                if is_nobody(error):
                    raise Unreachable(self._description or self._url, error.why) from error
                self._why.append(error.why if place == self._url else f"{error}")
            meant = self._meant()
            if len(meant) == 1 and self._is_sure(meant[0]):
                return meant[0]
        links = [each for thing in self._found.values() for each in links_of(thing)]
        await self._look(links[:_MOST])
        return self._decided()

    def _take(self, document: Document, *, exact: bool = False) -> None:
        """Store the things in a document.

        `exact`: the user named this document, so the things in it need not look like descriptions.
        """
        if not exact and not is_meant_as_json(document):
            self._why.append(f"{document.where}: {document.media_type or 'what is there'} is no description")
            return
        for thing in things_in(document):
            wrong = sum(each.description is None for each in self._found.values())
            if not thing.data or (thing.description is None and wrong >= _MOST):
                self._broken.append(thing)
            elif exact or describes(thing):
                self._found.setdefault(_key(thing), thing)

    def _meant(self) -> list[Thing]:
        """Return the things found that have the given name and, if possible, the given socket.

        If none has that socket, return those described at its address, else those with any socket, else all
        with the name.
        """
        meant = [each for each in self._found.values() if self._name is None or each.is_called(self._name)]
        leading = [each for each in meant if self._socket in self._leads_to(each)]
        there = [each for each in meant if self._is_there(each)]
        return leading or there or [each for each in meant if self._leads_to(each)] or meant

    def _is_there(self, thing: Thing) -> bool:
        """Return whether the description of a thing is served at the address of the socket."""
        return self._socket is not None and thing.where in self._places[:1]

    def _leads_to(self, thing: Thing) -> tuple[str, ...]:
        key = _key(thing)
        if key not in self._urls:
            described = readable_part(thing, self._base(thing))
            self._urls[key] = tuple(url for url, _ in sockets_of(described))
        return self._urls[key]

    def _is_sure(self, thing: Thing) -> bool:
        """Return whether no better thing can be found elsewhere."""
        if self._socket is None or self._name is not None:
            return not links_of(thing)
        return self._socket in self._leads_to(thing) or self._is_there(thing)

    def _decided(self) -> Thing:
        meant = self._meant()
        listed = [each for each in meant if not links_of(each)] or meant
        if len(listed) == 1:
            return listed[0]
        if self._found:
            raise ConfigError(self._unclear(), self._description or self._url)
        if self._broken and self._socket is not None:
            return self._named(self._broken[0])
        raise Unreachable(self._description or self._url, self._nothing())

    def _named(self, thing: Thing) -> Thing:
        return thing if self._name is None else attrs.evolve(thing, id=self._name)

    def _unclear(self) -> str:
        names = [each.id for each in self._found.values() if not links_of(each)]
        known = ", ".join(names[:_MOST]) + (", ..." if names[_MOST:] else "") or "none"
        if self._name is None:
            return f"it describes several things: say which one by --thing; there are: {known}"
        if self._meant():
            return f"--thing {self._name!r} fits several things: say which one by its id; there are: {known}"
        near = nearest(self._name, [*names, *(each.title for each in self._found.values())])
        hint = f" (did you mean {near!r}?)" if near else ""
        return f"--thing {self._name!r} is not there{hint}; there are: {known}"

    def _nothing(self) -> str:
        """Return why no description was found, and what to do about it."""
        why = [f"{each.where}: {each.problem}" for each in self._broken] or self._why
        reasons = "; ".join(dict.fromkeys(why))
        if self._socket is None:
            return f"no description is there ({reasons}): give the URL of one"
        return f"no description was found by HTTP ({reasons}): --description says which URL or file has it"

    # --- what it leads to

    def target(self, thing: Thing) -> Target:
        """Return the target that a thing describes.

        Raises ConfigError, or Unreachable if neither the thing nor a socket is known.
        """
        described = readable_part(thing, self._base(thing))
        found = sockets_of(described)
        socket, form = (self._socket, None) if self._socket is not None else _nearest(found, thing.where)
        if socket is None and thing.description is None:
            raise Unreachable(thing.where, f"its description cannot be read: {thing.problem}")
        return Target(given=self._url, thing=thing, socket=socket, form=form, readable_part=described)

    def _base(self, thing: Thing) -> str | None:
        if is_url(thing.where):
            return thing.where
        return on_web(self._url) if is_url(self._url) else None

    # --- the others

    async def others(self, target: Target) -> tuple[Thing, ...]:
        """Return further things on the same socket: those found so far, and those listed at its authority."""
        if target.socket is None:
            return ()
        if self._description is None and is_url(self._url):
            await self._look([on_web(target.socket, path) for path in ("/", "/things")])
        own = target.thing
        same = (target.socket, *self._leads_to(own))
        rest = [each for each in self._found.values() if _key(each) != _key(own)]
        return tuple(each for each in rest if any(url in same for url in self._leads_to(each)))

    async def _look(self, urls: list[str]) -> None:
        """Fetch the documents at these URLs, and keep the things that they describe."""
        async with trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(self._quietly, url)
        for url in urls:
            document = await self._quietly(url)
            if document is not None:
                self._take(document)

    async def _quietly(self, url: str) -> Document | None:
        try:
            return await self._web.get(url)
        except (Unreachable, ConfigError):
            return None


def _places(asked: str, *, one: bool) -> tuple[str, ...]:
    """Return the places where a description may be, the likeliest first."""
    here = on_web(asked)
    lists = tuple(on_web(asked, path) for path in (WELL_KNOWN, "/", "/things"))
    if asked.lower().startswith(SOCKETS):
        return tuple(dict.fromkeys((here, *lists)))
    return lists if not one and here in lists[:2] else (here,)


def _key(thing: Thing) -> str:
    return thing.id if thing.data.get("id") == thing.id else thing.text


def _nearest(found: Sequence[tuple[str, Form]], where: str) -> tuple[str, Form] | tuple[None, None]:
    """Return the URL of a socket and its form, preferably at the authority of the description."""
    if not found:
        return None, None
    here = endpoint_of(where).authority if is_url(where) else None
    return next((each for each in found if endpoint_of(each[0]).authority == here), found[0])
