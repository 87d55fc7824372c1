"""What people and machines can see of a running Turnkeeper: metrics, logs, spans, diagnoses.

Everything here looks on: it changes no run, and its faults are its own.
"""
