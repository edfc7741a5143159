"""Several exceptions that ended one thing, raised as one, each of them once."""

from __future__ import annotations

from ._errors import StartFailed, group_of


def raise_together(errors: list[BaseException], what: str) -> None:
    """Raise them: one as itself, several as a group called `what`, none twice. Empties the list.

    Of Ctrl-C there is the first alone. A failed start whose cause is there too says nothing new, and neither
    does a group of such.
    """
    distinct = list({id(error): error for error in errors}.values())
    again = [error for error in distinct if isinstance(error, KeyboardInterrupt)][1:]
    distinct = [error for error in distinct if error not in again]
    alone = {id(error) for error in distinct if not isinstance(error, BaseExceptionGroup)}
    distinct = [error for error in distinct if not _says_nothing_new(error, alone)]
    if not distinct:
        return
    try:
        if len(distinct) == 1:
            raise distinct[0]
        raise BaseExceptionGroup(what, distinct)
    finally:
        distinct.clear()
        errors.clear()


def _says_nothing_new(error: BaseException, alone: set[int]) -> bool:
    if isinstance(error, StartFailed) and id(error.__cause__) in alone:
        return True  # what is no Exception, as SystemExit, has come by itself
    return group_of(error) is not None and all(id(leaf) in alone for leaf in _leaves(error))


def _leaves(error: BaseException) -> list[BaseException]:
    group = group_of(error)
    if group is None:
        return [error]
    return [leaf for part in group.exceptions for leaf in _leaves(part)]
