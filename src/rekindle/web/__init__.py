"""The page in the browser: sessions, projects, knowledge, processes and the gateway of this machine."""
