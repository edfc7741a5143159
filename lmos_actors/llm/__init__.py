"""Language models as agents, and the clients of their providers.

The public names are imported from here, as in `from lmos_actors.llm import Model`. The SDK of a provider is
imported when a model of it starts, and is in the extra `llm`.
"""

from lmos_actors._late import late

with late(__name__):
    from ._anthropic import AnthropicModel as AnthropicModel
    from ._failures import (
        KEY_REFUSED as KEY_REFUSED,
        MODEL_BUSY as MODEL_BUSY,
        MODEL_CUT as MODEL_CUT,
        MODEL_MALFORMED as MODEL_MALFORMED,
        MODEL_UNAVAILABLE as MODEL_UNAVAILABLE,
        NO_MODEL as NO_MODEL,
        REQUEST_REFUSED as REQUEST_REFUSED,
        model_failure as model_failure,
    )
    from ._limits import Tally as Tally, estimated_tokens as estimated_tokens
    from ._messages import (
        Message as Message,
        ModelEnd as ModelEnd,
        ModelFile as ModelFile,
        ModelItem as ModelItem,
        ModelMessage as ModelMessage,
        ModelRequest as ModelRequest,
        Reasoning as Reasoning,
        StopReason as StopReason,
        TextDelta as TextDelta,
        ToolMessage as ToolMessage,
        ToolOffer as ToolOffer,
        ToolRequest as ToolRequest,
        Usage as Usage,
        UserMessage as UserMessage,
    )
    from ._model import Model as Model
    from ._openai import OpenAIModel as OpenAIModel
