"""The page, with a real server and a real Chromium."""
