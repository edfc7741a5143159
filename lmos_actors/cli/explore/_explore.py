"""Execution of `explore`: a search of one file, and its output."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from lmos_actors.reports import count, worst
from lmos_actors.scenario import REAL_LIMIT
from lmos_actors.scenario.cells import Pool
from lmos_actors.scenario.explore import TIME_LIMIT, Exploration, Folder
from lmos_actors.system import RemoteAccess

from .._exit_codes import COULD_NOT_RUN, FAILED, NOT_DETERMINISTIC, TIME_LIMIT as LATE
from .._signals import signals
from .._written_files import replace_file
from ..run._display import print_wrong
from ..run._load import load_files
from ._show import ExploreShow, find_data, find_lines

if TYPE_CHECKING:
    from lmos_actors.scenario.explore import Find

    from ..options._explore import ExploreOptions
    from ..run._load import Wrong


def explore_file(file: str, options: ExploreOptions) -> int:
    """Explore a file, print what is found, and return the exit code."""
    show = ExploreShow(json=options.json)  # before agents' modules, which may hide what it imports
    wrong: Wrong = []
    with ExitStack() as stack, signals.in_order():
        pool = stack.enter_context(Pool())
        # what agents print in thousands of runs is for nobody
        pool.errors = stack.enter_context(open(os.devnull, "wb"))
        pool.prepare(second=True)
        found, code = load_files([file], options.settings, None, REAL_LIMIT, wrong, access=RemoteAccess())
        if code:
            if options.json:
                print_wrong(wrong, code)
            return code
        resolved = found[0][1]
        folder = Folder(resolved.root, Path(file), replace_file)
        stack.callback(folder.close)
        search = Exploration(options.request(file), resolved, folder, pool, show)
        try:
            search.run()
        except KeyboardInterrupt:
            with signals.held():
                _print_end(search, show, signals.code)
            raise
        with signals.held(drop=True):
            return _print_end(search, show)


def _print_end(search: Exploration, show: ExploreShow, code: int = 0) -> int:
    """Print the findings and the size of the search, and return the exit code."""
    seconds = search.seconds
    codes = {code, *map(_code_of, search.found)}
    codes |= {COULD_NOT_RUN} if search.failure is not None else set[int]()
    codes |= {LATE} if search.slow else set[int]()
    for find in search.found:
        for line in find_lines(find):
            show.line(line)
    show.line(_summary(search, seconds))
    if search.slow:
        show.line(
            f"{count(search.slow, 'run')} took too long with little processor time: the search cannot tell"
            " whether they hang, or this machine is slow; --time-limit gives them longer"
        )
    code = worst(codes)
    show.result(
        {
            "file": search.request.file,
            "name": search.resolved.name,
            "runs": search.done,
            "resumed": min(search.resumed, search.done),
            "slow": search.slow,
            "states": search.states,
            "seconds": seconds,
            "found": [find_data(find) for find in search.found],
            "mistakes": [],
            "exit_code": code,
        }
    )
    return code


def _summary(search: Exploration, seconds: float) -> str:
    name, finds = search.resolved.name, len(search.found)
    if search.failure is not None:
        return f"{name} could not run, so nothing was searched; {seconds:.1f} s"
    earlier = min(search.resumed, search.done)
    more = f" ({earlier} of them earlier)" if earlier else ""
    found = count(finds, "failure") if finds else "nothing failed"
    text = f"{found} in {count(search.done, 'run')}{more} of {name}: {_searched(search)}"
    return f"{text}; {count(search.states, 'state')} reached, {seconds:.1f} s"


def _searched(search: Exploration) -> str:
    """Return a text on what a search varies: faults and arguments, and for which agents."""
    explore = search.explore
    kinds = [each if isinstance(each, str) else str(each.__struct_config__.tag) for each in explore.faults]
    drawn = f"up to {count(explore.at_most, 'fault')} of {', '.join(dict.fromkeys(kinds))}" if kinds else ""
    text = " and ".join(filter(None, [drawn, "arguments" * bool(explore.arguments)]))
    if isinstance(explore.of, str | tuple):
        names = (explore.of,) if isinstance(explore.of, str) else explore.of
        text += f" on {', '.join(names)}"
    return text


def _code_of(find: Find) -> int:
    if find.failure == TIME_LIMIT:
        return LATE
    return NOT_DETERMINISTIC if find.difference else FAILED
