"""Thing Descriptions: data schemas of Python types."""

from ._schema import (
    SchemaError as SchemaError,
    is_any as is_any,
    schema_of as schema_of,
    type_name as type_name,
    type_tree as type_tree,
)
