"""What brings a step to a GPU: one copy of its numbers, the page table, captured steps. Knows no scheduling."""
