"""What happens to a message between the platform and the inbox: files, quotes, groups, edits."""
