"""The command `lmos-actors`."""

from ._main import main as main
