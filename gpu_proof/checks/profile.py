"""A plug-in of pytest for all its processes: tests may compile for as long as they need."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def pytest_configure() -> None:
    """Tries the same examples each time, without a limit of time for one."""
    settings.register_profile("proof", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    settings.load_profile("proof")
