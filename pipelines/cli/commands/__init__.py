"""The commands of `statelake`, one file for those that belong together."""
