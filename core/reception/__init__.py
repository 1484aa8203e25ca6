"""What a request meets in an engine beside being scheduled: checks, a full queue, news of its place in it, its own timeout.

No tensors: ids, numbers and times.
"""
