"""What is made from the source: the reference pages under docs/reference/."""
