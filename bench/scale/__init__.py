"""PostgreSQL for many machines: appends, growth, plans and partitions."""
