"""Formulas of files: read, resolved, and computed for one agent or for a whole population."""

from lmos_actors._late import late

with late(__name__):
    from .._agent_state import (
        AgentState as AgentState,
        fields_known as fields_known,
        state_of as state_of,
    )
    from ._columns import PLAIN as PLAIN, Columns as Columns
    from ._formulas import (
        Formula as Formula,
        FormulaFailed as FormulaFailed,
        FormulaProblem as FormulaProblem,
        compile_formula as compile_formula,
        error_text as error_text,
    )
    from ._names import (
        NETWORK_COUNTS as NETWORK_COUNTS,
        RESERVED as RESERVED,
        AgentValues as AgentValues,
        CheckedNames as CheckedNames,
        known_names as known_names,
        of_agents as of_agents,
    )
