from tests.unit.agent.tools.conftest import context, work

__all__ = ["context", "work"]
