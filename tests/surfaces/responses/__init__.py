"""The Responses API, with the `openai` client."""
