"""`rekindle tenants`: organisations that share this store's server."""

from . import keys as keys
from . import members as members
from . import person as person
from .commands import group as group

__all__ = ["group"]
