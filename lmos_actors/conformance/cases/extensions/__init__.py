"""Cases for the extensions of lmos_actors, and for the habits of kotlin-wot's clients."""

from lmos_actors._late import late

with late(__name__):
    from ._binary_answers import BINARY_ANSWERS as BINARY_ANSWERS
    from ._input_streams import INPUT_STREAMS as INPUT_STREAMS
    from ._keys import KEYS as KEYS
    from ._kotlin import KOTLIN as KOTLIN
    from ._members import MEMBERS as MEMBERS
    from ._one_way_messages import ONE_WAY_MESSAGES as ONE_WAY_MESSAGES
    from ._retries import RETRIES as RETRIES
    from ._streams import STREAMS as STREAMS
