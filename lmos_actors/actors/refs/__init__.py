"""Refs, which point to agents, and the path of a request to its agent.

`_ref` has `Ref` and `Call`, which callers hold, and `_link` the interface behind a ref: a slot of this node,
a lookup, a pool or a connection. `_forwarding` is the base of links that pass requests on to other links:
`_retrying` repeats a request within its deadline; `_after_kept` sends a run's requests once its agent's state
is kept. `lmos_actors.actors` exports what others may use.
"""
