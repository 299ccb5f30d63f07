"""Record the calls of model clients as sessions."""
