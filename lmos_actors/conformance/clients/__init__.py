"""Cases for clients: a server that judges those who connect to it."""

from ._cases import CLIENT_CASES as CLIENT_CASES, ClientCase as ClientCase
from ._server import judge_clients as judge_clients
