"""The demo, and the savepoints that it runs on."""
