"""The HTTP edge: limits on connections, headers and bodies, and checks of `Host` and `Origin`."""
