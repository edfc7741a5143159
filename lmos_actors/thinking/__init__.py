"""Agents that think: the loop between a language model and its tools, alone and as a chat agent.

The public names are imported from here, as in `from lmos_actors.thinking import ThinkingAgent`.
"""

from lmos_actors._late import late

with late(__name__):
    from ._agent import ThinkingAgent as ThinkingAgent
    from ._budget import Account as Account, Budget as Budget, Spent as Spent
    from ._hand_over import HandOver as HandOver, hand_back as hand_back, hand_over as hand_over
    from ._memory_tools import MEMORY_TOOLS as MEMORY_TOOLS, memory_tools as memory_tools
    from ._think import Thought as Thought, think as think
    from ._tool_calls import ToolLimits as ToolLimits
    from ._tools import ToolSource as ToolSource, tools_of as tools_of
