"""Cases for clients: a server that judges those who connect to it."""

from ._cases import CLIENT_CASES as CLIENT_CASES, RIDDLES as RIDDLES, ClientCase as ClientCase
from ._challenge_descriptions import puzzling as puzzling, puzzling_b as puzzling_b
from ._challenges import RiddleConnection as RiddleConnection, RiddleServer as RiddleServer
from ._log import Book as Book
from ._rules import MessageRules as MessageRules
from ._server import judge_clients as judge_clients
