"""Parts of a turn in a conversation: what the model is told first, and who may write."""
