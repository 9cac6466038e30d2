"""The command line: options in, tables and JSON out, no logic of its own."""
