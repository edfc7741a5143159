"""The kit for Omnia's chat protocol: judges any agent facade."""

from ._all import ChatOptions as ChatOptions, all_chat_cases as all_chat_cases
from ._context import ChatHints as ChatHints
