"""What a node finds: agents here and elsewhere, one for a ref or all in a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .actors import Agent, Ref, Sought, awaited, link_to

if TYPE_CHECKING:
    from ._discovering import Discovering
    from .actors import Runtime, Spread
    from .discovery import Explored, Found, Registered

A = TypeVar("A", bound=Agent)


class Reaching:
    """The part of a node that finds agents."""

    _rt: Runtime
    _discovering: Discovering

    def find(
        self,
        cls: type[A],
        name: str | None = None,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
        spread: Spread | None = None,
        key: str | None = None,
    ) -> Ref[A]:
        """Give a ref to an agent of that class, by its name or path, or the first started.

        `title`, `type` (a word of its `@type`), `capability` (one that its `About` names) and `affordance`
        (the name of an action, property or event) have to fit as well. Agents of this node come first; if
        there is none, the directories of `register` and `lookup` are asked. One that was found elsewhere is
        kept until it cannot be reached.

        With `spread` the ref leads to all of them, here and elsewhere, and each request to one: in turn
        (`"round_robin"`), to the one with the least to do (`"least_loaded"`), or by an argument (`"key"`),
        that called `key`, else the first. Who is down is passed over where a request has not begun.

        Never waits and never fails: the ref resolves on first use; `await ref.ready()` waits for it.
        """
        sought = Sought(cls, name, title, type, capability, affordance)
        return Ref(link_to(self._rt, sought, spread, key))

    @awaited("node.")
    async def search(
        self,
        cls: type[Any] | None = None,
        name: str | None = None,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
        near: bool = True,
        directory: str | None = None,
    ) -> list[Found]:
        """Give all agents that `find` would look for: those of this node first, then those elsewhere.

        `directory` is the URL of the one to ask, in place of those of `register` and `lookup`; without
        `near` agents of this node are left out. What a directory tells is checked; what is not fit for use
        is left out. Raises a TransportError where nothing was found and a directory did not answer.
        """
        sought = Sought(cls, name, title, type, capability, affordance)
        return await self._discovering.search(sought, near=near, directory=directory)

    @awaited("node.")
    async def discover(
        self,
        source: str,
        *,
        title: str | None = None,
        type: str | None = None,
        capability: str | None = None,
        affordance: str | None = None,
    ) -> Explored:
        """Say which agents are at an address: `.things`, and which directories have told of some of them.

        `source` is the URL of a description, of a directory or of a server, or a host with its port, whose
        well-known URL tells (WoT Discovery); or `"mdns"`: who announces itself on this network by DNS-SD,
        which takes three seconds, and up to thirty for asking them, and the extra `mdns`. What is told there
        is checked: `.left_out` says what is not fit for use.

        Raises ConnectFailed where nothing is there, ConfigError for no such address, ForbiddenCall for
        `"mdns"` on virtual time.
        """
        sought = Sought(None, None, title, type, capability, affordance)
        return await self._discovering.explore(source, sought)

    @property
    def registrations(self) -> tuple[Registered, ...]:
        """How the registration of its agents stands, for each directory of `register`."""
        return self._discovering.registrations
