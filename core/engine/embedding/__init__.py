"""The engine that embeds: it computes one vector for each prompt of a request."""
