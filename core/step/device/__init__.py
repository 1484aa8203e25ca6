"""Device side of a step: staging of inputs, the device's page table, and step timing."""
