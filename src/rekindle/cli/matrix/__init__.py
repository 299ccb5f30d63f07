"""`rekindle matrix`: a Matrix server of your own."""

from . import commands as commands
from . import maintenance as maintenance
from .commands import group as group

__all__ = ["group"]
