"""The command `explore`. Its docstring is its help text."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the application reads the types

from ..options._explore import ExploreOptions

_USUAL = ExploreOptions()


def explore(file: Path, /, *, options: ExploreOptions = _USUAL) -> int:
    """Search for faults and seeds with which a file fails, and shrink what is found to a file of its own.

    The key explore of a scenario or simulation file says which faults may be picked, how many, and on whom:

    explore: {faults: [crash, pause], at_most: 3, of: peer}

    lmos-actors explore scenarios/gossip.yaml --runs 1000 -j auto

    lmos-actors explore scenarios/gossip.yaml --minutes 10 --all

    Runs that reach new states are the parents of the next ones. A failure is made as small as possible: \
fewer faults, agents, steps, a shorter run. It is written beside the file as NAME.found-1.yaml, with its \
log, and fails each time it is run: lmos-actors run scenarios/gossip.found-1.yaml

    The same seed finds the same, however many runs go on at once. The state of a search is in \
.lmos/explore; the same command continues from there, after Ctrl-C too, and begins anew if the file or its \
agents have changed.

    Exit codes: 0 nothing failed; 1 something did; 2 the file or the usage is wrong; 3 could not run; 4 a \
failure does not repeat with the same seed; 124 a run took too long.
    """
    from ..explore import explore_file

    options.check()
    return explore_file(str(file), options)
