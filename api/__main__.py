"""`python -m llmfw.api` is the `llmfw` command."""

from .cli import main

if __name__ == "__main__":
    main()
