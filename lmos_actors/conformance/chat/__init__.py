"""The kit for Omnia's chat protocol, which judges any agent facade."""

from lmos_actors._late import late

with late(__name__):
    from ._all import ChatOptions as ChatOptions, all_chat_cases as all_chat_cases
    from ._context import ChatHints as ChatHints
