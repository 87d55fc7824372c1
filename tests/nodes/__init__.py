"""Several servers on one PostgreSQL: whatever happens to one of them, the others go on."""
