"""Refs: what points to an agent, and what becomes of a request on its way to it.

`_ref` has `Ref` and `Call`, which callers hold, and `_link` what is behind a ref: a slot of this node, a
lookup, a pool or a connection. `_forwarding` is the base of links that hand on to others: `_retrying` tries a
request again within its deadline; `_after_kept` sends what a run puts out once its agent's state is kept.
`lmos_actors.actors` exports what others may use.
"""
