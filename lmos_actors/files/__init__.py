"""Strict readers of YAML, TOML and JSON, which return plain data with places and decode closed structs."""

from lmos_actors._late import late

with late(__name__):
    from ._decode import (
        UNKNOWN as UNKNOWN,
        Unknown as Unknown,
        decode as decode,
        load as load,
    )
    from ._document import (
        MAX_BYTES as MAX_BYTES,
        Document as Document,
        Format as Format,
        parse as parse,
        read as read,
        read_source as read_source,
    )
    from ._layout import (
        LayoutError as LayoutError,
        lay_out_json as lay_out_json,
        lay_out_yaml as lay_out_yaml,
    )
    from ._order import key_orders as key_orders
    from ._references import (
        KEEP as KEEP,
        REPLICA as REPLICA,
        BadReference as BadReference,
        Keep as Keep,
        Reference as Reference,
        fill as fill,
        references as references,
    )
    from ._schema import schema_of_file as schema_of_file
    from ._source import (
        DataPath as DataPath,
        FileError as FileError,
        Kind as Kind,
        Mistake as Mistake,
        Source as Source,
        did_you_mean as did_you_mean,
    )
    from ._tree import (
        Note as Note,
        inside as inside,
        is_list as is_list,
        is_mapping as is_mapping,
        listed as listed,
        mapped as mapped,
    )
    from ._types import Later as Later, TextForm as TextForm
    from ._units import Duration as Duration, Offset as Offset, Size as Size
    from ._yaml import LOADER as LOADER
