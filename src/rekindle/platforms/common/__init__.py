"""What several platforms need: a memory on disk, acknowledgements, retries and Markdown."""
