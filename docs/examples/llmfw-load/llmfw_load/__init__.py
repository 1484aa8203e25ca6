"""How busy a llmfw server is: a route for load balancers, and a command for people."""

from llmfw.core import hookimpl


@hookimpl
def register_routes(register):
    register("llmfw_load.route:load")


@hookimpl
def register_commands(cli):
    from .command import load_command

    cli.add_command(load_command)
