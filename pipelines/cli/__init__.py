"""The `statelake` command.

`main` is its entry point and lists the commands; each command is a module in `commands/`, which
reads options, calls the library, and prints; `options` has those that several commands share,
`engine_options` those of commands that an engine works for, `help` lists the usual ones first, and
`settings` is the file that stands for some; `demo/` is the guided tour with its savepoints.

A new command is a module in `commands/` and a line in `main`.
"""
