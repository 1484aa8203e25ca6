"""Runs batch jobs: answers the requests in a file while the server serves clients, and stores the results."""
