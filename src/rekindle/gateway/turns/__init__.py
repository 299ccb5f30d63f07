"""Parts of a turn in a conversation: the opening, and who may write."""
