"""Cases for clients, and the server that judges clients by them."""

from lmos_actors._late import late

with late(__name__):
    from ._cases import (
        CHALLENGES as CHALLENGES,
        CLIENT_CASES as CLIENT_CASES,
        ClientCase as ClientCase,
        ClientCases as ClientCases,
    )
    from ._challenge_descriptions import (
        describe_challenges as describe_challenges,
        describe_challenges_b as describe_challenges_b,
    )
    from ._challenges import ChallengeConnection as ChallengeConnection, ChallengeServer as ChallengeServer
    from ._codec import Judge as Judge, JudgingCodec as JudgingCodec
    from ._judge import ClientJudgingOptions as ClientJudgingOptions, judge_clients as judge_clients
    from ._log import ClientNotes as ClientNotes, ConnectionLog as ConnectionLog
    from ._rules import MessageRules as MessageRules
    from ._server import ClientOptions as ClientOptions
    from ._visits import Visits as Visits
