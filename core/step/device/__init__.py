"""Sends the numbers of a step to a device: one copy, the page table, the clock."""
