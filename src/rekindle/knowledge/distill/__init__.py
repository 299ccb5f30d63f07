"""What a model may make of notes and of what users said, and how its proposals are checked."""
