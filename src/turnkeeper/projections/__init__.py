"""Events in, foreign shapes out: what each surface shows of a session, and nothing else."""
