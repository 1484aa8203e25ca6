"""Several engines behind one client: which one runs a request, and what all of them are told and asked."""
