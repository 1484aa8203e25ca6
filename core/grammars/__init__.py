"""Tries out clients' grammars in child processes, which may crash or hang without affecting other requests.

A grammar is *proved* here, that is, compiled and tried out, before the engine compiles it. The API process
holds a `GrammarProver` (`prover.py`), which starts one *supervisor* process (`supervisor.py`) when the first
grammar arrives. The supervisor builds the grammar backend once and forks child processes (`child.py`). A
child prepares and compiles grammars one at a time, runs the first steps of each (`trial.py`), and returns a
verdict. `Pool` (`pool.py`) chooses the next grammar and kills children that take too long; `FairQueue` of
`core.ipc` serves tenants in turns; `messages.py` defines the messages between the processes.

This package does not import torch. Only the grammar backend interprets grammars.
"""
