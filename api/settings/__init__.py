"""Settings as users give them: options of the command line, the environment and a config file, made of the declarations
in the config structs; and the options of components."""
