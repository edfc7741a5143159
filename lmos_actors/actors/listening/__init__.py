"""Subscriptions of agents to other agents (`_follow`) and to topics (`_topics`), and groups (`_groups`).

`lmos_actors.actors` exports what others may use.
"""
