"""Runs batch jobs: files of requests that run alongside live traffic, with their answers written to files."""
