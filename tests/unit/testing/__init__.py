"""Tests of the help for tests: what proves the rest must itself be proven."""
