"""The servers that llmfw is measured against: how each is installed, and how it is started.

A module for each; `catalog` lists them. What runs in a peer's own environment is below `inside/`, as it may import
nothing of ours. `docs/benchmarks/install_peers.py` installs, `docs/benchmarks/bench_peers.py` measures.
"""
