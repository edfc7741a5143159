"""The kit for Omnia's chat protocol: judges any agent facade."""

from ._all import ChatOptions as ChatOptions, all_chat_cases as all_chat_cases, chosen_chat as chosen_chat
from ._context import ChatHints as ChatHints
from ._judge import judge_facade as judge_facade
