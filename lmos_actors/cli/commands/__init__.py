"""The commands as their users see them: parameters and help; `_commands.py` lists them."""
