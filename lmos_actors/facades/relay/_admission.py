"""Admission to a hub: its tokens, the schemes of its node, registration and invitations.

An agent presents its token as `Authorization: Bearer` or as `?token=`; the header takes precedence. The hub's
guard checks the token, and decides who may revoke the tokens of others. It accepts the schemes of the node
and the tokens of the hub. A node's ordinary guard does not accept those tokens: for the node's agents, an
agent registered at a hub has no name.
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
    """Admission to the hub of a listening node. `guard` also accepts the tokens of the hub.

    The constructor reads the invitations, which blocks on the disk, and raises ConfigError if they cannot be
    read. `local` means that the node is not guarded: only agents on its machine are admitted.
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
        """Return the admission of a request, also of an anonymous one, or its refusal."""
        return self.guard.admit(request, trio.current_time(), public=True)

    def judge_invitation(self, text: str, peer: str) -> str | float:
        """Return the digest of an invitation, 0.0 if it is wrong, or the seconds to wait before another try.

        Invitations can be guessed like credentials, so wrong invitations are counted together with wrong
        credentials.
        """
        invitations, now = self.invitations, trio.current_time()
        if invitations is None:
            return 0.0
        shown = AuthorizationHeader("invitation", SecretBytes(text.encode("utf-8", "surrogatepass")))
        return self.guard.attempts.judge(shown, peer, now, partial(invitations.find, text, now))

    def may_revoke(self, principal: Principal | None) -> bool:
        """Return whether a principal may revoke tokens, as the access list of the hub names it."""
        return self.guard.names(principal, NAME, "invoke")


def agent_of(admission: Admission) -> str | None:
    """Return the agent whose token was presented, None if it was not a token of the hub."""
    principal = admission.principal
    return principal.name if principal is not None and principal.scheme == ISSUED else None
