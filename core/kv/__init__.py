"""Keys and values as a device holds them: their storage, in which dtype it is, and by what fp8 is scaled."""
