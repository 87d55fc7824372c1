"""Small programs that speak each agent protocol on stdio, and do what they are told."""
