"""Sessions as OpenTelemetry spans: build them, encode them, and send them to a collector."""
