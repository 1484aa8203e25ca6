"""SGLang's native /generate."""
