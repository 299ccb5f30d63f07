"""Hooks of other agents: give them what their project's sessions learned, and import their sessions.

agent → launcher in the home (command.py) → client.py → the helper of this home, or a new one
"""
