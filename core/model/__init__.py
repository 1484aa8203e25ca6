"""From a checkpoint to a model that attends by our backends: loaded, probed, its modules merged, replaced and packed.

Knows transformers' models, and nothing of requests or steps.
"""
