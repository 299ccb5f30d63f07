"""The tools an agent can call, one file each. `builtin` lists them; `tool` defines what a tool is."""
