"""Security of nodes: authentication schemes, secrets by reference, access lists, credentials for peers."""

from lmos_actors._late import late

with late(__name__):
    from lmos_actors._core import (
        SecretBytes as SecretBytes,
    )

    from ._access import (
        RELAYED as RELAYED,
        Access as Access,
        AllowList as AllowList,
        idle_patterns as idle_patterns,
    )
    from ._attempts import Attempts as Attempts
    from ._credentials import (
        ApiKey as ApiKey,
        BasicAuth as BasicAuth,
        BearerToken as BearerToken,
        Credential as Credential,
        Credentials as Credentials,
        credential_of as credential_of,
        in_the_clear as in_the_clear,
        is_loopback as is_loopback,
        is_private as is_private,
        place_of as place_of,
        url_of as url_of,
    )
    from ._file import redacted as redacted
    from ._guard import Admission as Admission, Guard as Guard
    from ._invitations import Invitations as Invitations
    from ._rates import Buckets as Buckets, Rate as Rate, address_of as address_of
    from ._request import (
        PERSONAL as PERSONAL,
        AuthorizationHeader as AuthorizationHeader,
        Certificate as Certificate,
        Principal as Principal,
        Refusal as Refusal,
        RequestContext as RequestContext,
        Verb as Verb,
    )
    from ._schemes import (
        ANYONE as ANYONE,
        AUTHENTICATED as AUTHENTICATED,
        Basic as Basic,
        Bearer as Bearer,
        ClientCertificates as ClientCertificates,
        Jwt as Jwt,
        NoSec as NoSec,
        Scheme as Scheme,
    )
    from ._secrets import (
        Reference as Reference,
        SecretSource as SecretSource,
    )
    from ._security import Security as Security
    from ._sessions import Sessions as Sessions
    from ._shared_token import TOKEN_VARIABLE as TOKEN_VARIABLE, SharedToken as SharedToken
    from ._tls import client_tls as client_tls, server_tls as server_tls, validity_error as validity_error
    from ._verifiers import ISSUED as ISSUED, IssuedTokens as IssuedTokens
