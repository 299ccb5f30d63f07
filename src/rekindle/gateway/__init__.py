"""From a message that comes in to an answer that goes out: routes, turns, commands."""
