"""How requests and replies look in HTTP: bodies, errors, streams of events, pages of lists, and the OpenAPI document."""
