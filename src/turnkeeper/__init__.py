"""Turnkeeper runs AI agents for people and programs, and keeps every turn honest."""
