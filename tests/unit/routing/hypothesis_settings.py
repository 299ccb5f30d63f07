"""Property tests that do not fail because the machine was busy."""

from hypothesis import HealthCheck, settings

unhurried = settings(suppress_health_check=[HealthCheck.too_slow])
