"""Compiles clients' grammars in processes that may crash, hang or run out of memory without affecting other requests.

The API process holds a `GrammarProver` (`prover.py`), which starts one *supervisor* process (`supervisor.py`) when the
first grammar arrives. The supervisor builds the grammar backend once and then forks a child for each grammar
(`child.py`). A child prepares and compiles one grammar, tries its first steps (`trial.py`), answers and exits. `Pool`
(`pool.py`) decides which grammar is next and ends the children that take too long; `FairQueue` (`fair_queue.py`) takes
tenants in turns; `messages.py` is what travels between the processes.

Nothing here imports torch, and nothing here knows what a grammar means.
"""
