"""Thing, Agent and Tool Descriptions: model, checks, forms, comparison; data schemas of Python types."""

from lmos_actors._late import late

with late(__name__):
    from ._check import check as check, load_usable as load_usable
    from ._compare import differences as differences
    from ._compatibility import Difference as Difference, Weight as Weight
    from ._findings import Finding as Finding, Severity as Severity
    from ._forms import (
        ACTION_OPS as ACTION_OPS,
        EVENT_OPS as EVENT_OPS,
        JSON as JSON,
        LINES as LINES,
        OCTETS as OCTETS,
        PREFERENCE as PREFERENCE,
        PROPERTY_OPS as PROPERTY_OPS,
        SUBPROTOCOL as SUBPROTOCOL,
        THING_OPS as THING_OPS,
        AnyAffordance as AnyAffordance,
        choose as choose,
        default_ops as default_ops,
        effective_forms as effective_forms,
        lmos_form as lmos_form,
        method_of as method_of,
        served_ops as served_ops,
        with_forms as with_forms,
    )
    from ._kotlin_wot import check_for_kotlin_wot as check_for_kotlin_wot
    from ._model import (
        AGENT_TYPE as AGENT_TYPE,
        AGENT_TYPES as AGENT_TYPES,
        EXTENSIONS_PREFIX as EXTENSIONS_PREFIX,
        EXTENSIONS_URI as EXTENSIONS_URI,
        LMOS_CONTEXT_URI as LMOS_CONTEXT_URI,
        LMOS_PREFIX as LMOS_PREFIX,
        OFFERS as OFFERS,
        OLD_TD_CONTEXT_URI as OLD_TD_CONTEXT_URI,
        SCHEMA_WORDS as SCHEMA_WORDS,
        TD_CONTEXT_URI as TD_CONTEXT_URI,
        TOOL_TYPE as TOOL_TYPE,
        TOOL_TYPES as TOOL_TYPES,
        ActionAffordance as ActionAffordance,
        Affordance as Affordance,
        Description as Description,
        EventAffordance as EventAffordance,
        Form as Form,
        Link as Link,
        Metadata as Metadata,
        ModelInfo as ModelInfo,
        PropertyAffordance as PropertyAffordance,
        SecurityScheme as SecurityScheme,
        Stream as Stream,
        Streams as Streams,
        Vendor as Vendor,
        default_context as default_context,
        dump as dump,
        dump_text as dump_text,
        load as load,
    )
    from ._reading import (
        MAX_BYTES as MAX_BYTES,
        DescriptionError as DescriptionError,
        Place as Place,
        pointer as pointer,
    )
    from ._schema import (
        SECRET_MARK as SECRET_MARK,
        SchemaError as SchemaError,
        is_any as is_any,
        schema_of as schema_of,
        type_name as type_name,
        type_tree as type_tree,
        without_notes as without_notes,
    )
    from ._uris import expand as expand, is_uri as is_uri, resolve as resolve, variables_of as variables_of
