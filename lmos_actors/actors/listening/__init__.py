"""What agents listen to: other agents (`_follow`), topics (`_topics`) and who is in a group (`_groups`).

`lmos_actors.actors` exports what others may use.
"""
