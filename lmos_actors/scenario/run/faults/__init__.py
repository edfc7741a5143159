"""Faults of a run, whatever world they strike: what is in force, and how the log says so."""

from lmos_actors._late import late

with late(__name__):
    from ._fault_log import log_fields as log_fields, named_in_log as named_in_log
    from ._faults import (
        FaultFailed as FaultFailed,
        Faults as Faults,
        StruckFault as StruckFault,
    )
