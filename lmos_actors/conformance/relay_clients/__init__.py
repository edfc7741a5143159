"""Cases for clients of relays, and the hub that judges clients by them."""

from lmos_actors._late import late

with late(__name__):
    from ._cases import JUDGE as JUDGE, PARTS as PARTS, RELAY_CLIENT_CASES as RELAY_CLIENT_CASES
    from ._server import RelayClientOptions as RelayClientOptions
