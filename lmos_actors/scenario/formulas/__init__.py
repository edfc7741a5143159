"""Formulas of files: read, resolved, and computed for one agent or for a whole population."""

from ._columns import PLAIN as PLAIN, Columns as Columns
from ._formulas import (
    Formula as Formula,
    FormulaFailed as FormulaFailed,
    FormulaProblem as FormulaProblem,
    compile_formula as compile_formula,
    words_of as words_of,
)
from ._look import (
    RESERVED as RESERVED,
    Agents as Agents,
    AnyNames as AnyNames,
    StateOf as StateOf,
    fields_known as fields_known,
    known_names as known_names,
    of_agents as of_agents,
    state_of as state_of,
)
