"""The command `lmos-actors`."""

from lmos_actors._late import late

with late(__name__):
    from ._main import main as main
