"""The parts that deployment and scenario files share: agents, classes, values, and the tree."""

from lmos_actors._late import late

with late(__name__):
    from ._agent_classes import (
        Targets as Targets,
        add_made_class as add_made_class,
    )
    from ._cell_names import (
        NAME as NAME,
        NAMED as NAMED,
        USED as USED,
        CellNames as CellNames,
        is_durable_class as is_durable_class,
    )
    from ._fields import (
        AgentField as AgentField,
        accepts as accepts,
        acts_by_itself as acts_by_itself,
        by_state_name as by_state_name,
        classes_named_by as classes_named_by,
        discovers_agents as discovers_agents,
        fields_of_agent as fields_of_agent,
    )
    from ._hub_names import (
        NO_VOTING as NO_VOTING,
        VOTE as VOTE,
        all_steps as all_steps,
    )
    from ._identity_validator import (
        IdentityValidator as IdentityValidator,
    )
    from ._node_validator import (
        GROUPS as GROUPS,
        NEEDED as NEEDED,
        NODES as NODES,
        OF_SYSTEM as OF_SYSTEM,
        NodeValidator as NodeValidator,
    )
    from ._relay_options import (
        relay_options as relay_options,
    )
    from ._remote_access import (
        RemoteAccess as RemoteAccess,
        credentials_key as credentials_key,
        hide_secrets as hide_secrets,
        unusable_access as unusable_access,
    )
    from ._system import (
        System as System,
        key_of as key_of,
        paths as paths,
    )
    from ._targets import (
        Accepts as Accepts,
        import_function as import_function,
        import_target as import_target,
    )
    from ._tree_builder import (
        Places as Places,
        TreeBuilder as TreeBuilder,
        backoff_of as backoff_of,
        has_ref as has_ref,
        root_spec as root_spec,
        start_spec as start_spec,
    )
    from ._untyped import (
        untyped_class as untyped_class,
    )
    from ._used_tree import (
        UsedTree as UsedTree,
        absolute as absolute,
        keywords_of as keywords_of,
        supervisor_paths as supervisor_paths,
        unfolded as unfolded,
        use_tree as use_tree,
    )
    from ._value_validator import (
        ValueValidator as ValueValidator,
        event_schema as event_schema,
        input_schema as input_schema,
        is_stream as is_stream,
        output_schema as output_schema,
        place_schema as place_schema,
        property_schema as property_schema,
        tables_of as tables_of,
    )
