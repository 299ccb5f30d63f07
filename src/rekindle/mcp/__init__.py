"""The MCP server: the sessions, notes and processes of a project as tools for any agent.

Only `http` imports the MCP SDK. Everything that leaves this package went through
`quoting`: it is redacted, bounded, and marked as content of the past.
"""
