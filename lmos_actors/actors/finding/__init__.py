"""Refs to agents that are looked up, to pools, and to several agents at once.

`_registry` resolves a ref on first use, `_pool_link` chooses the member of a pool that gets a message,
`_gather` asks many agents at once, `_thing` uses an agent by names and plain data without its class. `_hold`
stops and slows agents from outside, for scenarios. `lmos_actors.actors` exports what others may use.
"""
