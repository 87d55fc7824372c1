"""Help for tests, public: virtual time, a scripted agent, faults on purpose, and the simulator.

- `virtual.run(coro)` runs asyncio code on virtual time: an hour's wait costs nothing, and a
  program that can never go on raises `Deadlock`. `virtual.VirtualClock` is the clock for it.
- `scripted.ScriptedAgent` is an agent that does exactly what a `script.Script` says, with real
  bytes, whole and half lines, a stdin that may freeze, and a tree that may refuse to die.
- `faults.FaultyStore` is a store that is slow, fails or lies; `faults.Server` can be cut off in
  the middle of anything, like a server that is killed.
- `simulator` drives the real core and runtime through seeded worlds made of these, and checks
  every promise after every step: `python -m turnkeeper.testing.simulator --seeds 1000`.
- `model` is a scripted model API on loopback, for driving real agents offline.

It must not know any driver. Invariant: nothing here waits for real time or draws a number that a
seed does not give.
"""
