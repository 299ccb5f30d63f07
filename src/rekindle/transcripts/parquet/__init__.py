"""Sessions as Parquet files for analysis: written from a store, read with DuckDB."""
