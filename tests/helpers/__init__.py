"""What the tests share: a session driven by hand, and typed fakes of the ports."""
