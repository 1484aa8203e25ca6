"""Settings as users give them: on the command line, in the environment, or in a config file.

The options are derived from the declarations in the config structs. Components declare options of their own.
"""
