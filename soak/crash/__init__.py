"""Writers that are killed while they append to a store."""
