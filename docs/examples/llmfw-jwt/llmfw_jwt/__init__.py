"""An authenticator for llmfw: JSON web tokens."""

from llmfw.core import hookimpl


@hookimpl
def register_authenticators(register):
    register("jwt", "llmfw_jwt.authenticator:JsonWebTokens", summary="JSON web tokens", needs=("jwt",))
