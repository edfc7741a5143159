"""Durable agents: which of their state is kept and in what form, and what is done again after a restart.

`_kept_state` has the form of an agent's state, `_kept_turns` the turns that are kept with it,
`_durable_timers` its timers and `_keyed_requests` the answers to requests with a key. The store is in
`lmos_actors.persistence`. `lmos_actors.actors` exports what others may use.
"""
