"""All scenarios, in the order of the table."""

from tests.conformance.drivers import faults, stops, turns
from tests.conformance.drivers.scenario import SCENARIOS, Scenario

MODULES = (turns, stops, faults)
"""Imported for the scenarios that they list."""

__all__ = ["MODULES", "SCENARIOS", "Scenario"]
