"""Messages of other frameworks as ours, and back without loss."""
