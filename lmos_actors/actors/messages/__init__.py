"""Messages to agents, from the sender's call to the answer; `lmos_actors.actors` exports what others may use.

`_operation` describes what an agent can be asked to do, `_mailbox` the items that wait in its mailbox,
`_invocation` the runs of its actions, `_output_queue` the consumer's side of a stream. `_observers` has the
feeds of values, `_monitor` the notices that an incarnation has ended. `_gates` numbers the states of a slot.
"""
