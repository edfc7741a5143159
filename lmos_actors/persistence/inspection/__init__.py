"""Access to stores without a node: a program without an event loop reads, exports or imports them."""

from lmos_actors._late import late

with late(__name__):
    from ._exchange import (
        exported as exported,
        import_lines as import_lines,
        plain_key as plain_key,
        records_in as records_in,
    )
    from ._opened import (
        ServerStore as ServerStore,
        opened_to_read as opened_to_read,
        opened_to_write as opened_to_write,
    )
