"""`rekindle gateway`: run it, inspect it, and decide who may talk to it."""

from . import access as access  # adds its commands to the group
from . import deliver as deliver
from . import memory as memory
from . import schedule as schedule
from . import setup as setup
from .commands import group as group
