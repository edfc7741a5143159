"""Durable agents: which state is kept, in what form, and which work is done again after a restart.

`_kept_state` defines the form of an agent's state, `_kept_turns` the form of the turns that are kept with it,
`_durable_timers` its timers and `_keyed_requests` the answers to requests with a key. The store is in
`lmos_actors.persistence`. `lmos_actors.actors` exports what others may use.
"""
