"""Memories: texts that an agent remembers of an identity, over sessions and restarts.

The public names are imported from here, as in `from lmos_actors.memories import Memories`.
"""

from lmos_actors._late import late

with late(__name__):
    from ._embedding import Embedding as Embedding
    from ._kept import terms_of as terms_of
    from ._listing import (
        MemoryOwner as MemoryOwner,
        memories_in as memories_in,
        owners_in as owners_in,
        removal_of as removal_of,
    )
    from ._memories import Memories as Memories, Memory as Memory, MemoryOptions as MemoryOptions
