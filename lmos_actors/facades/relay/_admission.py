"""Admission to a hub: its tokens, the schemes of its node, registration and invitations.

An agent shows its token as `Authorization: Bearer` or as `?token=`; the header wins. The hub's guard judges
the token, and decides who may revoke the tokens of others: it knows the schemes of the node and the tokens of
the hub. A node's own guard does not: to the node's agents, an agent registered at a hub has no name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from lmos_actors.security import (
    ISSUED,
    Admission,
    AuthorizationHeader,
    Guard,
    Invitations,
    Reference,
    SecretBytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors.security import Principal, Refusal, RequestContext

    from ._hub import HubPlace
    from ._options import Registration

NAME: Final = "relay"
"""The name of the hub in the tree, right below the root, and in access lists."""


class HubAdmission:
    """Admission to the hub of a node that listens. `guard` knows the tokens of the hub too.

    The constructor reads the invitations, which blocks on the disk, and raises ConfigError if they cannot be
    read. `local`: the node is not guarded: only agents of its own machine are admitted.
    """

    def __init__(self, place: HubPlace, guard: Callable[[HubPlace], Guard], *, local: bool) -> None:
        options = place.options
        self.guard = guard(place)
        self.invitations: Invitations | None = None
        """The invitations with which agents may register, if any."""
        default: Registration = "open" if local else "closed"
        if options.invitations is not None:
            self.invitations = Invitations(Reference.parse(options.invitations))
            default = "invite"
        self.registration: Registration = options.registration or default
        """Whether agents may register themselves."""

    def admit(self, request: RequestContext) -> Admission | Refusal:
        """Return the admission of a request, even of an anonymous one, or its refusal."""
        return self.guard.admit(request, trio.current_time(), public=True)

    def judge_invitation(self, text: str, peer: str) -> str | float:
        """Return the digest of an invitation, or the seconds to wait before a next try; 0.0 if it is wrong.

        Invitations can be guessed like credentials, so wrong ones are counted with them.
        """
        invitations, now = self.invitations, trio.current_time()
        if invitations is None:
            return 0.0
        shown = AuthorizationHeader("invitation", SecretBytes(text.encode("utf-8", "surrogatepass")))
        return self.guard.attempts.judge(shown, peer, now, partial(invitations.find, text, now))

    def may_revoke(self, principal: Principal | None) -> bool:
        """Return whether the access list of the hub names a principal, so that it may revoke tokens."""
        return self.guard.names(principal, NAME, "invoke")


def agent_of(admission: Admission) -> str | None:
    """Return the agent whose token was shown, None if it was not a token of the hub."""
    principal = admission.principal
    return principal.name if principal is not None and principal.scheme == ISSUED else None
