"""The tools an agent may call, one file each; `standard` lists them, `tool` says what a tool is."""
