"""Cases for clients, and the server that judges clients by them."""

from ._cases import CHALLENGES as CHALLENGES, CLIENT_CASES as CLIENT_CASES, ClientCase as ClientCase
from ._challenge_descriptions import (
    describe_challenges as describe_challenges,
    describe_challenges_b as describe_challenges_b,
)
from ._challenges import ChallengeConnection as ChallengeConnection, ChallengeServer as ChallengeServer
from ._log import ClientNotes as ClientNotes
from ._rules import MessageRules as MessageRules
from ._server import judge_clients as judge_clients
