"""Import and refresh against their raw floors."""
