"""The HTTP edge: limits on connections, heads and bodies, and which hosts and origins are answered."""
