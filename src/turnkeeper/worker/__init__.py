"""The program in which people's own functions take their turns: `python -m turnkeeper.worker`.

It runs in a process of its own and speaks JSON lines on stdio with `turnkeeper.wire.worker`. It
needs nothing but the standard library, so that it starts fast and fits into any environment.
"""
