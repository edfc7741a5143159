"""Files that describe a deployment to other supervisors, and the secrets that its processes need."""

from lmos_actors._late import late

with late(__name__):
    from ._export import Kind as Kind, exported as exported
    from ._secrets import secrets_of as secrets_of
    from ._source import ExportOptions as ExportOptions
