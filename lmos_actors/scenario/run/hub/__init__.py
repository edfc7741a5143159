"""The hub of a run: who is on it, and what is said there."""

from ._hub import RunHub as RunHub
