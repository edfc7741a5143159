"""Approvals: questions of agents to people, the list of waiting questions, and who decided each."""

from lmos_actors._late import late

with late(__name__):
    from ._agent import NAME as NAME, QUESTION_CHANGED as QUESTION_CHANGED, Approvals as Approvals
    from ._askers import Askers as Askers
    from ._clocks import Clock as Clock, Clocks as Clocks, standing_still as standing_still
    from ._desk import ApprovalDesk as ApprovalDesk, approvals_spec as approvals_spec
    from ._kept import Approval as Approval
    from ._offers import Offer as Offer, Offers as Offers
    from ._options import ApprovalOptions as ApprovalOptions
