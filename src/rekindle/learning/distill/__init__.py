"""Ask a model to reword notes and to read wishes, and try its proposals on the project's history."""
