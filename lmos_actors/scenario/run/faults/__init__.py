"""Faults of a run in any world: the faults in force, and their records in the log."""

from lmos_actors._late import late

with late(__name__):
    from ._fault_log import log_fields as log_fields, named_in_log as named_in_log
    from ._faults import (
        FaultFailed as FaultFailed,
        Faults as Faults,
        StruckFault as StruckFault,
    )
